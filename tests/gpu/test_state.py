"""Contexts on each device: state, seeds, integers and strides, from several threads and streams at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from runtime_samples import WEIGHTS
from state_samples import OFFSETS, ROW, ZERO, StatePackage

from coilpack.runtime import context as context_module
from coilpack.runtime import to_device
from coilpack.runtime.arrays import DeviceArray
from coilpack.runtime.devices.cuda_driver import call
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.philox import random_seeds
from coilpack.runtime.session import Program

W, X = WEIGHTS["w"], np.float32([1, 2, 3, 4])


@pytest.fixture(scope="module")
def device(any_device):
    return any_device


@pytest.fixture(params=[True, False], ids=["graphs", "direct"])
def program(request, device):
    with Program(StatePackage(), device, "m.coil", graphs=request.param) as opened:
        yield opened


def assert_state(context, total, count):
    for found, expected in zip(context(function="state"), (total, count), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)


def test_state(program):
    assert_state(program, W, ZERO)
    for step in range(1, 6):
        total, tail = program(X, function="accumulate")
        np.testing.assert_array_equal(total.numpy(), W + step * X)
        np.testing.assert_array_equal(tail.numpy(), (W + step * X)[2:])
    snapshot = program.snapshot()
    program(X, function="accumulate")
    program.restore(snapshot)
    assert_state(program, W + 5 * X, X)
    program.reset()
    assert_state(program, W, ZERO)


def test_seeds(program):
    for seed in (0, 42, -1, 2**40, 7):
        rows = program(function="draw", seed=seed)
        for row, offset in zip(rows, OFFSETS, strict=True):
            np.testing.assert_array_equal(row.numpy(), random_seeds(seed % 2**64, ROW, offset))


@pytest.mark.parametrize("shape", [(4, 3), (0, 3), (4, 0), (20, 50)])
def test_integers_and_empty_arrays(program, device, shape):
    x = np.random.default_rng(shape).standard_normal(shape).astype(np.float32)
    for given in (x, to_device(x, device), x):
        total, scaled, columns = program(given, 5, np.zeros(shape[0] // 2, np.float32), function="integers")
        assert (total, columns) == (shape[0] // 2 + 5, shape[1])
        np.testing.assert_array_equal(scaled.numpy(), 3 * x)


@pytest.mark.parametrize("strides", [(1, 4), (6, 2), (-5, 1), (5, -1), (0, 1), (0, 0)])
def test_arrays_of_any_strides(program, device, strides):
    memory = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    whole = to_device(memory, device)
    x = DeviceArray(device, whole, whole.address + 400, ArrayType(whole.dtype, (4, 3), strides), 1)
    expected = [[memory[100 + i * strides[0] + j * strides[1]] for j in range(3)] for i in range(4)]
    for _ in range(3):
        _, scaled, _ = program(x, 0, np.zeros(2, np.float32), function="integers")
        np.testing.assert_array_equal(scaled.numpy(), 3 * np.array(expected))


def test_written_arrays_of_any_strides(program, device):
    memory = to_device(np.zeros(12, np.float32), device)
    a, b = (
        DeviceArray(device, memory, memory.address + first, ArrayType(memory.dtype, (4,), (stride,)), 1)
        for first, stride in ((4, 2), (40, -2))
    )
    for _ in range(3):
        program(X, a, b, function="pair")
        expected = np.zeros(12, np.float32)
        expected[[1, 3, 5, 7]], expected[[10, 8, 6, 4]] = 2 * X, 3 * X
        np.testing.assert_array_equal(memory.numpy(), expected)


def test_contexts_in_threads_and_streams(program, device):
    wrong, streams = [], [1, 2, None]
    if device.name != "emulator":
        with device.activate():
            streams += [int(call("cuStreamCreate", "test", 1)) for _ in range(3)]

    def work(number, stream):
        with program.new_context() as context:
            x, expected = to_device(number * X, device, stream), W
            for step in range(1, 40):
                total, _ = context(x, function="accumulate", stream=stream)
                expected = W + step * number * X
                if step % 10 == 0 and not np.array_equal(total.numpy(), expected):
                    wrong.append((number, step))
                rows = np.full((2, step), number, np.float32)
                _, scaled, _ = context(rows, 1, np.zeros(1, np.float32), function="integers", stream=stream)
                if step % 10 == 0 and not np.array_equal(scaled.numpy(), 3 * rows):
                    wrong.append((number, step, "integers"))
            for found, wanted in zip(context(function="state", stream=stream), (expected, number * X), strict=True):
                if not np.array_equal(found.numpy(), wanted):
                    wrong.append((number, "state"))

    threads = [threading.Thread(target=work, args=(1 + number, stream)) for number, stream in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert_state(program, W, ZERO)


def test_graphs_that_are_thrown_out(program, monkeypatch):
    monkeypatch.setattr(context_module, "_MAX_EXECUTORS", 2)
    results = []
    for step in range(60):  # three sizes in turn, each twice: as soon as there is a graph, another size takes its place
        x = np.full((2, 1 + step // 2 % 3), step, np.float32)
        results.append((x, program(x, 1, np.zeros(1, np.float32), function="integers")[1]))
    for x, scaled in results:
        np.testing.assert_array_equal(scaled.numpy(), 3 * x)
