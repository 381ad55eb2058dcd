from __future__ import annotations

import struct
import time
import tracemalloc

import pytest
from executable_samples import Raw, full, raw_executable

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable import write_executable
from coilpack.runtime.verifier import Limits, Schema, verify

SCHEMA = Schema.load("cuda_executable_def")


def problem_of(data: bytes, **options: object) -> InvalidFileError:
    with pytest.raises(InvalidFileError) as caught:
        verify(data, SCHEMA, file="f.cda1", **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith("f.cda1")
    return caught.value


def test_accepts_what_is_valid():
    verify(bytes(raw_executable()[0].data), SCHEMA, file="f")
    content = write_executable(full())[64:]
    for kind in (bytes, bytearray, memoryview):
        verify(kind(content), SCHEMA, file="f")


@pytest.mark.parametrize("size", range(8))
def test_too_short(size):
    assert f"it has {size} bytes; a FlatBuffer has at least 8" in str(problem_of(bytes(size)))


def test_identifier():
    error = problem_of(b"\x08\0\0\0CDA2" + bytes(24))
    assert error.where == "bytes 4 to 8"
    assert "b'CDA2', expected b'CDA1'" in str(error)


@pytest.mark.parametrize(("offset", "words"), [(0, "is 0"), (1 << 30, "past the limit"), (13, "not a multiple of 4")])
def test_broken_root(offset, words):
    data = raw_executable()[0].data
    struct.pack_into("<I", data, 0, offset)
    error = problem_of(bytes(data))
    assert error.where == "ExecutableDef"
    assert words in error.problem


# Case: (table, slot, offset written there, field path, words of the message)
FIELDS = {
    "exports vector outside": ("root", 0, 0x7FFFFFF0, "exports", "past the limit"),
    "exports vector at itself": ("root", 0, 0, "exports", "is 0"),
    "kernel name outside": ("export", 1, 0xFFFFFFFC, "exports[0].kernel_name", "past the limit"),
    "kernel name unaligned": ("export", 1, 0x12 + 1, "exports[0].kernel_name", "not a multiple of 4"),
    "export name outside": ("export", 7, 100_000, "exports[0].export_name", "past the limit"),
    "flags outside": ("export", 5, 100_000, "exports[0].binding_flags", "past the limit"),
    "image outside": ("module", 0, 100_000, "modules[0].ptx_image", "past the limit"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_broken_offset(case):
    table, slot, value, where, words = FIELDS[case]
    raw, tables, _ = raw_executable()
    struct.pack_into("<I", raw.data, tables[table][slot], value)
    error = problem_of(bytes(raw.data))
    assert error.where == where
    assert words in error.problem


# Case: (part, length written there, field path, words of the message)
LENGTHS = {
    "exports": ("exports", 0xFFFFFFFF, "exports", "4294967295 elements of 4 bytes"),
    "exports overlong": ("exports", 1000, "exports", "do not fit"),
    "flags wrap": ("flags", 0x20000001, "exports[0].binding_flags", "elements of 8 bytes"),
    "name": ("kernel_name", 0x7FFFFFFF, "exports[0].kernel_name", "do not fit"),
    "image": ("ptx", 0xFFFFFFFF, "modules[0].ptx_image", "do not fit"),
    "terminator": ("kernel_name", 2, "exports[0].kernel_name", "not with 0"),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_broken_length(case):
    part, value, where, words = LENGTHS[case]
    raw, _, parts = raw_executable()
    if case == "terminator":
        raw.data[parts[part] + 5 : parts[part] + 8] = b"abc"
    struct.pack_into("<I", raw.data, parts[part], value)
    error = problem_of(bytes(raw.data))
    assert error.where == where
    assert words in error.problem


def test_string_without_room_for_its_terminator():
    raw, _, parts = raw_executable()
    end = parts["ptx"] + 4 + struct.unpack_from("<I", raw.data, parts["ptx"])[0]
    error = problem_of(bytes(raw.data[:end]))
    assert (error.where, "no room for its terminator" in error.problem) == ("modules[0].ptx_image", True)


def test_text_is_utf8_and_images_are_not():
    raw, _, parts = raw_executable(image=b"\x7fELF\xff\xfe")
    verify(bytes(raw.data), SCHEMA, file="f")
    raw.data[parts["export_name"] + 4] = 0xFF
    error = problem_of(bytes(raw.data))
    assert error.where == "exports[0].export_name"
    assert "not UTF-8" in error.problem


def _vtable(raw: Raw, table: dict[int, int], at: int, value: int) -> bytes:
    struct.pack_into("<H", raw.data, table[-2] + at, value)
    return bytes(raw.data)


@pytest.mark.parametrize(
    ("at", "value", "where", "words"),
    [
        (0, 2, "exports[0]", "vtable"),
        (0, 7, "exports[0]", "vtable"),
        (0, 0xFFF0, "exports[0]", "out of bounds"),
        (2, 2, "exports[0]", "below 4"),
        (2, 0xFFF0, "exports[0]", "out of bounds"),
        (4, 0xFFF0, "exports[0].module_ordinal", "of a table of"),
        (4, 2, "exports[0].module_ordinal", "lies at byte 2"),
        (4, 6, "exports[0].module_ordinal", "not aligned to 4"),
        (6, 0xFFF0, "exports[0].kernel_name", "of a table of"),
        (6, 5, "exports[0].kernel_name", "not aligned to 4"),
        (8, 40, "exports[0].block_dims", "takes 12"),
    ],
)
def test_broken_vtable(at, value, where, words):
    raw, tables, _ = raw_executable()
    error = problem_of(_vtable(raw, tables["export"], at, value))
    assert error.where == where
    assert words in error.problem


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1, -100_000, 100_000, 1])
def test_vtable_offset(value):
    raw, tables, _ = raw_executable()
    struct.pack_into("<i", raw.data, tables["export"][-1], value)
    assert problem_of(bytes(raw.data)).where.startswith("exports[0]")


def test_vectors_of_scalars_are_aligned():
    raw, tables, _ = raw_executable()
    at = raw.align(8)
    raw.data += struct.pack("<IQ", 1, 1) + bytes(4)  # the element lies at 4 modulo 8
    raw.point(tables["export"][5], at)
    error = problem_of(bytes(raw.data))
    assert (error.where, "aligned to 8" in error.problem) == ("exports[0].binding_flags", True)


def test_unknown_fields_of_newer_files_are_not_followed():
    raw = Raw()
    root = raw.table((0, bytes(4)), (9, struct.pack("<I", 0xFFFFFFFF)))
    raw.point(root[0], raw.offsets([]))
    verify(raw.root(root[-1]), SCHEMA, file="f")


def test_size_prefix():
    content = write_executable(full())[64:]
    # A prefix of 8 bytes would keep alignment; 4 bytes shift it, so check the announced size alone here.
    data = struct.pack("<I", len(content) + 1) + content
    assert "its size prefix says" in str(problem_of(data, size_prefixed=True))
    assert "at least 12" in str(problem_of(bytes(11), size_prefixed=True))
    assert "its size prefix says 4 bytes" in str(problem_of(bytes(40), size_prefixed=True))


def test_limits():
    content = write_executable(full())[64:]
    assert "deeper than the limit of 1" in problem_of(content, limits=Limits(max_depth=1)).problem
    assert "more tables than the limit of 3" in problem_of(content, limits=Limits(max_tables=3)).problem


def test_required_fields_and_unions():
    schema = Schema.load("program_def")
    raw = Raw(b"CLP1")
    root = raw.table((0, struct.pack("<I", 1)))
    with pytest.raises(InvalidFileError, match=r"f: producer: a required field is absent"):
        verify(raw.root(root[-1]), schema, file="f")

    def operation(kind: int, with_value: bool) -> bytes:
        raw = Raw(b"CLP1")
        root = raw.table((1, bytes(4)), (4, bytes(4)))
        raw.point(root[1], raw.string(b"p"))
        targets = raw.offsets([0])
        raw.point(root[4], targets)
        target = raw.table((0, bytes(4)), (3, bytes(4)))
        raw.point(targets + 4, target[-1])
        raw.point(target[0], raw.string(b"sm_80"))
        functions = raw.offsets([0])
        raw.point(target[3], functions)
        function = raw.table((2, bytes(4)))
        raw.point(functions + 4, function[-1])
        operations = raw.offsets([0])
        raw.point(function[2], operations)
        fields = [(0, bytes([kind]))] + ([(1, bytes(4))] if with_value else [])
        op = raw.table(*fields)
        raw.point(operations + 4, op[-1])
        if with_value:
            raw.point(op[1], raw.table((0, bytes(4)), (1, bytes(4)))[-1])
        return raw.root(root[-1])

    verify(operation(5, True), schema, file="f")
    where = r"f: targets\[0\].functions\[0\].operations\[0\].body: "
    for kind, with_value, words in [
        (5, False, "a required field is absent"),
        (0, True, "its type is 0, but its value is present"),
        (200, True, "its type is 200; known are 1 to"),
    ]:
        with pytest.raises(InvalidFileError, match=where + words):
            verify(operation(kind, with_value), schema, file="f")


def _bomb(width: int) -> bytes:
    """Tables that all refer to one long vector of offsets to one table: quadratic work for a naive verifier."""
    raw = Raw()
    root = raw.table((0, bytes(4)))
    exports = raw.offsets([0] * width)
    raw.point(root[0], exports)
    first = raw.table((6, bytes(4)))
    entries = [first[-1]]
    holders = [first[6]]
    for _ in range(width - 1):
        at = raw.align(4)
        raw.data += struct.pack("<i", at - first[-2]) + bytes(4)
        entries.append(at)
        holders.append(at + 4)
    for index, entry in enumerate(entries):
        raw.point(exports + 4 + 4 * index, entry)
    debug = raw.table((2, bytes(4)))
    for holder in holders:
        raw.point(holder, debug[-1])
    stages = raw.offsets([0] * width)
    raw.point(debug[2], stages)
    stage = raw.table()
    for index in range(width):
        raw.point(stages + 4 + 4 * index, stage[-1])
    return raw.root(root[-1])


def test_shared_parts_are_checked_once():
    data = _bomb(20_000)
    start = time.perf_counter()
    verify(data, SCHEMA, file="f")
    assert time.perf_counter() - start < 5  # 20,000 squared would take minutes


def test_overlapping_parts_run_out_of_budget():
    # Strings at every fourth byte, of 20,480 bytes each: together far larger than the buffer.
    raw = Raw()
    root = raw.table((2, bytes(4)))
    count = 3000
    files = raw.offsets([0] * count)
    raw.point(root[2], files)
    places = []
    for index in range(count):
        table = raw.table((0, bytes(4)))
        raw.point(files + 4 + 4 * index, table[-1])
        places.append(table[0])
    base = raw.align(4)
    raw.data += struct.pack("<I", 0x5000) * count + bytes(0x5000)
    for index, place in enumerate(places):
        raw.point(place, base + 4 * index)
    error = problem_of(raw.root(root[-1]))
    assert "overlap" in error.problem
    assert error.where.startswith("source_files[")


def test_memory_and_time_of_large_strings():
    raw, _, _ = raw_executable(image=b"x" * 5_000_000)
    data = bytes(raw.data)
    verify(data, SCHEMA, file="f")
    tracemalloc.start()
    start = time.perf_counter()
    verify(data, SCHEMA, file="f")
    elapsed = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(data)
    assert elapsed < 0.5
