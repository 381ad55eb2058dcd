"""Contexts: state, seeds, integers and memory, on a device in host memory."""

from __future__ import annotations

import gc
import itertools
import threading

import numpy as np
import pytest
from runtime_samples import WEIGHTS, MemoryPackage, host_device
from state_samples import OFFSETS, ROW, ZERO, StatePackage

from coilpack.runtime import context
from coilpack.runtime.arrays import to_device
from coilpack.runtime.errors import DeviceError, InputError
from coilpack.runtime.executor import Executor
from coilpack.runtime.philox import random_seeds
from coilpack.runtime.session import Program

W, X = WEIGHTS["w"], np.float32([1, 2, 3, 4])


@pytest.fixture
def device():
    return host_device()


@pytest.fixture
def program(device):
    with Program(StatePackage(), device, "m.coil") as opened:
        device.log.clear()
        yield opened


def state(context):
    return [result.numpy() for result in context(function="state")]


def assert_state(context, total, count):
    for found, expected in zip(state(context), (total, count), strict=True):
        np.testing.assert_array_equal(found, expected)


# --- state ---


def test_state_lives_across_calls(program):
    assert program.globals == ("total", "count")
    assert_state(program, W, ZERO)
    for step in range(1, 4):
        total, tail = program(X, function="accumulate")
        np.testing.assert_array_equal(total.numpy(), W + step * X)
        np.testing.assert_array_equal(tail.numpy(), (W + step * X)[2:])
    assert_state(program, W + 3 * X, X)


def test_results_are_no_views_of_the_state(program):
    first, tail = program(X, function="accumulate")
    program(X, function="accumulate")
    np.testing.assert_array_equal(first.numpy(), W + X)
    np.from_dlpack(first)[:] = -1
    np.from_dlpack(tail)[:] = -1
    assert_state(program, W + 2 * X, X)


def test_each_context_has_its_own_state(program):
    one, two = program.new_context(), program.new_context()
    program(X, function="accumulate")
    one(10 * X, function="accumulate")
    assert_state(program, W + X, X)
    assert_state(one, W + 10 * X, 10 * X)
    assert_state(two, W, ZERO)


def test_reset(program):
    program(X, function="accumulate")
    program.reset()
    assert_state(program, W, ZERO)
    program(X, function="accumulate")
    assert_state(program, W + X, X)


def test_snapshots(program, device):
    blocks = len(device.blocks)
    program(X, function="accumulate")
    snapshot = program.snapshot()
    assert snapshot.nbytes == 512
    program(X, function="accumulate")
    program.restore(snapshot)
    assert_state(program, W + X, X)
    other = program.new_context()
    other.restore(snapshot)
    other(X, function="accumulate")
    assert_state(other, W + 2 * X, X)
    program.restore(snapshot)  # it has not changed
    assert_state(program, W + X, X)
    other.close()
    del snapshot, other
    assert len(device.blocks) == blocks


def test_a_snapshot_outlives_its_context(program):
    with program.new_context() as context:
        context(X, function="accumulate")
        snapshot = context.snapshot()
    program.restore(snapshot)
    assert_state(program, W + X, X)


def test_a_snapshot_of_another_program(program, device):
    with Program(StatePackage(), device, "other.coil") as other, pytest.raises(InputError, match="of another program"):
        program.restore(other.snapshot())


def test_state_follows_the_stream_of_calls(program, device):
    program(X, function="accumulate", stream=5)
    program.reset(stream=6)
    snapshot = program.snapshot(stream=7)
    program.restore(snapshot, stream=8)
    orders = [entry[1:] for entry in device.log if entry[0] == "order"]
    assert orders == [(1, 5), (5, 6), (6, 7), (7, 8), (7, 8), (8, 7)]


def test_a_snapshot_made_on_a_per_thread_stream(program, device):
    snapshot = program.snapshot(stream=2)
    device.log.clear()
    program.restore(snapshot, stream=5)  # perhaps from another thread, whose stream 2 is another one
    assert [entry[1:] for entry in device.log if entry[0] == "order"] == [(1, 5), (1, 5), (5, 1)]


