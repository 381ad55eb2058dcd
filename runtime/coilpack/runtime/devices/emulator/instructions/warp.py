"""Exchange between the threads of a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coilpack.runtime.devices.emulator.builder import Builder, assign
from coilpack.runtime.devices.emulator.code import DTYPES, Array, Mask, Operation
from coilpack.runtime.devices.emulator.frame import WARP, Frame
from coilpack.runtime.devices.emulator.instructions.types import Build, data_type
from coilpack.runtime.devices.emulator.ptx import Instruction, Pair

_LANES = np.arange(WARP, dtype=np.int64)
_BITS = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


def warps(frame: Frame, values: Array) -> Array:
    """A value of each thread as (warp, lane)."""
    return np.ascontiguousarray(np.broadcast_to(values, frame.shape)).reshape(-1, WARP)


def active(frame: Frame, mask: Mask) -> Array:
    """Which threads take part, as (warp, lane)."""
    return np.ones((frame.ctas * frame.lanes // WARP, WARP), bool) if mask is None else mask.reshape(-1, WARP)


def _source_lane(mode: str, amount: Array, control: Array) -> tuple[Array, Array]:
    """The lane that each lane reads, and whether it is in range (PTX ISA, shfl.sync)."""
    amount, control = amount.astype(np.int64), control.astype(np.int64)
    segment, clamp, offset = (control >> 8) & 31, control & 31, amount & 31
    last = (_LANES & segment) | (clamp & ~segment)
    if mode == "up":
        lane = _LANES - offset
        inside = lane >= last
    else:
        lane = {
            "down": _LANES + offset,
            "bfly": _LANES ^ offset,
            "idx": (_LANES & segment) | (offset & ~segment & 31),
        }[mode]
        inside = lane <= last
    return np.where(inside, lane, _LANES), inside


def _shuffle(builder: Builder, i: Instruction) -> Operation:
    mode, target = i.modifiers[1], i.operands[0]
    first = target.first if isinstance(target, Pair) else target
    value, amount, control = (builder.read(o, k) for o, k in zip(i.operands[1:4], ("b32", "u32", "u32"), strict=True))
    result = builder.write(first, "b32")
    flag = builder.write(target.second, "pred") if isinstance(target, Pair) and target.second.name != "_" else None

    def run(frame: Frame, mask: Mask) -> None:
        slots = frame.slots
        values = warps(frame, slots[value])
        n, c = slots[amount], slots[control]
        if n.size == 1 and c.size == 1:
            lane, inside = _source_lane(mode, n.reshape(1), c.reshape(1))
            moved = values[:, lane]
        else:
            lane, inside = _source_lane(mode, warps(frame, n), warps(frame, c))
            moved = np.take_along_axis(values, lane, axis=1)
        assign(slots[result], moved.reshape(frame.shape), mask)
        if flag is not None:
            assign(slots[flag], np.broadcast_to(inside, moved.shape).reshape(frame.shape), mask)

    return run


def _members(frame: Frame, mask: Mask, members: int) -> Array:
    """Threads that take part and that the member mask names."""
    named = (warps(frame, frame.slots[members]) & _BITS) != 0
    here: Array = active(frame, mask) & named
    return here


def _ballot(chosen: Array) -> Array:
    bits: Array = np.where(chosen, _BITS, np.uint32(0)).sum(axis=1, dtype=np.uint32)
    return bits[:, None]


_VOTES: dict[str, Callable[[Array, Array], Any]] = {
    "all": lambda p, here: (p | ~here).all(axis=1, keepdims=True),
    "any": lambda p, here: (p & here).any(axis=1, keepdims=True),
    "uni": lambda p, here: (p | ~here).all(axis=1, keepdims=True) | ~(p & here).any(axis=1, keepdims=True),
    "ballot": lambda p, here: _ballot(p & here),
}


def _spread(frame: Frame, of_warps: Array) -> Array:
    return np.broadcast_to(of_warps, (of_warps.shape[0], WARP)).reshape(frame.shape)


def _vote(builder: Builder, i: Instruction) -> Operation:
    vote = _VOTES[i.modifiers[1]]
    kind = data_type(i)
    predicate, negated = builder.predicate(i.operands[1])
    members, result = builder.read(i.operands[2], "u32"), builder.write(i.operands[0], kind)

    def run(frame: Frame, mask: Mask) -> None:
        p = warps(frame, frame.slots[predicate]) ^ negated
        assign(frame.slots[result], _spread(frame, vote(p, _members(frame, mask, members))), mask)

    return run


def _active_mask(builder: Builder, i: Instruction) -> Operation:
    result = builder.write(i.operands[0], "b32")

    def run(frame: Frame, mask: Mask) -> None:
        assign(frame.slots[result], _spread(frame, _ballot(active(frame, mask))), mask)

    return run


def _match(builder: Builder, i: Instruction) -> Operation:
    kind, every = data_type(i), "all" in i.modifiers
    target = i.operands[0]
    first = target.first if isinstance(target, Pair) else target
    value, members = builder.read(i.operands[1], kind), builder.read(i.operands[2], "u32")
    result = builder.write(first, "b32")
    flag = builder.write(target.second, "pred") if isinstance(target, Pair) and target.second.name != "_" else None

    def run(frame: Frame, mask: Mask) -> None:
        values, here = warps(frame, frame.slots[value]), _members(frame, mask, members)
        equal = (values[:, :, None] == values[:, None, :]) & here[:, None, :]
        found = np.where(equal, _BITS, np.uint32(0)).sum(axis=2, dtype=np.uint32)
        whole = found == _ballot(here)
        if every:
            found = np.where(whole, found, np.uint32(0))
        assign(frame.slots[result], found.reshape(frame.shape), mask)
        if flag is not None:
            assign(frame.slots[flag], whole.reshape(frame.shape), mask)

    return run


_REDUCE: dict[str, tuple[Any, Callable[[np.dtype[Any]], int]]] = {
    "add": (np.add, lambda _: 0),
    "min": (np.minimum, lambda dtype: int(np.iinfo(dtype).max)),
    "max": (np.maximum, lambda dtype: int(np.iinfo(dtype).min)),
    "and": (np.bitwise_and, lambda _: 0xFFFFFFFF),
    "or": (np.bitwise_or, lambda _: 0),
    "xor": (np.bitwise_xor, lambda _: 0),
}


def _reduce(builder: Builder, i: Instruction) -> Operation:
    kind = data_type(i)
    if kind == "f32":
        raise builder.unsupported("redux of floating-point numbers needs a newer architecture; compile for sm_80")
    function, neutral = _REDUCE[i.modifiers[1]]
    identity = DTYPES[kind].type(neutral(DTYPES[kind]))
    value, members = builder.read(i.operands[1], kind), builder.read(i.operands[2], "u32")
    result = builder.write(i.operands[0], kind)

    def run(frame: Frame, mask: Mask) -> None:
        values = np.where(_members(frame, mask, members), warps(frame, frame.slots[value]), identity)
        reduced = function.reduce(values, axis=1, keepdims=True, dtype=DTYPES[kind])
        assign(frame.slots[result], _spread(frame, reduced), mask)

    return run


def _barrier(builder: Builder, i: Instruction) -> Operation | None:
    """bar.warp.sync: the block that it begins has waited for the warp's threads."""
    del builder, i
    return None


TABLE: dict[str, Build] = {
    "shfl": _shuffle,
    "vote": _vote,
    "activemask": _active_mask,
    "match": _match,
    "redux": _reduce,
    "bar": _barrier,
}
