"""A device in host memory whose kernels are Python functions: what runs on it is everything above the device interface.

It checks what it is asked to do: accesses outside allocations, use of closed modules, and launches outside `activate()`
fail. Work is done at once, so streams are only recorded.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from coilpack.runtime.devices.base import (
    ComputeCapability,
    CopyNode,
    FillNode,
    GraphNode,
    LaunchConfig,
    LaunchNode,
    PreparedProduct,
    Product,
)
from coilpack.runtime.errors import DeviceError, NotFoundError
from coilpack.runtime.images import describe_image

KernelBody = Callable[["HostDevice", LaunchConfig, Sequence[bytes]], None]


class HostBuffer:
    def __init__(self, device: HostDevice, nbytes: int, stream: int) -> None:
        self._memory = ctypes.create_string_buffer(nbytes + 256) if nbytes else None
        start = ctypes.addressof(self._memory) if self._memory is not None else 0
        self.address = -(-start // 256) * 256
        self.nbytes, self.stream, self._device = nbytes, stream, device
        ctypes.memset(self.address, 0xCD, nbytes) if nbytes else None
        if nbytes:
            device.blocks[self.address] = nbytes

    def close(self) -> None:
        if self._memory is not None:
            self._memory = None
            del self._device.blocks[self.address]

    def __del__(self) -> None:
        self.close()


class HostKernel:
    def __init__(self, name: str, sizes: Sequence[int], body: KernelBody | None, module: HostModule) -> None:
        self.name, self.body, self.module = name, body, module
        offsets = np.cumsum([0, *sizes]).tolist()
        self.parameter_layout = tuple(zip(offsets, sizes, strict=False))
        self.max_threads_per_block = 1024


class HostModule:
    def __init__(self, device: HostDevice, image: memoryview, name: str) -> None:
        self.info, self.name, self.device, self.open = describe_image(image), name, device, True

    def kernel(self, name: str) -> HostKernel:
        if name not in self.info.entries:
            raise NotFoundError("kernel", name, self.name, self.info.entries)
        return HostKernel(name, [p.size for p in self.info.entries[name]], self.device.bodies.get(name), self)

    def close(self) -> None:
        self.open = False


class HostLaunch:
    def __init__(self, device: HostDevice, kernel: HostKernel, config: LaunchConfig, parameters: list[bytes]) -> None:
        self.device, self.kernel, self.config, self.parameters = device, kernel, config, parameters

    def set_parameter(self, index: int, value: bytes) -> None:
        assert len(value) == len(self.parameters[index])
        self.parameters[index] = value
        self.device.patched += 1

    def run(self, stream: int) -> None:
        assert self.device.active.depth > 0, "launched outside activate()"
        assert self.kernel.module.open, "launched from a closed module"
        self.device.log.append(("launch", self.kernel.name, stream))
        assert self.kernel.body is not None, f"no body for {self.kernel.name}"
        self.kernel.body(self.device, self.config, self.parameters)


class HostGraph:
    def __init__(self, device: HostDevice, nodes: Sequence[GraphNode], dependencies: Sequence[Sequence[int]]) -> None:
        assert all(other < number for number, others in enumerate(dependencies) for other in others)
        self.device, self.nodes, self.dependencies, self.open = device, list(nodes), list(dependencies), True
        self.work = [self.fixed(node) for node in nodes]
        self.updates: list[int] = []

    def fixed(self, node: GraphNode) -> Callable[[int], None]:
        """The node's work with the addresses of now."""
        if isinstance(node, LaunchNode):
            launch = node.launch
            return HostLaunch(self.device, launch.kernel, launch.config, list(launch.parameters)).run
        if isinstance(node, CopyNode):
            return functools.partial(self.device.copy, node.target, node.source, node.nbytes)
        assert isinstance(node, FillNode)
        return functools.partial(self.device.fill, node.address, node.pattern, node.nbytes)

    def update(self, index: int) -> None:
        self.updates.append(index)
        self.work[index] = self.fixed(self.nodes[index])

    def run(self, stream: int) -> None:
        assert self.device.active.depth > 0, "launched outside activate()"
        assert self.open, "run after it was closed"
        self.device.log.append(("graph", len(self.nodes), stream))
        for work in self.work:
            work(stream)

    def close(self) -> None:
        self.open = False


