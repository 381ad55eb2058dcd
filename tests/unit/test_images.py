from __future__ import annotations

import contextlib
import dataclasses
import random
import struct
import time
from pathlib import Path

import pytest

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.images import ParamInfo, describe_image
from coilpack.runtime.images.cubin import register_counts

CUBINS = Path(__file__).parent / "data" / "cubins"
HEADER = b".version 8.7\n.target sm_90a, debug\n"


def entries(text: bytes) -> dict[str, list[tuple[str, int]]]:
    found = describe_image(HEADER + text).entries
    return {name: [(param.type, param.size) for param in params] for name, params in found.items()}


def test_header_and_parameters():
    info = describe_image((CUBINS / "kernels.ptx").read_bytes().replace(b"TARGET", b"sm_120a"))
    assert (info.kind, info.target, info.ptx_version) == ("ptx", "sm_120a", (8, 7))
    assert list(info.entries) == ["two$k", "_other"]
    assert info.entries["two$k"] == (
        ParamInfo("p0", 8, 8, "u64", 0),
        ParamInfo("p1", 8, 8, "u64", 8),
        ParamInfo("n", 4, 4, "u32", 16),
        ParamInfo("h", 2, 2, "u16", 20),
        ParamInfo("s", 24, 8, "b8", 24),
        ParamInfo("d", 8, 8, "f64", 48),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b".entry f { ret; }", {"f": []}),
        (b".entry f() { ret; }", {"f": []}),
        (b".entry f(\n\n) { ret; }", {"f": []}),
        (b".visible\n.entry\n\tf\n(.param\n.u64\na)", {"f": [("u64", 8)]}),
        (b".entry f(.param .f16 a, .param .bf16 b, .param .f16x2 c)", {"f": [("f16", 2), ("bf16", 2), ("f16x2", 4)]}),
        (b".entry f(.param .b32 a[3], .param .align 64 .b8 t[128])", {"f": [("b32", 12), ("b8", 128)]}),
        (b".entry f(.param .u64 .ptr.global.align 1 a)", {"f": [("u64", 8)]}),
        (b".entry $f%(.param .texref t)", {"$f%": [("texref", 8)]}),
        (b"// .entry no(\n.entry f()", {"f": []}),
        (b"/* .entry no( */ .entry f()", {"f": []}),
        (b"/* // */ .entry f() // .entry no()", {"f": []}),
        (b"// /*\n.entry f() //*/", {"f": []}),
        (b'.pragma ".entry no()"; .entry f()', {"f": []}),
        (b'.pragma "// no"; .entry f()', {"f": []}),
        (b".entry f(.param .u32 a, // not b)\n .param .u32 c /* ) */)", {"f": [("u32", 4), ("u32", 4)]}),
        (b".entry f(.param .u32 a) {} .entry g(.param .s8 b) {}", {"f": [("u32", 4)], "g": [("s8", 1)]}),
        (b".entryf no(", {}),
        (b".func g(.param .u32 a)", {}),
        (b".entry k.1(.param .u64 k.1_param_0)", {"k.1": [("u64", 8)]}),
    ],
)
def test_entries(text, expected):
    assert entries(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b".entry f(.param .u64 a", "parameter list of the entry 'f' does not end"),
        (b".entry f(.param .u64)", "parameter 0 of the entry 'f' cannot be read"),
        (b".entry f(.param .u64 a, .param .v2 b)", "parameter 1 of the entry 'f' cannot be read"),
        (b".entry f(.reg .u64 a)", "cannot be read"),
        (b".entry f(.param .u64 a,)", "parameter 1"),
        (b".entry f() {} .entry f() {}", "defines the entry 'f' twice"),
    ],
)
def test_bad_entries(text, words):
    with pytest.raises(InvalidFileError, match=r"^m\.cda1: modules\[0\]: ") as caught:
        describe_image(HEADER + text, file="m.cda1", where="modules[0]")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "image",
    [b"x", b"\x7fEL", b"BC\xc0\xde", b".version 8.7", b".target sm_80", b"// .version 8.7\n.target sm_80", bytes(99)],
)
def test_neither_ptx_nor_cubin(image):
    with pytest.raises(InvalidFileError, match="neither a cubin nor PTX"):
        describe_image(image)


def test_empty():
    with pytest.raises(InvalidFileError, match="the image is empty"):
        describe_image(b"")


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120", "sm_120a"])
def test_cubins(target):
    info = describe_image((CUBINS / f"{target}.cubin").read_bytes())
    assert (info.kind, info.target, info.ptx_version) == ("cubin", target, None)
    assert set(info.entries) == {"two$k", "_other"}  # and not `helper`, a function that is no kernel
    places = [(param.offset, param.size) for param in info.entries["two$k"]]
    assert places == [(0, 8), (8, 8), (16, 4), (20, 2), (24, 24), (48, 8)]


@pytest.mark.parametrize(
    ("at", "layout", "value", "words"),
    [
        (4, "<B", 1, "class 1"),
        (18, "<H", 62, "machine 62"),
        (8, "<B", 9, "ABI version 9"),
        (40, "<Q", 1 << 40, "section headers"),
        (58, "<H", 40, "section headers of 40 bytes"),
        (62, "<H", 999, "section 999"),
    ],
)
def test_bad_cubins(at, layout, value, words):
    data = bytearray((CUBINS / "sm_80.cubin").read_bytes())
    struct.pack_into(layout, data, at, value)
    with pytest.raises(InvalidFileError, match=words):
        describe_image(data)


def test_mutated_cubins_never_break_the_reader():
    data = (CUBINS / "sm_120a.cubin").read_bytes()
    for size in range(4, len(data), 7):
        with pytest.raises(InvalidFileError):
            describe_image(data[:size])
    rng = random.Random(1)
    for _ in range(1500):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            mutated[rng.randrange(4, len(data))] = rng.randrange(256)
        with contextlib.suppress(InvalidFileError):
            assert describe_image(mutated).kind == "cubin"


@pytest.mark.parametrize("filler", [b"add.s32 %r1, %r2, %r3;\n", b".entry 1 ", b"// x\n", b'"', b"/*", b".entry 1//"])
def test_time_is_linear(filler):
    image = HEADER + filler * (1_000_000 // len(filler))
    start = time.perf_counter()
    with contextlib.suppress(InvalidFileError):
        describe_image(image)
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize("name", ["sm_80.cubin", "sm_90a.cubin", "sm_100a.cubin", "kernels.ptx"])
def test_kernels_may_be_left_out(name):
    image = (CUBINS / name).read_bytes().replace(b"TARGET", b"sm_80")
    full, short = describe_image(image), describe_image(image, kernels=False)
    assert full.entries
    assert short == dataclasses.replace(full, entries={})


@pytest.mark.parametrize("path", sorted(CUBINS.glob("*.cubin")), ids=lambda path: path.stem)
def test_registers_of_a_thread_are_those_that_cuobjdump_prints(path):
    assert register_counts(path.read_bytes()) == {"_other": 4, "two$k": 4 if path.stem == "sm_75" else 8}


def test_registers_of_what_is_no_cubin():
    data = (CUBINS / "sm_80.cubin").read_bytes()
    for content in (b"", data[:64], data[:-1]):
        with pytest.raises(InvalidFileError, match="cubin"):
            register_counts(content)
