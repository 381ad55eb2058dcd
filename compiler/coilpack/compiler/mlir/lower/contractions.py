"""Sums of products as products of matrices, for which Inductor has templates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from coilpack.compiler.mlir.lower.bodies import Body
from coilpack.compiler.mlir.lower.context import Context, Size
from coilpack.compiler.mlir.lower.spaces import Space
from coilpack.compiler.mlir.syntax import Value

_MATRIX_TYPES = (torch.float16, torch.bfloat16, torch.float32)  # what templates multiply


@dataclass(frozen=True)
class _Roles:
    """The dimensions of a product of matrices: in both and the result, in one and the result, in both and summed."""

    batch: list[int]
    rows: list[int]
    columns: list[int]
    summed: list[int]


def contracted(context: Context, body: Body, space: Space, along: Sequence[int], term: Value) -> torch.Tensor | None:
    """The sum of a term over dimensions if it is a product of matrices, of size 1 along these; None if not.

    Factors may be computed in the body from one operand each, as by a conversion.
    """
    operation = body.definition(term)
    if operation is None or operation.name != "arith.mulf":
        return None
    left, right = operation.operands
    roles = _roles(body.dims(left), body.dims(right), along)
    if roles is None:
        return None
    a, b = (context.as_tensor(d, v) for d, v in zip(body.evaluate(context, [left, right]), (left, right), strict=True))
    if a.dtype not in _MATRIX_TYPES:
        return None
    product = torch.bmm(
        _matrices(space, a, roles.batch, roles.rows, roles.summed),
        _matrices(space, b, roles.batch, roles.summed, roles.columns),
    )
    return _over_space(space, product, roles)


def _roles(left: Collection[int], right: Collection[int], along: Sequence[int]) -> _Roles | None:
    """How dimensions take part; None where no template would gain by it: no rows, no columns, or no sum over both."""
    kept = sorted((set(left) | set(right)) - set(along))
    roles = _Roles(
        [dim for dim in kept if dim in left and dim in right],
        [dim for dim in kept if dim not in right],
        [dim for dim in kept if dim not in left],
        list(along),
    )
    everywhere = all(dim in left and dim in right for dim in along)
    return roles if everywhere and roles.rows and roles.columns else None


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
