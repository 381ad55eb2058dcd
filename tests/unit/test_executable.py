from __future__ import annotations

import json
import mmap
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from executable_samples import PTX, SMALL_PTX, export, full, raw_executable, small

from coilpack.runtime.errors import InputError, InvalidFileError, NotFoundError
from coilpack.runtime.executable import (
    BindingFlags,
    Executable,
    SourceLocation,
    read_executable,
    unique_kernel_names,
    write_executable,
)
from coilpack.runtime.files import read_executables

SCHEMAS = Path(__file__).parents[2] / "schemas"
CUBINS = Path(__file__).parent / "data" / "cubins"
FLATC = Path(sys.executable).with_name("flatc")


def problem_of(data: bytes) -> InvalidFileError:
    with pytest.raises(InvalidFileError) as caught:
        read_executable(data, file="f.cda1")
    assert str(caught.value).startswith("f.cda1: ")
    return caught.value


# Reading what was written


def test_round_trip():
    written = full()
    read = read_executable(write_executable(written))
    assert read.modules == written.modules
    assert [(s.path, bytes(s.content)) for s in read.source_files] == [("m.py", b"pass\n")]
    symbols = ["add_one", "twice", "k"]
    assert read.exports == tuple(replace(e, symbol=s) for e, s in zip(written.exports, symbols, strict=True))
    assert (read.target, read.image_kind) == ("sm_80", "ptx")
    assert [param.size for param in read.images[0].entries["add_one"]] == [8, 8, 4]
    assert write_executable(read) == write_executable(written)


def test_bytes_are_those_of_the_released_writer():
    golden = Path(__file__).parents[1] / "compat" / "executables" / "full-0.1.0.cda1"
    data = write_executable(full())
    assert data == golden.read_bytes()
    assert data[:64] == b"CDA1" + bytes(4) + struct.pack("<Q", len(data) - 64) + bytes(48)
    assert data[68:72] == b"CDA1"


@pytest.mark.skipif(not FLATC.exists(), reason="needs flatc (extra `dev`)")
def test_flatc_reads_what_was_written(tmp_path):
    """An independent reader: flatc turns the FlatBuffer into JSON by the released schema."""
    (tmp_path / "x.cda1").write_bytes(write_executable(full())[64:])
    schema = SCHEMAS / "released" / "0.1.0" / "cuda_executable_def.fbs"
    command = [FLATC, "--json", "--strict-json", "--defaults-json", "-o", tmp_path, schema, "--", tmp_path / "x.cda1"]
    subprocess.run(command, check=True)
    found = json.loads((tmp_path / "x.json").read_text())
    assert [module["ptx_image"].encode() for module in found["modules"]] == [PTX, SMALL_PTX]
    first, second, third = found["exports"]
    assert first == {
        "module_ordinal": 0,
        "kernel_name": "add_one",
        "block_dims": {"x": 128, "y": 2, "z": 1},
        "block_shared_memory_size": 0,
        "constant_count": 1,
        "binding_flags": ["READ_ONLY", "READ_ONLY INDIRECT"],
        "export_name": "add$one",
    }
    assert "export_name" not in second
    assert second["block_shared_memory_size"] == 4096
    assert second["debug_info"] == {"location": {"filename": "m.py", "line": 7}}
    assert (third["export_name"], third["module_ordinal"]) == ("\u30ab\u30fc\u30cd\u30eb", 1)
    assert third["debug_info"] == {"name": "kernel"}
    assert bytes(found["source_files"][0]["content"]) == b"pass\n"


def test_header_is_optional():
    data = write_executable(full())
    assert read_executable(data[64:]) == read_executable(data)


def test_images_are_slices(tmp_path):
    path = tmp_path / "x.cda1"
    path.write_bytes(write_executable(full()))
    with path.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    for data in (mapped, memoryview(mapped)):
        image = read_executable(data).modules[0]
        assert isinstance(image, memoryview)
        assert image.obj is mapped


def test_large_images():
    image = PTX + b"// " + b"x" * 3_000_000 + b"\n"
    assert bytes(read_executable(write_executable(replace(full(), modules=(image, SMALL_PTX)))).modules[0]) == image


