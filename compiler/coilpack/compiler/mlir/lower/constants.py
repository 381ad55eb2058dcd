"""`arith.constant`: one value for all becomes a fill, which fuses; other contents a buffer of the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.lower.elements import DTYPES, element_of, to_torch
from coilpack.compiler.mlir.syntax import DenseElementsAttr, FloatAttr, IntegerAttr, Operation, TensorType


def constant_operations(operations: Sequence[Operation]) -> Iterator[Operation]:
    """The `arith.constant`s with contents, nested ones too, in order."""
    stack = list(reversed(operations))
    while stack:
        operation = stack.pop()
        value = operation.attributes.get("value")
        if operation.name == "arith.constant" and isinstance(value, DenseElementsAttr) and value.array.ndim:
            yield operation
        inner = [o for region in operation.regions for block in region.blocks for o in block.operations]
        stack.extend(reversed(inner))


def contents(operation: Operation) -> torch.Tensor:
    """The tensor of one that `constant_operations` gave."""
    value = operation.attributes["value"]
    assert isinstance(value, DenseElementsAttr)
    return to_torch(value.array)


def _wrapped(value: int, dtype: torch.dtype) -> int | bool:
    """An integer of either sign as the signed one of the same bits."""
    if dtype == torch.bool:
        return bool(value & 1)
    bits = dtype.itemsize * 8
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _constant(context: Context, operation: Operation) -> Sequence[Data]:
    kept = context.constants.get(operation)
    if kept is not None:
        return (kept,)
    value, type_ = operation.attributes.get("value"), operation.results[0].type
    element = element_of(type_)
    assert element is not None
    dtype = DTYPES[element.name]
    if isinstance(value, IntegerAttr) and element.name in ("index", "i64"):
        return (_wrapped(value.value, dtype),)
    if isinstance(value, IntegerAttr):
        return (torch.full((), _wrapped(value.value, dtype), dtype=dtype),)
    if isinstance(value, FloatAttr):
        return (_filled((), value.value, dtype),)
    if isinstance(value, DenseElementsAttr) and isinstance(type_, TensorType):
        shape = tuple(size for size in type_.shape if size is not None)
        scalar = to_torch(value.array)
        number = scalar.to(torch.float64).item() if dtype.is_floating_point else scalar.item()
        return (_filled(shape, number, dtype),)
    raise context.unsupported(operation, "arith.constant: a value that is neither a number nor dense elements")


def _filled(shape: Sequence[int], number: float, dtype: torch.dtype) -> torch.Tensor:
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return torch.full(shape, number, dtype=torch.float32).to(dtype)
    return torch.full(shape, number, dtype=dtype)


OPERATIONS: Mapping[str, Handler] = {"arith.constant": _constant}
