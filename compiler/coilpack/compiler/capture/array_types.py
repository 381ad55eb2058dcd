"""Types of arrays from their torch counterparts, and the memory that they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from coilpack.compiler.arithmetic import add, maximum, multiply, subtract
from coilpack.compiler.capture.size_expressions import expression
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind


def tensor_type(tensor: Any, what: str) -> ir.TensorType:
    """The IR type of a (fake) tensor.

    Raises:
        UnsupportedError: its element type is unknown, or a size cannot be computed at a call; names `what`.
    """
    try:
        dtype = DType.from_numpy_name(str(tensor.dtype).removeprefix("torch."))
    except KeyError as error:
        raise UnsupportedError(f"{what} has element type {tensor.dtype}, which no kernel parameter can have") from error
    try:
        return array_type(dtype, map(expression, tensor.shape), map(expression, tensor.stride()))
    except UnsupportedError as error:
        raise UnsupportedError(f"{what} has the shape {tuple(tensor.shape)}: {error}") from error


def array_type(dtype: DType, shape: Iterable[Expr], strides: Iterable[Expr]) -> ir.TensorType:
    """The type of a strided array; written as the row-major type where it is that for all sizes.

    The factors of a stride may come in another order than those of the row-major one.
    """
    exact = ir.TensorType(dtype, tuple(shape), tuple(strides))
    contiguous = ir.TensorType.contiguous(dtype, exact.shape)
    same = all(_factors(a) == _factors(b) for a, b in zip(exact.strides, contiguous.strides, strict=True))
    return contiguous if same else exact


def _factors(stride: Expr) -> tuple[Counter[Expr], int]:
    """The symbolic and the constant factors of a stride, in which torch counts a size of 0 as 1."""
    match stride:
        case int():
            return Counter(), stride
        case Binary(kind=ExprKind.MUL, lhs=lhs, rhs=rhs):
            (symbolic, constant), (others, factor) = _factors(lhs), _factors(rhs)
            return symbolic + others, constant * factor
        case Binary(kind=ExprKind.MAX, lhs=size, rhs=1):
            return _factors(size)
    return Counter([stride]), 1


def span_nbytes(type_: ir.TensorType) -> Expr:
    """Bytes from the first element of an array to the end of its last; at least that where it has no elements."""
    if type_.is_contiguous:
        return multiply(*type_.shape, type_.dtype.itemsize)
    if all(isinstance(size, int) for size in (*type_.shape, *type_.strides)):
        return ArrayType(type_.dtype, type_.shape, type_.strides).span_nbytes  # type: ignore[arg-type]
    steps = [multiply(subtract(size, 1), step) for size, step in zip(type_.shape, type_.strides, strict=True)]
    return multiply(maximum(add(*steps, 1), 0), type_.dtype.itemsize)
