"""Atomic operations, one thread after another where several meet at an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coilpack.runtime.devices.emulator import floats
from coilpack.runtime.devices.emulator.builder import Builder, kind_bits
from coilpack.runtime.devices.emulator.code import DTYPES, Array, Mask, Operation
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.instructions.transfer import address_of, space_of, split_generic
from coilpack.runtime.devices.emulator.instructions.types import Build, data_type
from coilpack.runtime.devices.emulator.ptx import Instruction, Register

# New value from the old one and the operands.
Update = Callable[..., Any]

_OPERATIONS: dict[str, Update] = {
    "add": lambda old, b: old + b,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda _, b: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "inc": lambda old, b: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}
# Those for which numpy accumulates over repeated indices itself.
_ACCUMULATE: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _update(name: str, kind: str) -> Update:
    function = _OPERATIONS[name]
    if kind.startswith("bf16") and name in ("add", "min", "max"):
        return lambda old, b: floats.f32_to_bf16(function(floats.bf16_to_f32(old), floats.bf16_to_f32(b)))
    return function


def _atomic(builder: Builder, i: Instruction) -> Operation:
    reduces = i.opcode == "red"
    operands = i.operands if reduces else i.operands[1:]
    name = next((m for m in i.modifiers if m in _OPERATIONS), "")
    kind = data_type(i)
    if not name or kind == "b128" or not {"v2", "v4", "v8"}.isdisjoint(i.modifiers):
        raise builder.unsupported("this atomic operation is not implemented; compile for sm_80")
    target = None if reduces else i.operands[0]
    if not isinstance(target, Register) or target.name == "_" or target.name not in builder.is_read:
        target = None
    result = builder.write(target, kind) if target is not None else None
    sources = [builder.read(operand, kind) for operand in operands[1:]]
    address, space = address_of(builder, operands[0]), space_of(i.modifiers)
    apply = _Apply(i, name, kind, wanted=result is not None)

    def run(frame: Frame, mask: Mask) -> None:
        threads = np.ones(frame.shape, bool) if mask is None else mask
        addresses = address(frame, threads)
        parts = split_generic(frame, addresses, threads) if space == "generic" else [(space, addresses, threads)]
        for place, within, chosen in parts:
            assert chosen is not None
            values = [_chosen(frame, frame.slots[s], chosen) for s in sources]
            old = apply(frame, place, within, values, chosen)
            if result is not None:
                frame.put(result, old, chosen)

    return run


def _chosen(frame: Frame, values: Array, mask: Array) -> Array:
    if values.ndim == 3:  # packed
        return np.broadcast_to(values, (*frame.shape, values.shape[2]))[mask]
    return np.broadcast_to(values, frame.shape)[mask]


class _Apply:
    """One atomic operation on memory; returns old values where they are wanted."""

    def __init__(self, i: Instruction, name: str, kind: str, *, wanted: bool) -> None:
        self.instruction, self.name, self.kind, self.wanted = i, name, kind, wanted
        self.update = _update(name, kind)
        self.dtype, self.packed = DTYPES[kind], "x" in kind
        self.nbytes = kind_bits(kind) // 8

    def __call__(self, frame: Frame, space: str, addresses: Array, values: list[Array], mask: Array) -> Array:
        i = self.instruction
        if space == "global":
            index = frame.global_index(i, addresses, self.nbytes, mask, writes=True)
            view = frame.memory.views[self.nbytes]
        else:
            memory = frame.shared if space == "shared" else frame.local
            index = frame.space_index(i, memory, addresses, self.nbytes, mask, writes=True)
            frame.check_written(i, memory, index, self.nbytes, mask)
            view = memory.views[self.nbytes]
        typed = view[:, None].view(self.dtype) if self.packed else view.view(self.dtype)
        return self._apply(frame, typed, index, values)

    def _apply(self, frame: Frame, memory: Array, index: Array, values: list[Array]) -> Array:
        repeated = len(np.unique(index)) < len(index)
        if not repeated:
            return self._once(frame, memory, index, values)
        if not self.wanted and self.name in _ACCUMULATE and not self.kind.startswith("bf16"):
            frame.progress += 1
            _ACCUMULATE[self.name].at(memory, index, values[0])
            return values[0]
        if self.name == "add" and self.dtype.kind in "iu":
            frame.progress += 1
            return _running_sums(memory, index, values[0])
        old = np.empty_like(values[0])
        rank = _ranks(index)
        for turn in range(int(rank.max()) + 1):
            now = rank == turn
            old[now] = self._once(frame, memory, index[now], [v[now] for v in values])
        return old

    def _once(self, frame: Frame, memory: Array, index: Array, values: list[Array]) -> Array:
        old: Array = memory[index]
        new = np.asarray(self.update(old, *values)).astype(self.dtype, copy=False)
        memory[index] = new
        if new.tobytes() != old.tobytes():  # a thread that waits for a lock makes no progress
            frame.progress += 1
        return old


def _ranks(index: Array) -> Array:
    """For each position, how many earlier ones have the same index."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    first = np.maximum.accumulate(np.where(starts, np.arange(len(index)), 0))
    ranks = np.empty(len(index), np.int64)
    ranks[order] = np.arange(len(index)) - first
    return ranks


def _running_sums(memory: Array, index: Array, values: Array) -> Array:
    """Adds integers in order; returns what each addition found."""
    order = np.argsort(index, kind="stable")
    ordered, addends = index[order], values[order]
    before = np.cumsum(addends, dtype=values.dtype) - addends
    starts = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    first = np.maximum.accumulate(np.where(starts, np.arange(len(index)), 0))
    old = np.empty_like(values)
    old[order] = memory[ordered] + (before - before[first])
    np.add.at(memory, index, values)
    return old


TABLE: dict[str, Build] = {"atom": _atomic, "red": _atomic}
