"""Opens packages and calls their functions."""

from __future__ import annotations

import sys
import threading
from contextlib import closing
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING

from coilpack.runtime.arguments import StagedArgument, bind_arguments, label, solve_sizes, stage
from coilpack.runtime.arrays import DeviceArray, as_device_view
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Buffer, Device
from coilpack.runtime.errors import DeviceError, InputError, TargetMismatchError
from coilpack.runtime.executable import Executable, read_executable
from coilpack.runtime.executor import Executor, Memory
from coilpack.runtime.loading import load_kernels
from coilpack.runtime.plan import Base, build_plan
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import evaluate
from coilpack.runtime.streams import stream_handle
from coilpack.runtime.targets import describe_targets, runnable_images

if TYPE_CHECKING:
    from coilpack.runtime.package import Package

_WEIGHT_ALIGNMENT = 256  # bytes; as aligned as allocations of their own
_MAX_PLANS = 64  # kept per program; each stands for one combination of sizes
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD: one handle, another stream in each thread


def open_program(path: str | PathLike[str], device: str | Device = "auto") -> Program:
    """Opens a package (`.coil`): verifies it, loads its kernels for the device, and uploads its weights.

    Args:
        path: the file. It is not needed any more once the program is open.
        device: `auto`, `cuda`, `cuda:N`, or a device.

    Raises:
        InvalidFileError: it is not a valid package.
        TargetMismatchError: it holds no code for the device.
        DeviceError: the device is not there, or refuses the code, or has too little memory.
    """
    from coilpack.runtime.package import Package  # the file format is needed to open a file, not to run a program

    with closing(Package.open(path)) as package:
        return Program(package, resolve_device(device), fspath(path))


class Program:
    """The functions of a package, ready to be called. Made by `coilpack.runtime.open`.

    May be called from several threads: calls share one arena, so they run one after another, on whatever streams.

    Args:
        package: an open package; not needed any more once the program is made.
        device: where to run.
        file: what messages call the package.
    """

    def __init__(self, package: Package, device: Device, file: str) -> None:
        self.device = device
        self._file = file
        self._program = package.program
        self._functions = tuple(signature.name for signature in package.program.signatures)
        self._lock = threading.Lock()
        self._stream = device.default_stream  # of the latest call
        self._closed = False
        self._labels = {
            signature.name: [label(signature, index) for index in range(len(signature.inputs))]
            for signature in package.program.signatures
        }
        self._executors: dict[tuple[str, tuple[int, ...]], Executor] = {}
        self._target, executable = _choose(package, device, file)
        self._modules, self._kernels = load_kernels(device, executable, self._target.kernels)
        self._weights, self._weight_offsets = _upload_weights(package, device)
        static = [f for f in self._target.functions if not f.signature.symbols]
        arena_nbytes = max((evaluate(function.arena_nbytes, {}) for function in static), default=0)
        self._arena: Buffer = device.allocate(arena_nbytes, self._stream)
        for function in static:  # what can be prepared is ready before the first call
            self._executor(function, {})

    def __repr__(self) -> str:
        return f"<Program {self._file}: {', '.join(self.functions)} for {self.target} on {self.device.name}>"

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of its functions."""
        return self._functions

    @property
    def target(self) -> str:
        """The compiled target that was chosen for the device, as `sm_90a`."""
        return self._target.name

    def signature(self, function: str | None = None) -> ir.Signature:
        """Inputs and outputs of a function.

        Args:
            function: its name; may be left out for `main`, or where there is only one.

        Raises:
            NotFoundError: there is no function of that name.
            InputError: no name is given, and there are several functions.
        """
        signature: ir.Signature = self._program.signature(self._name(function))
        return signature

    def _name(self, function: str | None) -> str:
        if function is not None:
            return function
        names = self.functions
        if len(names) == 1 or "main" in names:
            return "main" if "main" in names else names[0]
        raise InputError(f"{self._file} has {len(names)} functions: say which one by function=, of {', '.join(names)}")

    def __call__(
        self, *arguments: object, function: str | None = None, stream: object = None, **by_name: object
    ) -> DeviceArray | tuple[DeviceArray, ...]:
        """Calls a function. The work is queued; reading a result waits for it.

        Args:
            *arguments: its inputs in order: numpy arrays, which are uploaded, or arrays on the device: anything with
                DLPack or the CUDA array interface. A host array that the function writes to is updated, which waits.
            function: its name; may be left out for `main`, or where there is only one.
            stream: where to queue the work: None for the default stream, a handle, or an object with `__cuda_stream__`.
            **by_name: inputs by their names.

        Returns:
            The output, or a tuple of them where there are none or several.

        Raises:
            InputError: an argument is missing or does not fit: element type, shape, layout or device.
            NotFoundError: there is no function, or no input, of that name.
            DeviceError: there is too little memory, or the device fails.
        """
        body = self._target.function(self._name(function))
        signature, device = body.signature, self.device
        handle = stream_handle(stream, device)
        given = bind_arguments(signature, arguments, by_name)
        labels = self._labels[signature.name]
        views = [as_device_view(a, device, handle, what) for a, what in zip(given, labels, strict=True)]
        sizes = solve_sizes(signature, [view.shape for view in views])
        with self._lock:
            executor = self._executor(body, sizes)
            plan = executor.plan
            staged = [stage(v, plan, i, device, handle, labels[i]) for i, v in enumerate(views)]
            outputs = [device.allocate(nbytes, handle) for nbytes in plan.output_nbytes]
            self._enter(handle)
            executor.run([s.array.address for s in staged], [buffer.address for buffer in outputs], handle)
            self._leave(handle)
        for view, argument in zip(views, staged, strict=True):
            argument.write_back()
            if isinstance(view, DeviceArray):
                device.order(handle, view.stream)  # whoever uses or frees it there comes after this call
        results = _results(executor, staged, outputs, device, handle)
        return results[0] if len(results) == 1 else results

    def _enter(self, stream: int) -> None:
        """Orders a call after the latest one, with which it shares the arena."""
        self.device.order(self._stream, stream)
        self._stream = stream

    def _leave(self, stream: int) -> None:
        # The next call may come from another thread, for which this handle names another stream. The legacy stream
        # waits for every per-thread stream.
        if stream == _PER_THREAD_STREAM:
            self._stream = self.device.default_stream

    def _executor(self, function: ir.Function, sizes: dict[str, int]) -> Executor:
        if self._closed:
            raise InputError(f"{self._file}: the program is closed")
        key = (function.name, tuple(sizes.values()))
        executor = self._executors.get(key)
        if executor is None:
            plan = build_plan(function, sizes, self._weight_offsets)
            self._reserve_arena(plan.arena_nbytes)
            executor = Executor(self.device, plan, self._kernels, Memory(self._arena.address, self._weights.address))
            if len(self._executors) >= _MAX_PLANS:
                del self._executors[next(iter(self._executors))]
            self._executors[key] = executor
        return executor

    def _reserve_arena(self, nbytes: int) -> None:
        if nbytes <= self._arena.nbytes:
            return
        functions = {key: executor.plan for key, executor in self._executors.items()}
        old, self._arena = self._arena, self.device.allocate(nbytes, self._stream)
        self._executors = {
            key: Executor(self.device, plan, self._kernels, Memory(self._arena.address, self._weights.address))
            for key, plan in functions.items()
        }
        # Its memory is freed on the stream it was allocated for; the latest call may still use it on another.
        self.device.synchronize(self._stream)
        old.close()

    def close(self) -> None:
        """Waits for its work and frees what it holds on the device. Results stay valid. Closing twice is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self.device.synchronize(self._stream)
            finally:
                self._executors.clear()
                self._kernels.clear()
                self._modules.close()
                self._weights.close()
                self._arena.close()
                self.device.trim()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_arena", None) is not None and not sys.is_finalizing():
            self.close()


