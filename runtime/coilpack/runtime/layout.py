"""Concrete array types: element type, shape and strides as numbers, and the arithmetic on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from coilpack.runtime.dtypes import DType


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements, of an array of that shape."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array in memory: element type, shape, and strides in elements, outermost dimension first."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def contiguous(cls, dtype: DType, shape: Sequence[int]) -> ArrayType:
        """The row-major type of that shape."""
        return cls(dtype, tuple(shape), contiguous_strides(shape))

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), self.dtype.name])

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def extent(self) -> tuple[int, int]:
        """The lowest and the highest element offset from the first element, the latter plus one; (0, 0) where empty."""
        if 0 in self.shape:
            return (0, 0)
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return (sum(min(0, s) for s in steps), sum(max(0, s) for s in steps) + 1)

    @property
    def span_nbytes(self) -> int:
        """Bytes from the lowest element to the end of the highest."""
        low, high = self.extent
        return (high - low) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie row-major without gaps."""
        return self.same_places(contiguous_strides(self.shape))

    def same_places(self, strides: Sequence[int]) -> bool:
        """Whether an array of this shape with those strides has every element in the same place.

        The stride of a dimension of size 1 is never used, and an empty array has no elements.
        """
        if 0 in self.shape:
            return True
        return all(a == b for n, a, b in zip(self.shape, self.strides, strides, strict=True) if n != 1)
