"""Traps, calls of the assertion function, fences: what does not compute."""

from __future__ import annotations

import numpy as np

from coilpack.runtime.devices.emulator.builder import Builder
from coilpack.runtime.devices.emulator.code import Mask, Operation
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.instructions.types import Build
from coilpack.runtime.devices.emulator.ptx import Arguments, Instruction, Register, Symbol

_ASSERTION_ARGUMENTS = 4  # of `__assertfail`: message, file, line, function; the size of a character follows
_LINE = 2


def _nothing(_: Builder, __: Instruction) -> Operation | None:
    """Fences: memory is one, and every thread sees what was written before."""
    return None


def _trap(_: Builder, i: Instruction) -> Operation:
    def run(frame: Frame, mask: Mask) -> None:
        raise frame.fail(i, "the kernel stopped itself", mask)

    return run


def _call(builder: Builder, i: Instruction) -> Operation:
    name = next((operand.name for operand in i.operands if isinstance(operand, Symbol)), "")
    if name == "vprintf":
        raise builder.unsupported("printing from a kernel is not implemented")
    if name != "__assertfail":
        raise builder.unsupported(f"a call of the function {name or '?'} is not implemented")
    given = next((o.items for o in i.operands if isinstance(o, Arguments)), ())
    if len(given) < _ASSERTION_ARGUMENTS or not all(isinstance(item, Register) for item in given):
        raise builder.unsupported("the arguments of the assertion are not stored before it")
    slots = [builder.read(item, "u32" if n == _LINE else "u64") for n, item in enumerate(given[:_ASSERTION_ARGUMENTS])]

    def run(frame: Frame, mask: Mask) -> None:
        first = 0 if mask is None else int(np.flatnonzero(mask)[0])
        values = [
            int(np.broadcast_to(frame.slots[slot], frame.shape).flat[first]) for slot in slots if slot is not None
        ]
        message, file, function = (_text(frame, values[n]) for n in range(_ASSERTION_ARGUMENTS) if n != _LINE)
        raise frame.fail(i, f"the assertion `{message}` failed ({file}:{values[_LINE]}, {function})", mask)

    return run


def _text(frame: Frame, address: int) -> str:
    region = frame.memory.find(address) if address >= frame.memory.base else None
    if region is None:
        return "?"
    raw = frame.memory.image[address - frame.memory.base : region.end - frame.memory.base].tobytes()
    return raw.split(bytes(1))[0].decode("utf-8", "replace")


TABLE: dict[str, Build] = {
    "trap": _trap,
    "brkpt": _trap,
    "call": _call,
    "membar": _nothing,
    "fence": _nothing,
    "nanosleep": _nothing,
    "pmevent": _nothing,
}