def test_long_names():
    name = "n\u00e9" * 40_000
    symbol = unique_kernel_names([name])[0]
    image = SMALL_PTX.replace(b" k(", b" " + symbol.encode() + b"(")
    read = read_executable(write_executable(Executable((image,), (export(0, symbol, name),))))
    assert read.lookup(name).symbol == symbol


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
def test_cubin_images(target):
    image = (CUBINS / f"{target}.cubin").read_bytes()
    read = read_executable(write_executable(Executable((image,), (export(0, "two$k", "two"),))))
    assert (read.target, read.image_kind, bytes(read.modules[0])) == (target, "cubin", image)


def test_target_is_the_newest():
    newer = SMALL_PTX.replace(b"sm_80", b"sm_120")
    assert read_executable(write_executable(replace(full(), modules=(PTX, newer)))).target == "sm_120"


# Names


def test_names_and_lookup():
    read = read_executable(write_executable(full()))
    assert [(e.name, e.name_source) for e in read.exports] == [
        ("add$one", "export_name"),
        ("twice", "kernel_name"),
        ("\u30ab\u30fc\u30cd\u30eb", "export_name"),
    ]
    assert [read.lookup(e.name) for e in read.exports] == list(read.exports)
    with pytest.raises(NotFoundError, match=r"has no export named 'add_one'; nearest: 'add\$one'"):
        read.lookup("add_one")  # the kernel name of an export that has an export name is no name of it


def test_colliding_names_both_work():
    names = ["a$b", "a_b"]
    symbols = unique_kernel_names(names)
    image = SMALL_PTX + SMALL_PTX.partition(b"sm_80\n")[2]
    for symbol in symbols:
        image = image.replace(b" k(", b" " + symbol.encode() + b"(", 1)
    exports = tuple(export(i, s, n) for i, (n, s) in enumerate(zip(names, symbols, strict=True)))
    read = read_executable(write_executable(Executable((image,), exports)))
    assert [read.lookup(name).symbol for name in names] == symbols
    assert len(set(symbols)) == 2


def _unnamed(count: int, debug_names: list[str | None]) -> Executable:
    exports = tuple(export(i, "k", None, debug_name=debug_names[i], symbol="k") for i in range(count))
    return Executable((SMALL_PTX,), exports)


def test_lookup_without_export_names():
    one = _unnamed(1, ["k$"])
    assert one.lookup("k") is one.lookup("k$") is one.exports[0]
    two = _unnamed(2, ["k$", "k"])
    assert two.lookup("k$") is two.exports[0]
    assert two.lookup("k") is two.exports[1]
    blind = _unnamed(2, [None, None])
    with pytest.raises(InputError, match=r"'k' is the kernel name of exports 0, 1"):
        blind.lookup("k")


# Refused when written


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"binding_flags": (BindingFlags(0),) * 17}, "17 bindings; the limit is 16"),
        ({"constant_count": 65}, "65 constants; the limit is 64"),
        ({"constant_count": -1}, "-1 constants"),
        ({"shared_memory_bytes": 2**32}, "4294967296 bytes of shared memory"),
        ({"block_dims": (0, 1, 1)}, "x is 0 threads; it must be 1 to 1024"),
        ({"block_dims": (1, 1, 65)}, "z is 65 threads; it must be 1 to 64"),
        ({"block_dims": (1024, 2, 1)}, "1024x2x1 is 2048 threads; the limit is 1024"),
        ({"module_ordinal": 1}, "its module ordinal is 1, but there are 1 modules"),
        ({"kernel_name": "k.1"}, "'k.1' is no PTX identifier"),
        ({"kernel_name": "l"}, "module 0 has no kernel 'l'; it has 'k'"),
        ({"export_name": ""}, "an export name is empty"),
        ({"export_name": "a\0"}, "holds a NUL at character 1"),
        ({"ordinal": 3}, "its ordinal is 3, but it stands at 0"),
    ],
)
def test_writer_refuses(fields, words):
    with pytest.raises(InputError) as caught:
        write_executable(Executable((SMALL_PTX,), (export(**fields),)))
    assert words in str(caught.value)


def test_writer_refuses_repeated_names():
    with pytest.raises(InputError, match=r"its kernel name 'k' is also that of export 0"):
        write_executable(Executable((SMALL_PTX,), (export(0), export(1, export_name="other"))))
    with pytest.raises(InputError, match=r"its export name 'k' is also that of export 0"):
        write_executable(Executable((PTX,), (export(0, "twice"), export(1, "add_one"))))


