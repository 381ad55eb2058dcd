"""Floating-point instructions against numpy and against rational arithmetic."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from ptx_cases import assert_same, pairs, rounded, values

TYPES = {"f16": "float16", "f32": "float32", "f64": "float64"}


def flushed(a: np.ndarray) -> np.ndarray:
    return np.where(np.abs(a) < np.float32(2.0**-126), np.copysign(np.float32(0), a), a)


def bf16_values(seed: int = 0) -> np.ndarray:
    """bf16 numbers as 16 bits."""
    return values("float32", seed=seed).astype(ml_dtypes.bfloat16).view(np.uint16)


def assert_same_bf16(got: np.ndarray, expected: np.ndarray, *inputs: np.ndarray) -> None:
    wide = [v.view(ml_dtypes.bfloat16).astype(np.float32) for v in (got, expected)]
    assert_same(*wide, *(v.view(ml_dtypes.bfloat16) for v in inputs))


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize(("name", "function"), [("add", np.add), ("sub", np.subtract), ("mul", np.multiply)])
def test_arithmetic(machine, name, function, type_):
    a, b = pairs(TYPES[type_])
    rounding = "" if type_ == "f16" else ".rn"
    got = machine.elementwise(f"{name}{rounding}.{type_} %d, %a, %b;", [a, b], TYPES[type_])
    assert_same(got, function(a, b), a, b)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_division_and_roots(machine, type_):
    a, b = pairs(TYPES[type_])
    assert_same(machine.elementwise(f"div.rn.{type_} %d, %a, %b;", [a, b], TYPES[type_]), a / b, a, b)
    assert_same(machine.elementwise(f"sqrt.rn.{type_} %d, %a;", [a], TYPES[type_]), np.sqrt(a), a)
    assert_same(machine.elementwise(f"rcp.rn.{type_} %d, %a;", [a], TYPES[type_]), a.dtype.type(1) / a, a)


def test_flushing_denormals(machine):
    a, b = pairs("float32")
    for name, function in (("add", np.add), ("mul", np.multiply)):
        got = machine.elementwise(f"{name}.ftz.f32 %d, %a, %b;", [a, b], "float32")
        assert_same(got, flushed(function(flushed(a), flushed(b))), a, b)


def test_saturation(machine):
    a, b = pairs("float32")
    total = a + b
    expected = np.where(np.isnan(total), np.float32(0), np.clip(total, 0, 1)) + np.float32(0)
    assert_same(machine.elementwise("add.sat.f32 %d, %a, %b;", [a, b], "float32"), expected, a, b)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "mul"])
def test_directed_rounding(machine, mode, name):
    a, b = pairs("float32")
    finite = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    a, b = a[finite], b[finite]
    exact = [Fraction(float(x)) + Fraction(float(y)) if name == "add" else Fraction(float(x)) * Fraction(float(y))
             for x, y in zip(a, b, strict=True)]  # fmt: skip
    kept = np.array([value != 0 for value in exact])
    expected = np.array([rounded(v, "float32", mode) for v in exact], np.float32)
    got = machine.elementwise(f"{name}.{mode}.f32 %d, %a, %b;", [a, b], "float32")
    negative_underflow = (expected == 0) & np.array([v < 0 for v in exact])
    expected = np.where(negative_underflow, np.float32(-0.0), expected)
    assert_same(got[kept], expected[kept], a[kept], b[kept])


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["div", "rcp"])
def test_quotients_in_each_rounding(machine, mode, name):
    a, b = pairs("float32")
    a = np.ones_like(a) if name == "rcp" else a
    usable = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    a, b = a[usable], b[usable]
    exact = [Fraction(float(x)) / Fraction(float(y)) for x, y in zip(a, b, strict=True)]
    signs = np.array([-1.0 if value < 0 else 1.0 for value in exact], np.float32)
    expected = np.copysign(np.array([rounded(v, "float32", mode) for v in exact], np.float32), signs)
    code, inputs = ("div.{}.f32 %d, %a, %b;", [a, b]) if name == "div" else ("rcp.{}.f32 %d, %a;", [b])
    assert_same(machine.elementwise(code.format(mode), inputs, "float32"), expected, *inputs)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_roots_in_each_rounding(machine, mode):
    a = values("float32")
    a = np.abs(a[np.isfinite(a) & (a != 0)])
    with localcontext() as context:
        context.prec = 80
        expected = [rounded(Fraction(Decimal(float(x)).sqrt()), "float32", mode) for x in a]
    assert_same(machine.elementwise(f"sqrt.{mode}.f32 %d, %a;", [a], "float32"), np.array(expected, np.float32), a)


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray, dtype: str) -> list[float]:
    return [
        rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), dtype)
        for x, y, z in zip(a, b, c, strict=True)
    ]


def fused_cases(dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random triples, and products that the addend nearly cancels or puts next to a tie."""
    kind = np.dtype(dtype)
    a, b = pairs(dtype)
    c = np.resize(values(dtype, seed=7), len(a))
    random = np.random.default_rng(3)
    x, y = (random.standard_normal(300).astype(kind) for _ in range(2))
    scale = np.exp2(random.integers(-60, 60, 300)).astype(kind) if dtype != "float16" else kind.type(1)
    near = -(x * y) * (1 + kind.type(np.finfo(kind).eps) * random.integers(-2, 3, 300).astype(kind))
    tie = (random.integers(1, 8, 300) * np.finfo(kind).eps / 4).astype(kind)
    lists = [
        (a, b, c),
        (x, y, near),
        (x * scale, y, near),
        (np.ones(300, kind), tie, 1 + random.integers(0, 2, 300) * tie),
    ]
    a, b, c = (np.concatenate([np.asarray(part[i], kind) for part in lists]) for i in range(3))
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    return a[finite], b[finite], c[finite]


