"""Loads, stores and asynchronous copies."""

from __future__ import annotations

import numpy as np

from coilpack.runtime.devices.emulator.builder import Builder
from coilpack.runtime.devices.emulator.code import DTYPES, Array, Mask, Operation
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.instructions.transfer import address_of, read, space_of, split_generic, write
from coilpack.runtime.devices.emulator.instructions.types import Build, data_type
from coilpack.runtime.devices.emulator.ptx import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _memory_kind(type_: str) -> str:
    """The kind that values of a type are moved as: signed ones are extended with their sign."""
    return f"{'s' if type_[0] == 's' else 'u'}{TYPE_BYTES[type_] * 8}"


def _load(builder: Builder, i: Instruction) -> Operation:
    space, type_ = space_of(i.modifiers), data_type(i)
    if type_ == "b128":
        raise builder.unsupported("values of 128 bits are not implemented")
    if space == "param":
        return _load_parameter(builder, i)
    kind = _memory_kind(type_)
    items = _items(i.operands[0])
    slots = [None if item == Register("_") else builder.write(item, kind) for item in items]
    address, dtype = address_of(builder, i.operands[1]), DTYPES[kind]

    def load(frame: Frame, space: str, addresses: Array, mask: Mask) -> None:
        rows = read(frame, i, space, addresses, dtype.itemsize, len(slots), mask).view(dtype)
        for number, slot in enumerate(slots):
            if slot is not None:
                frame.put(slot, rows[..., number], mask)

    def run(frame: Frame, mask: Mask) -> None:
        addresses = address(frame, mask)
        if space != "generic":
            load(frame, space, addresses, mask)
            return
        for part, within, threads in split_generic(frame, addresses, mask):
            load(frame, part, within, threads)

    return run


def _load_parameter(builder: Builder, i: Instruction) -> Operation:
    operand = i.operands[1]
    if not isinstance(operand, Address) or not isinstance(operand.base, Symbol):
        raise builder.unsupported("a parameter's address must be its name and an offset")
    if operand.base.name not in builder.parameters:
        raise builder.unsupported(f"{operand.base.name} is not a parameter of the kernel")
    kind = _memory_kind(data_type(i))
    start, size = builder.parameters[operand.base.name]
    items = _items(i.operands[0])
    dtype, begin = DTYPES[kind], start + operand.offset
    if operand.offset < 0 or operand.offset + dtype.itemsize * len(items) > size or begin % dtype.itemsize:
        problem = (
            f"it reads {dtype.itemsize * len(items)} bytes at offset {operand.offset} of a parameter of {size} bytes"
        )
        raise builder.unsupported(problem)
    slots = [builder.write(item, kind) for item in items]

    def run(frame: Frame, mask: Mask) -> None:
        values = np.frombuffer(frame.parameters, dtype, len(slots), begin)
        for slot, value in zip(slots, values, strict=True):
            target = frame.slots[slot]
            if mask is None or target.shape != frame.shape:
                target[...] = value
            else:
                target[mask] = value

    return run


def _store(builder: Builder, i: Instruction) -> Operation:
    space, type_ = space_of(i.modifiers), data_type(i)
    if type_ == "b128":
        raise builder.unsupported("values of 128 bits are not implemented")
    if space == "param":
        raise builder.unsupported("arguments that are no numbers are not implemented")
    kind = f"u{TYPE_BYTES[type_] * 8}"
    slots = [builder.read(item, kind) for item in _items(i.operands[1])]
    address, dtype = address_of(builder, i.operands[0]), DTYPES[kind]

    def run(frame: Frame, mask: Mask) -> None:
        parts = [frame.select(frame.slots[slot], mask) for slot in slots]
        if len(parts) == 1:
            values = parts[0][..., None]
        else:
            shape = np.broadcast_shapes(*[part.shape for part in parts])
            values = np.empty((*shape, len(parts)), dtype)
            for number, part in enumerate(parts):
                values[..., number] = part
        addresses = address(frame, mask)
        if space != "generic":
            write(frame, i, space, addresses, values, mask)
            return
        for place, within, threads in split_generic(frame, addresses, mask):
            chosen = values
            if threads is not None and threads is not mask:
                every = np.broadcast_to(values, (*frame.shape, len(parts))) if mask is None else values
                chosen = every[threads if mask is None else threads[mask]]
            write(frame, i, place, within, chosen, threads)

    return run


def _nothing(_: Builder, __: Instruction) -> Operation:
    def run(_: Frame, __: Mask) -> None:
        return

    return run


# --- cp.async ---


def _copy(builder: Builder, i: Instruction) -> Operation:
    """cp.async: the bytes are on their way until a wait; the emulator moves them at once.

    A program may not read the destination, or write the source, before it has waited, so it cannot tell.
    """
    if i.modifiers[0] != "async":
        raise builder.unsupported(f"{i.name} is not implemented")
    if not {"commit_group", "wait_group", "wait_all"}.isdisjoint(i.modifiers):
        return _nothing(builder, i)
    target, source = address_of(builder, i.operands[0]), address_of(builder, i.operands[1])
    size = i.operands[2]
    if not isinstance(size, Immediate):
        raise builder.unsupported("the size of cp.async must be a number")
    nbytes = int(size.value)
    # The operand behind the size is the number of bytes to read; one behind that, or alone of 64 bits, a cache policy.
    rest = [o for o in i.operands[3:] if not (isinstance(o, Register) and builder.bits(o.name) == 64)]
    if rest and isinstance(rest[0], Register) and builder.bits(rest[0].name) == 1:
        raise builder.unsupported("cp.async with a predicate to ignore the source is not implemented")
    given = builder.read(rest[0], "u32") if rest else None
    width = min(nbytes, 8)
    dtype = np.dtype(f"u{width}")

    def run(frame: Frame, mask: Mask) -> None:
        to, origin = target(frame, mask), source(frame, mask)
        if given is None:
            write(frame, i, "shared", to, read(frame, i, "global", origin, width, nbytes // width, mask), mask)
            return
        shape = frame.shape if mask is None else (int(np.count_nonzero(mask)),)
        length = np.broadcast_to(frame.select(frame.slots[given], mask), shape)
        values = np.zeros((*shape, nbytes), np.uint8)
        for amount in np.unique(length):
            if amount:
                chosen = length == amount
                threads = np.zeros(frame.shape, bool)
                threads[... if mask is None else mask] = chosen
                part = _read_bytes(frame, i, np.broadcast_to(origin, shape)[chosen], int(amount), threads)
                values[chosen, : int(amount)] = part
        write(frame, i, "shared", to, values.view(dtype), mask)

    return run


def _read_bytes(frame: Frame, i: Instruction, addresses: Array, nbytes: int, mask: Mask) -> Array:
    unit = next(u for u in (8, 4, 2, 1) if nbytes % u == 0)
    parts = [read(frame, i, "global", addresses + np.uint64(at), unit, 1, mask) for at in range(0, nbytes, unit)]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1)).view(np.uint8)


TABLE: dict[str, Build] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "cp": _copy,
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "applypriority": _nothing,
    "discard": _nothing,
}
