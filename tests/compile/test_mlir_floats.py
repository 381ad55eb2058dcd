"""Operations of MLIR on floating-point numbers, against numpy and Python, with NaNs, infinities and signed zeros."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mlir_functions import NUMPY, call_module, elementwise  # noqa: E402

pytestmark = pytest.mark.compiler

VALUES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.5, 2.5, 3.0, -7.25, 1e30, math.inf, -math.inf, math.nan]
PAIRS = [(a, b) for a in VALUES for b in VALUES]
PREDICATES = [
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"
]  # fmt: skip
ORDERED = {
    "eq": lambda a, b: a == b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "ne": lambda a, b: a != b,
    "rd": lambda *_: True,  # of `ord`
    "no": lambda *_: False,  # of `uno`
}


def both(element: str = "f32") -> list[tuple[str, np.ndarray]]:
    with np.errstate(over="ignore"):
        return [(element, np.array(column).astype(NUMPY[element])) for column in zip(*PAIRS, strict=True)]


@pytest.mark.parametrize("number", range(16))
def test_compare(number: int) -> None:
    (found,) = elementwise("arith.cmpf", both(), ["i1"], f"predicate = {number} : i64")
    name = PREDICATES[number]
    for result, a, b in zip(found.tolist(), *(values.tolist() for _, values in both()), strict=True):
        if name in ("true", "false"):
            assert result == (name == "true")
        elif math.isnan(a) or math.isnan(b):
            assert result == name.startswith("u"), (name, a, b)
        else:
            assert result == ORDERED[name[1:]](a, b), (name, a, b)


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_extremes_and_nan(element: str) -> None:
    (_, a), (_, b) = both(element)
    a, b = a.astype(np.float64), b.astype(np.float64)
    expected = {
        "maximumf": np.maximum(a, b),
        "minimumf": np.minimum(a, b),
        "maxnumf": np.fmax(a, b),
        "minnumf": np.fmin(a, b),
    }
    for name, values in expected.items():
        (found,) = elementwise(f"arith.{name}", both(element), [element])
        np.testing.assert_array_equal(found.astype(np.float64), values, err_msg=name)


def test_arithmetic() -> None:
    (_, a), (_, b) = both()
    with np.errstate(all="ignore"):
        expected = {"addf": a + b, "subf": a - b, "mulf": a * b, "divf": a / b, "remf": np.fmod(a, b)}
    for name, values in expected.items():
        (found,) = elementwise(f"arith.{name}", both(), ["f32"])
        np.testing.assert_array_equal(found, values, err_msg=name)
        np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(values[~np.isnan(values)]))
    (found,) = elementwise("arith.negf", both()[:1], ["f32"])
    assert np.signbit(found).tolist() == (~np.signbit(a)).tolist()


def test_rounding() -> None:
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.49999997, 8388609.0, 1e30, -3.7, math.inf], np.float32)
    away = [math.copysign(math.floor(abs(v) + 0.5) if v != x[5] and v != x[6] else 0.0, v) for v in x[:-1].tolist()]
    expected = {
        "round": np.array([*away, math.inf], np.float32),
        "roundeven": np.rint(x),
        "floor": np.floor(x),
        "ceil": np.ceil(x),
        "trunc": np.trunc(x),
    }
    expected["round"][7] = 8388609.0
    for name, values in expected.items():
        (found,) = elementwise(f"math.{name}", [("f32", x)], ["f32"])
        np.testing.assert_array_equal(found, values, err_msg=name)
        assert np.signbit(found).tolist() == np.signbit(values).tolist(), name


UNARY = {
    "absf": abs, "acos": math.acos, "acosh": lambda x: math.acosh(x + 1), "asin": math.asin, "asinh": math.asinh,
    "atan": math.atan, "atanh": math.atanh, "cbrt": math.cbrt, "cos": math.cos, "cosh": math.cosh, "erf": math.erf,
    "erfc": math.erfc, "exp": math.exp, "exp2": math.exp2, "expm1": math.expm1, "log": math.log, "log10": math.log10,
    "log1p": math.log1p, "log2": math.log2, "rsqrt": lambda x: x**-0.5, "sin": math.sin, "sinh": math.sinh,
    "sqrt": math.sqrt, "tan": math.tan, "tanh": math.tanh,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions(name: str) -> None:
    x = np.array([0.03125, 0.25, 0.4375, 0.71875, 0.984375])
    given = x + 1 if name == "acosh" else x
    (found,) = elementwise(f"math.{name}", [("f64", given)], ["f64"])
    np.testing.assert_allclose(found, [UNARY[name](v) for v in x.tolist()], rtol=1e-15, atol=0)


def test_functions_of_several() -> None:
    (_, a), (_, b) = both()
    (found,) = elementwise("math.copysign", both(), ["f32"])
    np.testing.assert_array_equal(found, np.copysign(a, b))
    (found,) = elementwise("math.atan2", both(), ["f32"])
    np.testing.assert_allclose(found, np.arctan2(a, b), rtol=1e-6)
    base, exponent = np.array([-2.0, -2.0, 3.0, -1.0, -0.0, 0.5], np.float32), np.array([3, -2, 0, 2**30 + 1, 1, 10])
    (found,) = elementwise("math.fpowi", [("f32", base), ("i32", exponent.astype(np.int32))], ["f32"])
    assert found.tolist() == [-8.0, 0.25, 1.0, -1.0, 0.0, 0.5**10]
    assert np.signbit(found[4])
    (sine, cosine) = elementwise("math.sincos", [("f64", np.array([0.5]))], ["f64", "f64"])
    assert (sine[0], cosine[0]) == (math.sin(0.5), math.cos(0.5))


def test_classes() -> None:
    x = np.array([1.0, 1e-40, 0.0, math.inf, -math.inf, math.nan], np.float32)
    expected = {
        "isfinite": np.isfinite(x),
        "isinf": np.isinf(x),
        "isnan": np.isnan(x),
        "isnormal": np.array([True, False, False, False, False, False]),
    }
    for name, values in expected.items():
        (found,) = elementwise(f"math.{name}", [("f32", x)], ["i1"])
        assert found.tolist() == values.tolist(), name


def test_conversions_between_floats() -> None:
    x = np.array([1.0, 1.00390625, 65504.0, 1e-8, -math.inf, math.nan], np.float32)
    for narrow in ("f16", "bf16", "f8E5M2"):
        (cut,) = elementwise("arith.truncf", [("f32", x)], [narrow])
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(cut.astype(np.float32), x.astype(NUMPY[narrow]).astype(np.float32))
    (bits,) = elementwise("arith.bitcast", [("f32", x)], ["i32"])
    assert bits.tolist() == x.view(np.int32).tolist()
    (added,) = elementwise("arith.addf", [("f8E4M3FN", x[:2].astype(NUMPY["f8E4M3FN"]))] * 2, ["f8E4M3FN"])
    assert added.tolist() == [2.0, 2.0]


def test_bits_as_numbers() -> None:
    """A bit is -1 where it is signed."""
    x = np.array([False, True])
    (as_signed,) = elementwise("arith.sitofp", [("i1", x)], ["f32"])
    (as_unsigned,) = elementwise("arith.uitofp", [("i1", x)], ["f32"])
    assert (as_signed.tolist(), as_unsigned.tolist()) == ([0.0, -1.0], [0.0, 1.0])


def test_constants() -> None:
    text = """
    func.func @f() -> (f32, tensor<2xf64>, tensor<2x2xbf16>, tensor<2xi1>, i8, tensor<3xf32>) {
      %0 = "arith.constant"() <{value = 0xFF800000 : f32}> : () -> f32
      %1 = "arith.constant"() <{value = dense<0.1> : tensor<2xf64>}> : () -> tensor<2xf64>
      %2 = "arith.constant"() <{value = dense<[[1.0, 2.0], [3.0, -4.5]]> : tensor<2x2xbf16>}> : () -> tensor<2x2xbf16>
      %3 = "arith.constant"() <{value = dense<[true, false]> : tensor<2xi1>}> : () -> tensor<2xi1>
      %4 = "arith.constant"() <{value = 255 : i8}> : () -> i8
      %5 = "arith.constant"() <{value = dense<"0x0000803F000000800000C07F"> : tensor<3xf32>}> : () -> tensor<3xf32>
      "func.return"(%0, %1, %2, %3, %4, %5)
          : (f32, tensor<2xf64>, tensor<2x2xbf16>, tensor<2xi1>, i8, tensor<3xf32>) -> ()
    }"""
    infinite, splat, listed, bits, byte, blob = call_module(text, "f")
    assert infinite.tolist() == -math.inf
    assert splat.tolist() == [0.1, 0.1]
    assert listed.tolist() == [[1.0, 2.0], [3.0, -4.5]]
    assert bits.tolist() == [True, False]
    assert byte.tolist() == -1
    assert blob[0] == 1.0
    assert np.signbit(blob[1])
    assert np.isnan(blob[2])
