"""Sums of products as products of matrices, for which Inductor has templates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from coilpack.compiler.mlir.lower.bodies import Body
from coilpack.compiler.mlir.lower.context import Context, Size
from coilpack.compiler.mlir.lower.elements import element_of
from coilpack.compiler.mlir.lower.spaces import Space
from coilpack.compiler.mlir.syntax import ScalarType, Value

_MATRIX_TYPES = (ScalarType("f16"), ScalarType("bf16"), ScalarType("f32"))  # what templates multiply


@dataclass(frozen=True)
class _Roles:
    """The dimensions of a product of matrices: in both and the result, in one and the result, in both and summed."""

    batch: list[int]
    rows: list[int]
    columns: list[int]
    summed: list[int]


def contracted(context: Context, body: Body, space: Space, along: Sequence[int], term: Value) -> torch.Tensor | None:
    """The sum of a term over dimensions if it is a product of matrices, of size 1 along these; None if not.

    Factors may be computed in the body from one operand each. Those that the body widens are multiplied as they are
    then, so that sums are as precise as it says.
    """
    operation = body.definition(term)
    if operation is None or operation.name != "arith.mulf":
        return None
    factors = operation.operands
    roles = _roles(space, body.dims(factors[0]), body.dims(factors[1]), along)
    if roles is None or element_of(term.type) not in _MATRIX_TYPES:
        return None
    left, right = (context.as_tensor(d, v) for d, v in zip(body.evaluate(context, factors), factors, strict=True))
    a = _matrices(space, left, roles.batch, roles.rows, roles.summed)
    b = _matrices(space, right, roles.batch, roles.summed, roles.columns)
    product = torch.bmm(a, b) if roles.batch else torch.mm(a.squeeze(0), b.squeeze(0))
    return _over_space(space, product, roles)


def _roles(space: Space, left: Collection[int], right: Collection[int], along: Sequence[int]) -> _Roles | None:
    """How dimensions take part; None where no template would gain by it: a vector, or no sum over both."""
    kept = sorted((set(left) | set(right)) - set(along))
    roles = _Roles(
        [dim for dim in kept if dim in left and dim in right],
        [dim for dim in kept if dim not in right],
        [dim for dim in kept if dim not in left],
        list(along),
    )
    everywhere = all(dim in left and dim in right for dim in along)
    counts = [_product(space, part) for part in (roles.rows, roles.columns)]
    vector = any(isinstance(count, int) and count < 2 for count in counts)
    return roles if everywhere and not vector else None


def _matrices(
    space: Space, x: torch.Tensor, batch: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> torch.Tensor:
    """A tensor over the space as a batch of matrices."""
    dims = [*batch, *first, *second]
    x = space.spread(x, dims)
    for dim in reversed(range(space.rank)):
        x = x if dim in dims else x.select(dim, 0)
    order = sorted(dims)
    x = x.permute([order.index(dim) for dim in dims])
    return x.reshape([_product(space, part) for part in (batch, first, second)])


def _product(space: Space, dims: Sequence[int]) -> Size:
    result: Size = 1
    for dim in dims:
        result = result * space.sizes[dim]
    return result


def _over_space(space: Space, product: torch.Tensor, roles: _Roles) -> torch.Tensor:
    """A batch of matrices as a tensor that broadcasts to the space."""
    dims = [*roles.batch, *roles.rows, *roles.columns]
    x = product.reshape([space.sizes[dim] for dim in dims])
    x = x.permute(sorted(range(len(dims)), key=dims.__getitem__))
    return x[tuple(slice(None) if dim in dims else None for dim in range(space.rank))]
