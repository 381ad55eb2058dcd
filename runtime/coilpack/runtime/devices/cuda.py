"""A CUDA device through the driver API: `cuda:N`.

It works in the device's primary context, which it shares with torch, CuPy and the CUDA runtime, and makes that context
current only around its own calls, so whatever context a thread had current stays so.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from coilpack.runtime.devices.base import (
    Buffer,
    ComputeCapability,
    Graph,
    GraphNode,
    Kernel,
    Launch,
    LaunchConfig,
    Module,
    PreparedProduct,
    Product,
    Stopwatch,
    check_parameters,
    shortest_pattern,
)
from coilpack.runtime.devices.cuda_driver import (
    call,
    driver,
    failure,
    initialize,
    newest_ptx,
    stream_object,
    version_text,
)
from coilpack.runtime.devices.cuda_graph import CudaGraph
from coilpack.runtime.devices.cuda_module import CudaKernel, CudaLaunch, CudaModule, NoLaunch
from coilpack.runtime.errors import DeviceError, InputError, TargetMismatchError
from coilpack.runtime.images import describe_image
from coilpack.runtime.targets import Architecture

# CU_STREAM_LEGACY and CU_STREAM_PER_THREAD; DLPack and the CUDA array interface use the same numbers.
LEGACY_STREAM = 1
PER_THREAD_STREAM = 2

_UNLIMITED = 2**64 - 1

_T = TypeVar("_T")


class CudaBuffer:
    """Memory of a CUDA device, freed in the order of the stream it was allocated for."""

    __slots__ = ("__weakref__", "_device", "_stream", "address", "nbytes")

    def __init__(self, device: CudaDevice, address: int, nbytes: int, stream: int) -> None:
        self._device = device
        # A per-thread handle names another stream in whichever thread frees; the legacy stream waits for all of those.
        self._stream = LEGACY_STREAM if stream == PER_THREAD_STREAM else stream
        self.address = address
        self.nbytes = nbytes

    def close(self) -> None:
        """Frees the memory, in order after the work queued on the buffer's stream. Closing twice is harmless."""
        address, self.address = self.address, 0
        if address:
            self._device.free(address, self._stream)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # the driver frees everything when the process ends
            self.close()


