"""Interpolation that eager torch gives to a library and Inductor leaves there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.decompositions.pooling import weigh

aten = torch.ops.aten


def _triangle(x: torch.Tensor) -> torch.Tensor:
    return (1 - x.abs()).clamp_min(0)


def _cubic(x: torch.Tensor) -> torch.Tensor:
    """Keys' cubic with a = -0.5, which torch takes when it smooths (`UpSample.h`)."""
    a, x = -0.5, x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _smoothing_weights(
    size: int, count: int, scale: float, width: int, filter_: Callable[[torch.Tensor], torch.Tensor], device: Any
) -> torch.Tensor:
    """The share (count, size) of each element in each result, as `_compute_weights_aa` of torch's UpSample has it."""
    stretch = max(scale, 1.0)
    support = width / 2 * stretch
    centre = scale * (torch.arange(count, device=device).unsqueeze(-1) + 0.5)
    first = (centre - support + 0.5).to(torch.int64).clamp_min(0)
    last = (centre + support + 0.5).to(torch.int64).clamp_max(size)
    at = torch.arange(size, device=device)
    weights = torch.where((at >= first) & (at < last), filter_((at - centre + 0.5) / stretch), 0.0)
    return weights / weights.sum(-1, keepdim=True)


def _smoothed(width: int, filter_: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """An anti-aliased resize of the last two dimensions, one after the other."""

    def resize(
        x: torch.Tensor,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        if not x.dtype.is_floating_point:
            return NotImplemented  # torch's own rounds each pass in fixed point
        result = x
        for dim, count, given in ((-1, output_size[1], scales_w), (-2, output_size[0], scales_h)):
            size = x.shape[dim]
            if align_corners:
                scale = (size - 1) / (count - 1) if count > 1 else 0.0
            else:
                scale = 1 / given if given else size / count
            result = weigh(result, _smoothing_weights(size, count, scale, width, filter_, x.device), dim)
        return result.to(x.dtype)

    return resize


TABLE: Mapping[Any, Callable[..., Any]] = {
    **compat.decompositions_of(
        aten.upsample_linear1d.default,
        aten.upsample_bilinear2d.default,
        aten.upsample_trilinear3d.default,
        aten.upsample_bicubic2d.default,
    ),
    aten._upsample_bilinear2d_aa.default: _smoothed(2, _triangle),
    aten._upsample_bicubic2d_aa.default: _smoothed(4, _cubic),
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
