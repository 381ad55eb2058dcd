"""Bits, comparisons and selections against Python."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_cases import assert_same, pairs, values
from test_integer import SIGNED, apply, wrap

UNSIGNED = {16: "uint16", 32: "uint32", 64: "uint64"}


@pytest.mark.parametrize("bits", UNSIGNED)
def test_bitwise(machine, bits):
    a, b = pairs(UNSIGNED[bits])
    for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        assert_same(machine.elementwise(f"{name}.b{bits} %d, %a, %b;", [a, b], UNSIGNED[bits]), function(a, b), a, b)
    assert_same(machine.elementwise(f"not.b{bits} %d, %a;", [a], UNSIGNED[bits]), ~a, a)
    assert_same(
        machine.elementwise(f"cnot.b{bits} %d, %a;", [a], UNSIGNED[bits]), apply(lambda x: x == 0, UNSIGNED[bits], a), a
    )


@pytest.mark.parametrize("type_", SIGNED)
def test_shifts(machine, type_):
    a, amount = pairs(SIGNED[type_], "uint32")
    bits = int(type_[1:])
    got = machine.elementwise(f"shl.b{bits} %d, %a, %b;", [a, amount], SIGNED[type_])
    assert_same(got, apply(lambda x, n: x << min(n, bits), SIGNED[type_], a, amount), a, amount)
    got = machine.elementwise(f"shr.{type_} %d, %a, %b;", [a, amount], SIGNED[type_])
    assert_same(got, apply(lambda x, n: x >> min(n, bits), SIGNED[type_], a, amount), a, amount)


@pytest.mark.parametrize("amount", [0, 1, 15, 31, 32, 40])
def test_shifts_by_constants(machine, amount):
    a = values("int32")
    got = machine.elementwise(f"shr.s32 %d, %a, {amount};", [a], "int32")
    assert_same(got, apply(lambda x: x >> min(amount, 32), "int32", a), a)
    got = machine.elementwise(f"shl.b32 %d, %a, {amount};", [a], "int32")
    assert_same(got, apply(lambda x: x << min(amount, 32), "int32", a), a)


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(machine, mode):
    a, b = pairs("uint32")
    n = np.resize(values("uint32", seed=9), len(a))
    limit = (lambda v: v % 32) if mode == "wrap" else (lambda v: min(v, 32))
    got = machine.elementwise(f"shf.l.{mode}.b32 %d, %a, %b, %c;", [a, b, n], "uint32")
    assert_same(got, apply(lambda x, y, v: (((y << 32) | x) << limit(v)) >> 32, "uint32", a, b, n), a, b, n)
    got = machine.elementwise(f"shf.r.{mode}.b32 %d, %a, %b, %c;", [a, b, n], "uint32")
    assert_same(got, apply(lambda x, y, v: ((y << 32) | x) >> limit(v), "uint32", a, b, n), a, b, n)


def extracted(a: int, position: int, length: int, bits: int, signed: bool) -> int:
    """As the PTX ISA's pseudo-code has it, bit by bit."""
    position, length, raw = position & 255, length & 255, a % 2**bits
    sign = raw >> min(position + length - 1, bits - 1) & 1 if signed and length else 0
    result = 0
    for i in range(bits):
        bit = raw >> (position + i) & 1 if i < length and position + i < bits else sign
        result |= bit << i
    return result


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_extracted_fields(machine, type_):
    a = np.resize(values(SIGNED[type_]), 900)
    # The PTX ISA restricts both to 0..255; what lies beyond, 64-bit hardware takes otherwise than 32-bit hardware.
    position = np.resize(np.array([0, 1, 5, 8, 24, 31, 32, 40, 63, 64, 200, 254, 255], np.uint32), 900)
    length = np.resize(np.array([0, 1, 4, 8, 16, 31, 32, 33, 63, 64, 254, 255], np.uint32), 900)
    got = machine.elementwise(f"bfe.{type_} %d, %a, %b, %c;", [a, position, length], SIGNED[type_])
    bits = int(type_[1:])
    expected = [
        extracted(int(x), int(p), int(n), bits, type_[0] == "s") for x, p, n in zip(a, position, length, strict=True)
    ]
    assert_same(got, wrap(expected, SIGNED[type_]), a, position, length)