class _Active(threading.local):
    depth = 0


class HostDevice:
    name = "host"
    description = "host memory (sm_86)"
    compute_capability = ComputeCapability(8, 6)
    dlpack_device = (1, 0)
    default_stream = 1
    runs_cubins = True
    max_shared_memory_per_block = 101_376
    newest_ptx = (9, 0)

    def __init__(self, bodies: dict[str, KernelBody] | None = None) -> None:
        self.bodies = bodies or {}
        self.blocks: dict[int, int] = {}  # address -> bytes
        self.log: list[tuple[object, ...]] = []
        self.modules: list[HostModule] = []
        self.patched = 0
        self.graphs: list[HostGraph] = []
        self.active = _Active()

    @contextmanager
    def activate(self) -> Iterator[None]:
        self.active.depth += 1
        try:
            yield
        finally:
            self.active.depth -= 1

    def owns(self, address: int) -> bool:
        starts = sorted(self.blocks)
        index = bisect.bisect_right(starts, address) - 1
        return index >= 0 and address < starts[index] + self.blocks[starts[index]]

    def check(self, address: int, nbytes: int) -> None:
        starts = sorted(self.blocks)
        index = bisect.bisect_right(starts, address) - 1
        inside = index >= 0 and address + nbytes <= starts[index] + self.blocks[starts[index]]
        if nbytes and not inside:
            raise DeviceError(f"{nbytes} bytes at {address:#x} are outside of every allocation")

    def view(self, parameter: bytes, dtype: str, count: int) -> np.ndarray:
        """The memory that a pointer parameter points to, as a kernel body uses it."""
        (address,) = struct.unpack("<Q", parameter)
        nbytes = np.dtype(dtype).itemsize * count
        self.check(address, nbytes)
        return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)

    def supports_ptx(self, version: tuple[int, int]) -> bool:
        return version <= self.newest_ptx

    def allocate(self, nbytes: int, stream: int) -> HostBuffer:
        return HostBuffer(self, nbytes, stream)

    def trim(self) -> None:
        self.log.append(("trim",))

    def write(self, address: int, data: memoryview, stream: int) -> None:  # noqa: ARG002
        self.check(address, data.nbytes)
        ctypes.memmove(address, bytes(data), data.nbytes)

    def read(self, address: int, data: memoryview, stream: int) -> None:  # noqa: ARG002
        self.check(address, data.nbytes)
        data.cast("B")[:] = ctypes.string_at(address, data.nbytes)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.check(target, nbytes)
        self.check(source, nbytes)
        ctypes.memmove(target, source, nbytes)
        self.log.append(("copy", nbytes, stream))

    def fill(self, address: int, pattern: bytes, nbytes: int, stream: int) -> None:  # noqa: ARG002
        self.check(address, nbytes)
        ctypes.memmove(address, pattern * (nbytes // len(pattern)), nbytes)

    def load_module(self, image: memoryview, name: str) -> HostModule:
        self.modules.append(HostModule(self, image, name))
        return self.modules[-1]

    def prepare(self, kernel: HostKernel, config: LaunchConfig, parameters: Sequence[bytes]) -> HostLaunch:
        assert [len(p) for p in parameters] == [size for _, size in kernel.parameter_layout]
        return HostLaunch(self, kernel, config, list(parameters))

    def prepare_product(self, product: Product, alignments: Sequence[int]) -> PreparedProduct:  # noqa: ARG002
        raise DeviceError("the host has no library")

    def build_graph(self, nodes: Sequence[GraphNode], dependencies: Sequence[Sequence[int]]) -> HostGraph:
        self.graphs.append(HostGraph(self, nodes, dependencies))
        return self.graphs[-1]

    def order(self, first: int, then: int) -> None:
        if first != then:
            self.log.append(("order", first, then))

    def synchronize(self, stream: int) -> None:
        self.log.append(("synchronize", stream))
