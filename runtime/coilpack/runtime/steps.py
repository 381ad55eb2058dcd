"""What a plan is made of: places in memory, and steps over them that say which bytes they may read and write."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from coilpack.runtime.devices.base import Product
from coilpack.runtime.program import ir


class Base(enum.Enum):
    """What a reference counts from."""

    ARGUMENT = "argument"
    OUTPUT = "output"
    ARENA = "arena"
    WEIGHTS = "weights"
    GLOBALS = "globals"
    SEEDS = "seeds"


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in memory: `offset` bytes into argument or output number `index`, or into one of the other bases."""

    base: Base
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes `begin` to `end` of a base; what steps may read or write, for the order that they need."""

    base: Base
    index: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LaunchChoice:
    """A kernel that may take the place of a launch's own, with the same parameters, and its grid."""

    kernel: ir.Kernel
    grid: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """A kernel launch: parameters are bytes, ready, or places whose addresses they take.

    As a kernel may reach anything in the allocation that a pointer leads into, `reads` and `writes` are whole
    allocations. `alternatives` are there where the plan was built with candidates; nothing launches them.
    """

    kernel: ir.Kernel
    grid: tuple[int, int, int]
    parameters: tuple[bytes | Reference, ...]
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    alternatives: tuple[LaunchChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copies `nbytes` from one place to another."""

    target: Reference
    source: Reference
    nbytes: int
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class FillStep:
    """Fills `nbytes` with a repeated pattern."""

    target: Reference
    pattern: bytes
    nbytes: int
    writes: tuple[Range, ...]

    @property
    def reads(self) -> tuple[Range, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """A matrix product by the device's library.

    Args:
        product: what is multiplied.
        operands: places of its target, its left and right side, and its addend if it has one.
        alignments: bytes that the address of each is a multiple of.
        location: the model's source line.
        reads: what is read.
        writes: what is written.
    """

    product: Product
    operands: tuple[Reference, ...]
    alignments: tuple[int, ...]
    location: str
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


Step = LaunchStep | CopyStep | FillStep | MatmulStep


@dataclass(frozen=True, slots=True)
class SeedRow:
    """`count` i64 seeds that a call writes `offset` bytes into its seeds; see `ir.RandomSeeds` for what they are."""

    offset: int
    count: int
    philox_offset: int
