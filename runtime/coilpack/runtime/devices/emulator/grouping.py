"""Neighbouring multiply-adds that do not depend on one another, done as one: matrix products without tensor cores.

Such kernels are thousands of `fma.rn.f32` over few threads, so calling numpy costs more than computing. Registers of
32 bits that differ between threads are rows of one array, from which a group takes its operands at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coilpack.runtime.devices.emulator.builder import Builder
from coilpack.runtime.devices.emulator.code import Mask, Operation
from coilpack.runtime.devices.emulator.floats import fma_f32
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.ptx import Instruction, Register

_LEAST = 3  # a smaller group costs more than it saves
_MOST = 64


class MultiplyAdds:
    """Collects a group while a block is built."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._rows: list[tuple[int, ...]] = []
        self._operations: list[Operation] = []
        self._written: set[int] = set()

    def add(self, i: Instruction, operation: Operation) -> bool:
        """Takes an instruction into the group; False if it does not belong there."""
        if i.name != "fma.rn.f32" or i.guard is not None or len(self._rows) == _MOST:
            return False
        rows = [self._builder.row(o.name) if isinstance(o, Register) else -1 for o in i.operands]
        if min(rows) < 0 or not self._written.isdisjoint(rows):
            return False
        self._rows.append(tuple(rows))
        self._operations.append(operation)
        self._written.add(rows[0])
        return True

    def take(self) -> list[Operation]:
        """The operations for what was collected; the group is empty after it."""
        rows, operations = self._rows, self._operations
        self._rows, self._operations, self._written = [], [], set()
        return operations if len(rows) < _LEAST else [_grouped(rows, operations)]


def _grouped(rows: Sequence[tuple[int, ...]], one_by_one: Sequence[Operation]) -> Operation:
    targets, *sources = (np.array(column, np.intp) for column in zip(*rows, strict=True))

    def run(frame: Frame, mask: Mask) -> None:
        if mask is not None:
            for operation in one_by_one:
                operation(frame, mask)
            return
        a, b, c = (frame.rows.take(source, axis=0).view(np.float32) for source in sources)
        frame.rows[targets] = fma_f32(a, b, c).view(np.uint32)

    return run
