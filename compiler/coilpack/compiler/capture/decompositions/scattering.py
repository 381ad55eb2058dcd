"""Scatters and histograms that Inductor would send to a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.decompositions.sorting import ordering_key
from coilpack.compiler.triton_library.atomics import scatter_atomic

aten = torch.ops.aten

_BLOCK = 256
_ATOMIC_ADD = (torch.float16, torch.float32, torch.float64, torch.int32)  # element types that Inductor adds atomically


def _scatter_atomic(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor, maximum: bool) -> torch.Tensor:
    """A copy of `x` with `values` scattered to flat `places`; added, or where `maximum`, the greatest kept."""
    count = places.numel()
    arguments = {
        "out": x.contiguous().reshape(-1),
        "places": places.contiguous().reshape(-1),
        "values": values.contiguous().reshape(-1),
        "count": count,
    }
    grid = ((count + _BLOCK - 1) // _BLOCK, 1, 1)
    constants = {"MAXIMUM": maximum, "BLOCK": _BLOCK}
    (result,) = compat.call_triton_kernel(scatter_atomic, grid, arguments, constants, changed=("out",))
    return result.reshape(x.shape)


def _flat_places(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Where in the contiguous memory of `x` a scatter along `dim` puts each element of `index`; int64."""
    places: Any = 0
    stride: Any = 1
    for axis in reversed(range(x.dim())):
        along = index if axis == dim else torch.arange(index.shape[axis], device=x.device)
        places = places + (along if axis == dim else along.reshape(-1, *[1] * (x.dim() - 1 - axis))) * stride
        stride = stride * x.shape[axis]
    assert isinstance(places, torch.Tensor)
    return places.expand(index.shape)


def _scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    if x.dtype in _ATOMIC_ADD:
        return NotImplemented
    if x.dtype == torch.bfloat16:
        return x.float().scatter_add(dim, index, source.float()).to(x.dtype)
    if x.dtype != torch.int64 or x.dim() == 0:
        return NotImplemented
    source = source[tuple(slice(0, size) for size in index.shape)]
    return _scatter_atomic(x, _flat_places(x, dim % x.dim(), index), source, maximum=False)