@pytest.mark.parametrize(
    ("position", "length"), [(0, 8), (8, 8), (24, 16), (31, 1), (0, 32), (5, 0), (32, 4), (4, 255)]
)
def test_inserted_fields(machine, position, length):
    a, b = pairs("uint32")

    def insert(x: int, y: int) -> int:
        for i in range(min(length, max(32 - position, 0))):
            y = y & ~(1 << (position + i)) | (x >> i & 1) << (position + i)
        return y

    got = machine.elementwise(f"bfi.b32 %d, %a, %b, {position}, {length};", [a, b], "uint32")
    assert_same(got, apply(insert, "uint32", a, b), a, b)


def permuted(a: int, b: int, selector: int) -> int:
    both, result = b << 32 | a, 0
    for i in range(4):
        choice = selector >> 4 * i & 15
        byte = both >> 8 * (choice & 7) & 255
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
    return result


def test_permutes(machine):
    a, b = pairs("uint32")
    c = np.resize(values("uint32", seed=3), len(a))
    got = machine.elementwise("prmt.b32 %d, %a, %b, %c;", [a, b, c], "uint32")
    assert_same(got, apply(permuted, "uint32", a, b, c), a, b, c)
    got = machine.elementwise("prmt.b32 %d, %a, %b, 0x5410;", [a, b], "uint32")
    assert_same(got, apply(lambda x, y: permuted(x, y, 0x5410), "uint32", a, b), a, b)


@pytest.mark.parametrize(
    ("mode", "bytes_"),
    [
        ("f4e", [(3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)]),
        ("b4e", [(5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)]),
        ("rc8", [(0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)]),
        ("ecl", [(3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)]),
        ("ecr", [(0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)]),
        ("rc16", [(1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)]),
    ],
)
def test_permute_modes(machine, mode, bytes_):
    a, b = pairs("uint32")
    c = np.resize(np.arange(7, dtype=np.uint32), len(a))

    def expected(x: int, y: int, z: int) -> int:
        chosen = [(y << 32 | x) >> 8 * at & 255 for at in bytes_[z & 3]]
        return chosen[0] << 24 | chosen[1] << 16 | chosen[2] << 8 | chosen[3]

    got = machine.elementwise(f"prmt.b32.{mode} %d, %a, %b, %c;", [a, b, c], "uint32")
    assert_same(got, apply(expected, "uint32", a, b, c), a, b, c)


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_and_reversing(machine, bits):
    a = values(UNSIGNED[bits])
    cases = {
        "popc": lambda x: x.bit_count(),
        "clz": lambda x: bits - x.bit_length(),
    }
    for name, function in cases.items():
        got = machine.elementwise(f"{name}.b{bits} %d, %a;", [a], "uint32")
        assert_same(got, apply(function, "uint32", a), a)
    got = machine.elementwise(f"brev.b{bits} %d, %a;", [a], UNSIGNED[bits])
    assert_same(got, apply(lambda x: int(f"{x:0{bits}b}"[::-1], 2), UNSIGNED[bits], a), a)


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_finding_the_top_bit(machine, type_):
    a = values(SIGNED[type_])
    got = machine.elementwise(f"bfind.{type_} %d, %a;", [a], "uint32")
    assert_same(got, apply(lambda x: (~x if x < 0 else x).bit_length() - 1, "uint32", a), a)


