from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from executable_samples import small
from vmfb_samples import module

from coilpack.cli.describe_module import describe_module
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable import write_executable
from coilpack.runtime.vmfb import VmFunction, is_vmfb, read_vmfb
from coilpack.runtime.vmfb.calling_convention import call_types
from coilpack.runtime.vmfb.strings import find_parameters, find_query
from coilpack.schemas import wire

GOLDEN = Path(__file__).parents[1] / "compat" / "iree" / "names_dyn-3.13.0.vmfb"


FILE = write_executable(small())


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("content", [FILE, FILE[64:]], ids=["header", "bare"])
def test_embedded_and_external(zipped, content):
    for data in (
        module(b"cuda", content, zipped=zipped),
        module(b"cuda", external=((64, len(content)),), behind=bytes(64) + content, zipped=zipped),
    ):
        assert is_vmfb(data)
        found = read_vmfb(data)
        assert [executable.exports[0].name for executable in found.executables] == ["k$\u00e9"]
        assert (found.module_name, [function.name for function in found.functions]) == ("module", ["f"])


def test_no_executables():
    assert read_vmfb(module(b"", b"CDA", b"x" * 80)).executables == ()


def test_the_same_data_twice_is_one_executable():
    data = module(external=((0, len(FILE)),) * 3, behind=FILE)
    assert len(read_vmfb(data).executables) == 1


def test_external_data_out_of_bounds():
    for offset, length in [(0, len(FILE) + 1), (1 << 63, 1 << 63), (2**64 - 1, 2), (1, len(FILE))]:
        with pytest.raises(InvalidFileError, match=r"m: rodata_segments\[0\]: .* do not fit"):
            read_vmfb(module(external=((offset, length),), behind=FILE), file="m")


def test_overlapping_executables():
    content = FILE + bytes(4096)
    segments = tuple((0, len(FILE) + 64 * index) for index in range(3))
    assert len(read_vmfb(module(external=segments, behind=content)).executables) == 1
    # A bare FlatBuffer inside one with a header is a second place.
    with pytest.raises(InvalidFileError, match="overlap"):
        read_vmfb(module(external=((0, len(content)), (64, len(content) - 64)), behind=content))


def test_a_bad_executable_is_named():
    with pytest.raises(InvalidFileError, match=r"m\.vmfb: rodata_segments\[1\]: modules\[0\]\.ptx_image"):
        read_vmfb(module(b"x", FILE.replace(b".target", b".tar_et")), file="m.vmfb")


def test_functions_are_checked():
    nameless = module(FILE).replace(b"\x01\0\0\0f\0", b"\0\0\0\0\0\0")
    with pytest.raises(InvalidFileError, match=r"exported_functions\[0\].local_name: it is absent or empty"):
        read_vmfb(nameless)
    for ordinal in (-1, 1, 2**31 - 1):
        with pytest.raises(InvalidFileError, match=rf"internal_ordinal: it is {ordinal}, but there are 1 function"):
            read_vmfb(module(FILE, ordinal=ordinal))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 29, 30, 63, 64, 68, 75])
def test_truncated(size):
    data = GOLDEN.read_bytes()[:size]
    with pytest.raises(InvalidFileError):
        read_vmfb(data)


@pytest.mark.parametrize(
    ("convention", "arguments", "results"),
    [
        ("0v_v", (), ()),
        ("0_", (), ()),
        ("0rI_r", ("!vm.ref<?>", "i64"), ("!vm.ref<?>",)),
        ("0ifFCiD_i", ("i32", "f32", "f64", "tuple<i32>..."), ("i32",)),
        ("0rCirIDCID_", ("!vm.ref<?>", "tuple<i32, !vm.ref<?>, i64>...", "tuple<i64>..."), ()),
    ],
)
def test_calling_conventions(convention, arguments, results):
    assert call_types(convention) == (arguments, results)


@pytest.mark.parametrize(
    "convention", ["", "1r_r", "r_r", "0x_r", "0r_x", "0iv_v", "0Ci_v", "0CCiDD_v", "0D_v", "0CCD_v"]
)
def test_unknown_calling_conventions(convention):
    assert call_types(convention) is None


ELF, VMVX = "embedded-elf-x86_64", "vmvx-bytecode-fb"
ASKS = ("hal.device.id", "local*", "hal.executable.format")


