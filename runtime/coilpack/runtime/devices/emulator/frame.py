"""The state of a chunk of CTAs while they run: registers, shared and local memory, and accesses with their checks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coilpack.runtime.devices.base import LaunchConfig
from coilpack.runtime.devices.emulator.code import DTYPES, Array, Code, Leave, Mask
from coilpack.runtime.devices.emulator.memory import Memory
from coilpack.runtime.devices.emulator.ptx import Instruction
from coilpack.runtime.devices.emulator.races import SharedAccesses
from coilpack.runtime.errors import DeviceError

WARP = 32
_LOOKS = 16  # at most, for whether all shared memory was written
_BARRIERS = 16  # of a CTA (PTX ISA, bar)
# Generic addresses of shared and local memory; host addresses lie far below.
SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 2 << 56


@dataclass(frozen=True, slots=True)
class Checks:
    """What is checked besides bounds and alignment.

    Args:
        uninitialized: reads of shared memory and of buffers that nothing was written to.
        races: threads of a CTA that touch one byte of shared memory, one of them writing, without a barrier between.
        no_progress: instructions that a chunk may execute without a store, an exit or a barrier.
    """

    uninitialized: bool = True
    races: bool = False
    no_progress: int = 20_000_000


@dataclass(slots=True)
class Launched:
    """What is the same for all chunks of a launch."""

    code: Code
    config: LaunchConfig
    parameters: bytes
    memory: Memory
    checks: Checks
    warned: set[tuple[str, int]] = field(default_factory=set)


class Space:
    """Shared or local memory of a chunk: one row of bytes for each CTA or thread.

    Args:
        name: `shared` or `local`.
        rows: CTAs, or threads.
        nbytes: of a row, before rounding up.
        tracked: notice reads of bytes that were never written.
    """

    def __init__(self, name: str, rows: int, nbytes: int, *, tracked: bool) -> None:
        self.name, self.nbytes = name, nbytes
        self.stride = -(-nbytes // 16) * 16
        self.bytes = np.zeros(rows * self.stride, np.uint8)
        self.views = {size: self.bytes.view(f"u{size}") for size in (1, 2, 4, 8)}
        self.written = np.zeros(len(self.bytes) if tracked else 0, np.uint8)
        self.written_views = {size: self.written.view(f"u{size}") for size in (1, 2, 4, 8)}
        self._tracked = self.tracked = tracked
        self._rows = rows
        self.clear()

    def clear(self) -> None:
        """Forgets what was written, for the next chunk."""
        self.tracked, self._looks = self._tracked, _LOOKS
        if self.tracked:
            self.written[:] = 0
            self.written.reshape(self._rows, self.stride)[:, self.nbytes :] = 1

    def look(self) -> None:
        """Stops tracking once everything was written. Called at barriers, where that is likely."""
        if self.tracked and self._looks:
            self._looks -= 1
            self.tracked = not self.written.all()


class Frame:
    """A chunk of CTAs.

    Args:
        launched: the launch.
        first: linear index of the first CTA.
        ctas: how many there are.
    """

    def __init__(self, launched: Launched, first: int, ctas: int) -> None:
        self.launched, self.code, self.memory = launched, launched.code, launched.memory
        self.ctas = ctas
        x, y, z = launched.config.block
        self.threads = x * y * z
        self.lanes = -(-self.threads // WARP) * WARP
        self.shape = (ctas, self.lanes)
        self.parameters = launched.parameters
        self._latest_mask: Mask = None
        self._latest_threads = np.zeros(0, np.int64)
        self.progress = 0  # counts stores, exits and barriers
        self.alive = np.zeros(self.shape, bool)
        self.alive[:, : self.threads] = True
        self.slots: list[Array] = self._bind()
        shared = self.code.shared_bytes + launched.config.shared_memory_bytes
        tracked = launched.checks.uninitialized
        self.shared = Space("shared", ctas, shared, tracked=tracked)
        self.local = Space("local", ctas * self.lanes, self.code.local_bytes, tracked=False)
        self.blocked = np.zeros(self.shape, bool)
        self.any_blocked = False
        self.barrier_id = np.zeros(self.shape, np.uint8)
        self._barrier_need = np.zeros(self.shape, np.int32)
        self._arrived = np.zeros((ctas, 16), np.int32)
        self.pending_arrivals = False
        self._shared_rows = np.arange(ctas, dtype=np.int64)[:, None] * self.shared.stride
        self._local_rows = np.arange(ctas * self.lanes, dtype=np.int64).reshape(self.shape) * self.local.stride
        races = launched.checks.races and self.shared.stride > 0
        self.races = SharedAccesses(self, self.shared.stride) if races else None
        self.start(first)

    def _bind(self) -> list[Array]:
        dims = [(self.ctas if r.dims[0] else 1, self.lanes if r.dims[1] else 1) for r in self.code.registers]
        self.rows = np.zeros((self.code.row_count, *self.shape), np.uint32)
        banks = [
            self.rows[r.row] if r.row >= 0 else np.zeros(shape, "?" if r.bits == 1 else f"u{r.bits // 8}")
            for r, shape in zip(self.code.registers, dims, strict=True)
        ]
        nothing = np.zeros((1, 1), np.uint32)
        slots = [nothing] * self.code.slot_count
        for slot, (register, kind) in self.code.slots.items():
            slots[slot] = _view(banks[register], kind)
        for slot, constant in self.code.constants.items():
            slots[slot] = constant
        return slots

    def start(self, first: int) -> None:
        """Makes the frame stand for the CTAs from `first` on, before anything of theirs has run."""
        self.first = first
        self.shared.clear()
        if self.races:
            self.races.barrier()
        self.alive[:, : self.threads] = True
        self._arrived[:] = 0
        for slot, key in self.code.specials.items():
            name, kind = key.split()
            self.slots[slot] = np.ascontiguousarray(self._special(name)).astype(DTYPES[kind])

    def _special(self, name: str) -> Array:
        config = self.launched.config
        base, _, axis = name[1:].partition(".")
        at = "xyz".index(axis) if axis else 0
        thread = np.arange(self.lanes, dtype=np.uint64)[None, :]
        if base in ("tid", "ctaid"):
            sizes = config.block if base == "tid" else config.grid
            linear = (
                thread if base == "tid" else np.arange(self.first, self.first + self.ctas, dtype=np.uint64)[:, None]
            )
            for size in sizes[:at]:
                linear = linear // np.uint64(size)
            return linear % np.uint64(sizes[at]) if at < 2 else linear
        lane = thread % np.uint64(WARP)
        one = np.uint64(1)
        values: dict[str, Any] = {
            "ntid": config.block[at],
            "nctaid": config.grid[at],
            "laneid": lane,
            "warpid": thread // np.uint64(WARP),
            "nwarpid": self.lanes // WARP,
            "lanemask_eq": one << lane,
            "lanemask_lt": (one << lane) - one,
            "lanemask_le": (one << (lane + one)) - one,
            "lanemask_gt": np.uint64(0xFFFFFFFF) ^ ((one << (lane + one)) - one),
            "lanemask_ge": np.uint64(0xFFFFFFFF) ^ ((one << lane) - one),
            "dynamic_smem_size": config.shared_memory_bytes,
            "total_smem_size": config.shared_memory_bytes + self.code.shared_bytes,
            "nsmid": 1,
        }
        value = values.get(base, 0)  # clocks stand still, so that runs repeat exactly
        return value if isinstance(value, np.ndarray) else np.full((1, 1), value, np.uint64)

    # --- barriers ---

    def barrier_passed(self) -> None:
        """All threads of all CTAs have met at a barrier."""
        self.progress += 1
        self.shared.look()
        if self.races:
            self.races.barrier()

    def arrive(self, leave: Leave, mask: Array) -> None:
        """Threads arrive at a barrier, and wait there if it says so."""
        ids = np.broadcast_to(self.slots[leave.barrier], self.shape)
        if int(ids[mask].max()) >= _BARRIERS:
            raise self.fail(
                leave.instruction, f"barrier {int(ids[mask].max())} does not exist; there are {_BARRIERS}", mask
            )
        need = np.broadcast_to(self.slots[leave.threads], self.shape) if leave.threads is not None else 0
        if leave.waits:
            self.blocked |= mask
            self.any_blocked = True
            np.copyto(self.barrier_id, ids, where=mask, casting="unsafe")
            np.copyto(self._barrier_need, need, where=mask, casting="unsafe")
        else:
            for number in np.unique(ids[mask]):
                self._arrived[:, number] += (mask & (ids == number)).sum(axis=1)
            self.pending_arrivals = True
        self.release_barriers(leave)

    def release_barriers(self, _: Leave | None) -> None:
        """Lets those go on whose barrier is complete."""
        if not self.any_blocked:
            return
        for number in np.unique(self.barrier_id[self.blocked]):
            waiting = self.blocked & (self.barrier_id == number)
            need = np.where(waiting, self._barrier_need, 0).max(axis=1)
            need = np.where(need > 0, need, self.alive.sum(axis=1))
            count = waiting.sum(axis=1)
            free = (count > 0) & (count + self._arrived[:, number] >= need)
            if free.any():
                self.blocked &= ~(waiting & free[:, None])
                self._arrived[free, number] = 0
                if self.races:
                    self.races.barrier(free)
                self.progress += 1
        self.any_blocked = bool(self.blocked.any())
        self.pending_arrivals = bool(self._arrived.any())

    # --- messages ---

    def fail(self, instruction: Instruction, problem: str, mask: Mask = None, at: int = 0) -> DeviceError:
        """An error that says which thread does what where.

        Args:
            instruction: what is executed.
            problem: what is wrong.
            mask: threads that execute it; None for all.
            at: which of them is meant, counted in the order of CTAs and threads.
        """
        where = int(np.flatnonzero(mask)[at]) if mask is not None else at
        return DeviceError(f"kernel {self.code.name}, {self.describe(instruction, where)}: {problem}")

    def describe(self, instruction: Instruction, thread: int) -> str:
        """The instruction and a thread, counted through the chunk."""
        cta, lane = divmod(thread, self.lanes)
        x, y, _ = self.launched.config.grid
        linear = self.first + cta
        block = (linear % x, linear // x % y, linear // (x * y))
        bx, by, _ = self.launched.config.block
        position = (lane % bx, lane // bx % by, lane // (bx * by))
        return f"line {instruction.line}: `{instruction.text}`, CTA {block}, thread {position}"

    def warn(self, instruction: Instruction, problem: str) -> None:
        """Warns once for each instruction of a launch."""
        key = (problem.partition(":")[0], instruction.line)
        if key not in self.launched.warned:
            self.launched.warned.add(key)
            text = f"kernel {self.code.name}, line {instruction.line}: `{instruction.text}`: {problem}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    # --- accesses: addresses are of the threads in `mask`, in order, or of all threads ---

    def select(self, values: Array, mask: Mask) -> Array:
        """The values of the threads in `mask`; of all of them, unspread, where it is None."""
        if mask is None:
            return values
        where = self.threads_of(mask)
        if values.shape == self.shape:
            return values.reshape(-1).take(where)
        return np.broadcast_to(values, self.shape).reshape(-1).take(where)

    def threads_of(self, mask: Array) -> Array:
        """Indices of the threads in a mask; found once where a mask is used several times in a row."""
        if mask is not self._latest_mask:
            self._latest_mask, self._latest_threads = mask, np.flatnonzero(mask)
        return self._latest_threads

    def put(self, slot: int, values: Array, mask: Mask) -> None:
        """Sets a register to values of the threads in `mask`, in order, or of all threads."""
        if mask is None:
            self.slots[slot][...] = values
        else:
            self.slots[slot].reshape(-1)[self.threads_of(mask)] = values

    def global_index(self, i: Instruction, addresses: Array, size: int, mask: Mask, *, writes: bool) -> Array:
        """Checks accesses to global memory.

        Returns:
            Index into the image, in units of `size` bytes.
        """
        low, high = int(addresses.min()), int(addresses.max())
        region = self.memory.find(low)
        if region is None or high + size > region.end:
            self._check_global(i, addresses, size, mask, writes=writes)
        elif writes:
            region.written = True
        elif not region.written and self.launched.checks.uninitialized:
            self.warn(i, f"reads {region}, to which nothing was written")
        if size > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (size - 1):
            self._misaligned(i, addresses, size, mask)
        offsets: Array = addresses - np.uint64(self.memory.base)
        return (offsets >> np.uint64(size.bit_length() - 1)).view(np.int64)

    def _check_global(self, i: Instruction, addresses: Array, size: int, mask: Mask, *, writes: bool) -> None:
        flat = addresses.ravel()
        bad = self.memory.outside(flat, size)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            where = self._position(addresses, at)
            verb = "writes" if writes else "reads"
            address = int(flat[at])
            problem = f"{verb} {size} bytes at {address:#x}, outside any buffer: {self.memory.describe(address)}"
            raise self.fail(i, problem, mask, where)
        for region in self.memory.regions_of(flat):
            if writes:
                region.written = True
            elif not region.written and self.launched.checks.uninitialized:
                self.warn(i, f"reads {region}, to which nothing was written")

    def _position(self, addresses: Array, at: int) -> int:
        """Index of a thread, from the index into addresses that may be the same for all threads or CTAs."""
        if addresses.ndim < 2 or addresses.shape == self.shape:
            return at
        cta, lane = divmod(at, int(addresses.shape[1]))
        return cta * self.lanes + lane

    def _misaligned(self, i: Instruction, addresses: Array, size: int, mask: Mask) -> None:
        at = int(np.flatnonzero(addresses.ravel() & addresses.dtype.type(size - 1))[0])
        address = int(addresses.ravel()[at])
        problem = f"the address {address:#x} is not a multiple of {size} bytes, as this access needs"
        raise self.fail(i, problem, mask, self._position(addresses, at))

    def space_index(
        self, i: Instruction, space: Space, offsets: Array, size: int, mask: Mask, *, writes: bool
    ) -> Array:
        """Checks accesses to shared or local memory, given as offsets; returns the index in units of `size` bytes."""
        # The bits of all offsets together are no less than the largest: mostly that one number passes both checks.
        bits = int(np.bitwise_or.reduce(offsets, axis=None))
        if bits + size > space.nbytes and int(offsets.max()) + size > space.nbytes:
            limit = max(space.nbytes - size, -1)
            at = int(np.flatnonzero(offsets.ravel().astype(np.int64) > limit)[0])
            verb = "writes" if writes else "reads"
            what = "CTA" if space is self.shared else "thread"
            problem = (
                f"{verb} {size} bytes at offset {int(offsets.ravel()[at]):#x} of {space.name} memory, "
                f"of which the {what} has {space.nbytes} bytes"
            )
            raise self.fail(i, problem, mask, self._position(offsets, at))
        if bits & (size - 1):
            self._misaligned(i, offsets, size, mask)
        rows = self._shared_rows if space is self.shared else self._local_rows
        if mask is not None:
            rows = self.select(rows, mask)
        return (rows + offsets.astype(np.int64)) >> (size.bit_length() - 1)

    def check_written(self, i: Instruction, space: Space, index: Array, size: int, mask: Mask) -> None:
        """Raises for a read of shared memory that holds nothing yet."""
        if not space.tracked:
            return
        unit = min(size, 8)
        flags = space.written_views[unit]
        wide = size > unit
        found = flags.reshape(-1, size // unit).take(index, axis=0).min(axis=-1) if wide else flags.take(index)
        good = flags.dtype.type(int.from_bytes(bytes([1] * unit), "little"))
        if (found != good).any():
            at = int(np.flatnonzero((found != good).ravel())[0])
            position = self._position(index, at)
            offset = int(np.ravel(index)[at]) * size % space.stride
            problem = f"reads {size} bytes at offset {offset:#x} of shared memory, which were never written"
            raise self.fail(i, problem, mask, position)

    def mark_written(self, space: Space, index: Array, size: int) -> None:
        """Notes a write to shared memory."""
        if space.tracked:
            unit = min(size, 8)
            flags = space.written_views[unit]
            target = flags if size == unit else flags.reshape(-1, size // unit)
            target[index] = flags.dtype.type(int.from_bytes(bytes([1] * unit), "little"))


def _view(bank: Array, kind: str) -> Array:
    dtype = DTYPES[kind]
    if kind == "pred":
        return bank
    if "x" in kind:
        return bank[..., None].view(dtype)
    ratio = bank.itemsize // dtype.itemsize
    return bank.view(dtype)[..., ::ratio]
