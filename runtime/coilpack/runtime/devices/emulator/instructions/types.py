"""What an instruction table is made of."""

from __future__ import annotations

from collections.abc import Callable

from coilpack.runtime.devices.emulator.builder import Builder
from coilpack.runtime.devices.emulator.code import Operation
from coilpack.runtime.devices.emulator.ptx import Instruction

# Builds the operation of one instruction; None where there is nothing to do.
Build = Callable[[Builder, Instruction], Operation | None]

FLOATING = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"))


def data_type(instruction: Instruction) -> str:
    """The last modifier, which is the type of most instructions."""
    return instruction.modifiers[-1]
