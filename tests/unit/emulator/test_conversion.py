"""mov and cvt against rational arithmetic and ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from ptx_cases import assert_same, rounded, values
from test_integer import SIGNED, wrap

FLOATS = {"f16": "float16", "f32": "float32", "f64": "float64"}
INTEGERS = {"u8": "uint8", "s8": "int8", **SIGNED}
ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_between_integers(machine, source, target):
    a = values(INTEGERS[source])
    got = machine.elementwise(f"cvt.{target}.{source} %d, %a;", [a], INTEGERS[target])
    assert_same(got, wrap([int(x) for x in a], INTEGERS[target]), a)
    limits, range_ = np.iinfo(INTEGERS[target]), np.iinfo(INTEGERS[source])
    if limits.min <= range_.min and range_.max <= limits.max:
        return  # nothing to saturate: ptxas refuses the modifier there
    got = machine.elementwise(f"cvt.sat.{target}.{source} %d, %a;", [a], INTEGERS[target])
    assert_same(got, wrap([min(max(int(x), limits.min), limits.max) for x in a], INTEGERS[target]), a)


@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16"])
@pytest.mark.parametrize("source", ["s8", "s16", "s32", "u32"])
def test_between_integers_into_a_wider_register(machine, source, target):
    a = values(INTEGERS[source])
    got = machine.elementwise(f"cvt.{target}.{source} %d, %a;", [a], "int32")
    assert_same(got, wrap([int(x) for x in a], INTEGERS[target]).astype(np.int32), a)


def to_integer(x: float, target: str, source: str, mode: str) -> int:
    limits = np.iinfo(INTEGERS[target])
    if math.isnan(x):
        wide = source == "f64" or target[1:] == "64"
        return (1 << (int(target[1:]) - 1)) if wide else 0
    if math.isinf(x):
        return limits.max if x > 0 else limits.min
    return min(max(ROUND[mode](Fraction(x)), limits.min), limits.max)


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_floats_to_integers(machine, source, target, mode):
    a = values(FLOATS[source])
    if target[1:] == "16" and source == "f64":
        a = a[~np.isnan(a)]  # the PTX ISA names a value wider than the result
    got = machine.elementwise(f"cvt.{mode}.{target}.{source} %d, %a;", [a], INTEGERS[target])
    assert_same(got, wrap([to_integer(float(x), target, source, mode) for x in a], INTEGERS[target]), a)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers_to_floats(machine, source, target, mode):
    a = values(INTEGERS[source], count=100)
    got = machine.elementwise(f"cvt.{mode}.{target}.{source} %d, %a;", [a], FLOATS[target])
    expected = [rounded(Fraction(int(x)), FLOATS[target], mode) for x in a]
    assert_same(got, np.array(expected, FLOATS[target]), a)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("source", "target"), [("f32", "f16"), ("f64", "f16"), ("f64", "f32")])
def test_to_narrower_floats(machine, source, target, mode):
    a = values(FLOATS[source])
    got = machine.elementwise(f"cvt.{mode}.{target}.{source} %d, %a;", [a], FLOATS[target])
    expected = [
        rounded(Fraction(float(x)), FLOATS[target], mode, negative_zero=np.signbit(x)) if np.isfinite(x) else float(x)
        for x in a
    ]
    signed = np.copysign(np.abs(np.array(expected, FLOATS[target])), a.astype(np.float64)).astype(FLOATS[target])
    assert_same(got, np.where(np.isnan(a), np.array(np.nan, FLOATS[target]), signed), a)


@pytest.mark.parametrize(("source", "target"), [("f16", "f32"), ("f16", "f64"), ("f32", "f64")])
def test_to_wider_floats(machine, source, target):
    a = values(FLOATS[source])
    assert_same(machine.elementwise(f"cvt.{target}.{source} %d, %a;", [a], FLOATS[target]), a.astype(FLOATS[target]), a)


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_integral_floats(machine, mode):
    a = values("float32")
    function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    assert_same(machine.elementwise(f"cvt.{mode}.f32.f32 %d, %a;", [a], "float32"), function(a), a)


def test_saturated_and_flushed(machine):
    a = values("float32")
    expected = np.where(np.isnan(a), np.float32(0), np.clip(a, 0, 1)) + np.float32(0)
    assert_same(machine.elementwise("cvt.sat.f32.f32 %d, %a;", [a], "float32"), expected, a)
    got = machine.elementwise("cvt.ftz.f64.f32 %d, %a;", [a], "float64")
    assert_same(got, np.where(np.abs(a) < np.float32(2.0**-126), np.copysign(0.0, a), a.astype(np.float64)), a)


def test_bf16(machine):
    a = values("float32")
    got = machine.elementwise("cvt.rn.bf16.f32 %d, %a;", [a], "uint16").view(ml_dtypes.bfloat16).astype(np.float32)
    assert_same(got, a.astype(ml_dtypes.bfloat16).astype(np.float32), a)
    bits = np.random.default_rng(1).integers(0, 2**16, 500).astype(np.uint16)
    got = machine.elementwise("mov.b32 %t, {0, %a}; mov.b32 %d, %t;", [bits], "float32", registers=".reg .b32 %t;")
    assert_same(got, bits.view(ml_dtypes.bfloat16).astype(np.float32), bits)


def test_bf16_cut(machine):
    a = values("float32")
    got = machine.elementwise("cvt.rz.bf16.f32 %d, %a;", [a], "uint16").view(ml_dtypes.bfloat16).astype(np.float32)
    expected = (a.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert_same(got, np.where(np.isnan(a), np.float32(np.nan), expected), a)


@pytest.mark.parametrize(("type_", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_packing_two(machine, type_, dtype):
    a, b = values("float32", seed=1), values("float32", seed=2)
    got = machine.elementwise(f"cvt.rn.{type_}x2.f32 %d, %a, %b;", [a, b], "uint32")
    halves = got.view(np.uint16).reshape(-1, 2).copy().view(dtype).astype(np.float32)
    assert_same(np.ascontiguousarray(halves[:, 0]), b.astype(dtype).astype(np.float32), b)
    assert_same(np.ascontiguousarray(halves[:, 1]), a.astype(dtype).astype(np.float32), a)


def test_relu(machine):
    a = np.array([-1.0, -0.0, 0.0, 2.5, np.nan, -np.inf, np.inf], np.float32)
    got = machine.elementwise("cvt.rn.relu.f16x2.f32 %d, %a, %a;", [a], "uint32").view(np.float16)[::2]
    assert_same(np.ascontiguousarray(got), np.array([0, 0, 0, 2.5, np.nan, 0, np.inf], np.float16), a)


def test_tf32(machine):
    a = values("float32")
    a = a[np.isfinite(a) & (np.abs(a) < 3e38)]
    got = machine.elementwise("cvt.rna.tf32.f32 %d, %a;", [a], "float32")
    bits = (a.view(np.uint32).astype(np.uint64) + 0x1000) & 0xFFFFE000
    kept = (got.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    assert_same(kept, bits.astype(np.uint32).view(np.float32), a)


FP8 = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}


@pytest.mark.parametrize("name", FP8)
def test_fp8(emulated, name):
    dtype, limit = FP8[name]
    a, b = values("float32", seed=1), values("float32", seed=2)
    got = emulated.elementwise(f"cvt.rn.satfinite.{name}x2.f32 %d, %a, %b;", [a, b], "uint16")
    halves = got.view(np.uint8).reshape(-1, 2).copy().view(dtype).astype(np.float32)
    for at, given in ((0, b), (1, a)):
        clipped = np.where(np.isnan(given), given, np.clip(given, -limit, limit)).astype(np.float32)
        assert_same(np.ascontiguousarray(halves[:, at]), clipped.astype(dtype).astype(np.float32), given)
    every = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    got = emulated.elementwise(f"cvt.rn.f16x2.{name}x2 %d, %a;", [every], "uint32").view(np.float16)
    assert_same(got, every.view(dtype).astype(np.float16), every.view(np.uint8))


def test_packed_saturation(machine):
    a, b, c = (np.resize(values("int32", seed=s), 300) for s in (1, 2, 3))
    got = machine.elementwise("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", [a, b, c], "uint32")

    def expected(x: int, y: int, z: int) -> int:
        low, high = (min(max(v, -128), 127) & 255 for v in (y, x))
        return (z << 16 | high << 8 | low) & 0xFFFFFFFF

    assert_same(got, wrap([expected(*map(int, row)) for row in zip(a, b, c, strict=True)], "uint32"), a, b, c)


def test_moves_take_apart_and_join(machine):
    a = values("uint64")
    code = "mov.b64 {%lo, %hi}, %a; mov.b64 %d, {%hi, %lo};"
    got = machine.elementwise(code, [a], "uint64", registers=".reg .b32 %lo, %hi;")
    assert_same(got, (a << np.uint64(32)) | (a >> np.uint64(32)), a)


def test_immediates(machine):
    one = np.zeros(3, np.uint32)
    assert machine.elementwise("mov.b32 %d, 0f3F800000;", [one], "float32").tolist() == [1.0] * 3
    assert machine.elementwise("mov.f64 %d, 0d3FF8000000000000;", [one], "float64").tolist() == [1.5] * 3
    assert machine.elementwise("mov.f64 %d, 2.5;", [one], "float64").tolist() == [2.5] * 3
    assert machine.elementwise("mov.b32 %d, -2;", [one], "int32").tolist() == [-2] * 3
    assert machine.elementwise("mov.b64 %d, 0xFFFFFFFFFFFFFFFF;", [one], "int64").tolist() == [-1] * 3
    selected = machine.elementwise("setp.eq.u32 %p, %a, 0; selp.f32 %d, 1.5, 0f00000000, %p;", [one], "float32")
    assert selected.tolist() == [1.5] * 3
