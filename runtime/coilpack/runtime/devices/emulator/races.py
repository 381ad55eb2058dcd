"""Finds threads of a CTA that touch one byte of shared memory, one of them writing, without a barrier between.

Threads of one warp are taken to be in step, so races within a warp are not reported; atomic operations are not looked
at. Any barrier of a CTA counts as one of all its threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coilpack.runtime.devices.emulator.code import Array, Mask
from coilpack.runtime.devices.emulator.ptx import Instruction

if TYPE_CHECKING:
    from coilpack.runtime.devices.emulator.frame import Frame

_NOBODY, _SEVERAL = -1, -2


class SharedAccesses:
    """Which warp wrote each byte of shared memory last, and which read it, since the latest barrier.

    Args:
        frame: the chunk of CTAs.
        stride: bytes of shared memory of each of its CTAs.
    """

    def __init__(self, frame: Frame, stride: int) -> None:
        self._frame, self._stride = frame, stride
        self._writer = np.full(frame.ctas * stride, _NOBODY, np.int32)
        self._reader = np.full(frame.ctas * stride, _NOBODY, np.int32)

    def barrier(self, ctas: Array | None = None) -> None:
        """Forgets the accesses of some CTAs, given as a mask, or of all."""
        for table in (self._writer, self._reader):
            rows = table.reshape(self._frame.ctas, self._stride)
            rows[... if ctas is None else ctas] = _NOBODY

    def note(self, i: Instruction, index: Array, size: int, mask: Mask, *, writes: bool) -> None:
        """Notes accesses of `size` bytes, whose index counts units of that size.

        Raises:
            DeviceError: another warp has touched a byte since the latest barrier, and one of the two wrote it.
        """
        frame = self._frame
        if mask is None:
            index = np.broadcast_to(index, frame.shape).reshape(-1)
            threads = np.arange(len(index))
        else:
            threads = frame.threads_of(mask)
        warp = (threads % frame.lanes // 32).astype(np.int32)[:, None]
        places = index[:, None] * size + np.arange(size)
        others = [(self._writer, "wrote")] + ([(self._reader, "read")] if writes else [])
        for table, verb in others:
            found = table[places]
            self._report(i, (found != _NOBODY) & (found != warp), found, places, verb, writes=writes, mask=mask)
        if writes:
            self._writer[places] = warp
            found = self._writer[places]
            self._report(i, found != warp, found, places, "wrote", writes=True, mask=mask)
        else:
            seen = self._reader[places]
            self._reader[places] = np.where((seen == _NOBODY) | (seen == warp), warp, _SEVERAL)
            again = self._reader[places]
            self._reader[places[(again != warp).any(axis=1)]] = _SEVERAL

    def _report(
        self, i: Instruction, bad: Array, found: Array, places: Array, verb: str, *, writes: bool, mask: Mask
    ) -> None:
        if not bad.any():
            return
        at, byte = (int(n) for n in np.argwhere(bad)[0])
        other = int(found[at, byte])
        who = "several warps" if other == _SEVERAL else f"warp {other}"
        offset = int(places[at, byte]) % self._stride
        does = "writes" if writes else "reads"
        problem = f"{does} byte {offset:#x} of shared memory, which {who} {verb} without a barrier between: a race"
        raise self._frame.fail(i, problem, mask, at)