def _choose(package: Package, device: Device, file: str) -> tuple[ir.Target, Executable]:
    targets = package.program.targets
    refused = ""
    for target, image in runnable_images(targets, device.compute_capability):
        if image.kind is ir.ImageKind.CUBIN and not device.runs_cubins:
            continue
        executable = read_executable(package.image(image.entry), file=f"{file}: {image.entry}")
        versions = [info.ptx_version for info in executable.images if info.ptx_version is not None]
        if all(device.supports_ptx(version) for version in versions):
            return target, executable
        newest = max(versions)
        refused = refused or f"{image.entry} is PTX ISA {newest[0]}.{newest[1]}, newer than the device's driver takes"
    if refused:
        raise DeviceError(
            f"{file}: {refused}. Install a newer driver, or compile to a cubin or with an older `--ptx-version`"
        )
    raise TargetMismatchError(
        f"{file}: no code for {device.name}, which is {device.description}; "
        f"it has {describe_targets(targets)}. Compile with `--target {device.compute_capability}`"
    )


def _upload_weights(package: Package, device: Device) -> tuple[Buffer, dict[str, int]]:
    offsets: dict[str, int] = {}
    total = 0
    for storage in package.program.storages:
        offsets[storage.name] = total
        total += -(-storage.nbytes // _WEIGHT_ALIGNMENT) * _WEIGHT_ALIGNMENT
    stream = device.default_stream
    weights = device.allocate(total, stream)
    for name, offset in offsets.items():
        with package.storage(name) as data:
            device.write(weights.address + offset, data, stream)
    return weights, offsets


def _results(
    executor: Executor, staged: list[StagedArgument], outputs: list[Buffer], device: Device, stream: int
) -> tuple[DeviceArray, ...]:
    results = []
    for reference, type_ in executor.plan.results:
        if reference.base is Base.OUTPUT:
            buffer = outputs[reference.index]
            results.append(DeviceArray(device, buffer, buffer.address + reference.offset, type_, stream))
        else:
            source = staged[reference.index].array
            address = source.address + reference.offset
            results.append(DeviceArray(device, source, address, type_, stream, read_only=source.read_only))
    return tuple(results)