@pytest.mark.parametrize("type_", TYPES)
def test_fused_multiply_add(machine, type_):
    a, b, c = fused_cases(TYPES[type_])
    if type_ == "f64":  # an error of the product below the range of a double is not represented
        kept = (np.abs(a * b) > 2.0**-900) & (np.abs(a) < 2.0**900) & (np.abs(b) < 2.0**900) | (a * b == 0)
        kept &= np.isfinite(a * b + c)
        a, b, c = a[kept], b[kept], c[kept]
    expected = np.array(fused(a, b, c, TYPES[type_]), TYPES[type_])
    got = machine.elementwise(f"fma.rn.{type_} %d, %a, %b, %c;", [a, b, c], TYPES[type_])
    nonzero = expected != 0  # signs of zero are looked at below
    assert_same(got[nonzero], expected[nonzero], a[nonzero], b[nonzero], c[nonzero])
    assert (got[~nonzero] == 0).all()


def test_fused_specials(machine):
    a = np.array([0.0, -0.0, np.inf, np.inf, np.nan, 1.0, -1.0, 1e30], np.float32)
    b = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1e30], np.float32)
    c = np.array([-0.0, -0.0, 1.0, -np.inf, 0.0, -1.0, np.inf, -np.inf], np.float32)
    expected = np.array([0.0, -0.0, np.nan, np.nan, np.nan, 0.0, np.inf, -np.inf], np.float32)
    assert_same(machine.elementwise("fma.rn.f32 %d, %a, %b, %c;", [a, b, c], "float32"), expected, a, b, c)


def test_fused_bf16(machine):
    a, b, c = (np.resize(bf16_values(seed), 700) for seed in (1, 2, 3))
    wide = [v.view(ml_dtypes.bfloat16).astype(np.float64) for v in (a, b, c)]
    finite = np.logical_and.reduce([np.isfinite(v) for v in wide])
    a, b, c = a[finite], b[finite], c[finite]
    expected = np.array(fused(*(v[finite] for v in wide), "bfloat16"), np.float32)
    got = machine.elementwise("fma.rn.bf16 %d, %a, %b, %c;", [a, b, c], "uint16")
    nonzero = expected != 0
    bits = expected.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert_same_bf16(got[nonzero], bits[nonzero], a[nonzero], b[nonzero], c[nonzero])


