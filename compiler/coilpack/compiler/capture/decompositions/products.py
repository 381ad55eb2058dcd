"""Products and distances that no template takes, as sums that Inductor fuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten

_TEMPLATE_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def _has_template(*operands: torch.Tensor) -> bool:
    """Whether a template multiplies these; complex ones are split into real ones first."""
    if operands[0].is_complex():
        return True
    empty = any(isinstance(size, int) and size == 0 for operand in operands for size in operand.shape)
    return operands[0].dtype in _TEMPLATE_TYPES and not empty


def _summed(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """(..., m, k) by (..., k, n), each result a sum by itself."""
    return (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(-2, dtype=left.dtype)


def _product(left: torch.Tensor, right: torch.Tensor) -> Any:
    return NotImplemented if _has_template(left, right) else _summed(left, right)


def _added_product(
    added: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    if _has_template(left, right):
        return NotImplemented
    product = _summed(left, right)
    product = product if alpha == 1 else product * alpha
    return product.clone() if beta == 0 else product + (added if beta == 1 else added * beta)


def _trilinear(
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,  # noqa: ARG001 (how the library loops)
) -> torch.Tensor:
    for dims, which in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for dim in sorted(dims):
            first, second, third = (t.unsqueeze(dim) if n == which else t for n, t in enumerate((first, second, third)))
    product = first * second * third
    return product.sum(list(sumdim)) if sumdim else product


def _norm_of(difference: torch.Tensor, p: float) -> torch.Tensor:
    """The p-norm over the last dimension; p = 0 counts what differs."""
    size = difference.abs()
    if p == 0:
        return (size != 0).sum(-1).to(size.dtype)
    if p == math.inf:
        return size.amax(-1)
    if p == 1:
        return size.sum(-1)
    return (size * size).sum(-1).sqrt() if p == 2 else (size**p).sum(-1) ** (1 / p)


def _cdist(left: torch.Tensor, right: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:  # noqa: ARG001
    return _norm_of(left.unsqueeze(-2) - right.unsqueeze(-3), p)


def _pdist(x: torch.Tensor, p: float = 2) -> torch.Tensor:
    rows, columns = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind(0)
    return _norm_of(x[rows] - x[columns], p)


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.addmm.default: _added_product,
    aten.baddbmm.default: _added_product,
    aten._trilinear.default: _trilinear,
    aten._cdist_forward.default: _cdist,
    aten._pdist_forward.default: _pdist,
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
