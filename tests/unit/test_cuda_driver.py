"""What is known of CUDA drivers, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from coilpack.runtime.devices import cuda, resolve_device
from coilpack.runtime.devices.cuda import CudaDevice
from coilpack.runtime.devices.cuda_driver import driver, newest_ptx, version_text
from coilpack.runtime.devices.cuda_module import CudaKernel
from coilpack.runtime.devices.cuda_product import _library
from coilpack.runtime.errors import DeviceError, InputError


@pytest.mark.parametrize(
    ("driver", "ptx"),
    [(12040, (8, 4)), (12060, (8, 5)), (12090, (8, 8)), (13000, (9, 0)), (13010, (9, 1)), (99000, None)],
)
def test_newest_ptx(driver, ptx):
    assert newest_ptx(driver) == ptx


def test_version_text():
    assert version_text(13000) == "13.0"
    assert version_text(12080) == "12.8"


@pytest.mark.parametrize("name", ["", "tpu", "cuda:", "cuda:-1", "cuda:x", "CUDA", "cuda:¹"])
def test_no_devices(name):
    with pytest.raises(InputError, match="is no device"):
        resolve_device(name)


def test_without_a_cuda_device_auto_is_the_emulator():
    # In a process of its own, with every device hidden, so that it also holds where there is a GPU.
    code = "from coilpack.runtime.devices import resolve_device; print(resolve_device('auto').name)"
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "emulator")


def test_a_cuda_device_that_is_not_there_says_what_to_do():
    code = "from coilpack.runtime.devices import resolve_device; resolve_device('cuda:0')"
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DeviceError" in done.stderr
    assert "nvidia-smi" in done.stderr


class Function:
    """What the driver says of a kernel with 1 KB of static shared memory, and what it is told."""

    def __init__(self, monkeypatch):
        cu = driver()
        self.told: list[int] = []
        self.values = {cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: 1024}
        monkeypatch.setattr(cu, "cuFuncGetParamInfo", lambda *_: (cu.CUresult.CUDA_ERROR_INVALID_VALUE, 0, 0))
        monkeypatch.setattr(cu, "cuFuncGetAttribute", lambda which, _: (0, self.values.get(which, 1024)))
        monkeypatch.setattr(cu, "cuFuncSetAttribute", lambda _, which, value: (self.tell(which, value),))

    def tell(self, which, value):
        assert which == driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.told.append(value)
        return 0


def test_two_exports_of_one_function_leave_each_other_their_shared_memory(monkeypatch):
    function = Function(monkeypatch)
    device = SimpleNamespace(max_shared_memory_per_block=232_448)
    module = SimpleNamespace(device=device, activate=nullcontext)
    large, small = (CudaKernel(module, "k", function) for _ in range(2))
    small.allow_shared_memory(48 << 10)
    large.allow_shared_memory(200 << 10)
    small.allow_shared_memory(64 << 10)
    assert function.told == [232_448 - 1024] * 3
    small.allow_shared_memory(47 << 10)  # with the static part this is what every kernel gets
    assert len(function.told) == 3


def test_memory_for_a_graph_is_taken_back_from_the_pool(monkeypatch):
    device = CudaDevice.__new__(CudaDevice)
    device.name, device._activation, device._context, device._pool = "cuda:0", nullcontext(), None, "pool"
    done = []

    def graph(*_):
        if "cuMemPoolTrimTo" not in done:
            raise DeviceError("no memory")
        return "a graph"

    monkeypatch.setattr(cuda, "CudaGraph", graph)
    monkeypatch.setattr(cuda, "call", lambda function, *_: done.append(function))
    assert device.build_graph([], []) == "a graph"
    assert done == ["cuCtxSynchronize", "cuMemPoolTrimTo"]


def test_without_the_library_of_products(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    with pytest.raises(DeviceError, match=r"need nvmath-python: .*pip install 'coilpack\[cublas\]'"):
        _library.__wrapped__()
