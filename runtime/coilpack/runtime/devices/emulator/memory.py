"""The emulator's global memory: one reserved range of host memory that all buffers lie in, with gaps between them.

A device address is the host address, so arrays can be exchanged in place. One range means that a load or store of all
threads is one gather or scatter, whatever buffers it touches. Only touched pages take memory.
"""

from __future__ import annotations

import bisect
import mmap
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coilpack.runtime.errors import DeviceError

Addresses = npt.NDArray[np.uint64]

_DEFAULT_CAPACITY = 1 << 38  # bytes of address space, not of memory
_LEAST_CAPACITY = 1 << 30
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, which the mmap module does not name
_GAP = 1 << 16  # bytes between two buffers, so that an index past the end meets no other buffer
_REMEMBERED_FREES = 256


@dataclass(slots=True, eq=False)
class Region:
    """One buffer or module variable.

    Args:
        start: its first address.
        nbytes: its size.
        name: what messages call it.
        written: anything was ever written to it.
    """

    start: int
    nbytes: int
    name: str
    written: bool = False

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.start + self.nbytes

    def __str__(self) -> str:
        return f"{self.name} ({self.nbytes} bytes at {self.start:#x})"


class Memory:
    """Global memory of one emulator. Not thread-safe but for allocation and freeing; the device holds the lock."""

    def __init__(self, capacity: int = _DEFAULT_CAPACITY) -> None:
        self._map = _reserve(capacity)
        self.image = np.frombuffer(self._map, np.uint8)
        self.base = int(self.image.ctypes.data)
        self.views = {size: self.image.view(f"u{size}") for size in (1, 2, 4, 8)}
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._regions: list[Region] = []
        self._freed: deque[Region] = deque(maxlen=_REMEMBERED_FREES)
        self._unused: deque[Region] = deque()
        self._next = self.base + _GAP
        self._table: tuple[Addresses, Addresses] | None = None
        self._count = 0

    def allocate(self, nbytes: int, name: str = "") -> Region:
        """Reserves `nbytes`, zeroed, on pages of their own.

        Raises:
            DeviceError: the address space is used up.
        """
        with self._lock:
            self._release()
            start = self._find_gap(nbytes)
            self._count += 1
            region = Region(start, nbytes, name or f"buffer {self._count}")
            at = bisect.bisect(self._starts, start)
            self._starts.insert(at, start)
            self._regions.insert(at, region)
            self._next = _round_up(start + nbytes + _GAP, mmap.PAGESIZE)
            self._table = None
            return region

    def _find_gap(self, nbytes: int) -> int:
        limit = self.base + len(self.image) - _GAP
        if self._next + nbytes <= limit:
            return self._next
        previous = self.base
        for region in [*self._regions, Region(limit, 0, "")]:
            start = _round_up(previous + _GAP, mmap.PAGESIZE)
            if start + nbytes + _GAP <= region.start:
                return start
            previous = region.end
        used = sum(region.nbytes for region in self._regions)
        raise DeviceError(
            f"the emulator has no room for {nbytes} bytes: {used} of its {len(self.image)} bytes of address space are "
            "in use. Free buffers, or create it with a larger capacity"
        )

    def free(self, region: Region) -> None:
        """Gives a region's pages back; its addresses are not used again soon, so that late uses are noticed.

        Called by the garbage collector too, perhaps while this thread holds the lock: then the next call does it.
        """
        self._unused.append(region)
        if self._lock.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._lock.release()

    def _release(self) -> None:
        while self._unused:
            region = self._unused.popleft()
            at = bisect.bisect_left(self._starts, region.start)
            if at == len(self._starts) or self._regions[at] is not region:
                continue
            del self._starts[at], self._regions[at]
            self._freed.append(region)
            self._table = None
            length = _round_up(region.nbytes, mmap.PAGESIZE)
            self._map.madvise(mmap.MADV_DONTNEED, region.start - self.base, length)

    def find(self, address: int) -> Region | None:
        """The region that holds a byte, or None."""
        with self._lock:
            at = bisect.bisect(self._starts, address) - 1
            if at >= 0 and address < self._regions[at].end:
                return self._regions[at]
            return None

    def bytes_at(self, address: int, nbytes: int, what: str) -> npt.NDArray[np.uint8]:
        """The bytes of a range for a copy.

        Raises:
            DeviceError: the range is not within one buffer.
        """
        region = self.find(address)
        if region is None or address + nbytes > region.end:
            raise DeviceError(
                f"{what}: {nbytes} bytes at {address:#x} are not within a buffer: {self.describe(address)}"
            )
        start = address - self.base
        return self.image[start : start + nbytes]

    def outside(self, addresses: Addresses, size: int) -> npt.NDArray[np.bool_]:
        """Which accesses of `size` bytes are not wholly within one region."""
        with self._lock:
            if self._table is None:
                ends = np.array([region.end for region in self._regions], np.uint64)
                self._table = (np.array(self._starts, np.uint64), ends)
            starts, ends = self._table
        if not len(starts):
            return np.ones(addresses.shape, bool)
        at = np.searchsorted(starts, addresses, side="right").astype(np.intp) - 1
        inside = (at >= 0) & (addresses < ends[at]) & (ends[at] - addresses >= np.uint64(size))
        result: npt.NDArray[np.bool_] = ~inside
        return result

    def regions_of(self, addresses: Addresses) -> list[Region]:
        """The regions that some addresses lie in."""
        found = np.unique(np.searchsorted(np.array(self._starts, np.uint64), addresses, side="right"))
        return [self._regions[int(at) - 1] for at in found if at]

    def describe(self, address: int) -> str:
        """Where an address lies, for people: in a freed buffer, or how far from the nearest one."""
        for region in reversed(self._freed):
            if region.start <= address < max(region.end, region.start + 1):
                return f"it lies {address - region.start} bytes into {region}, which was freed"
        with self._lock:
            at = bisect.bisect(self._starts, address) - 1
            below = self._regions[at] if at >= 0 else None
            above = self._regions[at + 1] if at + 1 < len(self._regions) else None
        choices: list[tuple[int, str]] = []
        if below is not None:
            if address < below.end:
                return f"it lies {address - below.start} bytes into {below}"
            past = address - below.end
            choices.append((past, f"{past} bytes past the end of {below}"))
        if above is not None:
            short = above.start - address
            choices.append((short, f"{short} bytes before {above}"))
        return f"the nearest buffer: {min(choices)[1]}" if choices else "there are no buffers"


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _reserve(capacity: int) -> Any:
    while True:
        try:
            if sys.platform == "win32":
                return mmap.mmap(-1, capacity)
            return mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except (OSError, ValueError) as error:
            # A limit on address space: less will do for most programs.
            capacity //= 2
            if capacity < _LEAST_CAPACITY:
                raise DeviceError(f"the emulator cannot reserve address space for its memory: {error}") from error
