"""The emulator as a device: buffers, copies, modules and launches, executed at once on the CPU."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

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
)
from coilpack.runtime.devices.emulator.code import Code
from coilpack.runtime.devices.emulator.executor import Executor, chunk_size
from coilpack.runtime.devices.emulator.frame import WARP, Checks, Frame, Launched
from coilpack.runtime.devices.emulator.graph import EmulatorGraph
from coilpack.runtime.devices.emulator.memory import Memory, Region
from coilpack.runtime.devices.emulator.parser import parse_ptx
from coilpack.runtime.devices.emulator.product import EmulatorProduct, multiply
from coilpack.runtime.devices.emulator.program import compile_entry, parameter_layout
from coilpack.runtime.devices.emulator.ptx import TYPE_BYTES, Entry, Immediate, PtxModule, Variable
from coilpack.runtime.devices.emulator.stopwatch import EmulatorStopwatch
from coilpack.runtime.errors import InputError, NotFoundError, TargetMismatchError
from coilpack.schemas import wire

_DEFAULT_CHUNK_BYTES = 512 << 20
_MAX_THREADS = 1024
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_SHARED_LIMIT = 166_912  # of sm_80 (CUDA programming guide, "Technical Specifications": 163 KiB)
_CAPABILITY = ComputeCapability(8, 9)
_STREAM = 1  # the only one: work is done when it is queued


class EmulatorBuffer:
    """Memory of the emulator."""

    __slots__ = ("__weakref__", "_memory", "_region", "address", "nbytes")

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self._memory = memory
        self._region: Region | None = memory.allocate(nbytes) if nbytes else None
        self.address = self._region.start if self._region else 0
        self.nbytes = nbytes

    def close(self) -> None:
        """Frees the memory. Closing twice is harmless."""
        region, self._region = self._region, None
        if region is not None:
            self.address = 0
            self._memory.free(region)

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_region"):
            self.close()


class EmulatorKernel:
    """One entry of a module; its operations are built when it is loaded."""

    def __init__(self, module: EmulatorModule, entry: Entry, code: Code) -> None:
        self._module = module  # holds the variables that the code refers to
        self.name = entry.name
        self.entry, self.code = entry, code
        self.parameter_layout = tuple(parameter_layout(entry.parameters).values())
        self.max_threads_per_block = min(entry.max_threads or _MAX_THREADS, _MAX_THREADS)


class EmulatorModule:
    """Parsed PTX with its variables in memory.

    Raises:
        InvalidFileError: it is not PTX.
        UnsupportedError: it has an instruction that is not emulated.
    """

    def __init__(self, memory: Memory, text: str, name: str) -> None:
        self._memory, self._label = memory, name
        self._regions: list[Region] = []
        module = parse_ptx(text, file=name)
        addresses = self._place(module)
        self._kernels = {
            entry.name: EmulatorKernel(self, entry, compile_entry(module, entry, addresses))
            for entry in module.entries.values()
        }

    def _place(self, module: PtxModule) -> dict[str, int]:
        variables = [v for e in module.entries.values() for v in e.variables]
        placed = [v for v in (*module.variables, *variables) if v.space in ("global", "const") and v.count]
        addresses: dict[str, int] = {}
        for variable in placed:
            region = self._memory.allocate(TYPE_BYTES[variable.type] * variable.count, f"variable {variable.name}")
            region.written = True
            self._regions.append(region)
            addresses[variable.name] = region.start
        for variable, region in zip(placed, self._regions, strict=True):
            _initialize(self._memory, region, variable, addresses)
        return addresses

    def kernel(self, name: str) -> EmulatorKernel:
        """The entry `name`; `NotFoundError` where there is none."""
        if name not in self._kernels:
            raise NotFoundError("kernel", name, self._label, self._kernels)
        return self._kernels[name]

    def close(self) -> None:
        """Frees its variables. Closing twice is harmless."""
        self._kernels = {}
        while self._regions:
            self._memory.free(self._regions.pop())


def _initialize(memory: Memory, region: Region, variable: Variable, addresses: dict[str, int]) -> None:
    if not variable.initial:
        return
    size = TYPE_BYTES[variable.type]
    values = bytearray()
    for item in variable.initial:
        if isinstance(item, Immediate):
            if item.bits:
                dtype = {"f16": "f2", "f32": "f4", "f64": "f8"}.get(variable.type, f"f{item.bits // 8}")
                values += np.array(item.value, dtype).tobytes()
            else:
                values += (int(item.value) % (1 << (8 * size))).to_bytes(size, "little")
        else:
            values += (addresses[item.name] + item.offset).to_bytes(8, "little")
    memory.bytes_at(region.start, len(values), variable.name)[:] = np.frombuffer(values, np.uint8)


class EmulatorLaunch:
    """A launch with its geometry and parameter bytes."""

    def __init__(self, device: Emulator, kernel: EmulatorKernel, config: LaunchConfig, values: Sequence[bytes]) -> None:
        self._device, self._kernel, self._config = device, kernel, config
        layout = kernel.parameter_layout
        self._slices = [slice(offset, offset + size) for offset, size in layout]
        self._parameters = bytearray(max((offset + size for offset, size in layout), default=0))
        for index, value in enumerate(values):
            self.set_parameter(index, value)

    def set_parameter(self, index: int, value: bytes) -> None:
        """Replaces parameter `index` by `value`, which has the parameter's size."""
        self._parameters[self._slices[index]] = value

    def run(self, stream: int) -> None:
        """Executes the launch; it is done on return.

        Raises:
            DeviceError: a check failed; the message names the kernel, the instruction, the thread and the address.
        """
        del stream
        self.fixed()()

    def fixed(self) -> Callable[[], None]:
        """The launch with the parameters of now."""
        return functools.partial(self._device.execute, self._kernel.code, self._config, bytes(self._parameters))


