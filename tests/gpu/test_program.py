"""Programs on each device: the sample package of the unit tests, its PTX executed."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from runtime_samples import WEIGHTS, MemoryPackage

from coilpack.runtime import InputError, TargetMismatchError, empty, to_device
from coilpack.runtime.arrays import DeviceArray
from coilpack.runtime.devices.cuda_driver import call
from coilpack.runtime.dtypes import DType
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.session import Program

X, BIAS = np.float32([1, 2, 3, 4]), np.float32([0.5, 0, 0, -0.5])
EXPECTED = 2 * X + BIAS + WEIGHTS["w"]


@pytest.fixture(scope="module")
def device(any_device):
    return any_device


@pytest.fixture
def streams(device):
    """Four streams that the default one does not order."""
    if device.name == "emulator":
        yield [101, 102, 103, 104]
        return
    with device.activate():
        made = [int(call("cuStreamCreate", "test", 1)) for _ in range(4)]
    yield made
    with device.activate():
        for stream in made:
            call("cuStreamDestroy", "test", stream)


@pytest.fixture(scope="module")
def program(device):
    with Program(MemoryPackage({"sm_75": "8.0"}), device, "m.coil") as opened:
        yield opened


def test_a_call(program, device):
    np.testing.assert_array_equal(program(X, bias=BIAS).numpy(), EXPECTED)
    x, bias = to_device(X, device), to_device(BIAS, device)
    results = [program(x, bias) for _ in range(3)]
    for result in results:
        np.testing.assert_array_equal(result.numpy(), EXPECTED)


def test_results_that_are_views(program, device):
    x, cache = to_device(X, device), to_device(0 * X, device)
    updated, weight, tail = program(x, cache, function="update")
    assert updated.address == cache.address
    np.testing.assert_array_equal(cache.numpy(), 3 * X)
    np.testing.assert_array_equal(tail.numpy(), X[2:])
    device.fill(weight.address, b"\xff", weight.nbytes, weight.stream)
    np.testing.assert_array_equal(program(X, BIAS).numpy(), EXPECTED)


def test_host_arrays_are_updated(program):
    cache = np.zeros(4, np.float32)
    program(X, cache, function="update")
    np.testing.assert_array_equal(cache, 3 * X)


def test_arrays_that_are_not_aligned(program, device):
    memory = to_device(np.zeros(8, np.float32), device)
    odd = DeviceArray(device, memory, memory.address + 4, ArrayType.contiguous(DType.f32, (4,)), 1)
    program(X, odd, function="update")
    np.testing.assert_array_equal(memory.numpy(), [0, 3, 6, 9, 12, 0, 0, 0])
    np.testing.assert_array_equal(program(odd, BIAS).numpy(), 2 * 3 * X + BIAS + WEIGHTS["w"])


@pytest.mark.parametrize("size", [0, 1, 33, 1000])
def test_dynamic_sizes(program, size):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    np.testing.assert_array_equal(program(x, function="dynamic").numpy(), x)


def test_what_is_refused(program, device):
    with pytest.raises(InputError, match="is of type f64"):
        program(X.astype(np.float64), BIAS)
    with pytest.raises(InputError, match=r"has the shape \(5,\)"):
        program(X, empty((5,), "f32", device))
    with pytest.raises(TargetMismatchError, match="it has sm_999"):
        Program(MemoryPackage({"sm_999": "8.0"}), device, "m.coil")


def test_threads_and_streams(streams, device):
    # A program of its own, as streams must outlive what is called on them.
    with Program(MemoryPackage({"sm_75": "8.0"}), device, "m.coil") as program:
        wrong = []

        def work(number):
            for size in range(1, 200, 7):
                x = np.full(size, number, np.float32)
                if not np.array_equal(program(x, function="dynamic", stream=(*streams, None, 2)[number]).numpy(), x):
                    wrong.append((number, size))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        np.testing.assert_array_equal(program(X, BIAS).numpy(), EXPECTED)  # the latest stream is the default one again