def test_packed_halves(machine):
    a, b = pairs("float16")
    even = len(a) // 2 * 2
    a, b = a[:even], b[:even]
    packed = [v.view(np.uint32) for v in (a, b)]
    for name, function in (("add", np.add), ("mul", np.multiply)):
        got = machine.elementwise(f"{name}.f16x2 %d, %a, %b;", packed, "uint32").view(np.float16)
        assert_same(got, function(a, b), a, b)
    got = machine.elementwise("neg.f16x2 %d, %a;", packed[:1], "uint32").view(np.float16)
    assert_same(got, -a, a)


@pytest.mark.parametrize("type_", TYPES)
def test_extremes(machine, type_):
    a, b = pairs(TYPES[type_])
    nan = np.isnan(a) | np.isnan(b)
    for name, quiet, pick in (("min", np.fmin, np.signbit), ("max", np.fmax, lambda v: ~np.signbit(v))):
        expected = quiet(a, b)
        zeros = (a == 0) & (b == 0)  # -0 is less than +0
        expected = np.where(zeros, np.where(pick(a), a, b), expected)
        got = machine.elementwise(f"{name}.{type_} %d, %a, %b;", [a, b], TYPES[type_])
        assert_same(got, expected, a, b)
        if type_ != "f64":
            got = machine.elementwise(f"{name}.NaN.{type_} %d, %a, %b;", [a, b], TYPES[type_])
            assert_same(got, np.where(nan, a.dtype.type(np.nan), expected), a, b)


@pytest.mark.parametrize("type_", TYPES)
def test_sign_bits(machine, type_):
    a = values(TYPES[type_])
    number = ~np.isnan(a)
    assert_same(machine.elementwise(f"abs.{type_} %d, %a;", [a], TYPES[type_])[number], np.abs(a)[number], a[number])
    assert_same(machine.elementwise(f"neg.{type_} %d, %a;", [a], TYPES[type_])[number], -a[number], a[number])


def test_copied_signs(machine):
    a, b = pairs("float32")
    got = machine.elementwise("copysign.f32 %d, %a, %b;", [a, b], "float32")
    assert_same(got, np.copysign(b, a), a, b)


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("finite", np.isfinite),
        ("infinite", np.isinf),
        ("number", lambda a: ~np.isnan(a)),
        ("notanumber", np.isnan),
        ("normal", lambda a: np.isfinite(a) & (np.abs(a) >= np.float32(2.0**-126))),
        ("subnormal", lambda a: (np.abs(a) < np.float32(2.0**-126)) & (a != 0)),
    ],
)
def test_properties(machine, name, test):
    a = values("float32")
    a = a[a != 0]
    got = machine.elementwise(f"testp.{name}.f32 %p, %a; selp.u32 %d, 1, 0, %p;", [a], "uint32")
    assert_same(got, test(a).astype(np.uint32), a)


# Bounds of the PTX ISA: relative, or absolute for lg2 near 1, sin, cos.
APPROXIMATE = [
    ("rcp.approx.f32", lambda a: 1 / a, 2.0**-23, 0, (2.0**-20, 2.0**20)),
    ("sqrt.approx.f32", np.sqrt, 2.0**-22, 0, (2.0**-20, 2.0**20)),
    ("rsqrt.approx.f32", lambda a: 1 / np.sqrt(a), 2.0**-22.4, 0, (2.0**-20, 2.0**20)),
    ("ex2.approx.f32", np.exp2, 2.0**-22, 0, (-20, 20)),
    ("lg2.approx.f32", np.log2, 2.0**-22, 2.0**-22, (2.0**-20, 2.0**20)),
    ("sin.approx.f32", np.sin, 0, 2.0**-20.9, (-3.14, 3.14)),
    ("cos.approx.f32", np.cos, 0, 2.0**-20.9, (-3.14, 3.14)),
    ("tanh.approx.f32", np.tanh, 2.0**-11, 0, (-8, 8)),
]


