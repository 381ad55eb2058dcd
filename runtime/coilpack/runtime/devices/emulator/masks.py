"""Operations under predicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coilpack.runtime.devices.emulator.code import Mask, Operation

if TYPE_CHECKING:
    from coilpack.runtime.devices.emulator.frame import Frame


def guarded(operation: Operation, slot: int, *, negated: bool) -> Operation:
    """`operation` in those threads whose predicate holds (or, negated, does not)."""

    def run(frame: Frame, mask: Mask) -> None:
        holds = frame.slots[slot]
        if negated:
            holds = ~holds
        if holds.all():
            operation(frame, mask)
            return
        if mask is not None:
            holds = holds & mask
        if holds.any():
            operation(frame, np.broadcast_to(holds, frame.shape))

    return run
