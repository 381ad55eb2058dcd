"""`tensor.extract_slice`, `tensor.insert_slice` and `tensor.pad`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from coilpack.compiler.mlir.lower.context import Context, Data, Handler, Size, as_number
from coilpack.compiler.mlir.lower.tensors import filled_by_body, result_type
from coilpack.compiler.mlir.syntax import DenseArrayAttr, Operation, TensorType, Value

_DYNAMIC = -(1 << 63)  # how MLIR marks a value that is an operand in a list of static ones


@dataclass(frozen=True)
class _Part:
    """What a slice takes of one dimension; the offset may depend on the contents of tensors."""

    offset: Data
    size: Size
    stride: int

    def is_whole(self, size: Size) -> bool:
        """Whether it is surely all of a dimension."""
        same = self.size is size or (isinstance(size, int) and isinstance(self.size, int) and self.size == size)
        return same and self.stride == 1 and isinstance(self.offset, int) and self.offset == 0

    @property
    def span(self) -> Size:
        """From the first element to behind the last."""
        return 0 if isinstance(self.size, int) and self.size == 0 else (self.size - 1) * self.stride + 1


def _mixed(context: Context, operation: Operation, name: str, dynamic: Iterator[Value]) -> list[Data]:
    """A list in which some values are in an attribute and the others are operands."""
    attribute = operation.attributes.get(name)
    values = attribute.values if isinstance(attribute, DenseArrayAttr) else ()
    return [context.data(next(dynamic)) if value == _DYNAMIC else int(value) for value in values]


def _parts(context: Context, operation: Operation, operands: Sequence[Value], shape: Sequence[Size]) -> list[_Part]:
    """The slice of each dimension, checked to be inside where that is known before it runs."""
    dynamic = iter(operands)
    offsets, sizes, strides = (
        _mixed(context, operation, name, dynamic) for name in ("static_offsets", "static_sizes", "static_strides")
    )
    if not len(offsets) == len(sizes) == len(strides) == len(shape):
        raise context.invalid(operation, f"{operation.name}: {len(offsets)} offsets for {len(shape)} dimensions")
    parts = []
    for dim, (offset, size, stride) in enumerate(zip(offsets, sizes, strides, strict=True)):
        if not isinstance(stride, int) or stride < 1:
            raise context.unsupported(operation, f"{operation.name}: the stride of dimension {dim} is no known number")
        if isinstance(size, torch.Tensor):
            raise context.unsupported(operation, f"{operation.name}: a size depends on the contents of a tensor")
        part = _Part(offset, size, stride)
        if not isinstance(offset, torch.Tensor):
            what = f"a slice of {size} from {offset} of dimension {dim}, which has size {shape[dim]}"
            context.require(operation, offset >= 0, what)
            context.require(operation, offset + part.span <= shape[dim], what)
        parts.append(part)
    return parts


def _taken(tensor: torch.Tensor, dim: int, part: _Part) -> torch.Tensor:
    """The part of one dimension."""
    if isinstance(part.offset, torch.Tensor):
        return tensor.index_select(dim, part.offset + torch.arange(as_number(part.size)) * part.stride)
    if part.is_whole(tensor.shape[dim]):
        return tensor
    narrow = tensor.narrow(dim, part.offset, part.span)
    if part.stride == 1:
        return narrow
    return narrow[(slice(None),) * dim + (slice(None, None, part.stride),)]


def _kept_dims(sizes: Sequence[int | None], reduced: Sequence[int | None]) -> list[int] | None:
    """The dimensions of a slice that its type without some of size 1 has; None if that is not its type."""
    kept: list[int] = []
    for dim, size in enumerate(sizes):
        if len(kept) < len(reduced) and size == reduced[len(kept)]:
            kept.append(dim)
        elif size != 1:
            return None
    return kept if len(kept) == len(reduced) else None


def _known(parts: Sequence[_Part]) -> list[int | None]:
    return [part.size if isinstance(part.size, int) else None for part in parts]


def _kept(context: Context, operation: Operation, parts: Sequence[_Part], type_: TensorType) -> list[int]:
    known = _known(parts)
    # A size may be known here though the type leaves it open.
    kept = list(range(len(parts))) if len(parts) == len(type_.shape) else _kept_dims(known, type_.shape)
    kept = kept if kept is not None else _kept_by_rank(known, len(type_.shape))
    if kept is None:
        raise context.invalid(operation, f"{operation.name}: {type_} is not the type of a slice of {known}")
    return kept


def _kept_by_rank(sizes: Sequence[int | None], rank: int) -> list[int] | None:
    """All dimensions but those of size 1, if that makes `rank`."""
    kept = [dim for dim, size in enumerate(sizes) if size != 1]
    return kept if len(kept) == rank else None


def _extract_slice(context: Context, operation: Operation) -> Sequence[Data]:
    source, *operands = operation.operands
    tensor = context.tensor(source)
    parts = _parts(context, operation, operands, tensor.shape)
    for dim, part in enumerate(parts):
        tensor = _taken(tensor, dim, part)
    kept = _kept(context, operation, parts, result_type(operation))
    for dim in reversed(range(len(parts))):
        tensor = tensor if dim in kept else tensor.select(dim, 0)
    return context.declared(operation, (tensor,))


def _insert_slice(context: Context, operation: Operation) -> Sequence[Data]:
    source, destination, *operands = operation.operands
    tensor, into = context.tensor(source), context.tensor(destination)
    parts = _parts(context, operation, operands, into.shape)
    assert isinstance(source.type, TensorType)
    kept = _kept(context, operation, parts, source.type)
    for size, dim in zip(tensor.shape, kept, strict=True):
        context.require_equal(operation, size, parts[dim].size, f"the size of what is inserted along dimension {dim}")
    tensor = tensor[tuple(slice(None) if dim in kept else None for dim in range(len(parts)))]
    return context.declared(operation, (inserted(context, operation, into, tensor, parts),))


def inserted(
    context: Context,
    operation: Operation,
    into: torch.Tensor,
    tensor: torch.Tensor,
    parts: Sequence[_Part],
    dim: int = 0,
) -> torch.Tensor:
    """`into` with a slice replaced, from dimension `dim` on."""
    while dim < len(parts) and parts[dim].is_whole(into.shape[dim]):
        dim += 1
    if dim == len(parts):
        return tensor.expand(into.shape)
    part = parts[dim]
    if isinstance(part.offset, torch.Tensor):
        places = part.offset + torch.arange(as_number(part.size)) * part.stride
        inner = inserted(context, operation, into.index_select(dim, places), tensor, parts, dim + 1)
        return into.index_copy(dim, places, inner)
    inner = inserted(context, operation, _taken(into, dim, part), tensor, parts, dim + 1)
    return torch.slice_scatter(into, inner, dim, part.offset, part.offset + part.span, part.stride)


def _pad(context: Context, operation: Operation) -> Sequence[Data]:
    source, *operands = operation.operands
    tensor, dynamic = context.tensor(source), iter(operands)
    low = _mixed(context, operation, "static_low", dynamic)
    high = _mixed(context, operation, "static_high", dynamic)
    if not len(low) == len(high) == tensor.ndim:
        raise context.invalid(operation, f"tensor.pad: {len(low)} amounts for {tensor.ndim} dimensions")
    shape, parts = [], []
    for size, before, after in zip(tensor.shape, low, high, strict=True):
        if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor):
            raise context.unsupported(operation, "tensor.pad: an amount depends on the contents of a tensor")
        context.require(operation, before >= 0, f"tensor.pad: {before} elements before")
        context.require(operation, after >= 0, f"tensor.pad: {after} elements behind")
        shape.append(before + size + after)
        parts.append(_Part(before, size, 1))
    return context.declared(
        operation, (inserted(context, operation, filled_by_body(context, operation, shape), tensor, parts),)
    )


OPERATIONS: Mapping[str, Handler] = {
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.pad": _pad,
}
