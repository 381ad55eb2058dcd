"""Tables of instructions: opcode to what builds its operation."""

from __future__ import annotations

from coilpack.runtime.devices.emulator.instructions import (
    accesses,
    atomics,
    control,
    conversion,
    floating,
    integer,
    logic,
    matrix,
    warp,
)
from coilpack.runtime.devices.emulator.instructions.refused import refusal_of
from coilpack.runtime.devices.emulator.instructions.types import Build
from coilpack.runtime.devices.emulator.ptx import Instruction

_PURE_TABLES: tuple[dict[str, Build], ...] = (integer.TABLE, floating.TABLE, logic.TABLE, conversion.TABLE)
_SHARED_NAMES = integer.TABLE.keys() & floating.TABLE.keys()


def _either(opcode: str) -> Build:
    """`add`, `min`, …: of integers or of floating-point numbers, by the type."""
    of_integers, of_floats = integer.TABLE[opcode], floating.TABLE[opcode]
    return lambda builder, i: (of_floats if floating.is_floating(i) else of_integers)(builder, i)


PURE: frozenset[str] = frozenset(opcode for table in _PURE_TABLES for opcode in table)
TABLE: dict[str, Build] = {
    **integer.TABLE,
    **floating.TABLE,
    **{opcode: _either(opcode) for opcode in _SHARED_NAMES},
    **logic.TABLE,
    **conversion.TABLE,
    **accesses.TABLE,
    **atomics.TABLE,
    **control.TABLE,
    **matrix.TABLE,
    **warp.TABLE,
}
# Instructions whose first operand is not a result.
NO_RESULT = frozenset(
    ("st", "red", "bar", "barrier", "bra", "ret", "exit", "trap", "brkpt", "cp", "call", "membar", "fence", "pmevent")
) | {"prefetch", "prefetchu", "stmatrix", "nanosleep", "discard", "applypriority", "griddepcontrol"}
# Instructions that, with `.sync`, all threads of a warp execute together.
CONVERGENT = frozenset(("shfl", "vote", "match", "redux", "mma", "ldmatrix", "stmatrix", "movmatrix"))


def refusal(instruction: Instruction) -> str:
    """Why an instruction is not executed; empty where it is."""
    return refusal_of(instruction, TABLE.keys() | {"bra", "ret", "exit", "bar", "barrier"})