@pytest.mark.parametrize(
    ("texts", "devices", "formats"),
    [
        ((), (), ()),
        (("hal.device.id", "cuda", None), ("cuda",), ()),
        (("x-fb", *ASKS, ELF, None, VMVX), ("local*",), (ELF,)),
        ((*ASKS, ELF, VMVX, None), ("local*",), (ELF, VMVX)),
        ((*ASKS, ELF, "input0", "tensor"), ("local*",), (ELF,)),
        (("cuda", "hal.device.id", "hal.executable.format", "cuda-nvptx-fb", None), (), ("cuda-nvptx-fb",)),
    ],
)
def test_what_devices_are_asked(texts, devices, formats):
    assert find_query(texts) == (devices, formats)


def keys(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<2I", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("segments", "scopes", "found"),
    [
        ([keys((0, 1), (1, 2)), b"abc", bytes(48), b"scope"], ("scope",), ("a", "bc")),
        ([b"scope", b"hal.device.id", keys((0, 3)), b"abc", bytes(24), b"other"], ("scope",), ("abc",)),
        ([b"scope", b"hal.device.id", b"cuda"], ("scope",), ()),
        ([keys((0, 3)), b"abc", bytes(24), b"input0"], (), ("abc",)),
        ([keys((0, 3)), b"abc", bytes(48), b"scope"], (), ("abc",)),  # ranges of two: those of others
        ([keys((0, 3)), "\u00e9a".encode()], (), ("\u00e9a",)),
        ([keys((0, 1), (1, 2)), "\u00e9a".encode()], (), ()),  # cut inside a character
        ([keys((0, 2)), b"abc"], (), ()),
        ([keys((0, 1), (2, 1)), b"abc"], (), ()),
        ([keys((0, 3), (3, 0)), b"abc"], (), ()),
        ([keys((0, 3), (0, 3)), b"abc"], (), ()),
        ([keys((0, 2**32 - 1)), b"abc"], (), ()),
        ([keys((0, 3))[:-1], b"abc"], (), ()),
        ([b"", b"abc"], (), ()),
        ([keys((0, 3))], (), ()),
        ([bytes(80), b"", keys((0, 3)), b"abc"], (), ()),  # beyond what may be looked at
    ],
)
def test_parameters(segments, scopes, found):
    texts = [segment.decode() if segment.isalnum() or b"." in segment else None for segment in segments]
    views = [memoryview(segment) for segment in segments]
    first = texts[:1] == ["scope"]
    assert find_parameters(views, texts, {"input0"}, room=80, scopes_first=first) == (scopes, found)


def test_too_many_segments(monkeypatch):
    monkeypatch.setattr(wire, "MAX_MODULE_ITEMS", 2)
    assert len(read_vmfb(module(external=((0, 0),) * 2)).rodata) == 2
    with pytest.raises(InvalidFileError, match="rodata_segments: there are 3; the limit is 2"):
        read_vmfb(module(external=((0, 0),) * 3))


def test_types_without_a_declaration():
    """Modules may be stripped of their reflection data; the types of the calling convention are left."""
    read = read_vmfb(GOLDEN.read_bytes())
    stripped = replace(read, functions=(VmFunction("f", "0rI_r"), VmFunction("g", "2?")))
    f, g = describe_module(stripped)["functions"]
    assert (f["inputs"], f["outputs"]) == (
        [{"name": "", "type": "!vm.ref<?>"}, {"name": "", "type": "i64"}],
        [{"name": "", "type": "!vm.ref<?>"}],
    )
    assert (g["inputs"], g["outputs"], g["calling_convention"]) == ([], [], "2?")


def test_overlapping_texts_take_no_memory():
    """Segments behind the module may overlap as they like: their bytes are not looked at as texts."""
    found = read_vmfb(module(external=[(index, 1000) for index in range(100)], behind=b"x" * 1100))
    assert {(segment.kind, segment.text, segment.embedded) for segment in found.rodata} == {("data", None, False)}
    (segment,) = read_vmfb(module(b"hal.device.id")).rodata
    assert (segment.kind, segment.text, segment.embedded) == ("text", "hal.device.id", True)


def test_a_module_that_is_data_is_no_executable():
    inner = module(b"x")
    assert read_vmfb(module(inner)).other_executables == ()
    asked = [text.encode() for text in (*ASKS, VMVX)]
    (executable,) = read_vmfb(module(*asked, inner)).other_executables
    assert (executable.format, executable.segment, executable.exports) == (VMVX, 4, ("f",))
    with pytest.raises(InvalidFileError, match=r"m: rodata_segments\[4\]: "):
        read_vmfb(module(*asked, inner[:12] + b"\xff" * len(inner)), file="m")
