"""Streams: whatever is queued where, no access overtakes one that it depends on, and no memory is freed before its use.

The device here does its work at once, but knows what a device with streams might do: for each stream, which steps of
others surely came before.
"""

from __future__ import annotations

import collections
import gc
import random
import struct

import numpy as np
import pytest
from host_device import HostBuffer, HostDevice
from runtime_samples import WEIGHTS, add, scale
from state_samples import StatePackage

from coilpack.runtime.arrays import DeviceArray, to_device
from coilpack.runtime.dtypes import DType
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.session import Program

STREAMS = (1, 5, 6, 7)
Clock = dict[int, int]  # by stream, how many of its steps came before


class OrderedBuffer(HostBuffer):
    def close(self) -> None:
        if self._memory is not None:
            self._device.check_free(self)
        super().close()


class OrderedDevice(HostDevice):
    def __init__(self) -> None:
        copies = {
            f"coilpack_copy_{size}": self.launched(lambda *_: None, writes=0, reads=(1,)) for size in (1, 2, 4, 8)
        }
        bodies = {"scale": self.launched(scale, 1, (0,)), "add": self.launched(add, 2, (0, 1))}
        super().__init__(bodies | copies)
        self.clocks: dict[int, Clock] = collections.defaultdict(dict)
        self.host: Clock = {}
        self.accesses: dict[int, list[tuple[int, int, bool]]] = {}  # by block: stream, step of it, whether it writes
        self.problems: dict[str, None] = {}

    def launched(self, body, writes, reads):
        """A kernel that writes through one of its parameters and reads through others."""

        def run(device, config, parameters):
            stream = self.log[-1][2]
            for index in (*reads, writes):
                self.access(struct.unpack("<Q", parameters[index])[0], stream, index == writes)
            body(device, config, parameters)

        return run

    @staticmethod
    def merge(clock: Clock, other: Clock) -> None:
        for stream, step in other.items():
            clock[stream] = max(clock.get(stream, 0), step)

    def access(self, address, stream, write):
        clock, block = self.clocks[stream], max(start for start in self.blocks if start <= address)
        self.merge(clock, self.host)  # what the host has waited for is done
        clock[stream] = clock.get(stream, 0) + 1
        for other, step, written in self.accesses[block]:
            if (write or written) and clock.get(other, 0) < step:
                self.problems[f"{'write' if write else 'read'} on {stream} does not wait for stream {other}"] = None
        self.accesses[block].append((stream, clock[stream], write))

    def check_free(self, buffer):
        known: Clock = {}
        self.merge(known, self.clocks[buffer.stream])
        self.merge(known, self.host)
        for other, step, _ in self.accesses.pop(buffer.address):
            if known.get(other, 0) < step:
                self.problems[f"memory of stream {buffer.stream} is freed while stream {other} uses it"] = None

    def allocate(self, nbytes, stream):
        buffer = OrderedBuffer(self, nbytes, stream)
        if nbytes:
            self.accesses[buffer.address] = []
            self.access(buffer.address, stream, write=True)
        return buffer

    def order(self, first, then):
        self.merge(self.clocks[then], self.clocks[first])
        self.merge(self.clocks[then], self.host)

    def synchronize(self, stream):
        self.merge(self.host, self.clocks[stream])

    def write(self, address, data, stream):
        if data.nbytes:
            self.access(address, stream, write=True)
        super().write(address, data, stream)

    def read(self, address, data, stream):
        if data.nbytes:
            self.access(address, stream, write=False)
        super().read(address, data, stream)
        self.synchronize(stream)

    def copy(self, target, source, nbytes, stream):
        if nbytes:
            self.access(source, stream, write=False)
            self.access(target, stream, write=True)
        super().copy(target, source, nbytes, stream)

    def fill(self, address, pattern, nbytes, stream):
        if nbytes:
            self.access(address, stream, write=True)
        super().fill(address, pattern, nbytes, stream)


class Calls:
    """Random calls of several contexts, of whose arrays some are kept and used again."""

    def __init__(self, device: OrderedDevice, seed: int) -> None:
        self.device, self.draw = device, random.Random(seed)
        self.program = Program(StatePackage(), device, "m.coil")
        self.contexts = [self.program.new_context() for _ in range(2)]
        self.arrays: list[DeviceArray] = []
        self.snapshots = []

    def array(self) -> DeviceArray:
        if len(self.arrays) < 3 or self.draw.random() < 0.3:
            self.arrays.append(to_device(np.ones(4, np.float32), self.device, self.draw.choice(STREAMS)))
        found = self.draw.choice(self.arrays)
        if found.type.shape == (4,) and self.draw.random() < 0.2:  # one that the kernels cannot use as it lies
            last = found.part(4 * 3 * found.strides[0], ArrayType(DType.f32, (4,), (-found.strides[0],)))
            self.arrays.append(last)
            return last
        return found if found.shape == (4,) else self.array()

    def step(self) -> None:
        draw, context, stream = self.draw, self.draw.choice(self.contexts), self.draw.choice(STREAMS)
        kind = draw.randrange(8)
        if kind < 3:
            self.arrays += context(self.array(), function="accumulate", stream=stream)
        elif kind == 3:
            apart = [to_device(np.ones(4, np.float32), self.device, draw.choice(STREAMS)) for _ in range(2)]
            self.arrays += context(self.array(), *apart, function="pair", stream=stream)
            self.arrays += apart[: draw.randrange(3)]
        elif kind == 4:
            n, m = draw.randrange(20), draw.randrange(20)
            x = to_device(np.ones((2 * n, m), np.float32), self.device, draw.choice(STREAMS))
            context(x, 1, np.zeros(n, np.float32), function="integers", stream=stream)
        elif kind == 5:
            self.snapshots.append(context.snapshot(stream=stream))
        elif kind == 6 and self.snapshots:
            context.restore(draw.choice(self.snapshots), stream=stream)
        else:
            context.reset(stream=stream)
            context(function="draw", seed=draw.randrange(9), stream=stream)
        for kept in (self.arrays, self.snapshots):
            while kept and draw.random() < 0.4:
                kept.pop(draw.randrange(len(kept)))

    def close(self) -> None:
        self.arrays.clear()
        self.snapshots.clear()
        self.program.close()
        self.contexts.clear()


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    device = OrderedDevice()
    calls = Calls(device, seed)
    for _ in range(60):
        calls.step()
    calls.close()
    del calls
    gc.collect()
    assert not device.problems
    assert not device.blocks


def test_what_is_looked_for_is_found():
    device = OrderedDevice()
    array = to_device(WEIGHTS["w"], device, 5)
    device.fill(array.address, bytes(1), 16, 6)
    device.order(5, 7)
    device.read(array.address, memoryview(bytearray(16)), 7)
    del array
    assert list(device.problems) == [
        "write on 6 does not wait for stream 5",
        "read on 7 does not wait for stream 6",
        "memory of stream 5 is freed while stream 6 uses it",
    ]
