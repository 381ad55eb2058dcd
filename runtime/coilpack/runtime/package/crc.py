"""CRC-32 of long runs of zeros, in logarithmic time."""

from __future__ import annotations

_POLYNOMIAL = 0xEDB88320  # of ZIP and zlib, lowest coefficient in the highest bit
_ONE = 1 << 31
_BYTE = 1 << 23  # x**8: what one more byte multiplies the register by


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo the CRC's."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def crc32_of_zeros(nbytes: int, crc: int = 0) -> int:
    """`zlib.crc32(bytes(nbytes), crc)`."""
    factor, square = _ONE, _BYTE
    while nbytes:
        if nbytes & 1:
            factor = _multiply(factor, square)
        square = _multiply(square, square)
        nbytes >>= 1
    return _multiply(factor, crc ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