class Emulator:
    """Executes PTX on the CPU. Take the usual one from `emulator`.

    Args:
        checks: what to check besides bounds and alignment.
        chunk_bytes: memory that the registers and shared memory of CTAs running at once may take.
        capacity: bytes of address space for buffers.
        compute_capability: the architecture whose packages it takes. Instructions that only newer ones have are refused
            by name all the same.
    """

    def __init__(
        self,
        *,
        checks: Checks | None = None,
        chunk_bytes: int = _DEFAULT_CHUNK_BYTES,
        capacity: int | None = None,
        compute_capability: ComputeCapability = _CAPABILITY,
    ) -> None:
        self.name = "emulator"
        self.description = "the emulator: PTX executed on the CPU"
        self.driver_version = ""
        self.compute_capability = compute_capability
        self.dlpack_device = (1, 0)
        self.runs_cubins = False
        self.default_stream = _STREAM
        self.max_shared_memory_per_block = _SHARED_LIMIT
        self.instructions = 0
        self._graphs = 0  # how many were made
        self._checks = checks or Checks()
        self._chunk_bytes = chunk_bytes
        self._memory = Memory(capacity) if capacity else Memory()
        self._lock = threading.RLock()
        self._nothing = contextlib.nullcontext()

    def __repr__(self) -> str:
        return "<Emulator>"

    def activate(self) -> AbstractContextManager[None]:
        """Does nothing: the emulator needs no context."""
        return self._nothing

    def owns(self, address: int) -> bool:
        """Whether `address` lies in one of its buffers."""
        return self._memory.find(address) is not None

    def supports_ptx(self, version: tuple[int, int]) -> bool:
        """True: instructions decide, not versions."""
        del version
        return True

    # --- memory ---

    def allocate(self, nbytes: int, stream: int) -> Buffer:
        """Memory of `nbytes`, zeroed."""
        del stream
        return EmulatorBuffer(self._memory, nbytes)

    def trim(self) -> None:
        """Does nothing: freed memory is given back at once."""

    def write(self, address: int, data: memoryview, stream: int) -> None:
        """Copies host bytes to `address`."""
        del stream
        if data.nbytes:
            source = np.frombuffer(data, np.uint8)
            with self._lock:
                self._memory.bytes_at(address, data.nbytes, "copying to the emulator")[:] = source
                self._mark(address)

    def read(self, address: int, data: memoryview, stream: int) -> None:
        """Copies from `address` into writable host bytes."""
        del stream
        if data.nbytes:
            with self._lock:
                source = self._memory.bytes_at(address, data.nbytes, "copying from the emulator")
                np.frombuffer(data, np.uint8)[:] = source

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copies between two addresses."""
        del stream
        if nbytes:
            with self._lock:
                what = "copying on the emulator"
                self._memory.bytes_at(target, nbytes, what)[:] = self._memory.bytes_at(source, nbytes, what)
                self._mark(target)

    def fill(self, address: int, pattern: bytes, nbytes: int, stream: int) -> None:
        """Fills with a repeated pattern, whose length divides `nbytes`."""
        del stream
        if nbytes:
            with self._lock:
                place = self._memory.bytes_at(address, nbytes, "filling on the emulator")
                place.reshape(-1, len(pattern))[:] = np.frombuffer(pattern, np.uint8)
                self._mark(address)

    def _mark(self, address: int) -> None:
        region = self._memory.find(address)
        assert region is not None
        region.written = True

    # --- kernels ---

    def load_module(self, image: memoryview, name: str) -> Module:
        """Parses PTX and builds the operations of all its kernels.

        Raises:
            InvalidFileError: it is not PTX.
            TargetMismatchError: it is a cubin.
            UnsupportedError: it has an instruction that is not emulated.
        """
        if bytes(image[:4]) == wire.ELF_MAGIC:
            raise TargetMismatchError(
                f"{name}: it is a cubin, and the emulator executes PTX. Compile with `--image ptx`"
            )
        text = bytes(image).rstrip(bytes(1)).decode("utf-8", "replace")
        return EmulatorModule(self._memory, text, name)

    def prepare(self, kernel: Kernel, config: LaunchConfig, parameters: Sequence[bytes]) -> Launch:
        """Fixes geometry and parameter bytes for repeated runs; a grid with a zero in it prepares to do nothing.

        Raises:
            InputError: a count or size differs from the kernel's layout, or the geometry is over the limits.
        """
        assert isinstance(kernel, EmulatorKernel), "a kernel of another device"
        check_parameters(kernel, parameters)
        self._check_geometry(kernel, config)
        if config.cooperative:
            self._check_residency(kernel, config)
        return EmulatorLaunch(self, kernel, config, parameters)

    def _check_geometry(self, kernel: EmulatorKernel, config: LaunchConfig) -> None:
        for what, sizes, limits, least in (
            ("grid", config.grid, _MAX_GRID, 0),
            ("block", config.block, _MAX_BLOCK, 1),
        ):
            for axis, size, limit in zip("xyz", sizes, limits, strict=True):
                if not least <= size <= limit:
                    raise InputError(
                        f"kernel {kernel.name}: {what} size {size} along {axis}; {self.name} takes {least} to {limit}"
                    )
        threads = config.block[0] * config.block[1] * config.block[2]
        if threads > kernel.max_threads_per_block:
            raise InputError(
                f"kernel {kernel.name}: {threads} threads in a block; it takes at most {kernel.max_threads_per_block}"
            )
        required = kernel.entry.required_threads
        if required and required != config.block:
            raise InputError(f"kernel {kernel.name}: was compiled for blocks of {required}, not {config.block}")
        shared = config.shared_memory_bytes + kernel.code.shared_bytes
        if shared > _SHARED_LIMIT:
            raise InputError(
                f"kernel {kernel.name}: needs {shared} bytes of shared memory in a block; {self.name} has at most "
                f"{_SHARED_LIMIT}"
            )

    def _check_residency(self, kernel: EmulatorKernel, config: LaunchConfig) -> None:
        workgroups, at_once = config.grid[0] * config.grid[1] * config.grid[2], self._at_once(kernel.code, config)
        if workgroups > at_once:
            raise InputError(
                f"kernel {kernel.name}: is cooperative, so its {workgroups} workgroups must run at once; {self.name} "
                f"has memory for {at_once}. Use a smaller grid, or create it with a larger chunk_bytes"
            )

    def _at_once(self, code: Code, config: LaunchConfig) -> int:
        """How many workgroups run at once."""
        ctas = config.grid[0] * config.grid[1] * config.grid[2]
        lanes = -(-(config.block[0] * config.block[1] * config.block[2]) // WARP) * WARP
        per_cta = sum((r.bits + 7) // 8 * (lanes if r.dims[1] else 1) for r in code.registers if r.dims[0])
        per_cta += 2 * (code.shared_bytes + config.shared_memory_bytes) + code.local_bytes * lanes
        together = code.repeats_on_memory or config.cooperative
        return chunk_size(per_cta, lanes, ctas, self._chunk_bytes, together=together)

    def execute(self, code: Code, config: LaunchConfig, parameters: bytes) -> None:
        """Runs a whole grid, chunk by chunk."""
        ctas, size = config.grid[0] * config.grid[1] * config.grid[2], self._at_once(code, config)
        launched = Launched(code, config, parameters, self._memory, self._checks)
        with self._lock:
            frame: Frame | None = None
            for first in range(0, ctas, size or 1):
                count = min(size, ctas - first)
                if frame is None or frame.ctas != count:
                    frame = Frame(launched, first, count)
                else:
                    frame.start(first)
                self.instructions += Executor(frame).run()

    # --- graphs and library calls ---

    def prepare_product(self, product: Product, alignments: Sequence[int]) -> PreparedProduct:
        """A matrix product, computed by numpy in the next higher precision."""
        del alignments
        return EmulatorProduct(self, product)

    def multiply(self, product: Product, addresses: Sequence[int]) -> None:
        """Computes a matrix product over its operands' addresses."""
        with self._lock:
            multiply(product, lambda at, nbytes: self._memory.bytes_at(at, nbytes, "a matrix product"), addresses)
            self._mark(addresses[0])

    def build_graph(self, nodes: Sequence[GraphNode], dependencies: Sequence[Sequence[int]]) -> Graph:
        """A graph that runs its nodes in a new order each time."""
        with self._lock:
            self._graphs += 1
            return EmulatorGraph(self, nodes, dependencies, self._graphs)

    # --- streams ---

    def stopwatch(self, stream: int) -> Stopwatch:
        """One that counts executed instructions."""
        del stream
        return EmulatorStopwatch(lambda: self.instructions)

    def order(self, first: int, then: int) -> None:
        """Does nothing: work is done in the order of the calls."""

    def synchronize(self, stream: int) -> None:
        """Does nothing: all work is done."""


@functools.cache
def emulator() -> Emulator:
    """The process's emulator with the usual checks."""
    return Emulator()