@pytest.mark.parametrize(("name", "function", "relative", "absolute", "domain"), APPROXIMATE, ids=lambda v: str(v)[:16])
def test_approximate_functions(machine, name, function, relative, absolute, domain):
    a = np.random.default_rng(1).uniform(*domain, 500).astype(np.float32)
    got = machine.elementwise(f"{name} %d, %a;", [a], "float32").astype(np.float64)
    exact = function(a.astype(np.float64))
    assert (np.abs(got - exact) <= np.abs(exact) * relative + absolute).all()


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("ex2.approx.ftz.f32", [-INF, INF, -0.0, 0.0, NAN, 200, -200], [0, INF, 1, 1, NAN, INF, 0]),
        ("lg2.approx.ftz.f32", [-INF, INF, -0.0, 0.0, NAN, 1, -1], [NAN, INF, -INF, -INF, NAN, 0, NAN]),
        ("rcp.approx.ftz.f32", [-INF, INF, -0.0, 0.0, NAN, 2, 1e-40], [-0.0, 0, -INF, INF, NAN, 0.5, INF]),
        ("rsqrt.approx.ftz.f32", [-INF, INF, -0.0, 0.0, NAN, 4, -1], [NAN, 0, -INF, INF, NAN, 0.5, NAN]),
        ("sqrt.approx.ftz.f32", [-INF, INF, -0.0, 0.0, NAN, 4, -1], [NAN, INF, -0.0, 0, NAN, 2, NAN]),
        ("sin.approx.ftz.f32", [INF, -0.0, 0.0, NAN], [NAN, -0.0, 0, NAN]),
        ("tanh.approx.f32", [-INF, INF, -0.0, 0.0, NAN], [-1, 1, -0.0, 0, NAN]),
    ],
)
def test_approximate_functions_at_the_ends(machine, name, given, expected):
    a = np.array(given, np.float32)
    assert_same(machine.elementwise(f"{name} %d, %a;", [a], "float32"), np.array(expected, np.float32), a)


@pytest.mark.parametrize("name", ["div.full.f32", "div.approx.f32"])
def test_approximate_division(machine, name):
    a, b = (np.random.default_rng(s).uniform(0.01, 100, 500).astype(np.float32) for s in (1, 2))
    got = machine.elementwise(f"{name} %d, %a, %b;", [a, b], "float32").astype(np.float64)
    exact = a.astype(np.float64) / b
    assert (np.abs(got - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()


@pytest.mark.parametrize("divergent", [False, True])
def test_groups_of_fused_operations(machine, divergent):
    """Sums that go on in steps, a register that is used again, and one that is read before it is overwritten."""
    a, b, c = (np.random.default_rng(seed).standard_normal(100).astype(np.float32) for seed in (1, 2, 3))
    code = """
        {skip}
        mov.b32 %s0, %a; mov.b32 %s1, %b; mov.b32 %s2, %c; mov.b32 %s3, %a;
        fma.rn.f32 %s0, %a, %b, %s0; fma.rn.f32 %s1, %b, %c, %s1; fma.rn.f32 %s2, %c, %a, %s2;
        fma.rn.f32 %s0, %a, %c, %s0; fma.rn.f32 %s1, %b, %a, %s1; fma.rn.f32 %s3, %s2, %s2, %s3;
        fma.rn.f32 %s4, %a, %a, %s0; fma.rn.f32 %s5, %b, %b, %s1; fma.rn.f32 %a, %c, %c, %s3;
        fma.rn.f32 %b, %a, %s4, %s5;
        add.f32 %d, %b, %s3;
        REST:"""
    skip = "mov.b32 %d, 0; setp.lt.f32 %p, %a, 0f00000000; @%p bra REST;" if divergent else ""
    got = machine.elementwise(code.format(skip=skip), [a, b, c], "float32", registers=".reg .b32 %s<6>;")

    def fma(x, y, z):
        return np.array(fused(x, y, z, "float32"), np.float32)

    s0, s1, s2 = fma(a, b, a), fma(b, c, b), fma(c, a, c)
    s0, s1, s3 = fma(a, c, s0), fma(b, a, s1), fma(s2, s2, a)
    s4, s5, last = fma(a, a, s0), fma(b, b, s1), fma(c, c, s3)
    expected = fma(last, s4, s5) + s3
    assert_same(got, np.where(a < 0, np.float32(0), expected) if divergent else expected, a, b, c)
