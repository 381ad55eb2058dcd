"""Arithmetic on bits: what torch's signed integers lack, by operations that they have.

All take and give tensors of one signed integer type whose width is `bits`, which all wrap, unless they say otherwise.
An unsigned operation of up to 32 bits is done in int64, which holds every value; one of 64 bits by cases.
"""

from __future__ import annotations

import torch

_MIN64 = -(1 << 63)


def unsigned(x: torch.Tensor, bits: int) -> torch.Tensor:
    """The bits read as an unsigned number, as int64; of 64 bits only those below 2**63 are right."""
    wide = x.to(torch.int64)
    return wide if bits >= 64 else wide & ((1 << bits) - 1)


def flipped(x: torch.Tensor) -> torch.Tensor:
    """The value whose signed order is the unsigned order of `x`."""
    return x ^ torch.iinfo(x.dtype).min


def divide_unsigned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The quotient; a divisor of 0 is undefined in MLIR, and is not divided by twice here."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        return _quotient(unsigned(a, bits), unsigned(b, bits)).to(a.dtype)
    # A divisor of 2**63 or more goes in once or not at all. Else half the dividend is a signed number; its quotient,
    # doubled, is short by at most one.
    large = b < 0
    divisor = torch.where(large, 1, b)
    rough = _quotient(shift_right_logical(a, torch.ones_like(a)), divisor) << 1
    rest = a - rough * divisor
    exact = rough + (flipped(rest) >= flipped(divisor)).to(a.dtype)
    return torch.where(large, (flipped(a) >= flipped(b)).to(a.dtype), exact)


def remainder_unsigned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The remainder."""
    return a - divide_unsigned(a, b) * b


def ceil_divide_unsigned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The quotient, rounded up."""
    quotient = divide_unsigned(a, b)
    return quotient + (a != quotient * b).to(a.dtype)


def _quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The signed quotient, rounded towards 0."""
    return _quotient(a, b)


def floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The signed quotient, rounded down."""
    quotient = _quotient(a, b)
    return quotient - ((a != quotient * b) & ((a < 0) != (b < 0))).to(a.dtype)


def ceil_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The signed quotient, rounded up."""
    quotient = _quotient(a, b)
    return quotient + ((a != quotient * b) & ((a < 0) == (b < 0))).to(a.dtype)


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The remainder of the signed division, with the sign of the dividend."""
    return a - _quotient(a, b) * b


def shift_right_logical(a: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Shifts zeros in; an amount of the width or more is undefined in MLIR."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        return (unsigned(a, bits) >> by.to(torch.int64)).to(a.dtype)
    # One place first, which clears the sign; the mask keeps the amount valid where it is 0.
    once = (a >> 1) & ~_MIN64
    return torch.where(by == 0, a, once >> torch.where(by == 0, 0, by - 1))


def multiply_high_signed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The upper half of the exact signed product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        return ((a.to(torch.int64) * b.to(torch.int64)) >> bits).to(a.dtype)
    # The unsigned product counts 2**64 for the sign of one factor once per the other.
    return multiply_high_unsigned(a, b) - torch.where(a < 0, b, 0) - torch.where(b < 0, a, 0)


def multiply_high_unsigned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The upper half of the exact unsigned product."""
    bits = a.dtype.itemsize * 8
    if bits < 32:
        return ((unsigned(a, bits) * unsigned(b, bits)) >> bits).to(a.dtype)
    if bits == 32:  # the product wraps in int64, but its bits are right
        return shift_right_logical(unsigned(a, 32) * unsigned(b, 32), torch.full((), 32)).to(a.dtype)
    low = (1 << 32) - 1
    half = torch.full((), 32, dtype=a.dtype)
    a0, a1 = a & low, shift_right_logical(a, half)
    b0, b1 = b & low, shift_right_logical(b, half)
    middle = a1 * b0 + shift_right_logical(a0 * b0, half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + shift_right_logical(middle, half) + shift_right_logical(other, half)


def count_ones(x: torch.Tensor) -> torch.Tensor:
    """How many bits are 1."""
    bits = x.dtype.itemsize * 8
    # The sign bit of 64 is counted apart, so that every shift is of a number that is not negative.
    v = unsigned(x, bits) if bits < 64 else x & ~_MIN64
    v = v - ((v >> 1) & 0x5555555555555555)
    v = (v & 0x3333333333333333) + ((v >> 2) & 0x3333333333333333)
    v = (v + (v >> 4)) & 0x0F0F0F0F0F0F0F0F
    v = v + (v >> 8)
    v = v + (v >> 16)
    v = (v + (v >> 32)) & 0x7F
    return (v + (x < 0).to(torch.int64) if bits == 64 else v).to(x.dtype)


def count_leading_zeros(x: torch.Tensor) -> torch.Tensor:
    """How many bits are 0 above the uppermost 1; the width for 0."""
    bits = x.dtype.itemsize * 8
    v = unsigned(x, bits)
    for step in (1, 2, 4, 8, 16, 32):
        v = v | (v >> step)  # copies of a sign bit are what smearing makes of it anyway
    return (bits - count_ones(v)).to(x.dtype)


def count_trailing_zeros(x: torch.Tensor) -> torch.Tensor:
    """How many bits are 0 below the lowest 1; the width for 0."""
    return count_ones(~x & (x - 1))


def power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """`base` to an integer power, wrapped; a negative power is that of 1 / base, rounded towards 0."""
    result, square = torch.ones_like(base), base
    for bit in range(base.dtype.itemsize * 8 - 1):
        result = torch.where(((exponent >> bit) & 1) != 0, result * square, result)
        square = square * square
    odd = torch.where((exponent & 1) != 0, base, 1)
    inverse = torch.where((base == 1) | (base == -1), odd, 0)
    return torch.where(exponent < 0, inverse, result)
