"""Loaded kernel images, their entry points, and prepared launches of a CUDA device."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from coilpack.runtime.devices.base import LaunchConfig
from coilpack.runtime.devices.cuda_driver import call, driver, failure, stream_object
from coilpack.runtime.errors import DeviceError, NotFoundError

if TYPE_CHECKING:
    from coilpack.runtime.devices.cuda import CudaDevice

_LOG_BYTES = 16384
_DEFAULT_SHARED_BYTES = 49152  # what a kernel gets without the opt-in (CUDA programming guide, "Shared Memory")


class CudaModule:
    """An image loaded into the device's context, which the caller has made current."""

    def __init__(self, device: CudaDevice, image: memoryview, name: str) -> None:
        self._device = device
        self._label = name
        self._handle = _load(image, name, device.name)

    @property
    def device(self) -> CudaDevice:
        """Where it is loaded."""
        return self._device

    def activate(self) -> AbstractContextManager[None]:
        """Makes the context that it is loaded into current within the block."""
        return self._device.activate()

    def kernel(self, name: str) -> CudaKernel:
        """The entry point `name`, loaded now; `NotFoundError` where the image has none."""
        cu = driver()
        with self._device.activate():
            code, function = cu.cuModuleGetFunction(self._handle, name.encode())
            if code == cu.CUresult.CUDA_ERROR_NOT_FOUND:
                raise NotFoundError("kernel", name, self._label, self._names())
            if code:
                raise failure(code, f"{self._label}: looking up kernel {name}")
            call("cuFuncLoad", f"{self._label}: loading kernel {name}", function)
            return CudaKernel(self, name, function)

    def _names(self) -> list[str]:
        what = f"listing the kernels of {self._label}"
        count = call("cuModuleGetFunctionCount", what, self._handle)
        functions = call("cuModuleEnumerateFunctions", what, count, self._handle)
        return [call("cuFuncGetName", what, function).decode() for function in functions]

    def close(self) -> None:
        """Unloads it. Its kernels must no longer be launched. Closing twice is harmless."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with self._device.activate():
                call("cuModuleUnload", f"unloading {self._label}", handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self.close()


def _load(image: memoryview, name: str, device: str) -> Any:
    cu = driver()
    info, errors = bytearray(_LOG_BYTES), bytearray(_LOG_BYTES)
    option = cu.CUjit_option
    options = {
        option.CU_JIT_INFO_LOG_BUFFER: info,
        option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: _LOG_BYTES,
        option.CU_JIT_ERROR_LOG_BUFFER: errors,
        option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: _LOG_BYTES,
    }
    terminated = bytes(image) + bytes(1)  # PTX must end with NUL, which does not hurt a cubin
    code, handle = cu.cuModuleLoadDataEx(terminated, len(options), list(options), list(options.values()))
    if code:
        logs = [log.split(bytes(1))[0].decode(errors="replace").strip() for log in (errors, info)]
        text = "\n".join(log for log in logs if log)
        problem = failure(code, f"{name}: loading it on {device}")
        raise DeviceError(f"{problem}\nJIT log:\n{text}" if text else str(problem))
    return handle


class CudaKernel:
    """One entry point of a loaded module."""

    def __init__(self, module: CudaModule, name: str, function: Any) -> None:
        self._module = module  # a function lives as long as its module
        self.name = name
        self.function = function
        self.parameter_layout = _layout(function, name)
        attributes = driver().CUfunction_attribute
        self.max_threads_per_block = self._read(attributes.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        self.static_shared_memory = self._read(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)

    def _read(self, attribute: Any) -> int:
        return int(call("cuFuncGetAttribute", f"reading {attribute.name} of {self.name}", attribute, self.function))

    def resident_blocks(self, threads: int, shared_memory_bytes: int) -> int:
        """Workgroups of that size that one multiprocessor runs at once; after `allow_shared_memory`."""
        what = f"kernel {self.name}: asking how many workgroups run at once"
        with self._module.activate():
            function = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            return int(call(function, what, self.function, threads, shared_memory_bytes))

    def allow_shared_memory(self, nbytes: int) -> None:
        """Opts in to more dynamic shared memory where the default does not cover `nbytes`.

        To all that the device has: what is set is the function's, which others may launch with more than `nbytes`.
        """
        if nbytes > _DEFAULT_SHARED_BYTES - self.static_shared_memory:
            most = self._module.device.max_shared_memory_per_block - self.static_shared_memory
            attribute = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            what = f"kernel {self.name}: opting in to {most} bytes of dynamic shared memory"
            with self._module.activate():
                call("cuFuncSetAttribute", what, self.function, attribute, most)


def _layout(function: Any, name: str) -> tuple[tuple[int, int], ...]:
    # cuFuncGetParamCount is newer than many drivers in use: ask for one parameter after another until there is none.
    cu = driver()
    layout: list[tuple[int, int]] = []
    while True:
        code, *place = cu.cuFuncGetParamInfo(function, len(layout))
        if code == cu.CUresult.CUDA_ERROR_INVALID_VALUE:
            return tuple(layout)
        if code:
            raise failure(code, f"reading the parameters of kernel {name}")
        offset, size = place
        layout.append((int(offset), int(size)))


def _launch_cooperative(*arguments: Any) -> Any:
    """`cuLaunchCooperativeKernel` with the arguments of `cuLaunchKernel`, which ends with one more."""
    return driver().cuLaunchCooperativeKernel(*arguments[:-1])


class NoLaunch:
    """A launch over an empty grid, which CUDA refuses and which has nothing to do."""

    def set_parameter(self, index: int, value: bytes) -> None:
        """Does nothing."""

    def run(self, stream: int) -> None:
        """Does nothing."""


class CudaLaunch:
    """A launch ready to run: parameter bytes in one block, and the array of pointers into it that the driver reads."""

    __slots__ = ("_block", "_bytes", "_config", "_kernel", "_launch", "_pointers", "_pointers_address", "_slices")

    def __init__(self, kernel: CudaKernel, config: LaunchConfig, parameters: Sequence[bytes]) -> None:
        self._config = config
        layout = kernel.parameter_layout
        nbytes = max((offset + size for offset, size in layout), default=0)
        self._kernel = kernel
        self._block = (ctypes.c_uint64 * (nbytes // 8 + 1))()
        self._bytes = memoryview(self._block).cast("B")
        self._slices = [slice(offset, offset + size) for offset, size in layout]
        base = ctypes.addressof(self._block)
        self._pointers = (ctypes.c_void_p * max(len(layout), 1))(*(base + offset for offset, _ in layout))
        self._pointers_address = ctypes.addressof(self._pointers)
        geometry = (kernel.function, *config.grid, *config.block, config.shared_memory_bytes)
        self._launch = (
            functools.partial(_launch_cooperative, *geometry)
            if config.cooperative
            else functools.partial(driver().cuLaunchKernel, *geometry)
        )
        for index, value in enumerate(parameters):
            self.set_parameter(index, value)

    def set_parameter(self, index: int, value: bytes) -> None:
        """Replaces parameter `index` by `value`, which has the parameter's size."""
        self._bytes[self._slices[index]] = value

    @property
    def kernel_name(self) -> str:
        """The kernel's symbol."""
        return self._kernel.name

    @property
    def cooperative(self) -> bool:
        """Whether all its workgroups run at once."""
        return self._config.cooperative

    def node_parameters(self) -> Any:
        """The launch as a graph's kernel node takes it; it refers to the parameter bytes of this launch."""
        parameters = driver().CUDA_KERNEL_NODE_PARAMS()
        parameters.func = self._kernel.function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = self._config.grid
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = self._config.block
        parameters.sharedMemBytes = self._config.shared_memory_bytes
        parameters.kernelParams = self._pointers_address
        return parameters

    def run(self, stream: int) -> None:
        """Queues the launch on `stream`; the device's context is current."""
        code = self._launch(stream_object(stream), self._pointers_address, 0)[0]
        if code:
            raise failure(code, f"launching kernel {self._kernel.name}")
