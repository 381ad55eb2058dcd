"""Pointwise operations that Inductor would send to a library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten


def _fake_quantize(
    x: torch.Tensor, scale: torch.Tensor | float, zero_point: torch.Tensor | int, low: int, high: int
) -> torch.Tensor:
    """Rounded to the grid of `scale` and `zero_point`, halves to even, and cut to its `low` to `high`."""
    step = torch.clamp(torch.round(x * (1.0 / scale)) + zero_point, low, high)
    return ((step - zero_point) * scale).to(x.dtype)


def _fake_quantize_channels(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, low: int, high: int
) -> torch.Tensor:
    shape = [1] * x.dim()
    shape[axis] = -1
    return _fake_quantize(x, scale.reshape(shape), zero_point.reshape(shape), low, high)


def _rrelu(
    x: torch.Tensor,
    noise: torch.Tensor,  # noqa: ARG001 (of training)
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,  # noqa: ARG001
) -> Any:
    """In eval mode every slope is the mean of the two."""
    return NotImplemented if training else torch.where(x >= 0, x, x * ((lower + upper) / 2))


def _digamma(x: torch.Tensor) -> torch.Tensor:
    """By reflection below 0, ten steps of the recurrence and the asymptotic series (Abramowitz & Stegun 6.3.18)."""
    wide = x if x.dtype == torch.float64 else x.float()
    reflected = wide <= 0
    start = torch.where(reflected, 1 - wide, wide)
    far = start + 10
    inverse = 1 / (far * far)
    series = torch.zeros_like(far)
    for term in _DIGAMMA_SERIES:
        series = (series + term) * inverse
    result = torch.log(far) - 0.5 / far - series
    for step in range(10):
        result = result - 1 / (start + step)
    # The tangent of the fraction alone: that of a large argument has lost its digits.
    result = torch.where(reflected, result - math.pi / torch.tan(math.pi * (wide - wide.floor())), result)
    pole = reflected & (wide == wide.floor())
    at_zero = torch.where(torch.signbit(wide), math.inf, -math.inf)
    return torch.where(pole, torch.where(wide == 0, at_zero, math.nan), result).to(x.dtype)


# B(2k) / 2k for k = 7 down to 1.
_DIGAMMA_SERIES = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.digamma.default: _digamma,
    aten.rrelu_with_noise.default: _rrelu,
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {
    aten.fake_quantize_per_tensor_affine.default: _fake_quantize,
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake_quantize,
    aten.fake_quantize_per_channel_affine.default: _fake_quantize_channels,
}
