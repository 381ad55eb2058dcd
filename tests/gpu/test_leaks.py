"""Memory of the device and of the host that opening, closing and calling leave behind."""

from __future__ import annotations

import gc
import itertools
import tracemalloc

import numpy as np
import pytest
from runtime_samples import MemoryPackage
from state_samples import StatePackage

from coilpack.runtime import to_device
from coilpack.runtime.devices.cuda_driver import call, driver
from coilpack.runtime.session import Program

X = np.float32([1, 2, 3, 4])


def reserved(device):
    """Bytes that the device's memory pool holds, of this process alone: others may share the device."""
    device.synchronize(1)
    device.trim()
    attribute = driver().CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
    with device.activate():
        return int(call("cuMemPoolGetAttribute", "test", device._pool, attribute))


@pytest.mark.gpu
def test_opening_again_and_again_leaks_nothing(device):
    levels = []
    for _ in range(12):
        with Program(MemoryPackage({"sm_75": "8.0"}), device, "m.coil") as program:
            program(np.ones(1000, np.float32), function="dynamic").numpy()
            with program.new_context() as context:
                context(np.ones(1000, np.float32), function="dynamic")
        levels.append(reserved(device))
    assert levels[-1] <= levels[3]


def call_all(program, device, count):
    """Calls functions of every kind, of several sizes, with arrays of every kind."""
    x = to_device(X, device)
    strided = to_device(np.repeat(X, 2).reshape(4, 2), device)
    views = [type(x)(device, strided, strided.address, type(x.type)(x.dtype, (4,), (2,)), 1), x, X]
    for step, view in zip(range(count), itertools.cycle(views), strict=False):
        program(view, function="accumulate")
        program(function="draw", seed=step)
        rows = 2 * (step % 5)
        program(np.ones((rows, 3), np.float32), 1, np.zeros(rows // 2, np.float32), function="integers")
        if step % 100 == 0:
            program.restore(program.snapshot())
    program(function="state")[0].numpy()


def blocks(device):
    """Blocks of the emulator's memory that are in use."""
    return len(device._memory._regions)


def test_calling_again_and_again_leaks_nothing(any_device):
    count = 100 if any_device.name == "emulator" else 3400  # three calls each
    measure = blocks if any_device.name == "emulator" else reserved
    tracemalloc.start()
    with Program(StatePackage(), any_device, "m.coil") as program:
        levels = []
        for calls in (70, count):  # first plans and graphs are made; and the emulator remembers what was freed last
            call_all(program, any_device, calls)
            gc.collect()
            levels.append((measure(any_device), tracemalloc.get_traced_memory()[0]))
    tracemalloc.stop()
    assert levels[1][0] <= levels[0][0]
    assert levels[1][1] - levels[0][1] < 25_000  # bytes; a leak of one object a call is several times more
