"""Reading and writing memory for the threads of a mask, whatever the state space."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from coilpack.runtime.devices.emulator.builder import Builder
from coilpack.runtime.devices.emulator.code import Array, Mask
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.ptx import Address, Instruction, Operand, Register, Symbol

# Windows of the generic address space, by the top byte of an address; see `frame`.
_GENERIC = {0: "global", 1: "shared", 2: "local"}
_SPACES = {
    "global": "global",
    "const": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "param": "param",
    "param::entry": "param",
}

# Addresses of the threads in a mask (all threads, perhaps not spread out, where it is None).
AddressOf = Callable[[Frame, Mask], Array]


def space_of(modifiers: Iterable[str]) -> str:
    """The state space that an instruction names; `generic` where it names none."""
    return next((_SPACES[m] for m in modifiers if m in _SPACES), "generic")


def address_of(builder: Builder, operand: Operand) -> AddressOf:
    """Computes the address of `[register+offset]` or `[variable+offset]`."""
    if not isinstance(operand, Address):
        raise builder.unsupported(f"the operand {operand} is not an address")
    base, offset = operand.base, operand.offset
    wide = not isinstance(base, Register) or builder.bits(base.name) == 64
    if isinstance(base, Symbol) and base.name not in builder.symbols:
        raise builder.unsupported(f"the variable {base.name} is not declared")
    slot = builder.read(base, "u64" if wide else "u32")
    step = np.array(offset % (1 << (64 if wide else 32)), np.uint64 if wide else np.uint32)

    def run(frame: Frame, mask: Mask) -> Array:
        addresses = frame.select(frame.slots[slot], mask)
        return addresses + step if offset else addresses

    return run


def split_generic(frame: Frame, addresses: Array, mask: Mask) -> list[tuple[str, Array, Mask]]:
    """Sorts generic addresses by state space: (space, addresses within it, threads)."""
    window = addresses >> np.uint64(56)
    within = addresses & np.uint64((1 << 56) - 1)
    first = int(window.flat[0])
    if (window == window.dtype.type(first)).all():
        return [(_GENERIC.get(first, "global"), within if first in (1, 2) else addresses, mask)]
    parts: list[tuple[str, Array, Mask]] = []
    where = np.ones(frame.shape, bool) if mask is None else mask
    window, within = (np.broadcast_to(v, frame.shape)[where] if mask is None else v for v in (window, within))
    for number in np.unique(window):
        chosen = window == number
        threads = np.zeros(frame.shape, bool)
        threads[where] = chosen
        parts.append((_GENERIC.get(int(number), "global"), within[chosen], threads))
    return parts


def read(frame: Frame, i: Instruction, space: str, addresses: Array, width: int, count: int, mask: Mask) -> Array:
    """Reads `count` neighbouring values of `width` bytes for each address; the last axis counts them."""
    size = width * count
    if space == "global":
        index = frame.global_index(i, addresses, size, mask, writes=False)
        source = frame.memory.views[width]
    else:
        memory = frame.shared if space == "shared" else frame.local
        index = frame.space_index(i, memory, addresses, size, mask, writes=False)
        frame.check_written(i, memory, index, size, mask)
        if frame.races and space == "shared":
            frame.races.note(i, index, size, mask, writes=False)
        source = memory.views[width]
    if count == 1:
        return source.take(index)[..., None]
    return source.reshape(-1, count).take(index, axis=0)


def write(frame: Frame, i: Instruction, space: str, addresses: Array, values: Array, mask: Mask) -> None:
    """Writes values, whose last axis counts neighbours; where addresses are equal, the last thread wins."""
    width, count = values.dtype.itemsize, values.shape[-1]
    size = width * count
    if space == "global":
        index = frame.global_index(i, addresses, size, mask, writes=True)
        target = frame.memory.views[width]
    else:
        memory = frame.shared if space == "shared" else frame.local
        index = frame.space_index(i, memory, addresses, size, mask, writes=True)
        frame.mark_written(memory, index, size)
        if frame.races and space == "shared":
            frame.races.note(i, index, size, mask, writes=True)
        target = memory.views[width]
    frame.progress += 1
    if index.shape != values.shape[:-1]:
        shape = np.broadcast_shapes(index.shape, values.shape[:-1])
        index = np.broadcast_to(index, shape)
        values = np.broadcast_to(values, (*shape, count))
    if count == 1:
        target[index] = values[..., 0]
    else:
        target.reshape(-1, count)[index] = values