@pytest.mark.parametrize("table", [0x00, 0x01, 0x80, 0x96, 0xE8, 0xCA, 0xF8, 0xFF])
def test_three_input_logic(machine, table):
    a, b = pairs("uint32")
    c = np.resize(values("uint32", seed=3), len(a))

    def expected(x: int, y: int, z: int) -> int:
        return sum((table >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i for i in range(32))

    got = machine.elementwise(f"lop3.b32 %d, %a, %b, %c, {table};", [a, b, c], "uint32")
    assert_same(got, apply(expected, "uint32", a, b, c), a, b, c)


def test_bit_masks(machine):
    a = np.resize(np.arange(40, dtype=np.uint32), 300)
    b = np.resize(np.arange(37, dtype=np.uint32), 300)
    got = machine.elementwise("bmsk.clamp.b32 %d, %a, %b;", [a, b], "uint32")
    assert_same(got, apply(lambda x, y: ((1 << min(y, 32)) - 1) << min(x, 32), "uint32", a, b), a, b)


# --- comparisons ---

ORDERED = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("type_", SIGNED)
def test_integer_comparisons(machine, type_):
    a, b = pairs(SIGNED[type_])
    for name, compare in ORDERED.items():
        got = machine.elementwise(f"setp.{name}.{type_} %p, %a, %b; selp.u32 %d, 1, 0, %p;", [a, b], "uint32")
        assert_same(got, compare(a, b).astype(np.uint32), a, b)
    if type_[0] == "u":
        for name, same in (("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")):
            got = machine.elementwise(f"setp.{name}.{type_} %p, %a, %b; selp.u32 %d, 1, 0, %p;", [a, b], "uint32")
            assert_same(got, ORDERED[same](a, b).astype(np.uint32), a, b)


@pytest.mark.parametrize("type_", ["f16", "f32", "f64"])
def test_float_comparisons(machine, type_):
    dtype = f"float{type_[1:]}"
    a, b = pairs(dtype)
    nan = np.isnan(a) | np.isnan(b)
    for name, compare in ORDERED.items():
        for suffix, expected in (("", compare(a, b) & ~nan), ("u", compare(a, b) | nan)):
            code = f"setp.{name}{suffix}.{type_} %p, %a, %b; selp.u32 %d, 1, 0, %p;"
            assert_same(machine.elementwise(code, [a, b], "uint32"), expected.astype(np.uint32), a, b)
    for name, expected in (("num", ~nan), ("nan", nan)):
        got = machine.elementwise(f"setp.{name}.{type_} %p, %a, %b; selp.u32 %d, 1, 0, %p;", [a, b], "uint32")
        assert_same(got, expected.astype(np.uint32), a, b)


def test_comparisons_that_combine(machine):
    a, b = pairs("int32")
    for name, combine in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        code = f"""
            setp.gt.s32 %q, %a, 3;
            setp.lt.{name}.s32 %p|%r, %a, %b, !%q;
            selp.u32 %d, 1, 0, %p;
            @%r add.u32 %d, %d, 2;"""
        first = combine(a < b, ~(a > 3))
        second = combine(~(a < b), ~(a > 3))
        got = machine.elementwise(code, [a, b], "uint32", registers=".reg .pred %r;")
        assert_same(got, (first + 2 * second).astype(np.uint32), a, b)


def test_comparison_flushes_denormals(machine):
    a = np.array([1e-40, -1e-40, 0.0, 1e-30], np.float32)
    code = "setp.eq{}.f32 %p, %a, 0f00000000; selp.u32 %d, 1, 0, %p;"
    assert machine.elementwise(code.format(".ftz"), [a], "uint32").tolist() == [1, 1, 1, 0]
    assert machine.elementwise(code.format(""), [a], "uint32").tolist() == [0, 0, 1, 0]


def test_comparison_results_as_numbers(machine):
    a, b = pairs("float32")
    got = machine.elementwise("set.lt.u32.f32 %d, %a, %b;", [a, b], "uint32")
    assert_same(got, np.where(a < b, np.uint32(0xFFFFFFFF), np.uint32(0)), a, b)
    got = machine.elementwise("set.lt.f32.f32 %d, %a, %b;", [a, b], "float32")
    assert_same(got, (a < b).astype(np.float32), a, b)


def test_selection_by_sign(machine):
    a, b = pairs("uint32")
    c = np.resize(values("int32"), len(a))
    assert_same(
        machine.elementwise("slct.u32.s32 %d, %a, %b, %c;", [a, b, c], "uint32"), np.where(c >= 0, a, b), a, b, c
    )
