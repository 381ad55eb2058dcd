"""Random operators as arithmetic on uniform and normal numbers, which Inductor's kernels draw.

torch decomposes them the same way when they change a tensor in place; an exported program holds their functional forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

aten, prims = torch.ops.aten, torch.ops.prims


def _uniform(self: torch.Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> torch.Tensor:  # noqa: ARG001
    return (high - low) * torch.rand_like(self) + low


def _normal(
    shape: Sequence[Any],
    *,
    mean: float,
    std: float,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool = False,  # noqa: ARG001
    generator: Any = None,  # noqa: ARG001
) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, device=device) * std + mean


def _normal_functional(
    self: torch.Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    generator: Any = None,  # noqa: ARG001
) -> torch.Tensor:
    return torch.randn_like(self) * std + mean


def _bernoulli(self: torch.Tensor, p: float = 0.5, *, generator: Any = None) -> torch.Tensor:  # noqa: ARG001
    return (torch.rand_like(self, dtype=torch.float32) < p).to(self.dtype)  # torch's decomposition leaves a bool


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.uniform.default: _uniform,
    aten.normal_functional.default: _normal_functional,
    aten.bernoulli.p: _bernoulli,
    prims.normal.default: _normal,
}
