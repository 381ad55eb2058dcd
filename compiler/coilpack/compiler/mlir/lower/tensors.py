"""`tensor`: making, reshaping and joining tensors, and their elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from coilpack.compiler.mlir.lower.context import Context, Data, Handler, Size, as_number
from coilpack.compiler.mlir.lower.elements import DTYPES
from coilpack.compiler.mlir.lower.spaces import Space
from coilpack.compiler.mlir.syntax import ArrayAttr, IntegerAttr, Operation, TensorType, Value


def result_type(operation: Operation) -> TensorType:
    """The type of the one result, which is a tensor."""
    type_ = operation.results[0].type
    assert isinstance(type_, TensorType)
    return type_


def _shape(context: Context, operation: Operation, dynamic: Sequence[Value]) -> list[Size]:
    """The result's shape, whose dynamic sizes are operands."""
    sizes = iter(dynamic)
    given = result_type(operation).shape
    if sum(size is None for size in given) != len(dynamic):
        count = sum(size is None for size in given)
        raise context.invalid(operation, f"{operation.name}: {len(dynamic)} sizes for {count} dynamic dimensions")
    return [context.size(operation, next(sizes)) if size is None else size for size in given]


def _dtype(operation: Operation) -> torch.dtype:
    return DTYPES[result_type(operation).element.name]


def _empty(context: Context, operation: Operation) -> Sequence[Data]:
    """Zeros, so that what a module reads of it is the same at every run."""
    shape = _shape(context, operation, operation.operands)
    return (torch.zeros(shape, dtype=torch.int8).to(_dtype(operation)),)


def _splat(context: Context, operation: Operation) -> Sequence[Data]:
    value, *sizes = operation.operands
    return (context.tensor(value).expand(_shape(context, operation, sizes)),)


def _dim(context: Context, operation: Operation) -> Sequence[Data]:
    tensor, number = operation.operands
    dim, shape = context.size(operation, number), context.tensor(tensor).shape
    if not isinstance(dim, int) or not 0 <= dim < len(shape):
        raise context.invalid(operation, f"tensor.dim: dimension {dim} of a tensor that has {len(shape)}")
    return (shape[dim],)


def _rank(context: Context, operation: Operation) -> Sequence[Data]:
    return (context.tensor(operation.operands[0]).ndim,)


def _cast(context: Context, operation: Operation) -> Sequence[Data]:
    return context.declared(operation, context.tensors(operation))


def _groups(context: Context, operation: Operation, rank: int) -> list[list[int]]:
    """The `reassociation`: which dimensions of the larger shape make up each of the smaller one."""
    attribute = operation.attributes.get("reassociation")
    groups = [
        [index.value for index in group.values if isinstance(index, IntegerAttr)]
        for group in (attribute.values if isinstance(attribute, ArrayAttr) else ())
        if isinstance(group, ArrayAttr)
    ]
    if [dim for group in groups for dim in group] != list(range(rank)) and groups:
        raise context.invalid(operation, f"{operation.name}: the groups {groups} are not those of {rank} dimensions")
    return groups


