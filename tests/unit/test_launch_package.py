"""Kernels of packages, launched alone: what the program says of their parameters and grids is held to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from host_device import HostDevice
from program_samples import READ, WRITE, pointer
from runtime_samples import SCALE, executable, scale

from coilpack.runtime import load_executable, to_device
from coilpack.runtime import open as open_program
from coilpack.runtime.arrays import DeviceArray
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, InvalidFileError, TargetMismatchError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.package import write_package
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, ExprKind, Symbol

BLOCKS = Binary(ExprKind.FLOORDIV, Binary(ExprKind.ADD, Symbol("p3"), 3), 4)
RULED = dataclasses.replace(SCALE, grid=(BLOCKS, 1, 1))


@pytest.fixture
def device():
    return HostDevice({"scale": scale})


def write(path, *kernels: ir.Kernel, target: str = "sm_80"):
    image = ir.Image(ir.ImageKind.PTX, f"executables/{target}.ptx.cda1")
    program = ir.Program("tests", (), (), (ir.Target(target, (image,), kernels, ()),))
    write_package(path, program, {image.entry: executable(target)}, [])
    return path


def test_the_grid_is_the_rule_s(tmp_path, device):
    seen = []
    device.bodies["scale"] = lambda d, config, parameters: (seen.append(config), scale(d, config, parameters))
    x, y = to_device(np.arange(6, dtype=np.float32), device), to_device(np.zeros(6, np.float32), device)
    with load_executable(write(tmp_path / "k.coil", RULED), device) as loaded:
        function = loaded.lookup("scale$1")
        function.launch(None, [x, y, 0.5, 6])
        np.testing.assert_array_equal(y.numpy(), np.arange(6) * 0.5)
        function.launch(7, [x, y, np.float32(2), np.int64(6)])
        np.testing.assert_array_equal(y.numpy(), np.arange(6) * 2)
        function.launch(None, [x, y, 0.5, 0])
    assert [config.grid for config in seen] == [(2, 1, 1), (7, 1, 1), (0, 1, 1)]
    assert not any(config.cooperative for config in seen)


def test_a_package_of_kernels_has_no_function_to_call(tmp_path, device):
    program = open_program(write(tmp_path / "k.coil", RULED), device)
    with program, pytest.raises(InputError, match="holds kernels and no function; launch them by load_executable"):
        program(1)


def test_a_cooperative_kernel_is_launched_as_one(tmp_path, device):
    seen = []
    device.bodies["scale"] = lambda d, config, parameters: seen.append(config)  # noqa: ARG005
    kernel = dataclasses.replace(RULED, cooperative=True)
    with load_executable(write(tmp_path / "k.coil", kernel), device) as loaded:
        loaded.lookup("scale$1").launch(None, [None, None, 1.0, 4])
    assert seen[0].cooperative


def test_wrong_arguments_are_refused(tmp_path, device):
    x, y = to_device(np.arange(8, dtype=np.float32), device), to_device(np.zeros(8, np.float32), device)
    doubles = to_device(np.zeros(4), device)
    with load_executable(write(tmp_path / "k.coil", RULED), device) as loaded:
        launch = loaded.lookup("scale$1").launch
        for arguments, message in [
            ([x, y, 1.0], "takes 4 arguments; 3 were given"),
            ([x, doubles, 1.0, 4], r"argument 1: holds f64; the kernel takes a pointer to f32"),
            ([x, y, x, 4], r"argument 2: is a DeviceArray; the kernel takes the scalar f32"),
            ([x, y, 1.0, 2**31], r"argument 3: 2147483648 is out of the range of i32"),
            ([x, y, 1.0, 4.5], r"argument 3: 4.5 cannot be passed as a scalar of type i32"),
            ([x, y, 1.0, -100], r"its grid is \(-25, 1, 1\) with these arguments; it must not be negative"),
            ([np.zeros(4, np.float32), y, 1.0, 4], r"binding 0: is in host memory"),
        ]:
            with pytest.raises(InputError, match=message):
                launch(None, arguments)


def test_less_aligned_arrays_are_refused(tmp_path, device):
    x, y = to_device(np.arange(8, dtype=np.float32), device), to_device(np.zeros(8, np.float32), device)
    part = ArrayType.contiguous(DType.f32, (4,))
    constant = DeviceArray(device, y, y.address, part, device.default_stream, read_only=True)
    shifted = DeviceArray(device, x, x.address + 4, part, device.default_stream)
    with load_executable(write(tmp_path / "k.coil", RULED), device) as loaded:
        launch = loaded.lookup("scale$1").launch
        with pytest.raises(InputError, match=r"argument 0: starts at 0x.*; .* multiples of 16 bytes: pass a copy"):
            launch(None, [shifted, y, 1.0, 4])
        with pytest.raises(InputError, match="argument 1: is read-only, and the kernel writes to it"):
            launch(None, [x, constant, 1.0, 4])


def test_without_a_rule_the_grid_is_needed(tmp_path, device):
    loaded = load_executable(write(tmp_path / "k.coil", SCALE), device)
    with loaded, pytest.raises(InputError, match="does not say how many workgroups it takes; give the grid"):
        loaded.lookup("scale$1").launch(None, [None, None, 1.0, 4])


def test_a_rule_that_divides_by_zero_is_an_error_of_the_arguments(tmp_path, device):
    kernel = dataclasses.replace(SCALE, grid=(Binary(ExprKind.FLOORDIV, 64, Symbol("p3")), 1, 1))
    loaded = load_executable(write(tmp_path / "k.coil", kernel), device)
    with loaded, pytest.raises(InputError, match="its grid divides by zero"):
        loaded.lookup("scale$1").launch(None, [None, None, 1.0, 0])


def test_parameters_that_are_not_the_image_s_are_refused(tmp_path, device):
    kernel = ir.Kernel("scale$1", (pointer(DType.f32, READ), pointer(DType.f32, WRITE)))
    with pytest.raises(InvalidFileError, match="the program passes 2 parameters, the image takes 4"):
        load_executable(write(tmp_path / "k.coil", kernel), device)


def test_other_targets_are_named(tmp_path, device):
    with pytest.raises(TargetMismatchError, match=r"no code for host, .* it has sm_90a \(ptx\)"):
        load_executable(write(tmp_path / "k.coil", SCALE, target="sm_90a"), device)
