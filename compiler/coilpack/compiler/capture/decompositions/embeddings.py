"""Bags of embeddings: each position knows its bag, and bags are summed or looked through by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten

_SUM, _MEAN = 0, 1


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,  # noqa: ARG001 (of the gradient)
    mode: int = _SUM,
    sparse: bool = False,  # noqa: ARG001 (of the gradient)
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, ...]:
    """The bags (count, width); what only the gradient needs is given as zeros. Empty bags are zeros."""
    count = offsets.shape[0] - int(include_last_offset)
    starts = offsets[:count].contiguous()
    at = torch.arange(indices.shape[0], dtype=offsets.dtype, device=indices.device)
    bag = torch.searchsorted(starts, at, right=True) - 1
    counted = indices != padding_idx if padding_idx >= 0 else torch.ones_like(indices, dtype=torch.bool)
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    mine = (bag == torch.arange(count, device=indices.device).unsqueeze(-1)) & counted  # (count, positions)
    size = mine.sum(-1)
    if mode in (_SUM, _MEAN):
        wide = rows if rows.dtype == torch.float64 else rows.float()
        result = torch.where(mine.unsqueeze(-1), wide, 0.0).sum(1)
        if mode == _MEAN:
            result = result / size.clamp_min(1).unsqueeze(-1)
        result = result.to(weight.dtype)
    else:
        greatest = torch.where(mine.unsqueeze(-1), rows, -math.inf).amax(1)
        result = torch.where(size.unsqueeze(-1) > 0, greatest, 0.0)
    return result, torch.zeros_like(bag), torch.zeros_like(size), torch.zeros_like(size)


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
