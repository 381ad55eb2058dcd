"""Traps, calls of the assertion function, fences: what does not compute."""

from __future__ import annotations

from coilpack.runtime.devices.emulator.builder import Builder
from coilpack.runtime.devices.emulator.code import Mask, Operation
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.instructions.types import Build
from coilpack.runtime.devices.emulator.ptx import Instruction, Symbol


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
    texts = builder.assertion

    def run(frame: Frame, mask: Mask) -> None:
        message, file, line, function = (_text(frame, part) for part in texts)
        where = f" ({file}:{line} in {function})" if file else ""
        raise frame.fail(i, f"the assertion `{message}` failed{where}", mask)

    return run


def _text(frame: Frame, address: int) -> str:
    region = frame.memory.find(address) if address >= frame.memory.base else None
    if region is None:
        return str(address) if address else ""
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