# --- seeds ---


def test_seeds(program):
    for seed in (0, 42, -1, 2**40):
        rows = program(function="draw", seed=seed)
        for row, offset in zip(rows, OFFSETS, strict=True):
            np.testing.assert_array_equal(row.numpy(), random_seeds(seed % 2**64, ROW, offset))


def test_seeds_of_an_earlier_call_stay(program):
    first, _ = program(function="draw", seed=1)
    second, _ = program(function="draw", seed=2)
    np.testing.assert_array_equal(first.numpy(), random_seeds(1, ROW, 0))
    assert (first.numpy() != second.numpy()).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": "draw"}, "draw: draws random numbers; pass an integer as seed="),
        ({"function": "draw", "seed": "1"}, "draw: seed is a str; it must be an integer"),
        ({"function": "state", "seed": 1}, "state: takes no seed: it draws no random numbers"),
    ],
)
def test_seeds_that_do_not_fit(program, arguments, message):
    with pytest.raises(InputError, match=message):
        program(**arguments)


# --- integers and sizes ---


@pytest.mark.parametrize("shape", [(4, 3), (6, 1), (2, 50)])
def test_integers_in_and_out(program, shape):
    x = np.random.default_rng(shape).standard_normal(shape).astype(np.float32)
    n = shape[0] // 2
    total, scaled, columns = program(x, np.int32(5), np.zeros(n, np.float32), function="integers")
    assert (total, columns) == (n + 5, shape[1])
    assert type(total) is int
    np.testing.assert_array_equal(scaled.numpy(), 3 * x)


