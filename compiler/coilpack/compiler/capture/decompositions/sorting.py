"""Sorting and selection without a library: ranks by counting in short rows, merges of sorted runs in long ones.

Both are reductions, binary searches and scatters, which Inductor fuses. All of them are stable, and take NaN for the
greatest value, as torch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten

INDUCTOR_SORTS = (
    128  # elements; longer rows compile for many seconds in Triton's bitonic sort, and not at all above 512
)
_RUN = 256  # elements whose ranks are counted, each against all; longer rows are merged from such runs
_SHORT = 512  # elements up to which a row is one run
_LONGEST_SELECTION = 256  # `topk` of more than this sorts the whole row


def ordering_key(x: torch.Tensor, descending: bool = False) -> torch.Tensor:
    """Integers, shape as `x`, whose order is that of torch's sort: signed zeros are equal, NaN is the greatest."""
    if x.dtype == torch.bool:
        key = x.to(torch.int8)
    elif x.dtype.is_floating_point:
        wide = x if x.dtype == torch.float64 else x.float()
        integer = torch.int64 if wide.dtype == torch.float64 else torch.int32
        greatest = torch.iinfo(integer).max
        bits = wide.view(integer)
        key = torch.where(bits < 0, bits ^ greatest, bits)
        key = torch.where(wide == 0, 0, key)
        key = torch.where(torch.isnan(wide), greatest, key)
    else:
        key = x
    return ~key if descending else key


def _ranks(key: torch.Tensor) -> torch.Tensor:
    """For each element along the last dimension, how many come before it; int64."""
    at = torch.arange(key.shape[-1], device=key.device)
    mine, other = key.unsqueeze(-1), key.unsqueeze(-2)
    before = (other < mine) | ((other == mine) & (at < at.unsqueeze(-1)))
    return before.sum(-1)


