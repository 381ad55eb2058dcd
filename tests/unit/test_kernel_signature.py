"""Which arguments of a Triton kernel are PTX parameters, and what is known of each."""

import pytest

from coilpack.compiler.kernels.signature import Parameter, is_iree_compatible, runtime_parameters
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, UnsupportedError


def test_constants_wherever_they_stand_are_no_parameters():
    names = ["x", "BLOCK", "n", "bias", "stride", "y"]
    signature = {"x": "*fp16", "BLOCK": "constexpr", "n": "i32", "bias": "constexpr", "stride": "i32", "y": "*bf16"}
    constants = {"BLOCK": 128, (3,): None, "stride": 1}
    found = runtime_parameters(names, signature, constants, {(0,): [["tt.divisibility", 16]]})
    assert found == (Parameter("x", "*fp16", 16), Parameter("n", "i32"), Parameter("y", "*bf16"))


def test_order_is_that_of_the_function_not_of_the_signature():
    found = runtime_parameters(["a", "b"], {"b": "i32", "a": "*fp32"}, {}, {})
    assert [p.name for p in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("type_name", "size", "alignment", "dtype"),
    [
        ("*fp16", 8, 2, DType.f16),
        ("*i64", 8, 8, DType.i64),
        ("bf16", 2, 2, DType.bf16),
        ("fp32", 4, 4, DType.f32),
        ("fp64", 8, 8, DType.f64),
        ("i1", 1, 1, DType.i1),
    ],
)
def test_sizes_and_alignments(type_name, size, alignment, dtype):
    parameter = Parameter("p", type_name)
    assert (parameter.size, parameter.alignment, parameter.dtype) == (size, alignment, dtype)
    assert parameter.is_pointer == type_name.startswith("*")


def test_alignment_of_a_pointer_is_what_the_code_relies_on():
    assert Parameter("p", "*fp16", 16).alignment == 16
    assert Parameter("n", "i32", 16).alignment == 4  # for a scalar, divisibility is about its value


@pytest.mark.parametrize("type_name", ["tensordesc<fp16[64,64]>", "nvTmaDesc", "**fp32", ("*fp32", "i32")])
def test_what_cannot_be_passed_is_refused_by_name(type_name):
    with pytest.raises(UnsupportedError, match="the argument 'weights' is of type"):
        runtime_parameters(["weights"], {"weights": type_name}, {}, {})


def test_an_argument_without_a_type_and_a_type_without_an_argument_are_refused():
    with pytest.raises(InputError, match="no type for the argument 'b'"):
        runtime_parameters(["a", "b"], {"a": "i32"}, {}, {})
    with pytest.raises(InputError, match="names 'c', which is not an argument"):
        runtime_parameters(["a"], {"a": "i32"}, {"c": 1}, {})


@pytest.mark.parametrize(
    ("types", "compatible"),
    [
        (["*fp32", "*fp32", "i32", "fp32"], True),
        (["*fp32", "i32", "*fp32"], False),
        (["*fp32", "i64"], False),
        (["*fp32"] * 16 + ["i32"] * 64, True),
        (["*fp32"] * 17, False),
        (["i32"] * 65, False),
        ([], True),
    ],
)
def test_iree_takes_pointers_then_32_bit_constants(types, compatible):
    assert is_iree_compatible([Parameter("p", t) for t in types]) is compatible