def test_a_program_may_have_no_kernels():
    data = write_executable(Executable((), ()))
    assert (read_executable(data).modules, read_executable(data).exports) == ((), ())
    with pytest.raises(InputError, match="0 modules"):
        write_executable(Executable((), (export(0),)))


def test_limits_themselves_are_fine():
    one = export(binding_flags=(BindingFlags(3),) * 16, constant_count=64, block_dims=(16, 1, 64))
    assert read_executable(write_executable(Executable((SMALL_PTX,), (one,)))).exports[0].constant_count == 64


# Refused when read


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("start", [b"CDA1CDA1", b"\0\0\0\0\0\0\0\0"])
def test_too_short(size, start):
    assert f"has {size} bytes" in str(problem_of(start[:size]))


def test_header_alone():
    assert "the header alone takes 64" in str(problem_of(write_executable(small())[:63]))
    assert "content size is 256 bytes, but 0 follow" in str(problem_of(write_executable(small())[:64]))


@pytest.mark.parametrize(
    ("at", "layout", "value", "words"),
    [
        (0, "4s", b"CDA2", "identifier"),
        (0, "4s", b"CUDA", "identifier"),
        (4, "<I", 1, "the version is 1; known is 0"),
        (8, "<Q", 2**64 - 1, "18446744073709551615 bytes, but 256 follow"),
        (8, "<Q", 257, "the content size is 257 bytes, but 256 follow"),
        (8, "<Q", 200, "not padding"),
        (8, "<Q", 0, "not padding"),
        (63, "<B", 1, "bytes 16 to 64 are not all zero"),
        (68, "4s", b"CDA2", "b'CDA2', expected b'CDA1'"),
    ],
)
def test_bad_header(at, layout, value, words):
    data = bytearray(write_executable(small()))
    struct.pack_into(layout, data, at, value)
    assert words in str(problem_of(bytes(data)))


def test_padding_behind_the_content_is_fine():
    data = write_executable(small())
    assert read_executable(data + bytes(40)) == read_executable(data)


RULES = {
    "module ordinal": ("export", 0, 1, "exports[0].module_ordinal", "it is 1, but there are 1 modules"),
    "block x": ("export", 2, 2000, "exports[0].block_dims", "x is 2000 threads"),
    "no block": ("export", 2, 0, "exports[0].block_dims", "x is 0 threads"),
}


@pytest.mark.parametrize("case", RULES)
def test_rules(case):
    table, slot, value, where, words = RULES[case]
    raw, tables, _ = raw_executable()
    struct.pack_into("<I", raw.data, tables[table][slot], value)
    error = problem_of(bytes(raw.data))
    assert error.where == where
    assert words in error.problem


@pytest.mark.parametrize(
    ("slot", "where"),
    [(1, "exports[0].kernel_name"), (2, "exports[0].block_dims")],
)
def test_absent_fields(slot, where):
    raw, tables, _ = raw_executable()
    struct.pack_into("<H", raw.data, tables["export"][-2] + 4 + 2 * slot, 0)
    error = problem_of(bytes(raw.data))
    assert (error.where, "absent" in error.problem) == (where, True)


def test_absent_optional_fields():
    raw, tables, _ = raw_executable()
    for slot in (0, 5, 7):
        struct.pack_into("<H", raw.data, tables["export"][-2] + 4 + 2 * slot, 0)
    found = read_executable(bytes(raw.data)).exports[0]
    assert (found.module_ordinal, found.binding_flags, found.name_source) == (0, (), "kernel_name")


def test_unknown_binding_flags():
    raw, _, parts = raw_executable()
    struct.pack_into("<Q", raw.data, parts["flags"] + 4, 5)
    error = problem_of(bytes(raw.data))
    assert (error.where, "0x5; known bits are 0x3" in error.problem) == ("exports[0].binding_flags[0]", True)


def test_too_many_bindings_and_constants():
    raw, tables, _ = raw_executable()
    raw.point(tables["export"][5], raw.vector(bytes(17 * 8), 17, 8))
    assert "there are 17; the limit is 16" in str(problem_of(bytes(raw.data)))


def test_names_hold_no_nul():
    raw, tables, _ = raw_executable()
    raw.point(tables["export"][7], raw.string(b"a\0b"))
    error = problem_of(bytes(raw.data))
    assert (error.where, "NUL" in error.problem) == ("exports[0].export_name", True)


