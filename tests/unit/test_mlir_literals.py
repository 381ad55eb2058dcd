"""Numbers and literals of MLIR's text against numpy, and against what they must not cost."""

import ml_dtypes
import numpy as np
import pytest

from coilpack.compiler.mlir.parser import parse_module
from coilpack.compiler.mlir.syntax import DenseElementsAttr
from coilpack.runtime.errors import InvalidFileError


def _array(literal):
    module = parse_module(f'%0 = "arith.constant"() <{{value = {literal}}}> : () -> i1')
    value = module.operations[0].attributes["value"]
    assert isinstance(value, DenseElementsAttr)
    return value.array


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        ("dense<[[1, -2, 3], [4, 5, 6]]> : tensor<2x3xi32>", np.array([[1, -2, 3], [4, 5, 6]], np.int32)),
        ("dense<[255, -1, 0x7F]> : tensor<3xi8>", np.array([-1, -1, 127], np.int8)),
        ("dense<[255, 3]> : tensor<2xui8>", np.array([255, 3], np.uint8)),
        ("dense<[7, -8, 15]> : tensor<3xi4>", np.array([7, -8, -1], ml_dtypes.int4)),
        ("dense<18446744073709551615> : tensor<2xi64>", np.array(-1, np.int64)),
        ("dense<[true, false]> : tensor<2xi1>", np.array([True, False])),
        ("dense<[1.5, -2.5e-3]> : tensor<2xf64>", np.array([1.5, -2.5e-3])),
        ("dense<[0x7F800000, 0xFFC00000, 1.0]> : tensor<3xf32>", np.array([np.inf, np.nan, 1], np.float32)),
        ("dense<0x7F80> : tensor<4xbf16>", np.array(np.inf, ml_dtypes.bfloat16)),
        ("dense<[1.0, 0x38]> : tensor<2xf8E4M3FN>", np.array([1, 1], ml_dtypes.float8_e4m3fn)),
        ('dense<"0x0000803F000000C0"> : tensor<2xf32>', np.array([1, -2], np.float32)),
        ("dense<[]> : tensor<0xf32>", np.zeros(0, np.float32)),
        ("dense<> : tensor<0x4xf32>", np.zeros((0, 4), np.float32)),
        ("dense<[[[1]], // one\n [[2]]]> : tensor<2x1x1xindex>", np.array([[[1]], [[2]]], np.int64)),
    ],
)
def test_an_array_is_that_of_the_literal(literal, expected):
    found = _array(literal)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_one_value_for_all_stays_one_value():
    assert _array("dense<0.5> : tensor<1000000x1000000xf32>").shape == ()


def test_doubles_are_rounded_once():
    just_above_a_tie = "1.00390625000000001"  # between 1 and 1.0078125; float32 alone would make it the tie
    assert float(_array(f"dense<{just_above_a_tie}> : tensor<1xbf16>")) == 1.0  # the double is the tie itself
    assert float(_array("dense<1.0039062500000002> : tensor<1xbf16>")) == 1.0078125


@pytest.mark.parametrize(
    ("literal", "problem"),
    [
        ("dense<[1, 2]> : tensor<3xi32>", "the lists of this literal are not those of tensor<3xi32>"),
        ("dense<[[1, 2], [3]]> : tensor<3xi32>", "the lists of this literal"),
        ("dense<[1, , 2]> : tensor<3xi32>", "an element of this literal is missing"),
        ("dense<256> : tensor<3xi8>", "256 does not fit i8: its integers are -128 to 255"),
        ("dense<1.5> : tensor<3xi8>", "1.5 has a point; i8 needs an integer"),
        ("dense<1> : tensor<3xf32>", "1 is an integer; f32 needs a number with a point"),
        ("dense<1.0> : tensor<?xf32>", "its sizes must be known"),
        ('dense<"0x00"> : tensor<3xf32>', "1 bytes; tensor<3xf32> has 3 elements of 4"),
    ],
)
def test_a_literal_that_does_not_fit_its_type_is_told(literal, problem):
    with pytest.raises(InvalidFileError, match=r"line 1, column \d+") as caught:
        _array(literal)
    assert problem in str(caught.value)