def _scatter(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """Of element types that Inductor keeps out of its scatter, because it could not add them."""
    if x.dtype not in (torch.int64, torch.bool, torch.bfloat16) or x.dim() == 0:
        return NotImplemented
    indices = [
        index if axis == dim % x.dim() else torch.arange(size, device=x.device).reshape(-1, *[1] * (x.dim() - 1 - axis))
        for axis, size in enumerate(index.shape)
    ]
    return aten.index_put(x, indices, source[tuple(slice(0, size) for size in index.shape)])


def _scatter_reduce(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    if x.dim() == 0:
        x, index, source = (t.reshape(1) for t in (x, index, source))
        return _scatter_reduce(x, 0, index, source, reduce, include_self=include_self).reshape(())
    dim %= x.dim()
    source = source[tuple(slice(0, size) for size in index.shape)]
    if include_self:
        return _REDUCTIONS[reduce](x, dim, index, source, 1)
    hit = torch.zeros_like(x, dtype=torch.bool).scatter(dim, index, True)
    start = torch.full_like(x, _IDENTITIES[reduce](x.dtype))
    return torch.where(hit, _REDUCTIONS[reduce](start, dim, index, source, 0), x)


def _sum(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, _own: int) -> torch.Tensor:
    return x.scatter_add(dim, index, source)


def _mean(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, own: int) -> torch.Tensor:
    total = x.scatter_add(dim, index, source)
    count = torch.full_like(x, own, dtype=torch.int32)
    count = count.scatter_add(dim, index, torch.ones_like(index, dtype=torch.int32)).clamp_min(1)
    return total / count if x.dtype.is_floating_point else torch.div(total, count, rounding_mode="floor").to(x.dtype)


def _product(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, _own: int) -> torch.Tensor:
    """Every place looks at every source: there is no atomic product."""
    missing = [n for s, i in zip(reversed(x.shape), reversed(index.shape), strict=True) for n in (0, s - i)]
    missing[2 * (x.dim() - 1 - dim) + 1] = 0
    index, source = aten.constant_pad_nd(index, missing, -1), aten.constant_pad_nd(source, missing, 1)
    index, source, moved = (t.movedim(dim, -1) for t in (index, source, x))
    at = torch.arange(x.shape[dim], device=x.device).unsqueeze(-1)
    factors = torch.where(index.unsqueeze(-2) == at, source.unsqueeze(-2), 1)
    return (moved * factors.prod(-1).to(x.dtype)).movedim(-1, dim)


def _maximum(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, _own: int) -> torch.Tensor:
    wide = ordering_key(x)
    wide = wide if wide.dtype == torch.int64 else wide.int()
    key = _scatter_atomic(wide, _flat_places(x, dim, index), ordering_key(source).to(wide.dtype), maximum=True)
    if not x.dtype.is_floating_point:
        return key.to(x.dtype)
    bits = torch.where(key < 0, key ^ torch.iinfo(key.dtype).max, key)
    return bits.view(torch.float64 if key.dtype == torch.int64 else torch.float32).to(x.dtype)


def _minimum(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, own: int) -> torch.Tensor:
    """The maximum of the opposites, so that NaN stays the one that counts."""
    flip = torch.neg if x.dtype.is_floating_point else torch.bitwise_not
    return flip(_maximum(flip(x), dim, index, flip(source), own))


def _lowest(dtype: torch.dtype) -> float | int:
    if dtype == torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _greatest(dtype: torch.dtype) -> float | int:
    if dtype == torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


_REDUCTIONS: Mapping[str, Callable[[torch.Tensor, int, torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "sum": _sum,
    "mean": _mean,
    "prod": _product,
    "amax": _maximum,
    "amin": _minimum,
}
_IDENTITIES: Mapping[str, Callable[[torch.dtype], float | int]] = {
    "sum": lambda _: 0,
    "mean": lambda _: 0,
    "prod": lambda _: 1,
    "amax": _lowest,
    "amin": _greatest,
}


def _index_reduce(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    shape = [1] * source.dim()
    shape[dim] = -1
    index = index.reshape(shape).expand(source.shape)
    return _scatter_reduce(x, dim, index, source, reduce, include_self=include_self)


def _index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Sums by index of element types that Inductor does not add atomically."""
    given = [i for i in indices if i is not None]
    if not accumulate or x.dtype in _ATOMIC_ADD or any(i.dtype in (torch.bool, torch.uint8) for i in given):
        return NotImplemented
    if x.dtype == torch.bfloat16:
        return aten.index_put(x.float(), indices, values.float(), True).to(x.dtype)
    if x.dtype != torch.int64 or any(i is None for i in indices[: len(given)]):
        return NotImplemented
    rest = x.shape[len(given) :]
    places: Any = 0
    for axis, index in enumerate(given):
        places = places * x.shape[axis] + torch.where(index < 0, index + x.shape[axis], index)
    count = 1
    for size in rest:
        count = count * size
    within = torch.arange(count, device=x.device).reshape(rest)
    places = (places * count).reshape(*places.shape, *[1] * len(rest)) + within
    return _scatter_atomic(x, places, values.expand(places.shape), maximum=False)


def _histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:  # noqa: A002
    """Counts in `bins` equal intervals from `min` to `max`, both inside; where they are equal, those of the data."""
    flat = x.reshape(-1)
    low, high = (flat.amin(), flat.amax()) if min == max else (torch.full_like(flat[0], e) for e in (min, max))
    low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    place = ((flat - low) * bins / (high - low)).to(torch.int64).clamp_max(bins - 1)
    inside = (flat >= low) & (flat <= high)
    at = torch.arange(bins, device=x.device).unsqueeze(-1)
    return ((place == at) & inside).sum(-1).to(x.dtype)


def _nonzero_static(x: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """The first `size` places that are not zero, (size, dimensions); the rest is `fill_value`."""
    flat = (x != 0).reshape(-1)
    found = torch.where(flat, flat.cumsum(0) - 1, size).clamp_max(size)  # place `size` is thrown away
    at = torch.arange(flat.shape[0], device=x.device)
    flat_places = torch.full((size + 1,), -1, device=x.device).scatter(0, found, at)[:size]
    columns, left = [], flat_places
    for extent in reversed(x.shape):
        columns.append(torch.where(flat_places < 0, fill_value, left % extent))
        left = left // extent
    return torch.stack(columns[::-1], -1)


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.scatter.src: _scatter,
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: _scatter_reduce,
    aten.index_reduce.default: _index_reduce,
    aten.index_put.default: _index_put,
    aten.histc.default: _histc,
    aten.nonzero_static.default: _nonzero_static,
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