def test_kernel_name_is_an_entry_of_the_image():
    raw, _, _ = raw_executable(name=b"l")
    error = problem_of(bytes(raw.data))
    assert error.where == "exports[0].kernel_name"
    assert "the image has no kernel 'l'; it has 'k'" in error.problem


def test_the_image_is_an_image():
    error = problem_of(bytes(raw_executable(image=b"garbage")[0].data))
    assert error.where == "modules[0].ptx_image"


def test_one_table_is_one_export():
    raw, tables, _ = raw_executable()
    targets = raw.offsets([0, 0])
    # Offsets lead forwards, so the table is laid out again behind the vector.
    table = raw.align(4)
    raw.data += raw.data[tables["export"][-1] : tables["export"][-1] + 64]
    struct.pack_into("<i", raw.data, table, table - tables["export"][-2])
    for slot in (1, 5, 7):
        content = {1: b"k", 7: b"name"}.get(slot)
        place = table + tables["export"][slot] - tables["export"][-1]
        raw.point(place, raw.string(content) if content else raw.vector(bytes(8), 1, 8))
    raw.point(targets + 4, table)
    raw.point(targets + 8, table)
    raw.point(tables["root"][0], targets)
    error = problem_of(bytes(raw.data))
    assert (error.where, "same table as exports[0]" in error.problem) == ("exports[1]", True)


def test_repeated_export_names():
    data = write_executable(Executable((PTX,), (export(0, "twice", "aa"), export(1, "add_one", "bb"))))
    error = problem_of(data.replace(b"aa\0", b"bb\0"))
    assert error.where == "exports[1].export_name"
    assert "'bb' is also that of exports[0]" in error.problem


# Symbols that LLVM made unique with a dot (tests/compat has files of IREE's with them)

DOTTED = b""".version 7.6
.target sm_80
.entry k.1(.param .u64 k.1_param_0) { ld.param.b64 %rd1, [k.1_param_0]; ret; }
.entry k(.param .u64 k_param_0) { ld.param.b64 %rd1, [k_param_0]; mov.f64 %d, 1.5; ret; }
.entry k_1(.param .u64 k_1_param_0) { ret; }
"""


def test_dotted_symbols_are_rewritten():
    raw, tables, _ = raw_executable(image=DOTTED)
    targets = raw.offsets([0, 0, 0])
    raw.point(tables["root"][0], targets)
    for index, name in enumerate((b"k", b"k", b"k_1")):
        entry = raw.table((1, bytes(4)), (2, struct.pack("<3I", 1, 1, 1)))
        raw.point(targets + 4 + 4 * index, entry[-1])
        raw.point(entry[1], raw.string(name))
    # The image stands before the vector of exports; that is allowed.
    read = read_executable(bytes(raw.data))
    assert [(e.kernel_name, e.symbol) for e in read.exports] == [("k", "k_1_"), ("k", "k"), ("k_1", "k_1")]
    image = bytes(read.modules[0])
    assert image == DOTTED.replace(b"k.1", b"k_1_")
    assert list(read.images[0].entries) == ["k_1_", "k", "k_1"]
    rewritten = read_executable(write_executable(read))
    assert [e.kernel_name for e in rewritten.exports] == ["k_1_", "k", "k_1"]


# Files


def test_read_executables(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(write_executable(full()))
    assert [e.file for e in read_executables(path)] == [str(path)]
    path.write_bytes(write_executable(full())[64:])
    assert len(read_executables(path)[0].exports) == 3
    for content in (b"", b"abc", bytes(100)):
        path.write_bytes(content)
        with pytest.raises(InvalidFileError, match="executable"):
            read_executables(path)
    for content in (b"PK\x03\x04", b"PK\x03\x04" + bytes(60)):  # taken for a package, which it is not either
        path.write_bytes(content)
        with pytest.raises(InvalidFileError):
            read_executables(path)
    with pytest.raises(InvalidFileError, match="cannot be opened: No such file"):
        read_executables(tmp_path / "absent")
    with pytest.raises(InvalidFileError, match="cannot be opened: Is a directory"):
        read_executables(tmp_path)


def test_locations_survive():
    read = read_executable(write_executable(small()))
    assert read.exports[0].location == SourceLocation("m.py", 3)
    assert read.exports[0].debug_name == "k"
