"""Windows of signal processing, as sums of cosines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

aten = torch.ops.aten


def _cosines(
    length: int,
    periodic: bool,
    factors: tuple[float, ...],
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **_: Any,  # layout and pinning, which a compiled tensor has none of
) -> torch.Tensor:
    """The sum of `factors[k] * cos(2 * pi * k * n / period)`; a window of one element is 1, whatever its shape."""
    wanted = dtype or torch.get_default_dtype()
    if length <= 1:
        return torch.ones(length, dtype=wanted, device=device)
    wide = torch.promote_types(wanted, torch.float32)
    angle = torch.arange(length, dtype=wide, device=device) * (2 * math.pi / (length if periodic else length - 1))
    result = sum((factor * torch.cos(k * angle) for k, factor in enumerate(factors) if k), start=angle * 0 + factors[0])
    return result.to(wanted)


def _window(*factors: float) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
    """The overloads without and with `periodic`."""

    def default(length: int, **options: Any) -> torch.Tensor:
        return _cosines(length, True, factors, **options)

    def periodic(length: int, periodic: bool = True, **options: Any) -> torch.Tensor:
        return _cosines(length, periodic, factors, **options)

    return default, periodic


def _hamming(length: int, periodic: bool, alpha: float, beta: float = 0.46, **options: Any) -> torch.Tensor:
    return _cosines(length, periodic, (alpha, -beta), **options)


_hann, _hann_periodic = _window(0.5, -0.5)
_blackman, _blackman_periodic = _window(0.42, -0.5, 0.08)

TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.hann_window.default: _hann,
    aten.hann_window.periodic: _hann_periodic,
    aten.blackman_window.default: _blackman,
    aten.blackman_window.periodic: _blackman_periodic,
    aten.hamming_window.default: partial(_hamming, periodic=True, alpha=0.54),
    aten.hamming_window.periodic: partial(_hamming, alpha=0.54),
    aten.hamming_window.periodic_alpha: _hamming,
    aten.hamming_window.periodic_alpha_beta: _hamming,
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