def _product(sizes: Sequence[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def _collapse_shape(context: Context, operation: Operation) -> Sequence[Data]:
    tensor = context.tensor(operation.operands[0])
    groups = _groups(context, operation, tensor.ndim)
    shape = [_product([tensor.shape[dim] for dim in group]) for group in groups]
    return context.declared(operation, (tensor.reshape(shape),))


def _expand_shape(context: Context, operation: Operation) -> Sequence[Data]:
    source, *given = operation.operands
    tensor, type_ = context.tensor(source), result_type(operation)
    dynamic = iter([context.size(operation, value) for value in given])
    named: list[Size | None] = [next(dynamic, None) if size is None else size for size in type_.shape]
    # Without dimensions there are no groups, and every size is 1.
    shape: list[Size] = [] if tensor.ndim else [size for size in type_.shape if size is not None]
    for size, group in zip(tensor.shape, _groups(context, operation, len(type_.shape)), strict=True):
        parts = [named[dim] for dim in group]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) - 1:
            raise context.invalid(operation, "tensor.expand_shape: two sizes of one group are not given")
        if len(known) < len(parts):
            rest = size // _product(known)
            parts = [rest if part is None else part for part in parts]
        shape += [part for part in parts if part is not None]
        product = _product([part for part in parts if part is not None])
        context.require_equal(operation, product, size, f"the product of sizes {group} and what is expanded")
    return (tensor.reshape(shape),)


def _from_elements(context: Context, operation: Operation) -> Sequence[Data]:
    shape = [size for size in result_type(operation).shape if size is not None]
    if math.prod(shape) != len(operation.operands):
        raise context.invalid(operation, f"{operation.name}: {len(operation.operands)} elements for the shape {shape}")
    if not operation.operands:
        return (torch.zeros(shape, dtype=_dtype(operation)),)
    return (torch.stack(context.tensors(operation)).reshape(shape),)


def _indices(context: Context, operation: Operation, values: Sequence[Value], shape: Sequence[Size]) -> list[Data]:
    """Indices of an element; those that are known are checked."""
    indices = [context.data(value) for value in values]
    if len(indices) != len(shape):
        raise context.invalid(operation, f"{operation.name}: {len(indices)} indices for {len(shape)} dimensions")
    for dim, (index, size) in enumerate(zip(indices, shape, strict=True)):
        if not isinstance(index, torch.Tensor):
            what = f"index {index} of dimension {dim}, which has size {size}"
            context.require(operation, index >= 0, what)
            context.require(operation, index < size, what)
    return indices


def _as_tensors(indices: Sequence[Data]) -> tuple[torch.Tensor, ...]:
    return tuple(i if isinstance(i, torch.Tensor) else torch.full((), as_number(i), dtype=torch.int64) for i in indices)


def elements_at(tensor: torch.Tensor, indices: Sequence[Data]) -> torch.Tensor:
    """The elements at indices that broadcast; torch would take a tensor without dimensions out of the program."""
    places = _as_tensors(indices)
    found = tensor[tuple(place.reshape(1) if place.ndim == 0 else place for place in places)]
    return found.squeeze(0) if all(place.ndim == 0 for place in places) else found


def _extract(context: Context, operation: Operation) -> Sequence[Data]:
    source, *values = operation.operands
    tensor = context.tensor(source)
    indices = _indices(context, operation, values, tensor.shape)
    if any(isinstance(index, torch.Tensor) for index in indices):
        return (elements_at(tensor, indices),)
    for index in indices:
        tensor = tensor.select(0, as_number(index))
    return (tensor,)


def _insert(context: Context, operation: Operation) -> Sequence[Data]:
    scalar, destination, *values = operation.operands
    tensor = context.tensor(destination)
    indices = _indices(context, operation, values, tensor.shape)
    if not indices:
        return (context.tensor(scalar),)
    return (tensor.index_put(_as_tensors(indices), context.tensor(scalar)),)


def _concat(context: Context, operation: Operation) -> Sequence[Data]:
    dim, tensors = operation.attributes.get("dim"), context.tensors(operation)
    if not isinstance(dim, IntegerAttr) or not tensors or not 0 <= dim.value < tensors[0].ndim:
        raise context.invalid(operation, "tensor.concat: it has no dimension of its operands")
    for tensor in tensors[1:]:
        for number, (size, first) in enumerate(zip(tensor.shape, tensors[0].shape, strict=True)):
            if number != dim.value:
                context.require_equal(operation, size, first, f"size {number} of what is joined")
    return context.declared(operation, (torch.cat(tensors, dim.value),))


def _generate(context: Context, operation: Operation) -> Sequence[Data]:
    shape = _shape(context, operation, operation.operands)
    return (filled_by_body(context, operation, shape),)


def filled_by_body(context: Context, operation: Operation, shape: Sequence[Size]) -> torch.Tensor:
    """A tensor whose elements a body computes from their indices."""
    space, block = Space(tuple(shape)), operation.regions[0].blocks[0]
    (element,) = context.run(block, space.indices())
    return space.spread(context.as_tensor(element, block.operations[-1].operands[0]))


OPERATIONS: Mapping[str, Handler] = {
    "tensor.empty": _empty,
    "tensor.splat": _splat,
    "tensor.dim": _dim,
    "tensor.rank": _rank,
    "tensor.cast": _cast,
    "tensor.collapse_shape": _collapse_shape,
    "tensor.expand_shape": _expand_shape,
    "tensor.from_elements": _from_elements,
    "tensor.extract": _extract,
    "tensor.insert": _insert,
    "tensor.concat": _concat,
    "tensor.generate": _generate,
}
