"""Time that work takes on a CUDA device, from events that the driver records on its stream."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from coilpack.runtime.devices.base import Buffer
from coilpack.runtime.devices.cuda_driver import call, driver, stream_object

if TYPE_CHECKING:
    from coilpack.runtime.devices.cuda import CudaDevice

_US_PER_MS = 1e3


class CudaStopwatch:
    """Records a pair of events for each sample.

    What is measured includes some of what lies between two pieces of work on a stream, about a microsecond, the same
    for each sample. If the device were idle when work is queued, it would also include the host's time: `flush` before
    a sample keeps it busy for tens of microseconds.

    Args:
        device: the device.
        stream: where the work is queued.

    Raises:
        DeviceError: there is no memory for what `flush` writes.
    """

    unit = "us"
    is_exact = False

    def __init__(self, device: CudaDevice, stream: int) -> None:
        self._device, self._stream = device, stream
        self._events: list[Any] = []
        self._taken = 0  # of the events, since the latest reading
        self._what = f"measuring time on {device.name}"
        # Twice the cache: lines are not replaced in the order of their use alone.
        self._scratch: Buffer = device.allocate(2 * device.cache_nbytes // 4 * 4, stream)

    def flush(self) -> None:
        """Writes more than the second-level cache holds.

        Twice, as one pass (30 us on an H200) would be over before the host has queued two launches.
        """
        for _ in range(2):
            self._device.fill(self._scratch.address, bytes(4), self._scratch.nbytes, self._stream)

    def start(self) -> None:
        """Begins a sample."""
        self._record()

    def stop(self) -> None:
        """Ends the sample that has begun."""
        self._record()

    def _record(self) -> None:
        if self._taken == len(self._events):
            self._events.append(call("cuEventCreate", self._what, driver().CUevent_flags.CU_EVENT_DEFAULT.value))
        call("cuEventRecord", self._what, self._events[self._taken], stream_object(self._stream))
        self._taken += 1

    def read(self) -> list[float]:
        """Waits for the samples since the latest reading; microseconds of each."""
        self._device.synchronize(self._stream)
        taken, self._taken = self._events[: self._taken], 0
        with self._device.activate():
            return [
                call("cuEventElapsedTime", self._what, begin, end) * _US_PER_MS
                for begin, end in zip(taken[::2], taken[1::2], strict=True)
            ]

    def close(self) -> None:
        """Frees its events and memory. Closing twice is harmless."""
        with self._device.activate():
            while self._events:
                call("cuEventDestroy", self._what, self._events.pop())
        self._scratch.close()

    def __del__(self) -> None:
        if getattr(self, "_scratch", None) is not None and not sys.is_finalizing():
            self.close()
