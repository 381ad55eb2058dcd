"""Draws by index: the order of random keys, so that the only random operation is a uniform number for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from coilpack.compiler.capture.decompositions.sorting import order, ordering_key, smallest

aten = torch.ops.aten


def _multinomial(
    weights: torch.Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,  # noqa: ARG001
) -> torch.Tensor:
    """Without replacement, the earliest of exponential arrival times, one for each category at its own rate."""
    wide = weights if weights.dtype == torch.float64 else weights.float()
    if replacement and num_samples > 1:
        steps = wide.cumsum(-1)
        drawn = torch.rand((*wide.shape[:-1], num_samples), dtype=wide.dtype, device=wide.device) * steps[..., -1:]
        # Rounding may put a draw at the very end, where only categories of weight 0 may follow.
        last = torch.where(wide > 0, torch.arange(wide.shape[-1], device=wide.device), 0).amax(-1, keepdim=True)
        return torch.minimum(torch.searchsorted(steps.contiguous(), drawn, right=True), last)
    uniform = torch.rand_like(wide)
    # 1 - u is above 0; a category of weight 0 never arrives.
    arrival = torch.where(wide > 0, -torch.log1p(-uniform) / wide, float("inf"))
    return smallest(ordering_key(arrival), num_samples)


def _randperm(n: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> torch.Tensor:
    keys = torch.rand((n,), device=device)
    return order(ordering_key(keys)).to(dtype or torch.int64)


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.multinomial.default: _multinomial,
    aten.randperm.default: _randperm,
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
