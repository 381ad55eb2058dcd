"""A compiled kernel: blocks of operations over slots, and the builder that instruction tables write it with.

Registers are arrays over (CTA, thread). A register that is written once, unconditionally, from values that do not
depend on the thread (or the CTA) is kept as one row (or column), which broadcasts. Operations read and write *slots*:
views of a register as one type, made once for each chunk of CTAs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coilpack.runtime.devices.emulator.ptx import (
    Instruction,
)

if TYPE_CHECKING:
    from coilpack.runtime.devices.emulator.frame import Frame

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_] | None
# Runs over the threads of `mask`, or over all when it is None.
Operation = Callable[["Frame", Mask], None]
Dims = tuple[bool, bool]  # whether a value depends on the CTA, on the thread

_NUMPY = {
    **{f"u{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    "f16": "f2",
    "f32": "f4",
    "f64": "f8",
    "bf16": "u2",
    "pred": "?",
}
# Types of several values in one register: the dtype of one of them. Their slots have a last axis over the values.
_PACKED = {"f16x2": "f2", "bf16x2": "u2", "b8x4": "u1", "u8x4": "u1", "s8x4": "i1", "u16x2": "u2", "s16x2": "i2"}
DTYPES: dict[str, np.dtype[Any]] = {kind: np.dtype(name) for kind, name in (_NUMPY | _PACKED).items()}
FULL: Dims = (True, True)


@dataclass(slots=True)
class RegisterInfo:
    """A register: its width in bits (1 for a predicate), what its value depends on, and its row.

    Registers of 32 bits with a value for each thread are rows of one array; `row` is -1 for others.
    """

    bits: int
    dims: Dims
    row: int = -1


@dataclass(slots=True)
class Block:
    """Operations without a branch between them, and how control leaves them.

    Args:
        operations: run in order.
        first: index of its first instruction in the entry.
        leave: how control leaves it; None to go on with the next block.
        convergence: slot of the member mask of the warp instruction that it begins with, or None.
        instructions: for counting and messages.
    """

    operations: list[Operation] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    leave: Leave | None = None
    convergence: int | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """The end of a block.

    Args:
        kind: `jump`, `exit` or `barrier`.
        instruction: the one that stands there.
        guard: slot of its predicate, or None where it is unconditional.
        negated: the predicate must be false.
        target: block to jump to.
        barrier: slot of the barrier's number.
        threads: slot of the number of threads that a barrier waits for; None for all of the CTA.
        waits: a barrier that blocks, not only arrives.
    """

    kind: str
    instruction: Instruction
    guard: int | None = None
    negated: bool = False
    target: int = -1
    barrier: int = -1
    threads: int | None = None
    waits: bool = True


@dataclass(slots=True)
class Code:
    """A kernel ready to run; independent of any launch.

    Args:
        name: the kernel's symbol.
        registers: all of them.
        slots: (register, kind) of each register slot.
        constants: slot → array.
        specials: slot → name of a special register.
        blocks: in order of the text.
        shared: name → offset of shared variables; `shared_bytes` in all, then the dynamic part.
        local_bytes: of each thread.
        repeats_on_memory: some loop reads memory that others may change, so its CTAs must run together.
    """

    name: str
    registers: list[RegisterInfo] = field(default_factory=list)
    slots: dict[int, tuple[int, str]] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    specials: dict[int, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    slot_count: int = 0
    row_count: int = 0
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    local_bytes: int = 0
    repeats_on_memory: bool = False
