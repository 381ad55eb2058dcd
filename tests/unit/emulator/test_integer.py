"""Integer instructions against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_cases import assert_same, pairs, values

SIGNED = {"u16": "uint16", "s16": "int16", "u32": "uint32", "s32": "int32", "u64": "uint64", "s64": "int64"}


def wrap(numbers, dtype: str) -> np.ndarray:
    bits = 8 * np.dtype(dtype).itemsize
    return np.array([n % 2**bits for n in numbers], f"u{bits // 8}").view(dtype)


def apply(function, dtype: str, *arrays: np.ndarray) -> np.ndarray:
    return wrap([function(*map(int, row)) for row in zip(*arrays, strict=True)], dtype)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("type_", SIGNED)
@pytest.mark.parametrize("name", BINARY)
def test_binary(machine, name, type_):
    a, b = pairs(SIGNED[type_])
    got = machine.elementwise(f"{name}.{type_} %d, %a, %b;", [a, b], SIGNED[type_])
    assert_same(got, apply(BINARY[name], SIGNED[type_], a, b), a, b)


@pytest.mark.parametrize("type_", SIGNED)
def test_high_product(machine, type_):
    a, b = pairs(SIGNED[type_])
    got = machine.elementwise(f"mul.hi.{type_} %d, %a, %b;", [a, b], SIGNED[type_])
    assert_same(got, apply(lambda x, y: (x * y) >> int(type_[1:]), SIGNED[type_], a, b), a, b)


@pytest.mark.parametrize("type_", SIGNED)
def test_division(machine, type_):
    a, b = pairs(SIGNED[type_])
    limits = np.iinfo(a.dtype)
    defined = (b != 0) & ~((a == limits.min) & (b == np.array(-1).astype(b.dtype)) & (a.dtype.kind == "i"))
    a, b = a[defined], b[defined]
    got = machine.elementwise(f"div.{type_} %d, %a, %b;", [a, b], SIGNED[type_])
    assert_same(got, apply(truncated, SIGNED[type_], a, b), a, b)
    got = machine.elementwise(f"rem.{type_} %d, %a, %b;", [a, b], SIGNED[type_])
    assert_same(got, apply(lambda x, y: x - truncated(x, y) * y, SIGNED[type_], a, b), a, b)


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32"])
def test_wide(machine, type_):
    a, b = pairs(SIGNED[type_])
    wide = SIGNED[f"{type_[0]}{int(type_[1:]) * 2}"]
    c = np.resize(values(wide, seed=5), len(a))
    got = machine.elementwise(f"mul.wide.{type_} %d, %a, %b;", [a, b], wide)
    assert_same(got, apply(lambda x, y: x * y, wide, a, b), a, b)
    got = machine.elementwise(f"mad.wide.{type_} %d, %a, %b, %c;", [a, b, c], wide)
    assert_same(got, apply(lambda x, y, z: x * y + z, wide, a, b, c), a, b, c)


@pytest.mark.parametrize("type_", SIGNED)
def test_multiply_add(machine, type_):
    a, b = pairs(SIGNED[type_])
    c = np.resize(values(SIGNED[type_], seed=5), len(a))
    got = machine.elementwise(f"mad.lo.{type_} %d, %a, %b, %c;", [a, b, c], SIGNED[type_])
    assert_same(got, apply(lambda x, y, z: x * y + z, SIGNED[type_], a, b, c), a, b, c)
    if type_ != "u16" and type_ != "s16":
        bits = int(type_[1:])
        got = machine.elementwise(f"mad.hi.{type_} %d, %a, %b, %c;", [a, b, c], SIGNED[type_])
        assert_same(got, apply(lambda x, y, z: ((x * y) >> bits) + z, SIGNED[type_], a, b, c), a, b, c)


@pytest.mark.parametrize("name", ["add", "sub"])
def test_saturating(machine, name):
    a, b = pairs("int32")
    got = machine.elementwise(f"{name}.sat.s32 %d, %a, %b;", [a, b], "int32")
    assert_same(got, apply(lambda x, y: min(max(BINARY[name](x, y), -(2**31)), 2**31 - 1), "int32", a, b), a, b)


@pytest.mark.parametrize("type_", ["s16", "s32", "s64"])
def test_signs(machine, type_):
    a = values(SIGNED[type_])
    assert_same(machine.elementwise(f"abs.{type_} %d, %a;", [a], SIGNED[type_]), apply(abs, SIGNED[type_], a), a)
    negative = apply(lambda x: -x, SIGNED[type_], a)
    assert_same(machine.elementwise(f"neg.{type_} %d, %a;", [a], SIGNED[type_]), negative, a)


def test_sum_of_absolute_differences(machine):
    for type_ in ("u32", "s32"):
        a, b = pairs(SIGNED[type_])
        c = np.resize(values("uint32", seed=4), len(a))
        got = machine.elementwise(f"sad.{type_} %d, %a, %b, %c;", [a, b, c], "uint32")
        assert_same(got, apply(lambda x, y, z: abs(x - y) + z, "uint32", a, b, c), a, b, c)


@pytest.mark.parametrize("left", ["u32", "s32"])
@pytest.mark.parametrize("right", ["u32", "s32"])
def test_dot_products_of_bytes(machine, left, right):
    a, b = pairs("uint32")
    c = np.resize(values("int32", seed=4), len(a))
    parts = [
        v.view(np.uint8 if t == "u32" else np.int8).reshape(-1, 4).astype(object) for v, t in ((a, left), (b, right))
    ]
    expected = wrap([int(sum(x * y)) + int(z) for x, y, z in zip(*parts, c, strict=True)], "uint32")
    assert_same(machine.elementwise(f"dp4a.{left}.{right} %d, %a, %b, %c;", [a, b, c], "uint32"), expected, a, b, c)
    halves = a.view(np.uint16 if left == "u32" else np.int16).reshape(-1, 2).astype(object)
    for mode, start in (("lo", 0), ("hi", 2)):
        numbers = [int(sum(x * y[start : start + 2])) + int(z) for x, y, z in zip(halves, parts[1], c, strict=True)]
        got = machine.elementwise(f"dp2a.{mode}.{left}.{right} %d, %a, %b, %c;", [a, b, c], "uint32")
        assert_same(got, wrap(numbers, "uint32"), a, b, c)


def test_24_bit_products(machine):
    a, b = pairs("int32")
    low = [((v.astype(np.int64) << 40) >> 40) for v in (a, b)]
    got = machine.elementwise("mul24.lo.s32 %d, %a, %b;", [a, b], "int32")
    assert_same(got, apply(lambda x, y: x * y, "int32", *low), a, b)
    got = machine.elementwise("mul24.hi.s32 %d, %a, %b;", [a, b], "int32")
    assert_same(got, apply(lambda x, y: (x * y) >> 16, "int32", *low), a, b)


@pytest.mark.parametrize(("name", "sign"), [("add", 1), ("sub", -1)])
def test_carries(machine, name, sign):
    """Numbers of 64 bits by halves, and what is carried beyond."""
    a, b = pairs("uint64")
    code = f"""
        mov.b64 {{%al, %ah}}, %a; mov.b64 {{%bl, %bh}}, %b;
        {name}.cc.u32 %al, %al, %bl; {name}c.cc.u32 %ah, %ah, %bh; {name}c.u32 %bl, 0, 0;
        and.b32 %bl, %bl, 0xFF; shl.b32 %bl, %bl, 1; xor.b32 %ah, %ah, %bl; mov.b64 %d, {{%al, %ah}};"""
    got = machine.elementwise(code, [a, b], "uint64", registers=".reg .b32 %al, %ah, %bl, %bh;")

    def expected(x: int, y: int) -> int:
        total = x + sign * y
        over = sign * int(total < 0 or total >= 2**64) & 0xFF
        return total ^ over << 33

    assert_same(got, apply(expected, "uint64", a, b), a, b)


def test_products_with_carries(machine):
    """The upper half of a product of 64 bits, as compilers write it by 32-bit steps."""
    a, b = pairs("uint64")
    code = """
        mov.b64 {%al, %ah}, %a; mov.b64 {%bl, %bh}, %b;
        mul.hi.u32 %r, %al, %bl;
        mad.lo.cc.u32 %r, %al, %bh, %r; madc.hi.u32 %s, %al, %bh, 0;
        mad.lo.cc.u32 %r, %ah, %bl, %r; madc.hi.cc.u32 %s, %ah, %bl, %s; addc.u32 %t, 0, 0;
        mad.lo.cc.u32 %s, %ah, %bh, %s; madc.hi.u32 %t, %ah, %bh, %t;
        mov.b64 %d, {%s, %t};"""
    got = machine.elementwise(code, [a, b], "uint64", registers=".reg .b32 %al, %ah, %bl, %bh, %r, %s, %t;")
    assert_same(got, apply(lambda x, y: x * y >> 64, "uint64", a, b), a, b)
