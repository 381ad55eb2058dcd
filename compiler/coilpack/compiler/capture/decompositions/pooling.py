"""Adaptive pooling: windows of uneven sizes, gathered and reduced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def _window_starts(size: int, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each of `count` windows over `size` elements starts and ends; int64, shape (count,)."""
    at = torch.arange(count, device=device)
    return at * size // count, ((at + 1) * size + count - 1) // count


def averaging_weights(size: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The share (count, size) that each element has in each window's average."""
    start, end = (edge.unsqueeze(-1) for edge in _window_starts(size, count, device))
    at = torch.arange(size, device=device)
    return torch.where((at >= start) & (at < end), 1.0 / (end - start).to(dtype), 0.0).to(dtype)


def weigh(x: torch.Tensor, weights: torch.Tensor, dim: int) -> torch.Tensor:
    """`x` with dimension `dim` (negative) replaced by weighted sums over it; weights (count, size), float32 sums."""
    inner = torch.float64 if x.dtype == torch.float64 else torch.float32
    moved = x.to(inner).movedim(dim, -1).unsqueeze(-2)
    return (moved * weights.to(inner)).sum(-1).movedim(-1, dim)


def _adaptive_average(dims: int) -> Callable[..., Any]:
    def average(x: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
        result = x
        for dim, count in zip(range(-dims, 0), output_size, strict=True):
            result = weigh(result, averaging_weights(x.shape[dim], count, torch.float32, x.device), dim)
        return result.to(x.dtype)

    return average


def _adaptive_average_backward(dims: int) -> Callable[..., Any]:
    def backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        result = gradient
        for dim in range(-dims, 0):
            weights = averaging_weights(x.shape[dim], gradient.shape[dim], torch.float32, x.device)
            result = weigh(result, weights.T, dim)
        return result.to(x.dtype)

    return backward


def _adaptive_maximum(dims: int) -> Callable[..., Any]:
    """Each window's elements are gathered by index, the shorter ones' last repeated; the first maximum counts."""

    def maximum(x: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        sizes = x.shape[-dims:]
        place: torch.Tensor | int = 0
        for axis, (size, count) in enumerate(zip(sizes, output_size, strict=True)):
            start, end = (edge.unsqueeze(-1) for edge in _window_starts(size, count, x.device))
            longest = max(
                (n + 1) * size // count + ((n + 1) * size % count > 0) - n * size // count for n in range(count)
            )
            inside = torch.minimum(start + torch.arange(longest, device=x.device), end - 1)
            # Windows come first, then what is in them: (1, .., count, .., 1, longest, .., 1).
            shape = [1] * (2 * dims)
            shape[axis], shape[dims + axis] = count, longest
            place = place * size + inside.reshape(shape)
        assert isinstance(place, torch.Tensor)
        windows = place.flatten(dims)
        values = x.flatten(-dims)[..., windows]
        chosen = values.argmax(-1, keepdim=True)
        at = windows.expand(values.shape).gather(-1, chosen).squeeze(-1)
        return values.amax(-1), at

    return maximum


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten._adaptive_avg_pool2d.default: _adaptive_average(2),
    aten._adaptive_avg_pool3d.default: _adaptive_average(3),
    aten._adaptive_avg_pool2d_backward.default: _adaptive_average_backward(2),
    aten._adaptive_avg_pool3d_backward.default: _adaptive_average_backward(3),
    aten.adaptive_max_pool2d.default: _adaptive_maximum(2),
    aten.adaptive_max_pool3d.default: _adaptive_maximum(3),
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
