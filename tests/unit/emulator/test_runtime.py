"""The runtime over the emulator: packages, IREE's kernels, the command, arrays shared with numpy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from runtime_samples import WEIGHTS, MemoryPackage  # noqa: E402
from square_package import write_square_package  # noqa: E402

from coilpack.cli.main import main  # noqa: E402
from coilpack.runtime import InputError, TargetMismatchError, empty, load_executable, to_device  # noqa: E402
from coilpack.runtime.session import Program  # noqa: E402

X, BIAS = np.float32([1, 2, 3, 4]), np.float32([0.5, 0, 0, -0.5])
EIGHT = np.random.default_rng(1).standard_normal(8).astype(np.float32)
IREE = Path(__file__).parents[2] / "compat" / "iree"


@pytest.fixture
def device(emulated):
    return emulated.device


def test_a_program(device):
    with Program(MemoryPackage(), device, "m.coil") as program:
        for given in ((X, BIAS), (to_device(X, device), to_device(BIAS, device))):
            np.testing.assert_array_equal(program(*given, function="main").numpy(), 2 * X + BIAS + WEIGHTS["w"])
        cache = to_device(0 * X, device)
        updated, weight, tail = program(to_device(X, device), cache, function="update")
        assert updated.address == cache.address
        np.testing.assert_array_equal(updated.numpy(), 3 * X)
        np.testing.assert_array_equal(weight.numpy(), WEIGHTS["w"])
        np.testing.assert_array_equal(tail.numpy(), X[2:])


@pytest.mark.parametrize("size", [0, 1, 31, 700])
def test_sizes_at_run_time(device, size):
    x = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    with Program(MemoryPackage(), device, "m.coil") as program:
        np.testing.assert_array_equal(program(x, function="dynamic").numpy(), x)


def test_the_newest_target_that_it_runs_is_taken(device):
    package = MemoryPackage({"sm_75": "8.0", "sm_80": "8.7", "sm_90a": "8.7"})
    with Program(package, device, "m.coil") as program:
        assert program.target == "sm_80"
    with pytest.raises(TargetMismatchError, match=r"no code for emulator.*it has sm_90a"):
        Program(MemoryPackage({"sm_90a": "8.7"}), device, "m.coil")


@pytest.mark.parametrize("path", sorted(IREE.glob("names-*.vmfb")), ids=lambda path: path.stem)
def test_kernels_of_iree(device, path):
    rows = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
    cases = {
        "decode$step": (EIGHT, 1, EIGHT + np.float32(0.5)),
        "decode_step": (EIGHT, 1, EIGHT + EIGHT),
        "row$max": (rows, 16, rows.max(axis=1)),
    }
    with load_executable(path, device) as loaded:
        names = [e.export_name or e.debug_name or e.kernel_name for e in loaded.exports]
        for function, (given, grid, expected) in cases.items():
            (name,) = [n for n in names if n.startswith(f"{function}_dispatch_0")]
            y = empty(expected.shape, "f32", device)
            loaded.lookup(name).launch(grid, [to_device(given, device), y])
            np.testing.assert_array_equal(y.numpy(), expected, err_msg=function)


@pytest.mark.parametrize("size", [1, 31, 1000])
@pytest.mark.parametrize("path", sorted(IREE.glob("names_dyn-*.vmfb")), ids=lambda path: path.stem)
def test_push_constants_of_iree(device, path, size):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    y = empty(x.shape, "f32", device)
    with load_executable(path, device) as loaded:
        (export,) = loaded.exports
        name = export.export_name or export.debug_name or export.kernel_name
        grid = -(-size // export.block_dims[0])
        loaded.lookup(name).launch(grid, [to_device(x, device), y], [size, 0])
    np.testing.assert_array_equal(y.numpy(), x * np.float32(3))


def test_the_command(tmp_path, capsys):
    package = str(write_square_package(tmp_path / "square.coil"))
    for more in ([], ["--check", "races"]):
        assert main(["run", package, "--device", "emulator", *more, "--input", "4xf32=1,2,3,4"]) == 0
        assert capsys.readouterr().out == "EXEC @main\nresult[0]: hal.buffer_view\n4xf32=1 4 9 16\n"


def test_memory_is_shared_with_numpy(device):
    y = to_device(X, device)
    shared = np.from_dlpack(y)
    np.testing.assert_array_equal(shared, X)
    assert device.owns(y.address)
    assert not device.owns(X.ctypes.data)


def test_copies_stay_within_buffers(device):
    from coilpack.runtime.errors import DeviceError

    buffer = device.allocate(10, 1)
    assert buffer.address % 256 == 0
    with pytest.raises(DeviceError, match=r"11 bytes at 0x[0-9a-f]+ are not within a buffer"):
        device.fill(buffer.address, b"x", 11, 1)
    device.fill(buffer.address, b"ab", 10, 1)
    back = bytearray(10)
    device.read(buffer.address, memoryview(back), 1)
    assert back == b"ab" * 5
    buffer.close()
    buffer.close()
    assert not device.owns(buffer.address)


@pytest.mark.parametrize(
    ("grid", "block", "shared", "values", "problem"),
    [
        ((1, 1, 1), (2048, 1, 1), 0, None, "block size 2048 along x"),
        ((1, 1, 1), (512, 4, 1), 0, None, "2048 threads in a block"),
        ((1, 70000, 1), (1, 1, 1), 0, None, "grid size 70000 along y"),
        ((1, 1, 1), (1, 1, 1), 200000, None, "needs 200000 bytes of shared memory"),
        ((1, 1, 1), (1, 1, 1), 0, [], "takes 1 parameters, 0 were given"),
        ((1, 1, 1), (1, 1, 1), 0, [bytes(4)], "parameter 0 has 8 bytes, 4 were given"),
    ],
)
def test_launches_that_do_not_fit(device, grid, block, shared, values, problem):
    from coilpack.runtime.devices.base import LaunchConfig

    ptx = b".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 p) { ret; }"
    kernel = device.load_module(memoryview(ptx), "k.ptx").kernel("k")
    with pytest.raises(InputError, match=problem):
        device.prepare(kernel, LaunchConfig(grid, block, shared), [bytes(8)] if values is None else values)


def test_a_buffer_that_the_collector_frees_during_an_allocation(device, monkeypatch):
    """As the garbage collector may: in the middle of whatever this thread does."""
    from coilpack.runtime.devices.emulator.memory import Memory

    garbage = [device.allocate(100, 1)]
    address = garbage[0].address
    find_gap = Memory._find_gap

    def collecting(memory, nbytes):
        garbage.clear()
        return find_gap(memory, nbytes)

    monkeypatch.setattr(Memory, "_find_gap", collecting)
    kept = device.allocate(100, 1)
    monkeypatch.undo()
    assert not garbage
    device.allocate(1, 1)
    assert device.owns(kept.address)
    assert not device.owns(address)
