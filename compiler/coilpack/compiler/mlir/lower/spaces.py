"""Iteration spaces of structured operations, and tensors seen from them through their indexing maps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from coilpack.compiler.mlir.lower.affine import dims_in, evaluate
from coilpack.compiler.mlir.lower.context import Context, Data, Size, as_number
from coilpack.compiler.mlir.syntax import (
    AffineBinary,
    AffineConstant,
    AffineDim,
    AffineExpr,
    AffineMap,
    Operation,
)


@dataclass(frozen=True)
class Space:
    """The iteration space of an operation: the size of each dimension, outermost first."""

    sizes: tuple[Size, ...]

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.sizes)

    def index(self, dim: int) -> torch.Tensor:
        """The index of a dimension, as a tensor that broadcasts to the space."""
        return along(torch.arange(as_number(self.sizes[dim])), dim, self.rank)

    def indices(self) -> tuple[torch.Tensor, ...]:
        """The index of each dimension."""
        return tuple(self.index(dim) for dim in range(self.rank))

    def spread(self, data: Data, dims: Collection[int] | None = None) -> torch.Tensor:
        """`data` repeated along `dims` (all by default) where it is the same for all of them."""
        tensor = torch.as_tensor(data)
        tensor = tensor.reshape((1,) * self.rank) if tensor.ndim == 0 else tensor
        wanted = range(self.rank) if dims is None else dims
        return tensor.expand([self.sizes[d] if d in wanted else -1 for d in range(self.rank)])


def along(vector: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
    """A vector as a tensor of `rank` dimensions, all others of size 1."""
    return vector[tuple(slice(None) if d == dim else None for d in range(rank))]


def space_of(
    context: Context, operation: Operation, dims: int, tensors: Sequence[Data], maps: Sequence[AffineMap]
) -> Space:
    """The space that operands with these maps span.

    Raises:
        CoilpackError: two operands disagree on the size of a dimension, or none says it.
    """
    sizes: dict[int, Size] = {}
    for tensor, map_ in zip(tensors, maps, strict=True):
        if not isinstance(tensor, torch.Tensor) or not map_.results:
            continue
        if len(map_.results) != tensor.ndim:
            raise context.invalid(
                operation, f"{operation.name}: a map has {len(map_.results)} results for {tensor.ndim} dimensions"
            )
        for size, result in zip(tensor.shape, map_.results, strict=True):
            if isinstance(result, AffineDim) and result.position not in sizes:
                sizes[result.position] = size
            elif isinstance(result, AffineDim):
                what = f"the size of dimension d{result.position}"
                context.require_equal(operation, size, sizes[result.position], what)
    missing = [dim for dim in range(dims) if dim not in sizes]
    if missing:
        raise context.unsupported(operation, f"{operation.name}: no operand has the size of dimension d{missing[0]}")
    return Space(tuple(sizes[dim] for dim in range(dims)))


def seen(context: Context, operation: Operation, data: Data, map_: AffineMap, space: Space) -> Data:
    """An operand as a tensor that broadcasts to the space; a scalar stays one.

    Raises:
        CoilpackError: the map reads past the operand.
    """
    if not isinstance(data, torch.Tensor) or data.ndim == 0:
        return data
    tensor, results = data, list(map_.results)
    for position in reversed(range(len(results))):
        result = results[position]
        if isinstance(result, AffineConstant):
            _check_inside(context, operation, result.value, tensor.shape[position], position)
            tensor = tensor.select(position, result.value)
            del results[position]
    positions = [result.position for result in results if isinstance(result, AffineDim)]
    if len(positions) == len(results) == len(set(positions)):
        order = sorted(range(len(positions)), key=positions.__getitem__)
        return tensor.permute(order)[tuple(slice(None) if d in positions else None for d in range(space.rank))]
    return _gathered(context, operation, tensor, results, space)


def _gathered(
    context: Context, operation: Operation, tensor: torch.Tensor, results: Sequence[AffineExpr], space: Space
) -> torch.Tensor:
    """Reads a tensor at computed indices; Inductor turns them into arithmetic on addresses."""
    used = {dim: space.index(dim) for result in results for dim in dims_in(result)}
    indices = [used.get(dim, 0) for dim in range(space.rank)]
    for position, result in enumerate(results):
        last = _last(result, space)
        if last is None:
            raise context.unsupported(operation, f"{operation.name}: the map's result {position} may be negative")
        _check_inside(context, operation, last, tensor.shape[position], position)
    places = (torch.as_tensor(evaluate(result, indices)) for result in results)
    return tensor[tuple(place.reshape((1,) * space.rank) if place.ndim == 0 else place for place in places)]


def _check_inside(context: Context, operation: Operation, last: Size, size: Size, position: int) -> None:
    what = f"the map reads index {last} of dimension {position} of an operand, which has size {size}"
    context.require(operation, last < size, what)


def _last(expression: AffineExpr, space: Space) -> Size | None:
    """A bound of an expression that never falls, reached at the end of the space; None for any other."""
    match expression:
        case AffineDim(position):
            return space.sizes[position] - 1
        case AffineConstant(value):
            return value if value >= 0 else None
        case AffineBinary("mod", lhs, AffineConstant(value)):
            return value - 1 if _last(lhs, space) is not None else None
        case AffineBinary("+" | "*" | "floordiv" | "ceildiv" as name, lhs, rhs):
            left, right = _last(lhs, space), _last(rhs, space)
            if left is None or right is None:
                return None
            return evaluate(AffineBinary(name, AffineDim(0), AffineDim(1)), (left, right))  # type: ignore[return-value]
        case _:
            return None
