"""Matrix products as libraries take them: sizes, and strides that say row- or column-major."""

from __future__ import annotations

from collections.abc import Sequence

from coilpack.runtime.devices.base import Matrix, Product
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.program import ir

_DTYPES = (DType.f16, DType.bf16, DType.f32, DType.f64)
_NAMES = ("target", "lhs", "rhs", "addend")


def describe_product(operation: ir.Matmul, types: Sequence[ArrayType]) -> Product:
    """The product that a `matmul` operation asks for.

    Args:
        operation: says its factors, whatever its sizes.
        types: of its target, its left and right side, and its addend where it has one that counts.

    Raises:
        InputError: shapes or element types do not belong together, or a layout is none that libraries take.
    """
    target, lhs, rhs = types[:3]
    for name, type_ in zip(_NAMES, types, strict=False):
        if type_.dtype not in _DTYPES:
            raise InputError(f"the {name} is of type {type_.dtype.name}; it must be f16, bf16, f32 or f64")
    if lhs.dtype is not rhs.dtype or target.dtype not in (lhs.dtype, DType.f32):
        raise InputError(f"{lhs.dtype.name} times {rhs.dtype.name} to {target.dtype.name} is no product of the library")
    if DType.f64 in (lhs.dtype, target.dtype) and lhs.dtype is not target.dtype:
        raise InputError(f"{lhs.dtype.name} times {rhs.dtype.name} to {target.dtype.name} is no product of the library")
    shapes = [type_.shape for type_ in types]
    (*batch, m, n), k = target.shape, lhs.shape[-1] if lhs.shape else 0
    if len(batch) > 1 or shapes[:3] != [(*batch, m, n), (*batch, m, k), (*batch, k, n)]:
        raise InputError(f"shapes {lhs.shape} times {rhs.shape} give no {target.shape}")
    out, left, right = (_matrix(name, type_) for name, type_ in zip(_NAMES, (target, lhs, rhs), strict=False))
    if batch and batch[0] > 1 and not out.batch_stride:
        raise InputError("the products of a batch lie in one place")
    addend, is_bias = None, False
    if len(types) > 3:
        if types[3].shape != target.shape or types[3].dtype is not target.dtype:
            raise InputError(f"the addend is {types[3]}, the target is {target}")
        addend, is_bias = _addend(types[3], out, operation.beta)
    beta = operation.beta if addend is not None else 0.0
    count = batch[0] if batch else 1
    matrices = (out, left, right, addend)
    factors = (operation.alpha, beta, operation.tf32)
    return Product(lhs.dtype, target.dtype, count, m, n, k, *matrices, is_bias, *factors)


def _matrix(name: str, type_: ArrayType) -> Matrix:
    found = _laid_out(type_, row_major=True) or _laid_out(type_, row_major=False)
    if found is None:
        raise InputError(f"the {name} has the strides {type_.strides}; it must be row- or column-major")
    return found


def _laid_out(type_: ArrayType, *, row_major: bool) -> Matrix | None:
    """The matrix of a type, where it can be taken as row-major, or as column-major."""
    (length, count), (along, step) = type_.shape[:-3:-1], type_.strides[:-3:-1]
    if not row_major:
        length, count, along, step = count, length, step, along
    if count <= 1:
        step = max(length, 1)
    if (length > 1 and along != 1) or step < length:
        return None
    batched = len(type_.shape) == 3 and type_.shape[0] > 1
    return Matrix(row_major, step, type_.strides[0] if batched else 0)


def _addend(type_: ArrayType, target: Matrix, beta: float) -> tuple[Matrix, bool]:
    """The matrix that is added, and whether it is one row (of a row-major target) or column that is broadcast."""
    found = _laid_out(type_, row_major=target.is_row_major)
    if found is not None:
        return found, False
    (length, _), (along, step) = type_.shape[:-3:-1], type_.strides[:-3:-1]
    if not target.is_row_major:
        length, along, step = type_.shape[-2], step, along
    apart = len(type_.shape) == 3 and type_.shape[0] > 1 and type_.strides[0]
    if step == 0 and (along == 1 or length == 1) and beta == 1 and not apart:
        return Matrix(target.is_row_major, 0, 0), True
    raise InputError(
        f"the addend has the strides {type_.strides} and the factor {beta}; it must be laid out as the target, or be "
        "one row (of a row-major target) or column, broadcast, and with the factor 1"
    )