def _place(values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """`out[..., at[..., i]] = values[..., i]`, for permutations `at`."""
    return torch.zeros_like(values).scatter(-1, at, values)


def _padded(key: torch.Tensor, length: int) -> torch.Tensor:
    """`key` with its last dimension filled up to `length` with what comes last of all."""
    missing = length - key.shape[-1]
    return aten.constant_pad_nd(key, [0, missing], torch.iinfo(key.dtype).max) if missing else key


def order(key: torch.Tensor) -> torch.Tensor:
    """The stable ascending order of the last dimension: int64 indices, shape as `key`."""
    length = key.shape[-1]
    at = torch.arange(length, device=key.device).expand(key.shape)
    if not isinstance(length, int) or length <= _SHORT:
        return _place(at, _ranks(key))
    doublings = math.ceil(math.log2(length / _RUN))
    run = math.ceil(length / 2**doublings)
    key = _padded(key, run << doublings)
    lead = key.shape[:-1]
    at = torch.arange(run << doublings, device=key.device).expand(key.shape).reshape(*lead, -1, run)
    key = key.reshape(*lead, -1, run)
    ranks = _ranks(key)
    key, at = _place(key, ranks), _place(at, ranks)
    for _ in range(doublings):
        positions = _merged_positions(key.reshape(*lead, -1, 2, run))
        run *= 2
        positions = positions.reshape(*lead, -1, run)
        key, at = _place(key.reshape(*lead, -1, run), positions), _place(at.reshape(*lead, -1, run), positions)
    return at.reshape(*lead, run)[..., :length]


def _merged_positions(pairs: torch.Tensor) -> torch.Tensor:
    """Where elements of sorted runs (..., 2, n) stand once each pair of runs is merged; shape as `pairs`."""
    left, right = pairs[..., 0, :].contiguous(), pairs[..., 1, :].contiguous()
    at = torch.arange(pairs.shape[-1], device=pairs.device)
    from_left = at + torch.searchsorted(right, left)
    from_right = at + torch.searchsorted(left, right, right=True)
    return torch.stack([from_left, from_right], -2)


def smallest(key: torch.Tensor, count: int) -> torch.Tensor:
    """Indices of the `count` smallest of the last dimension, ascending and stable; int64, shape (..., count).

    Long rows are cut into runs, of which only the smallest `count` go on.
    """
    if not isinstance(key.shape[-1], int) or count > _LONGEST_SELECTION:
        return order(key)[..., :count]
    at = torch.arange(key.shape[-1], device=key.device).expand(key.shape)
    run = max(_RUN, 4 * count)
    while key.shape[-1] > max(_SHORT, run):
        runs = math.ceil(key.shape[-1] / run)
        lead = key.shape[:-1]
        key = _padded(key, runs * run).reshape(*lead, runs, run)
        at = aten.constant_pad_nd(at, [0, runs * run - at.shape[-1]]).reshape(*lead, runs, run)
        chosen = _first_ranks(key, count)
        key = key.gather(-1, chosen).reshape(*lead, -1)
        at = at.gather(-1, chosen).reshape(*lead, -1)
    return at.gather(-1, _first_ranks(key, count))


def _first_ranks(key: torch.Tensor, count: int) -> torch.Tensor:
    """As `smallest`, for rows that are one run. Elements that are not chosen all go to one place behind the others."""
    at = torch.arange(key.shape[-1], device=key.device).expand(key.shape)
    places = torch.zeros((*key.shape[:-1], count + 1), dtype=torch.int64, device=key.device)
    return places.scatter(-1, _ranks(key).clamp_max(count), at)[..., :count]


# --- the operators ---


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:  # noqa: ARG001
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    length = x.shape[dim]
    if isinstance(length, int) and length <= INDUCTOR_SORTS:
        return NotImplemented
    moved = x.movedim(dim, -1)
    indices = order(ordering_key(moved, descending))
    return moved.gather(-1, indices).movedim(-1, dim), indices.movedim(-1, dim)


def _sort_stable(x: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return _sort(x, dim, descending, stable)


def _topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:  # noqa: A002, ARG001
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    moved = x.movedim(dim, -1)
    indices = smallest(ordering_key(moved, descending=largest), k)
    return moved.gather(-1, indices).movedim(-1, dim), indices.movedim(-1, dim)


def _pick(x: torch.Tensor, at: torch.Tensor, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices at `at` (..., 1), the last dimension of `x`, put back where `dim` says."""
    values = x.gather(-1, at)
    if keepdim:
        return values.movedim(-1, dim), at.movedim(-1, dim)
    return values.squeeze(-1), at.squeeze(-1)


def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    moved = x.movedim(dim, -1)
    return _pick(moved, smallest(ordering_key(moved), k)[..., k - 1 :], dim, keepdim)


def _median_of_rows(x: torch.Tensor, ignore_nan: bool, dim: int, keepdim: bool) -> Any:
    """The lower median; a row with a NaN gives that NaN, or the median of what remains where NaNs are ignored."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    moved = x.movedim(dim, -1)
    indices = order(ordering_key(moved))
    nans = torch.isnan(moved).sum(-1, keepdim=True)
    ordinary = moved.shape[-1] - nans
    middle = (moved.shape[-1] - 1) // 2
    at = ((ordinary - 1) // 2).clamp_min(0) if ignore_nan else torch.where(nans > 0, ordinary, middle)
    return _pick(moved, indices.gather(-1, at), dim, keepdim)


def _median_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median_of_rows(x, False, dim, keepdim)


def _nanmedian_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median_of_rows(x, True, dim, keepdim)


def _median(x: torch.Tensor) -> Any:
    return _median_of_rows(x.reshape(-1), False, -1, False)[0]


def _nanmedian(x: torch.Tensor) -> Any:
    return _median_of_rows(x.reshape(-1), True, -1, False)[0]


def _mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of the most frequent values, and the last place where it stands."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    moved = x.movedim(dim, -1)
    counts = (moved.unsqueeze(-1) == moved.unsqueeze(-2)).sum(-1)
    frequent = counts == counts.amax(-1, keepdim=True)
    key = ordering_key(moved)
    least = torch.where(frequent, key, torch.iinfo(key.dtype).max).amin(-1, keepdim=True)
    at = torch.arange(moved.shape[-1], device=x.device)
    last = torch.where(frequent & (key == least), at, -1).amax(-1, keepdim=True)
    return _pick(moved, last, dim, keepdim)


def _quantile(
    x: torch.Tensor,
    q: torch.Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> torch.Tensor:
    """Rows with a NaN give NaN; several `q` come first in the result."""
    dims = x.dim()
    moved = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    ordered = aten.sort.default(moved, -1)[0]
    wanted = q if isinstance(q, torch.Tensor) else torch.full((), q, dtype=x.dtype, device=x.device)
    place = wanted.reshape(-1) * (moved.shape[-1] - 1)
    below, above = place.floor(), place.ceil()
    low, high = ordered[..., below.long()], ordered[..., above.long()]
    found = _INTERPOLATIONS[interpolation](low, high, place - below)
    if interpolation == "nearest":
        found = ordered[..., place.round().long()]
    found = torch.where(torch.isnan(moved).any(-1, keepdim=True), math.nan, found).movedim(-1, 0)
    if keepdim:
        found = found.reshape(-1, *[1] * dims) if dim is None else found.unsqueeze(dim if dim < 0 else dim + 1)
    return found if wanted.dim() else found.squeeze(0)


_INTERPOLATIONS: Mapping[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "linear": lambda low, high, share: low + (high - low) * share,
    "lower": lambda low, _high, _share: low,
    "higher": lambda _low, high, _share: high,
    "midpoint": lambda low, high, _share: (low + high) / 2,
    "nearest": lambda low, _high, _share: low,  # looked up apart, because halves round to even
}

TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.sort.default: _sort,
    aten.sort.stable: _sort_stable,
    aten.topk.default: _topk,
    aten.kthvalue.default: _kthvalue,
    aten.median.default: _median,
    aten.median.dim: _median_dim,
    aten.nanmedian.default: _nanmedian,
    aten.nanmedian.dim: _nanmedian_dim,
    aten.mode.default: _mode,
}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {
    aten.quantile.default: _quantile,
    aten.quantile.scalar: _quantile,
}
