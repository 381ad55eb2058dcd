"""Whether two kernels computed the same: to the bit, or to what another order of the same operations may change."""

from __future__ import annotations

from typing import Any

import numpy as np

from coilpack.runtime.dtypes import DType

# How far an element may be off, as a part of its own magnitude and that of a typical one. Sums taken in another order
# differ in their last bits; what a kernel rounds in between, to TF32 or to the type of its results, in a few ulps of
# that. A kernel that is wrong is wrong by far more. Types that are not here must be equal: there is nothing to round.
_TOLERANCE = {
    DType.f64: 1e-6,
    DType.f32: 2e-3,
    DType.f16: 1e-2,
    DType.bf16: 5e-2,
    DType.f8E4M3FN: 0.25,
    DType.f8E5M2: 0.5,
}
# Compared as these: complex numbers as pairs, booleans as bytes, of which numpy takes all but 0 for equal.
_PARTS = {DType.complex64: DType.f32, DType.complex128: DType.f64, DType.i1: DType.ui8}
Array = np.ndarray[Any, Any]

_CHUNK = 1 << 20  # elements that are compared at a time


def difference(expected: bytes | bytearray, found: bytes | bytearray, dtype: DType) -> str:
    """What is wrong about `found` as an array that should be `expected`; empty where nothing is.

    Args:
        expected: bytes of elements, and perhaps of less than one at the end.
        found: as many bytes.
        dtype: of the elements.
    """
    if expected == found:
        return ""
    dtype = _PARTS.get(dtype, dtype)
    whole = len(expected) // dtype.itemsize * dtype.itemsize
    if expected[whole:] != found[whole:]:
        return "the bytes after its last element differ"
    ours, theirs = (np.frombuffer(data, dtype.numpy, whole // dtype.itemsize) for data in (expected, found))
    for start in range(0, ours.size, _CHUNK):
        end = start + _CHUNK
        wrong = _first_wrong(ours[start:end], theirs[start:end], _TOLERANCE.get(dtype))
        if wrong is not None:
            at = start + wrong
            return f"element {at} is {theirs[at]}, not {ours[at]}"
    return ""


def _first_wrong(expected: Array, found: Array, tolerance: float | None) -> int | None:
    if tolerance is None:
        return _first(expected != found)
    wide = np.dtype(np.float64 if expected.dtype == np.float64 else np.float32)
    ours: Array = expected.astype(wide)
    theirs: Array = found.astype(wide)
    with np.errstate(all="ignore"):
        magnitude = np.abs(ours)
        finite = magnitude[np.isfinite(magnitude)]
        typical = float(np.sqrt(np.mean(np.square(finite, dtype=np.float64)))) if finite.size else 0.0
        close = np.abs(ours - theirs) <= tolerance * (magnitude + typical)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        return _first(~np.where(np.isfinite(ours), close, same))


def _first(wrong: Array) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None