def test_an_input_called_seed(program):
    total, *_ = program(np.ones((2, 1), np.float32), k=1, seed=np.zeros(1, np.float32), function="integers")
    assert total == 2


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_empty_arrays(program, device, shape):
    x, seed = np.zeros(shape, np.float32), np.zeros(shape[0] // 2, np.float32)
    for given in ((x, 2, seed), (to_device(x, device), 2, to_device(seed, device))):
        for _ in range(3):
            total, scaled, columns = program(*given, function="integers")
            assert (total, columns) == (shape[0] // 2 + 2, shape[1])
            assert scaled.shape == scaled.numpy().shape == shape
    assert not [entry for entry in device.log if entry[0] == "launch"]


@pytest.mark.parametrize(
    ("x", "k", "seed", "message"),
    [
        (
            (3, 1),
            0,
            1,
            r"integers: argument 0 \('x'\): dimension 0 \(2\*n\) is 3; it must be a multiple of 2",
        ),
        ((4, 51), 0, 2, r"argument 0 \('x'\): dimension 1 \(m\) is 51; it must be 0 to 50"),
        ((4, 1), 10, 2, r"integers: argument 1 \('k'\) \(k\) is 10; it must be 0 to 9"),
        ((4, 1), True, 2, r"integers: argument 1 \('k'\): is a bool, it must be an integer"),
        ((4, 1), np.float32(1), 2, r"argument 1 \('k'\): is a float32, it must be an integer"),
        (
            (4, 1),
            0,
            3,
            r"argument 2 \('seed'\): has the shape \(3,\), it must have \(2,\); dimension 0 is n, where "
            r"argument 0 \('x'\): dimension 0 \(2\*n\) is 4, so n is 2",
        ),
        (
            (60, 40),
            0,
            30,
            r"dimension 0 \(2\*n\) is 60, so n is 30 and argument 0 \('x'\): dimension 1 \(m\) is 40; "
            r"n\*m <= 1000 must hold; here it is 1200 <= 1000",
        ),
    ],
)
def test_sizes_that_do_not_fit(program, x, k, seed, message):
    for _ in range(2):  # whether there is a plan or not
        with pytest.raises(InputError, match=message):
            program(np.zeros(x, np.float32), k, np.zeros(seed, np.float32), function="integers")
        program(np.zeros((4, 1), np.float32), 0, np.zeros(2, np.float32), function="integers")


# --- memory ---


def test_contexts_free_their_memory(program, device):
    blocks = len(device.blocks)
    context = program.new_context()
    assert len(device.blocks) == blocks + 1  # the globals; memory for calls comes with the calls
    results = context(np.ones((20, 10), np.float32), 1, np.zeros(10, np.float32), function="integers")
    context(function="draw", seed=1)
    assert len(device.blocks) == blocks + 4  # and arena, seeds, a result
    context.close()
    context.close()
    assert len(device.blocks) == blocks + 1
    np.testing.assert_array_equal(results[1].numpy(), np.full((20, 10), 3, np.float32))
    with pytest.raises(InputError, match=r"m\.coil: the program is closed, or this context of it"):
        context(function="state")
    with pytest.raises(InputError, match="is closed"):
        context.reset()
    program(function="state")


def test_one_arena_serves_all_functions_of_fixed_sizes(device):
    with Program(MemoryPackage(), device, "m.coil") as program, program.new_context() as context:
        assert context._arena.nbytes == 0
        context(np.ones(2, np.float32), function="dynamic")
        assert context._arena.nbytes == program._default._arena.nbytes == 512
        before = list(context._executors.values())
        context(X, X)
        assert list(context._executors.values())[:-1] == before
        context(np.ones(1000, np.float32), function="dynamic")
        assert context._arena.nbytes == 5000


def test_no_more_functions_are_made_ready_than_are_kept(device, monkeypatch):
    monkeypatch.setattr(context, "_MAX_EXECUTORS", 2)
    made = []
    monkeypatch.setattr(context, "Executor", lambda *given: made.append(given[1].name) or Executor(*given))
    with Program(StatePackage(), device, "m.coil"):
        assert made == ["accumulate", "state"]


def test_a_dropped_context_frees_its_memory(program, device):
    blocks = len(device.blocks)
    context = program.new_context()
    context(X, function="accumulate")
    del context
    gc.collect()
    assert len(device.blocks) == blocks


def test_closing_a_program_closes_its_contexts(device):
    program = Program(StatePackage(), device, "m.coil")
    context = program.new_context()
    snapshot = context.snapshot()
    context(X, function="accumulate")
    program.close()
    assert len(device.blocks) == 1  # the snapshot
    del snapshot
    assert not device.blocks
    with pytest.raises(InputError, match="is closed"):
        context(function="state")
    with pytest.raises(InputError, match=r"m\.coil: the program is closed"):
        program.new_context()


def test_a_context_keeps_what_it_needs_of_a_dropped_program(device):
    context = Program(StatePackage(), device, "m.coil").new_context()
    gc.collect()
    context(X, function="accumulate")
    assert_state(context, W + X, X)
    del context
    gc.collect()
    assert not device.blocks
    assert not any(module.open for module in device.modules)


def test_a_program_that_cannot_be_made_ready_leaves_nothing(device, monkeypatch):
    def fails(*_):
        raise InputError("a launch does not fit")

    monkeypatch.setattr(device, "prepare", fails)
    with pytest.raises(InputError, match="does not fit") as caught:
        Program(StatePackage(), device, "m.coil")
    assert caught.tb is not None  # all frames are still alive
    assert not device.blocks
    assert not any(module.open for module in device.modules)


@pytest.mark.parametrize(
    ("package", "refused"),
    [
        pytest.param(StatePackage(), 0, id="weights"),
        pytest.param(StatePackage(), 1, id="globals"),
        pytest.param(MemoryPackage(), 1, id="arena"),
    ],
)
def test_a_program_without_enough_memory_leaves_nothing(device, monkeypatch, package, refused):
    allocate, count = device.allocate, itertools.count()

    def limited(nbytes, stream):
        if nbytes and next(count) == refused:
            raise DeviceError("no memory")
        return allocate(nbytes, stream)

    monkeypatch.setattr(device, "allocate", limited)
    with pytest.raises(DeviceError, match="no memory") as caught:
        Program(package, device, "m.coil")
    assert caught.tb is not None  # all frames are still alive
    assert not device.blocks
    assert not any(module.open for module in device.modules)


def test_weights_that_cannot_be_read_leave_nothing(device, monkeypatch):
    package = StatePackage()
    monkeypatch.setattr(package, "storage", {}.__getitem__)
    with pytest.raises(KeyError) as caught:
        Program(package, device, "m.coil")
    assert caught.tb is not None
    assert not device.blocks
    assert not any(module.open for module in device.modules)


def test_a_context_in_a_cycle_of_garbage_waits_for_its_work_first(device, monkeypatch):
    program = Program(StatePackage(), device, "m.coil")
    program.itself = program
    program(X, function="accumulate", stream=5)
    blocks, waited = len(device.blocks), []

    def synchronize(stream):
        waited.append((stream, len(device.blocks), all(module.open for module in device.modules)))

    monkeypatch.setattr(device, "synchronize", synchronize)
    del program
    gc.collect()
    assert waited == [(5, blocks, True)]
    assert not device.blocks
    assert not any(module.open for module in device.modules)


def test_a_context_that_cannot_be_closed_keeps_none_open(device, monkeypatch):
    program = Program(StatePackage(), device, "m.coil")
    contexts = [program.new_context() for _ in range(3)]
    for stream, opened in enumerate(contexts, 5):
        opened(X, function="accumulate", stream=stream)

    def synchronize(stream):
        if stream == 6:
            raise DeviceError("no such stream")

    monkeypatch.setattr(device, "synchronize", synchronize)
    with pytest.raises(DeviceError, match="no such stream"):
        program.close()
    assert not device.blocks
    assert not any(module.open for module in device.modules)


def test_no_memory_for_a_larger_arena(program, device, monkeypatch):
    small = np.ones((2, 4), np.float32), 0, np.zeros(1, np.float32)
    large = np.ones((100, 10), np.float32), 0, np.zeros(50, np.float32)
    program(*small, function="integers")
    allocate = device.allocate

    def limited(nbytes, stream):
        if nbytes >= 4000:
            raise DeviceError("no memory")
        return allocate(nbytes, stream)

    x, seed = to_device(large[0], device), to_device(large[2], device)
    monkeypatch.setattr(device, "allocate", limited)
    with pytest.raises(DeviceError, match="no memory"):
        program(x, 0, seed, function="integers")
    monkeypatch.undo()
    for given in (small, large):
        np.testing.assert_array_equal(program(*given, function="integers")[1].numpy(), 3 * given[0])


def test_memory_for_a_larger_arena_alone(program, device, monkeypatch):
    """Without what is taken besides, to grow seldom."""
    small = np.ones((2, 4), np.float32), 0, np.zeros(1, np.float32)
    large = np.ones((100, 10), np.float32), 0, np.zeros(50, np.float32)
    program(*small, function="integers")
    allocate = device.allocate

    def limited(nbytes, stream):
        if nbytes > 4000:
            raise DeviceError("no memory")
        return allocate(nbytes, stream)

    monkeypatch.setattr(device, "allocate", limited)
    np.testing.assert_array_equal(program(*large, function="integers")[1].numpy(), 3 * large[0])


def test_contexts_in_threads(program):
    wrong = []

    def work(number):
        with program.new_context() as context:
            for step in range(1, 30):
                total, _ = context(number * X, function="accumulate", stream=10 + number)
                if not np.array_equal(total.numpy(), W + step * number * X):
                    wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert_state(program, W, ZERO)


def test_closing_while_calls_run(device):
    program = Program(StatePackage(), device, "m.coil")
    started, found = threading.Barrier(4), []

    def work(context):
        started.wait()
        try:
            while True:
                context(X, function="accumulate")
        except InputError as error:
            found.append(str(error))

    threads = [threading.Thread(target=work, args=(program.new_context(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    program.close()
    for thread in threads:
        thread.join()
    assert found == ["m.coil: the program is closed, or this context of it"] * 3
    assert not device.blocks
