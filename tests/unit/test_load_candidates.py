"""Candidates on a device: loaded for tuning alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from candidate_samples import ADD, BODIES, KERNELS, NARROW, SCALE, WIDE, candidate_executable, candidate_package
from host_device import HostDevice

from coilpack.runtime.errors import DeviceError, InvalidFileError
from coilpack.runtime.loaded import LoadedProgram
from coilpack.runtime.session import Program
from coilpack.runtime.steps import LaunchStep


class ParticularDevice(HostDevice):
    """A device that refuses images with a symbol."""

    refused = b"scale_c1"

    def load_module(self, image, name):
        if self.refused in bytes(image):
            raise DeviceError(f"{name}: too much shared memory")
        return super().load_module(image, name)


def names(loaded: LoadedProgram) -> list[str]:
    return sorted(loaded.kernels)


def test_a_call_needs_no_candidate():
    device = ParticularDevice(BODIES)
    x = np.float32([1, 2, 3])
    with Program(candidate_package(), device, "m.coil") as program:
        assert len(device.modules) == 2
        np.testing.assert_array_equal(program(x, function="dynamic").numpy(), x)


def test_plans_state_no_candidates():
    loaded = LoadedProgram(candidate_package(), HostDevice(BODIES), "m.coil")
    assert names(loaded) == [ADD.export_name, SCALE.export_name]
    steps = loaded.plan(loaded.target.function("dynamic"), {"n": 40}).steps
    assert [step.alternatives for step in steps] == [(), ()]
    loaded.close()


def test_tuning_gets_all():
    loaded = LoadedProgram(candidate_package(), HostDevice(BODIES), "m.coil", candidates=True)
    assert names(loaded) == sorted(kernel.export_name for kernel in KERNELS)
    assert loaded.refused == {}
    step = loaded.plan(loaded.target.function("dynamic"), {"n": 40}).steps[0]
    assert isinstance(step, LaunchStep)
    assert [(choice.kernel, choice.grid) for choice in step.alternatives] == [(WIDE, (2, 1, 1)), (NARROW, (40, 1, 1))]
    loaded.close()


def test_a_candidate_that_the_device_refuses_is_left_out():
    device = ParticularDevice(BODIES)
    loaded = LoadedProgram(candidate_package(), device, "m.coil", candidates=True)
    assert names(loaded) == sorted({k.export_name for k in KERNELS} - {WIDE.export_name})
    assert list(loaded.refused) == [WIDE.export_name]
    assert "module 2: too much shared memory" in str(loaded.refused[WIDE.export_name])
    loaded.close()
    assert not any(module.open for module in device.modules)


def test_a_kernel_that_is_launched_may_not_be_refused():
    device = ParticularDevice(BODIES)
    device.refused = b".entry add("
    with pytest.raises(DeviceError, match="too much shared memory"):
        LoadedProgram(candidate_package(), device, "m.coil", candidates=True)
    assert not any(module.open for module in device.modules)


def test_a_candidate_whose_image_takes_other_parameters():
    package, device = candidate_package(), HostDevice(BODIES)
    (entry,) = package.images
    image = candidate_executable()
    at = image.index(b".entry scale_c2(")
    package.images[entry] = image[:at] + image[at:].replace(b".param .f32 factor", b".param .f64 factor", 1)
    with pytest.raises(InvalidFileError, match=r"kernel 'scale\$1\.c2': the program passes 4 bytes as parameter 2"):
        LoadedProgram(package, device, "m.coil", candidates=True)
    assert not any(module.open for module in device.modules)
    with Program(package, device, "m.coil"):
        pass


def test_all_kernels_of_a_package_without_functions_are_loaded():
    package = candidate_package()
    (target,) = package.program.targets
    targets = (dataclasses.replace(target, functions=()),)
    package.program = dataclasses.replace(package.program, signatures=(), targets=targets)
    loaded = LoadedProgram(package, HostDevice(BODIES), "m.coil")
    assert len(loaded.kernels) == len(KERNELS)
    loaded.close()
