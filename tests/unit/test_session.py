"""Programs: arguments in, results out, memory and streams, on a device in host memory."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
from program_samples import READ, WRITE, pointer
from runtime_samples import SCALE, WEIGHTS, MemoryPackage, host_device

from coilpack.runtime import context, loaded
from coilpack.runtime.arrays import DeviceArray, to_device
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import (
    DeviceError,
    InputError,
    InvalidFileError,
    NotFoundError,
    TargetMismatchError,
)
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.program import ir
from coilpack.runtime.session import Program

X, BIAS = np.float32([1, 2, 3, 4]), np.float32([0.5, 0, 0, -0.5])
EXPECTED = 2 * X + BIAS + WEIGHTS["w"]


@pytest.fixture
def device():
    return host_device()


@pytest.fixture
def program(device):
    with Program(MemoryPackage(), device, "m.coil") as opened:
        device.log.clear()
        yield opened


def test_a_call(program):
    result = program(X, BIAS)
    assert isinstance(result, DeviceArray)
    np.testing.assert_array_equal(result.numpy(), EXPECTED)


def test_arguments_by_name(program):
    np.testing.assert_array_equal(program(X, bias=BIAS).numpy(), EXPECTED)
    np.testing.assert_array_equal(program(bias=BIAS, x=X, function="main").numpy(), EXPECTED)


def test_device_arrays_are_used_in_place(program, device):
    x, bias = to_device(X, device), to_device(BIAS, device)
    blocks = len(device.blocks)
    result = program(x, bias)
    assert len(device.blocks) == blocks + 1
    np.testing.assert_array_equal(result.numpy(), EXPECTED)
    assert ("copy", 16, 1) not in device.log


def test_only_changed_addresses_are_patched(program, device):
    x, bias = to_device(X, device), to_device(BIAS, device)
    results = [program(x, bias)]
    device.patched = 0
    results.append(program(x, bias))
    assert device.patched == 1  # the new output, which one kernel writes
    for result in results:
        np.testing.assert_array_equal(result.numpy(), EXPECTED)


def test_results_stay_as_they_were(program):
    first = program(X, BIAS)
    program(0 * X, BIAS)
    np.testing.assert_array_equal(first.numpy(), EXPECTED)


def test_host_arrays_of_any_layout(program):
    x = np.repeat(X, 2)[::2]
    assert not x.flags.c_contiguous
    np.testing.assert_array_equal(program(x, BIAS[::-1][::-1]).numpy(), EXPECTED)


# --- results that are views ---


def test_results_that_are_arguments_weights_and_views(program, device):
    x, cache = to_device(X, device), to_device(0 * X, device)
    updated, weight, tail = program(x, cache, function="update")
    assert updated.address == cache.address
    np.testing.assert_array_equal(updated.numpy(), 3 * X)
    assert tail.address == x.address + 8
    np.testing.assert_array_equal(tail.numpy(), X[2:])
    np.from_dlpack(weight)[:] = -1  # a caller's own copy: the weights stay
    np.testing.assert_array_equal(program(X, BIAS).numpy(), EXPECTED)


def test_a_view_of_an_uploaded_argument_keeps_its_memory(program):
    *_, tail = program(X, 0 * X, function="update")
    np.testing.assert_array_equal(tail.numpy(), X[2:])


# --- arguments that are written ---


def test_a_written_host_array_is_updated(program):
    cache, strided = np.zeros(4, np.float32), np.zeros((4, 2), np.float32)
    program(X, cache, function="update")
    np.testing.assert_array_equal(cache, 3 * X)
    program(X, strided[:, 1], function="update")
    np.testing.assert_array_equal(strided[:, 1], 3 * X)


def test_a_written_array_that_is_not_aligned_is_copied_back(program, device):
    memory = to_device(np.zeros(8, np.float32), device)
    cache = DeviceArray(device, memory, memory.address + 4, ArrayType.contiguous(DType.f32, (4,)), 1)
    program(X, cache, function="update")
    np.testing.assert_array_equal(memory.numpy(), [0, 3, 6, 9, 12, 0, 0, 0])


def test_an_array_that_is_not_aligned_is_copied(program, device):
    memory = to_device(np.concatenate([[0], X]).astype(np.float32), device)
    x = DeviceArray(device, memory, memory.address + 4, ArrayType.contiguous(DType.f32, (4,)), 1)
    np.testing.assert_array_equal(program(x, BIAS).numpy(), EXPECTED)
    assert ("copy", 16, 1) in device.log


def test_read_only_arrays_are_not_written(program, device):
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(InputError, match=r"update: argument 1 \('cache'\): is read-only"):
        program(X, frozen, function="update")
    lent = to_device(X, device)
    read_only = DeviceArray(device, lent, lent.address, lent.type, 1, read_only=True)
    with pytest.raises(InputError, match="is read-only"):
        program(X, read_only, function="update")
    np.testing.assert_array_equal(program(frozen, BIAS).numpy(), EXPECTED)


# --- sizes ---


@pytest.mark.parametrize("size", [0, 1, 33, 1000])
def test_dynamic_sizes(program, size):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    np.testing.assert_array_equal(program(x, function="dynamic").numpy(), x)


def test_an_empty_call_launches_nothing(program, device):
    assert program(np.zeros(0, np.float32), function="dynamic").shape == (0,)
    assert not [entry for entry in device.log if entry[0] == "launch"]


def test_a_growing_arena_serves_older_plans_too(program):
    for size in (100, 1000, 100, 300, 1000):
        x = np.full(size, size, np.float32)
        np.testing.assert_array_equal(program(x, function="dynamic").numpy(), x)
        np.testing.assert_array_equal(program(X, BIAS).numpy(), EXPECTED)


def test_many_sizes_keep_a_bounded_number_of_plans(program, monkeypatch):
    monkeypatch.setattr(loaded, "_MAX_PLANS", 8)
    monkeypatch.setattr(context, "_MAX_EXECUTORS", 4)
    for size in range(20):
        program(np.ones(size, np.float32), function="dynamic")
    assert len(program._loaded._plans) == 8
    assert list(program._default._executors) == [("dynamic", (size,)) for size in range(16, 20)]


def test_the_least_recently_used_plan_goes_first(program, monkeypatch):
    monkeypatch.setattr(context, "_MAX_EXECUTORS", 3)
    for size in (1, 2, 3, 1, 4):
        program(np.ones(size, np.float32), function="dynamic")
    assert list(program._default._executors) == [("dynamic", (size,)) for size in (3, 1, 4)]


def test_plans_that_are_thrown_out_are_closed(program, monkeypatch):
    monkeypatch.setattr(context, "_MAX_EXECUTORS", 1)
    closed = []
    monkeypatch.setattr(context.Executor, "close", lambda executor: closed.append(executor.plan.arguments[0].shape))
    for size in (1, 2):
        program(np.ones(size, np.float32), function="dynamic")
    assert (1,) in closed
    assert (2,) not in closed


# --- what is refused ---


@pytest.mark.parametrize(
    ("arguments", "by_name", "message"),
    [
        ((X,), {}, r"missing main: argument 1 \('bias'\)"),
        ((X, X, X), {}, "main: takes 2 arguments, 3 were given"),
        ((X, BIAS), {"x": X}, r"argument 0 \('x'\) is given by position and by name"),
        ((X.astype(np.float64), BIAS), {}, r"argument 0 \('x'\): is of type f64, it must be of f32"),
        ((X, BIAS[:3]), {}, r"argument 1 \('bias'\): has the shape \(3,\), it must have \(4,\)"),
        ((X.reshape(2, 2), BIAS), {}, r"argument 0 \('x'\): has 2 dimensions \(2, 2\), it must have 1"),
        (([1, 2, 3, 4], BIAS), {}, r"main: argument 0 \('x'\): a list is no array"),
        ((X.astype(">f4"), BIAS), {}, "numpy dtype >f4"),
    ],
)
def test_arguments_that_do_not_fit(program, arguments, by_name, message):
    with pytest.raises(InputError, match=message):
        program(*arguments, **by_name)
    np.testing.assert_array_equal(program(X, BIAS).numpy(), EXPECTED)


def test_sizes_out_of_range(program):
    with pytest.raises(InputError, match=r"dimension 0 \(n\) is 1001; it must be 0 to 1000"):
        program(np.zeros(1001, np.float32), function="dynamic")


def test_names_that_are_not_there(program):
    with pytest.raises(NotFoundError, match="no argument named 'biass'; nearest: 'bias'"):
        program(X, biass=BIAS)
    with pytest.raises(NotFoundError, match="no function named 'mian'; nearest: 'main'"):
        program(X, function="mian")


def test_arrays_of_another_device(program):
    with pytest.raises(InputError, match="on host, it must be on host"):
        program(to_device(X, host_device()), BIAS)


# --- opening ---


def test_functions_and_signatures(program):
    assert program.functions == ("main", "update", "dynamic")
    assert [argument.name for argument in program.signature().inputs] == ["x", "bias"]
    assert program.signature("dynamic").symbols[0].name == "n"
    assert program.target == "sm_80"
    assert repr(program) == "<Program m.coil: main, update, dynamic for sm_80 on host>"


def test_the_newest_target_whose_ptx_the_driver_takes(device):
    package = MemoryPackage({"sm_75": "6.3", "sm_80": "8.7", "sm_86": "9.1", "sm_90": "8.7"})
    with Program(package, device, "m.coil") as program:
        assert program.target == "sm_80"


def test_ptx_that_is_too_new(device):
    with pytest.raises(DeviceError, match=r"m\.coil: executables/sm_80\.ptx\.cda1 is PTX ISA 9\.1, newer"):
        Program(MemoryPackage({"sm_80": "9.1"}), device, "m.coil")


def test_no_code_for_the_device(device):
    with pytest.raises(TargetMismatchError, match=r"sm_90 \(ptx\), sm_100a \(ptx\)\. Compile with `--target sm_86`"):
        Program(MemoryPackage({"sm_90": "8.7", "sm_100a": "8.7"}), device, "m.coil")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (SCALE.parameters[:3], r"kernel 'scale\$1': the program passes 3 parameters, the image takes 4"),
        (
            (*SCALE.parameters[:2], ir.ScalarParameter(DType.f64), SCALE.parameters[3]),
            "8 bytes as parameter 2, .* takes 4",
        ),
        ((*SCALE.parameters[:3], pointer(DType.f32, READ | WRITE)), "8 bytes as parameter 3, the image takes 4"),
    ],
)
def test_parameters_that_differ_from_the_images(device, parameters, message):
    package = MemoryPackage()
    (target,) = package.program.targets
    kernels = (dataclasses.replace(SCALE, parameters=parameters), target.kernels[1])
    package.program = dataclasses.replace(package.program, targets=(dataclasses.replace(target, kernels=kernels),))
    with pytest.raises(InvalidFileError, match=message):
        Program(package, device, "m.coil")
    assert all(not module.open for module in device.modules)


def test_a_kernel_that_the_executable_lacks(device):
    package = MemoryPackage()
    (entry,) = package.images
    package.images[entry] = package.images[entry].replace(b"scale$1", b"scale$2")
    with pytest.raises(NotFoundError, match=r"no export named 'scale\$1'; nearest: 'scale\$2'"):
        Program(package, device, "m.coil")


# --- closing ---


def test_closing_frees_all_but_the_results(device):
    program = Program(MemoryPackage(), device, "m.coil")
    result = program(X, BIAS)
    program.close()
    program.close()
    assert list(device.blocks) == [result.address]
    assert not any(module.open for module in device.modules)
    np.testing.assert_array_equal(result.numpy(), EXPECTED)
    with pytest.raises(InputError, match=r"m\.coil: the program is closed"):
        program(X, BIAS)


def test_opening_again_and_again_leaks_nothing(device):
    for _ in range(5):
        with Program(MemoryPackage(), device, "m.coil") as program:
            program(X, BIAS)
    Program(MemoryPackage(), device, "m.coil")  # dropped without closing
    assert not device.blocks
    assert not any(module.open for module in device.modules)


# --- streams and threads ---


def orders(device):
    return [entry[1:] for entry in device.log if entry[0] == "order"]


def test_calls_on_several_streams_come_one_after_another(program, device):
    program(X, BIAS, stream=5)
    program(X, BIAS, stream=5)
    program(X, BIAS, stream=6)
    assert orders(device) == [(1, 5), (5, 6)]
    assert {entry[2] for entry in device.log if entry[0] == "launch"} == {5, 6}


def test_per_thread_streams_are_ordered_through_the_default_one(program, device):
    program(X, BIAS, stream=2)
    program(X, BIAS, stream=2)  # may be another thread's
    program(X, BIAS, stream=7)
    assert orders(device) == [(1, 2), (2, 1), (1, 2), (2, 1), (1, 7)]
    device.log.clear()
    program(X, BIAS, stream=2)
    program.close()
    waits = [entry for entry in device.log if entry[0] in ("order", "synchronize")]
    assert waits == [("order", 7, 2), ("order", 2, 1), ("synchronize", 1)]


def test_a_result_of_a_per_thread_stream_can_be_read_in_any_thread(program, device):
    assert program(X, BIAS, stream=2).stream == device.default_stream
    assert to_device(X, device, stream=2).stream == device.default_stream


def test_an_argument_of_another_stream_is_waited_for_and_given_back(program, device):
    x = to_device(X, device, stream=8)
    program(x, BIAS)
    assert orders(device) == [(8, 1), (1, 8)]


def test_an_argument_is_given_back_where_the_call_fails(program, device):
    x = to_device(X, device, stream=8)
    with pytest.raises(InputError, match="bias"):
        program(x, BIAS.astype(np.float64))
    assert orders(device) == [(8, 1), (1, 8)]


def test_a_result_in_the_memory_of_an_argument_stays_on_its_stream(program, device):
    """There the memory is freed, and read by whoever has the argument: after all work on the result."""
    cache = to_device(BIAS, device, stream=8)
    updated, *_ = program(X, cache, function="update", stream=5)
    device.log.clear()
    again, *_ = program(X, updated, function="update", stream=6)
    assert orders(device) == [(8, 6), (5, 6), (6, 8)]
    assert (again.stream, again.address) == (8, cache.address)


def test_results_in_the_memory_of_arguments_make_no_chain(program, device):
    cache = to_device(BIAS, device)
    owner = cache._owner
    for _ in range(3):
        cache, *_ = program(X, cache, function="update")
    assert cache._owner is owner


def test_many_threads(program):
    failed = []

    def work(number):
        for size in range(1, 30):
            x = np.full(size, number, np.float32)
            if not np.array_equal(program(x, function="dynamic").numpy(), x):
                failed.append((number, size))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