class _Activation:
    """Pushes the device's context on entry and pops it on exit; one object serves all threads, for it has no state."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        call("cuCtxPushCurrent", "making the CUDA context current", self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code, _ = driver().cuCtxPopCurrent()
        if code and error is None:  # an error on its way says more than that of the pop which follows it
            raise failure(code, "restoring the CUDA context")


class CudaDevice:
    """The CUDA device number `ordinal`, as `CUDA_VISIBLE_DEVICES` counts. Take it from `cuda_device`.

    Raises:
        DeviceError: there is no driver, no such device, or its context cannot be created.
    """

    def __init__(self, ordinal: int) -> None:
        self._driver_version = initialize()
        cu = driver()
        count = device_count()
        if not 0 <= ordinal < count:
            raise DeviceError(f"there is no device cuda:{ordinal}: the driver shows {count} devices, counted from 0")
        self._ordinal = ordinal
        self.name = f"cuda:{ordinal}"
        self.runs_cubins = True
        self._handle = call("cuDeviceGet", f"opening {self.name}", ordinal)
        self._attributes = {
            field: call("cuDeviceGetAttribute", f"reading {field} of {self.name}", attribute, self._handle)
            for field, attribute in _attributes(cu).items()
        }
        self.compute_capability = ComputeCapability(self._attributes["major"], self._attributes["minor"])
        context = call("cuDevicePrimaryCtxRetain", f"creating the context of {self.name}", self._handle)
        self._context = context
        self._activation = _Activation(context)
        self._pool = self._create_pool() if self._attributes["pools"] else None

    def __repr__(self) -> str:
        return f"<CudaDevice {self.name}: {self.description}>"

    @functools.cached_property
    def description(self) -> str:
        """The model's name and architecture."""
        name: bytes = call("cuDeviceGetName", f"reading the name of {self.name}", 256, self._handle)
        return f"{name.split(bytes(1))[0].decode()} ({self.compute_capability})"

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's (kDLCUDA, ordinal)."""
        return (2, self._ordinal)

    @property
    def default_stream(self) -> int:
        """The legacy default stream, on which torch and CuPy work too unless told otherwise."""
        return LEGACY_STREAM

    @property
    def max_shared_memory_per_block(self) -> int:
        """Most bytes of shared memory a workgroup may use, static and dynamic together, with the opt-in."""
        return int(self._attributes["shared_opt_in"])

    @functools.cached_property
    def cache_nbytes(self) -> int:
        """Bytes of the second-level cache."""
        attribute = driver().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
        return int(call("cuDeviceGetAttribute", f"reading the cache size of {self.name}", attribute, self._handle))

    @property
    def driver_version(self) -> str:
        """The CUDA version of its driver."""
        return version_text(self._driver_version)

    def activate(self) -> AbstractContextManager[None]:
        """Makes the device's context current within the block."""
        return self._activation

    def owns(self, address: int) -> bool:
        """Whether the driver knows `address` as memory of this device."""
        attribute = driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        with self._activation:
            code, ordinal = driver().cuPointerGetAttribute(attribute, address)
        return not code and int(ordinal) == self._ordinal

    def supports_ptx(self, version: tuple[int, int]) -> bool:
        """Whether the driver compiles PTX of that ISA version."""
        newest = newest_ptx(self._driver_version)
        return newest is None or version <= newest

    # --- memory ---

    def _create_pool(self) -> Any:
        cu = driver()
        properties = cu.CUmemPoolProps()
        properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = self._ordinal
        with self._activation:
            pool = call("cuMemPoolCreate", f"creating a memory pool on {self.name}", properties)
            # Weights count towards the threshold, so any finite one would make outputs slow for large models.
            threshold = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            what = f"setting up the memory pool of {self.name}"
            call("cuMemPoolSetAttribute", what, pool, threshold, cu.cuuint64_t(_UNLIMITED))
        return pool

    def allocate(self, nbytes: int, stream: int) -> Buffer:
        """Memory of `nbytes` for work queued on `stream` from now on; `DeviceError` when there is none left."""
        if nbytes == 0:
            return CudaBuffer(self, 0, 0, stream)
        with self._activation:
            address = self._with_all_memory(lambda: self._allocate(nbytes, stream))
        return CudaBuffer(self, address, nbytes, stream)

    def _with_all_memory(self, attempt: Callable[[], _T]) -> _T:
        """What `attempt` gives; where it fails, once more after what was freed has become usable for all."""
        try:
            return attempt()
        except DeviceError:
            # What other streams have freed becomes usable once they are done; to others than the pool, once it is
            # given back.
            call("cuCtxSynchronize", f"waiting for memory of {self.name}")
            self.trim()
            return attempt()

    def _allocate(self, nbytes: int, stream: int) -> int:
        what = f"allocating {nbytes} bytes on {self.name}"
        if self._pool is None:
            return int(call("cuMemAlloc", what, nbytes))
        return int(call("cuMemAllocFromPoolAsync", what, nbytes, self._pool, stream_object(stream)))

    def free(self, address: int, stream: int) -> None:
        """Frees memory that `allocate` gave, after the work queued on `stream`."""
        what = f"freeing memory of {self.name}"
        with self._activation:
            if self._pool is None:
                call("cuMemFree", what, address)
            else:
                call("cuMemFreeAsync", what, address, stream_object(stream))

    def trim(self) -> None:
        """Gives unused memory of the pool back to the system."""
        if self._pool is not None:
            with self._activation:
                call("cuMemPoolTrimTo", f"trimming the memory pool of {self.name}", self._pool, 0)

    def write(self, address: int, data: memoryview, stream: int) -> None:
        """Copies host bytes to `address`; on return `data` may be reused."""
        if not data.nbytes:
            return
        source = _host_address(data)
        what = f"copying {data.nbytes} bytes to {self.name}"
        with self._activation:
            call("cuMemcpyHtoDAsync", what, address, source, data.nbytes, stream_object(stream))
            # Pageable memory has been read when the call returns; pinned memory is read later.
            attribute = driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            pageable = driver().cuPointerGetAttribute(attribute, source)[0]
            if not pageable:
                self.synchronize(stream)

    def read(self, address: int, data: memoryview, stream: int) -> None:
        """Copies from `address` into writable host bytes, after all work queued on `stream`; blocks until done."""
        if data.nbytes:
            what = f"copying {data.nbytes} bytes from {self.name}"
            with self._activation:
                call("cuMemcpyDtoHAsync", what, _host_address(data), address, data.nbytes, stream_object(stream))
        self.synchronize(stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queues a copy between two addresses of this device."""
        if nbytes:
            with self._activation:
                what = f"copying {nbytes} bytes on {self.name}"
                call("cuMemcpyDtoDAsync", what, target, source, nbytes, stream_object(stream))

    def fill(self, address: int, pattern: bytes, nbytes: int, stream: int) -> None:
        """Queues a fill with a repeated pattern of 1, 2, 4, 8 or 16 bytes; `nbytes` is a multiple of its length."""
        if not nbytes:
            return
        unit = shortest_pattern(pattern)
        count, what, queue = nbytes // len(unit), f"filling {nbytes} bytes on {self.name}", stream_object(stream)
        with self._activation:
            if len(unit) <= 4:
                function = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}[len(unit)]
                call(function, what, address, int.from_bytes(unit, "little"), count, queue)
                return
            for offset in range(0, len(unit), 4):  # memsets end at 4 bytes: one strided pass a word
                word = int.from_bytes(unit[offset : offset + 4], "little")
                call("cuMemsetD2D32Async", what, address + offset, len(unit), word, 1, count, queue)

    # --- kernels ---

    def load_module(self, image: memoryview, name: str) -> Module:
        """Loads a PTX or cubin image now, not at first launch.

        Raises:
            TargetMismatchError: the image is for another architecture.
            DeviceError: its PTX is newer than the driver takes, or the driver refuses it (with the compiler's log).
        """
        info = describe_image(image, file=name, kernels=False)
        architecture = Architecture.parse(info.target)
        if not architecture.runs_on(self.compute_capability, binary=info.kind == "cubin"):
            raise TargetMismatchError(
                f"{name}: the {info.kind} image is for {info.target}; {self.name} is {self.description}, "
                "which does not run it. Compile for this device's target"
            )
        if info.ptx_version and not self.supports_ptx(info.ptx_version):
            newest = newest_ptx(self._driver_version) or (0, 0)
            raise DeviceError(
                f"{name}: it is PTX ISA {_dotted(info.ptx_version)}, and the driver of {self.name} "
                f"(CUDA {version_text(self._driver_version)}) takes PTX up to {_dotted(newest)}. "
                f"Install a newer driver, or compile with `--ptx-version {newest[0]}{newest[1]}` or to a cubin"
            )
        with self._activation:
            return CudaModule(self, image, name)

    def prepare(self, kernel: Kernel, config: LaunchConfig, parameters: Sequence[bytes]) -> Launch:
        """Fixes geometry and parameter bytes for repeated runs; a grid with a zero in it prepares to do nothing.

        Raises:
            InputError: a count or size differs from the kernel's layout, or the geometry is over the device's limits.
        """
        assert isinstance(kernel, CudaKernel), "a kernel of another device"
        check_parameters(kernel, parameters)
        if 0 in config.grid:
            return NoLaunch()
        self._check_geometry(kernel, config)
        kernel.allow_shared_memory(config.shared_memory_bytes)
        if config.cooperative:
            self._check_residency(kernel, config)
        return CudaLaunch(kernel, config, parameters)

    def _check_geometry(self, kernel: CudaKernel, config: LaunchConfig) -> None:
        limits = self._attributes
        for what, sizes, least in (("grid", config.grid, 0), ("block", config.block, 1)):
            for axis, size in zip("xyz", sizes, strict=True):
                limit = limits[f"{what}_{axis}"]
                if not least <= size <= limit:
                    allowed = f"{self.name} takes {least} to {limit}"
                    raise InputError(f"kernel {kernel.name}: {what} size {size} along {axis}; {allowed}")
        threads = config.block[0] * config.block[1] * config.block[2]
        if threads > kernel.max_threads_per_block:
            raise InputError(
                f"kernel {kernel.name}: {threads} threads in a block; on {self.name} it takes at most "
                f"{kernel.max_threads_per_block}, by its registers and launch bounds"
            )
        shared, limit = config.shared_memory_bytes + kernel.static_shared_memory, self.max_shared_memory_per_block
        if shared > limit:
            raise InputError(
                f"kernel {kernel.name}: needs {shared} bytes of shared memory in a block; {self.name} has at most "
                f"{limit}. Compile for this device's target"
            )

    def _check_residency(self, kernel: CudaKernel, config: LaunchConfig) -> None:
        if not self._attributes["cooperative"]:
            raise InputError(f"kernel {kernel.name}: {self.name} has no cooperative launches")
        threads = config.block[0] * config.block[1] * config.block[2]
        each, processors = kernel.resident_blocks(threads, config.shared_memory_bytes), self._attributes["processors"]
        workgroups = config.grid[0] * config.grid[1] * config.grid[2]
        if workgroups > each * processors:
            raise InputError(
                f"kernel {kernel.name}: is cooperative, so its {workgroups} workgroups must run at once; {self.name} "
                f"runs {each} on each of {processors} multiprocessors. Use a smaller grid or smaller workgroups"
            )

    # --- graphs and library calls ---

    def prepare_product(self, product: Product, alignments: Sequence[int]) -> PreparedProduct:
        """Chooses how to compute a matrix product by cuBLASLt.

        Raises:
            DeviceError: cuBLASLt is not installed, or computes no such product.
        """
        from coilpack.runtime.devices.cuda_product import CudaProduct  # the library is optional, and slow to import

        with self._activation:
            return CudaProduct(self, product, alignments)

    def build_graph(self, nodes: Sequence[GraphNode], dependencies: Sequence[Sequence[int]]) -> Graph:
        """An instantiated CUDA graph of the nodes.

        Raises:
            DeviceError: the driver refuses a node, which the message names, or has no memory for the graph.
        """
        with self._activation:  # graphs lie outside the pool, which may hold all memory that is free
            return self._with_all_memory(lambda: CudaGraph(self, self._context, nodes, dependencies))

    def capture(self, queue: Callable[[int], None]) -> Any:
        """The CUDA graph of the work that `queue` puts on a stream; the caller destroys it."""
        what, cu = f"capturing a library call on {self.name}", driver()
        with self._activation:
            stream = call("cuStreamCreate", what, cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
            try:
                call("cuStreamBeginCapture", what, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
                try:
                    queue(int(stream))
                except BaseException:
                    abandoned = cu.cuStreamEndCapture(stream)[1]
                    if abandoned:
                        call("cuGraphDestroy", what, abandoned)
                    raise
                return call("cuStreamEndCapture", what, stream)
            finally:
                call("cuStreamDestroy", what, stream)

    # --- streams ---

    def stopwatch(self, stream: int) -> Stopwatch:
        """One that records events of the driver on `stream`."""
        from coilpack.runtime.devices.cuda_stopwatch import CudaStopwatch  # only tuning measures

        return CudaStopwatch(self, stream)

    def order(self, first: int, then: int) -> None:
        """Makes work queued on stream `then` from now on wait for the work queued on stream `first` so far."""
        if first == then:
            return
        what = f"ordering two streams of {self.name}"
        with self._activation:
            event = call("cuEventCreate", what, driver().CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
            try:
                call("cuEventRecord", what, event, stream_object(first))
                call("cuStreamWaitEvent", what, stream_object(then), event, 0)
            finally:
                call("cuEventDestroy", what, event)  # takes effect once the wait has been satisfied

    def synchronize(self, stream: int) -> None:
        """Blocks until all work queued on `stream` is done; `DeviceError` when any of it failed."""
        with self._activation:
            call("cuStreamSynchronize", f"waiting for work on {self.name}", stream_object(stream))


def _attributes(cu: Any) -> dict[str, Any]:
    names = {
        "major": "COMPUTE_CAPABILITY_MAJOR",
        "minor": "COMPUTE_CAPABILITY_MINOR",
        "shared_opt_in": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        "pools": "MEMORY_POOLS_SUPPORTED",
        "cooperative": "COOPERATIVE_LAUNCH",
        "processors": "MULTIPROCESSOR_COUNT",
    }
    for what, axis in itertools.product(("grid", "block"), "xyz"):
        names[f"{what}_{axis}"] = f"MAX_{what.upper()}_DIM_{axis.upper()}"
    return {field: getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}") for field, name in names.items()}


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _host_address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


def device_count() -> int:
    """How many CUDA devices this process sees; `DeviceError` where the driver is missing or cannot start."""
    initialize()
    return int(call("cuDeviceGetCount", "counting CUDA devices"))


_devices: dict[int, CudaDevice] = {}
_devices_lock = threading.Lock()


def cuda_device(ordinal: int) -> CudaDevice:
    """The device `cuda:<ordinal>`: one object in a process, which keeps the context and the memory pool.

    Raises:
        DeviceError: there is no driver or no such device.
    """
    with _devices_lock:
        if ordinal not in _devices:
            _devices[ordinal] = CudaDevice(ordinal)
        return _devices[ordinal]
