"""Runs a chunk of CTAs: straight through while all threads agree, by program counter and mask where they do not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coilpack.runtime.devices.emulator.code import Array, Block, Code, Leave
from coilpack.runtime.devices.emulator.frame import WARP, Frame
from coilpack.runtime.errors import DeviceError

Positions = npt.NDArray[np.int32]

_FAIR_TURN = 256  # of that many turns one goes to the group that waited, so that no spin wait starves the others
_CHUNK_THREADS = 16384  # arrays of that length stay in the second-level cache


class Executor:
    """Runs one frame.

    Args:
        frame: a chunk in which nothing has run yet.

    Raises:
        DeviceError: (from `run`) a check failed, or threads wait for one another for ever.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.code: Code = frame.code
        self.end = len(self.code.blocks)
        self.executed = 0
        self._noted, self._deadline = 0, frame.launched.checks.no_progress

    def run(self) -> int:
        """Runs to the end; returns how many instructions were issued (each for all of its threads)."""
        number, position = 0, None
        if not self.frame.alive.all():
            position = np.where(self.frame.alive, 0, self.end).astype(np.int32)
        with np.errstate(all="ignore"):
            while number < self.end:
                if position is None:
                    position = self._together(number)
                    number = self.end if position is None else number
                else:
                    number, position = self._apart(position), None
        return self.executed

    def _count(self, block: Block, number: int) -> None:
        self.executed += len(block.instructions)
        if self.frame.progress != self._noted:
            self._noted = self.frame.progress
            self._deadline = self.executed + self.frame.launched.checks.no_progress
        elif self.executed > self._deadline:
            instruction = block.instructions[0]
            where = f" near line {instruction.line}: `{instruction.text}`"
            raise DeviceError(
                f"kernel {self.code.name}: no progress: {self.frame.launched.checks.no_progress} instructions without "
                f"a store, a barrier or an exit; it loops{where} (block {number}). A kernel whose CTAs wait for one "
                "another must have all of them running at once"
            )

    def _together(self, number: int) -> Positions | None:
        """Runs from the start of block `number`, where all threads are, to the end, or until they part."""
        frame, blocks = self.frame, self.code.blocks
        while number < self.end:
            block = blocks[number]
            for operation in block.operations:
                operation(frame, None)
            self._count(block, number)
            leave = block.leave
            number += 1
            if leave is None:
                continue
            if leave.guard is not None:
                taken = frame.slots[leave.guard]
                some, every = bool(taken.any()), bool(taken.all())
                if leave.negated:
                    some, every = not every, not some
                if not some:
                    continue
                if not every:
                    return self._part(leave, number)
            if leave.kind == "exit":
                return None
            if leave.kind == "jump":
                number = leave.target
            elif not leave.waits or leave.threads is not None or not self._one_barrier(leave):
                return self._part(leave, number)
            else:
                frame.barrier_passed()
        return None

    def _part(self, leave: Leave, following: int) -> Positions:
        position = np.full(self.frame.shape, following, np.int32)
        self._leave(leave, following, np.ones(self.frame.shape, bool), position)
        return position

    def _one_barrier(self, leave: Leave) -> bool:
        ids = self.frame.slots[leave.barrier]
        return bool((ids == ids.flat[0]).all())

    def _apart(self, position: Positions) -> int:
        """Runs threads from the starts of the blocks in `position`, `end` for those that have exited.

        Returns:
            The block at which all threads have met again, or `end` when all have exited.
        """
        frame, blocks = self.frame, self.code.blocks
        turn = 0
        while True:
            turn += 1
            number, mask = self._choose(position, turn)
            if number == self.end:
                return number
            block = blocks[number]
            every = bool(mask.all())
            if every and not frame.pending_arrivals:
                return number
            operand = None if every else mask
            for operation in block.operations:
                operation(frame, operand)
            self._count(block, number)
            if block.leave is None:
                np.putmask(position, mask, number + 1)
            else:
                self._leave(block.leave, number + 1, mask, position)

    def _choose(self, position: Positions, turn: int) -> tuple[int, npt.NDArray[np.bool_]]:
        frame = self.frame
        ready = np.where(frame.blocked, self.end, position) if frame.any_blocked else position
        number = int(ready.min())
        if number < self.end:
            if turn % _FAIR_TURN == 0:
                later = ready[(ready > number) & (ready < self.end)]
                number = int(later.min()) if later.size else number
            mask = ready == number
            if self.code.blocks[number].convergence is None:
                return number, mask
            for candidate in [number, *(int(n) for n in np.unique(ready) if n != number and n < self.end)]:
                mask = ready == candidate
                slot = self.code.blocks[candidate].convergence
                if slot is not None:
                    mask &= self._converged(mask, slot, position)
                if mask.any():
                    return candidate, mask
        if (position < self.end).any():
            raise self._deadlock(position)
        return self.end, frame.blocked

    def _converged(self, mask: Array, slot: int, position: Positions) -> Array:
        """Threads of warps whose members, by the instruction's mask, have all arrived or exited."""
        lanes = (-1, WARP)
        bit = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
        here = mask.reshape(lanes)
        alive = (position < self.end).reshape(lanes)
        members = np.broadcast_to(self.frame.slots[slot], self.frame.shape).reshape(lanes)
        wanted = np.bitwise_or.reduce(np.where(here, members, 0).astype(np.uint32), axis=1)
        present = np.where(here | ~alive, bit, 0).astype(np.uint32).sum(axis=1, dtype=np.uint32)
        met = (wanted & ~present) == 0
        return np.broadcast_to(met[:, None], here.shape).reshape(self.frame.shape)

    def _deadlock(self, position: Positions) -> DeviceError:
        frame = self.frame
        stuck = np.flatnonzero((position < self.end).ravel())
        thread = int(stuck[0])
        number = int(position.flat[thread])
        block = self.code.blocks[number]
        if frame.blocked.flat[thread]:
            leave = self.code.blocks[number - 1].leave
            assert leave is not None
            cta = thread // frame.lanes
            waiting = int(frame.blocked[cta].sum())
            problem = (
                f"waits for ever: {waiting} threads of the CTA wait at barrier {int(frame.barrier_id.flat[thread])}, "
                f"{int((position[cta] < self.end).sum())} have not exited"
            )
            return frame.fail(leave.instruction, problem, None, thread)
        problem = "waits for ever for threads of its warp that its member mask names"
        return frame.fail(block.instructions[0], problem, None, thread)

    def _leave(self, leave: Leave, following: int, mask: Array, position: Positions) -> None:
        """Moves the threads in `mask`, which have run a block."""
        frame = self.frame
        np.putmask(position, mask, following)
        if leave.guard is not None:
            taken = frame.slots[leave.guard]
            mask = mask & (~taken if leave.negated else taken)
            if not mask.any():
                return
        if leave.kind == "jump":
            np.putmask(position, mask, leave.target)
        elif leave.kind == "exit":
            np.putmask(position, mask, self.end)
            np.putmask(frame.alive, mask, False)
            frame.progress += 1
            frame.release_barriers(None)
        else:
            frame.arrive(leave, mask)


def chunk_size(frame_bytes_per_cta: int, lanes: int, ctas: int, limit: int, *, together: bool) -> int:
    """How many CTAs to run at once.

    Args:
        frame_bytes_per_cta: registers, shared and local memory of one.
        lanes: threads of one, rounded up to warps.
        ctas: of the whole grid.
        limit: bytes that a chunk may take.
        together: the kernel's CTAs may wait for one another.
    """
    by_memory = max(limit // max(frame_bytes_per_cta, 1), 1)
    wanted = ctas if together else max(_CHUNK_THREADS // lanes, 1)
    return min(by_memory, wanted, ctas)
