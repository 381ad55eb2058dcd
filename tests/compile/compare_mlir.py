"""Compares two results of one function."""

from __future__ import annotations

import numpy as np

# Relative to the larger of 1 and the magnitude of what is compared: sums are taken in different orders, and both sides
# approximate functions.
_TOLERANCES = {"float16": 4e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-9}


def differences(want: np.ndarray, got: np.ndarray, tolerance: float | None = None) -> str:
    """What differs; empty where nothing does. Integers are equal, and so are the places of what is not finite."""
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.name not in _TOLERANCES:
        wrong = want != got
    else:
        wrong = _differing(want.astype(np.float64), got.astype(np.float64), tolerance or _TOLERANCES[want.dtype.name])
    places = np.argwhere(wrong)
    if not len(places):
        return ""
    first = tuple(places[0])
    return f"{len(places)} of {want.size} elements, at {list(map(int, first))} {got[first]} instead of {want[first]}"


def _differing(want: np.ndarray, got: np.ndarray, tolerance: float) -> np.ndarray:
    finite = np.isfinite(want) & np.isfinite(got)
    scale = np.maximum(1.0, np.maximum(np.abs(want), np.abs(got)))
    with np.errstate(invalid="ignore"):
        close = np.abs(want - got) <= tolerance * scale
    same = (want == got) | (np.isnan(want) & np.isnan(got))
    return np.where(finite, ~close, ~same)
