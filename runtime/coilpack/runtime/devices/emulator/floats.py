"""Floating-point helpers over arrays: exact fused multiply-add, roundings, bf16, flushing of denormals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coilpack.runtime.devices.emulator.code import Array

_HALF_OF_F32 = np.int64(0x10000000)  # the bits of a double that lie below a float's last bit, at a tie
_BELOW_F32 = np.int64(0x1FFFFFFF)
_NEAR_DENORMAL = np.float32(2.0**-125)
_SPLIT = np.float64(2.0**27 + 1)


def flush(values: Array) -> Array:
    """Denormal floats of 32 bits become zeros of their sign (`.ftz`)."""
    values = np.ascontiguousarray(values)
    bits = values.view(np.uint32)
    exponent = bits & np.uint32(0x7F800000)
    if exponent.min() > 0:
        return values
    return np.where(exponent == 0, bits & np.uint32(0x80000000), bits).view(np.float32)


def saturate(values: Array) -> Any:
    """Into [0, 1]; a NaN becomes 0 (`.sat`)."""
    clipped = np.clip(values, values.dtype.type(0), values.dtype.type(1))
    return np.where(np.isnan(values), values.dtype.type(0), clipped) + values.dtype.type(0)


def bf16_to_f32(bits: Array) -> Array:
    """bf16 as 16 bits to f32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: Array) -> Array:
    """Rounds f32 to the nearest bf16, ties to even; a NaN becomes the canonical one."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    result: Array = np.where(np.isnan(values), np.uint32(0x7FFF), rounded).astype(np.uint16)
    return result


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """A + b rounded, and the error of that (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _toward(values: Array, error: Array) -> Array:
    """Makes inexact sums odd: the neighbour on the side of the error where the last bit is even."""
    even = (values.view(np.int64) & np.int64(1)) == 0
    step = np.nextafter(values, np.where(error > 0, np.inf, -np.inf))
    return np.where(even & (error != 0) & np.isfinite(values) & np.isfinite(error), step, values)


def odd_sum(a: Array, b: Array) -> Array:
    """A + b in double precision, rounded to odd: rounding it once more to a narrower type is then exact."""
    total, error = two_sum(a, b)
    return _toward(np.ascontiguousarray(total), error)


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """a·b + c with one rounding, to nearest even.

    The product is exact in double precision. The sum is rounded there, and again to single precision, which differs
    from one rounding only where the first ends at a tie, or where the result is denormal: those are done over.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    bits = total.view(np.int64)
    doubtful = (bits & _BELOW_F32) == _HALF_OF_F32
    result: Array = total.astype(np.float32)
    size = np.abs(result)
    if size.min() < _NEAR_DENORMAL:
        doubtful |= (size < _NEAR_DENORMAL) & (total != 0)
    if doubtful.any():
        addend = np.broadcast_to(c, total.shape)[doubtful].astype(np.float64)
        factor = np.broadcast_to(product, total.shape)[doubtful]
        result[doubtful] = odd_sum(factor, addend).astype(np.float32)
    return result


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """A · b rounded, and the error of that (Dekker, Veltkamp)."""
    product = a * b
    big_a, big_b = _SPLIT * a, _SPLIT * b
    high_a, high_b = big_a - (big_a - a), big_b - (big_b - b)
    low_a, low_b = a - high_a, b - high_b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a·b + c with one rounding (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums").

    Where the product's error is below the range of a double, or an intermediate value above it, two roundings.
    """
    product, low = _two_product(a, b)
    high, rest = two_sum(c, low)
    upper, lower = two_sum(product, high)
    exact = upper + odd_sum(np.atleast_1d(rest), np.atleast_1d(lower)).reshape(np.shape(upper))
    plain = a * b + c
    good = np.isfinite(exact) & np.isfinite(plain)
    return np.where(good & (np.abs(product) > 2.0**-960), exact, plain)


def fma_f16(a: Array, b: Array, c: Array) -> Array:
    """a·b + c of f16 with one rounding."""
    product = np.multiply(a, b, dtype=np.float64)
    result: Array = odd_sum(product, c.astype(np.float64)).astype(np.float16)
    return result


def f64_to_bf16(values: Array) -> Array:
    """Rounds doubles once to the nearest bf16."""
    return f32_to_bf16(narrow_odd(values))


def narrow_odd(values: Array) -> Array:
    """Rounds doubles to odd floats."""
    near = values.astype(np.float32)
    error = values - near
    even = (near.view(np.uint32) & np.uint32(1)) == 0
    step = np.nextafter(near, np.where(error > 0, np.float32(np.inf), np.float32(-np.inf)))
    return np.where(even & (error != 0) & np.isfinite(near), step, near)


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """a·b + c of bf16, given and returned as bits, with one rounding."""
    product = bf16_to_f32(a).astype(np.float64) * bf16_to_f32(b)
    return f64_to_bf16(odd_sum(product, bf16_to_f32(c).astype(np.float64)))


def zero_aware(function: np.ufunc, *, greatest: bool) -> Callable[[Array, Array], Array]:
    """A minimum or maximum for which -0 is less than +0, as PTX has it."""

    def run(a: Array, b: Array) -> Array:
        result: Array = function(a, b)
        if not (result == 0).any():
            return result
        unsigned = f"u{result.itemsize}"
        left, right = (np.ascontiguousarray(np.broadcast_to(v, result.shape)).view(unsigned) for v in (a, b))
        zeros = (left & right) if greatest else (left | right)
        return np.where((a == 0) & (b == 0), zeros.view(result.dtype), result)

    return run


def directed(near: Array, exact: Array, mode: str) -> Array:
    """Corrects a value rounded to nearest to another rounding.

    Args:
        near: the nearest values.
        exact: the values themselves, in a type that can be compared with `near` exactly.
        mode: `rn`, `rz` (towards zero), `rm` (down) or `rp` (up).
    """
    if mode == "rn":
        return near
    down, up = near > exact, near < exact
    kind: Any = near.dtype.type
    with np.errstate(all="ignore"):
        lower = np.nextafter(near, kind(-np.inf))
        upper = np.nextafter(near, kind(np.inf))
    if mode == "rm":
        return np.where(down, lower, near)
    if mode == "rp":
        return np.where(up, upper, near)
    return np.where(down & (exact > 0), lower, np.where(up & (exact < 0), upper, near))
