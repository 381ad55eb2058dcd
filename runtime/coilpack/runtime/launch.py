"""Bare kernels: loaded from executables (`.cda1`), packages and IREE modules, and launched by export name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike, fspath
from types import TracebackType

import numpy as np

from coilpack.runtime.arrays import DeviceArray, as_device_view
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Device, LaunchConfig
from coilpack.runtime.errors import InputError, NotFoundError, TargetMismatchError
from coilpack.runtime.executable import Executable, Export
from coilpack.runtime.executor import BoundKernel
from coilpack.runtime.files import file_kind, map_file, read_executables
from coilpack.runtime.loaded import choose_image
from coilpack.runtime.loading import LoadedModules, check_layout
from coilpack.runtime.package import Package
from coilpack.runtime.plan import encode_scalar
from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.expr import evaluate
from coilpack.runtime.streams import stream_handle
from coilpack.runtime.targets import Architecture

_POINTER_BYTES, _CONSTANT_BYTES = 8, 4


class Function:
    """A kernel that can be launched while its executable, which it keeps, is open.

    Attributes:
        export: what the executable says of it.
        kernel: what a package's program says of it: its parameters, and how many workgroups it takes; None where the
            file is no package, or its program does not know the kernel.
    """

    def __init__(
        self, executable: LoadedExecutable, export: Export, bound: BoundKernel, kernel: ir.Kernel | None = None
    ) -> None:
        self.export = export
        self.kernel = kernel
        self._executable = executable
        self._device = executable.device
        self._bound = bound

    def __repr__(self) -> str:
        return f"<Function {self.export.name!r} on {self._device.name}>"

    @property
    def name(self) -> str:
        """The export name, or the kernel name where the file has none."""
        return self.export.name

    def launch(
        self,
        grid: int | Sequence[int] | None,
        bindings: Sequence[object],
        constants: Sequence[int] = (),
        *,
        stream: object = None,
    ) -> None:
        """Queues one launch; block size and shared memory are the export's.

        Args:
            grid: workgroups along x, y and z; one number, or up to three. A zero launches nothing. None: as many as
                the kernel's rule in the package says.
            bindings: arrays on the device whose addresses the kernel takes, in order. Of a kernel in a package instead
                all its arguments: arrays or None for pointers, numbers for scalars.
            constants: 32-bit integers, signed or unsigned, that follow them.
            stream: None for the default stream, a handle, or an object with `__cuda_stream__`.

        Raises:
            InputError: it is closed, a number or size of parameters differs from the kernel's, an array is not on the
                device, is of another element type or less aligned than the kernel was compiled for, there is no rule
                for the grid, or the grid is over the device's limits.
            DeviceError: the launch fails.
        """
        if self._executable.closed:
            raise InputError(f"{self.name}: its executable is closed")
        handle = stream_handle(stream, self._device)
        kernel = self.kernel
        if kernel is not None and not constants:
            parameters, views = self._arguments(kernel, bindings, handle)
        else:
            self._check_counts(len(bindings), len(constants))
            views = [self._binding(index, binding, handle) for index, binding in enumerate(bindings)]
            parameters = [view.address.to_bytes(_POINTER_BYTES, "little") for view in views]
            parameters += [self._constant(index, value) for index, value in enumerate(constants)]
        workgroups = self._rule([*bindings, *constants]) if grid is None else _grid(grid, self.name)
        cooperative = kernel is not None and kernel.cooperative
        config = LaunchConfig(workgroups, self._bound.block, self._bound.shared_memory_bytes, cooperative)
        launch = self._device.prepare(self._bound.kernel, config, parameters)
        with self._device.activate():
            launch.run(handle)
        for view in views:
            self._device.order(handle, view.stream)  # whoever uses or frees it there comes after this launch

    def _arguments(
        self, kernel: ir.Kernel, given: Sequence[object], stream: int
    ) -> tuple[list[bytes], list[DeviceArray]]:
        """The bytes of all parameters, and the arrays among them."""
        if len(given) != len(kernel.parameters):
            raise InputError(f"{self.name}: takes {len(kernel.parameters)} arguments; {len(given)} were given")
        parameters: list[bytes] = []
        views: list[DeviceArray] = []
        for index, (parameter, value) in enumerate(zip(kernel.parameters, given, strict=True)):
            if isinstance(parameter, ir.ScalarParameter):
                parameters.append(self._scalar(index, parameter, value))
            elif value is None:
                parameters.append(bytes(_POINTER_BYTES))
            else:
                view = self._binding(index, value, stream)
                self._check_array(index, parameter, view)
                views.append(view)
                parameters.append(view.address.to_bytes(_POINTER_BYTES, "little"))
        return parameters, views

    def _scalar(self, index: int, parameter: ir.ScalarParameter, value: object) -> bytes:
        what = f"{self.name}: argument {index}"
        number: int | float
        if isinstance(value, int | float):
            number = value
        elif isinstance(value, np.generic):
            number = value.item()
        else:
            raise InputError(f"{what}: is a {type(value).__name__}; the kernel takes the scalar {parameter.dtype.name}")
        try:
            return encode_scalar(parameter.dtype, number)
        except InputError as error:
            raise InputError(f"{what}: {error}") from None

    def _check_array(self, index: int, parameter: ir.PointerParameter, view: DeviceArray) -> None:
        what = f"{self.name}: argument {index}"
        if view.dtype is not parameter.dtype:
            raise InputError(f"{what}: holds {view.dtype.name}; the kernel takes a pointer to {parameter.dtype.name}")
        if view.size and view.address % parameter.alignment:
            raise InputError(
                f"{what}: starts at {view.address:#x}; the kernel was compiled for multiples of {parameter.alignment} "
                "bytes: pass a copy"
            )
        if ir.Access.WRITE in parameter.access and view.read_only:
            raise InputError(f"{what}: is read-only, and the kernel writes to it")

    def _rule(self, arguments: Sequence[object]) -> tuple[int, int, int]:
        """The grid that the package states for these arguments."""
        if self.kernel is None or self.kernel.grid is None:
            raise InputError(f"{self.name}: the file does not say how many workgroups it takes; give the grid")
        integers = {
            symbol: int(value)
            for symbol, value in zip(wire.launch_symbols(len(arguments)), arguments, strict=True)
            if isinstance(value, int | np.integer)
        }
        try:
            x, y, z = (evaluate(size, integers) for size in self.kernel.grid)
        except ZeroDivisionError:
            raise InputError(f"{self.name}: its grid divides by zero with these arguments") from None
        if min(x, y, z) < 0:
            raise InputError(f"{self.name}: its grid is {(x, y, z)} with these arguments; it must not be negative")
        return x, y, z

    def _check_counts(self, bindings: int, constants: int) -> None:
        export = self.export
        stored = (export.binding_count, export.constant_count)
        if export.binding_flags and stored != (bindings, constants):
            raise InputError(
                f"{self.name}: takes {stored[0]} bindings and {stored[1]} constants; {bindings} and {constants} "
                "were given"
            )
        sizes = [size for _, size in self._bound.kernel.parameter_layout]
        if sizes != [_POINTER_BYTES] * bindings + [_CONSTANT_BYTES] * constants:
            raise InputError(
                f"{self.name}: the kernel's parameters have {sizes} bytes; {bindings} bindings (of {_POINTER_BYTES}) "
                f"and {constants} constants (of {_CONSTANT_BYTES}) were given"
            )

    def _binding(self, index: int, binding: object, stream: int) -> DeviceArray:
        what = f"{self.name}: binding {index}"
        view = as_device_view(binding, self._device, stream, what)
        if isinstance(view, DeviceArray):
            return view
        raise InputError(f"{what}: is in host memory; bring it to {self._device.name} with coilpack.runtime.to_device")

    def _constant(self, index: int, value: int) -> bytes:
        if not -(2**31) <= value < 2**32:
            raise InputError(f"{self.name}: constant {index} is {value}; it has 32 bits: pass two for a wider value")
        return (value % 2**32).to_bytes(_CONSTANT_BYTES, "little")


def _grid(grid: int | Sequence[int], name: str) -> tuple[int, int, int]:
    sizes = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(sizes) <= 3:
        raise InputError(f"{name}: the grid {sizes} has {len(sizes)} dimensions; it must have 1 to 3")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


class LoadedExecutable:
    """The kernels of a file on a device. Made by `load_executable`.

    Args:
        executables: the file's executables that run on the device.
        device: where to load them.
        file: what messages call the file.
        kernels: what a package's program says of the kernels.
    """

    def __init__(
        self, executables: Sequence[Executable], device: Device, file: str, kernels: Sequence[ir.Kernel] = ()
    ) -> None:
        self.device = device
        self._file = file
        self._kernels = {kernel.export_name: kernel for kernel in kernels}
        self._loaded: list[LoadedModules] = []
        try:
            for executable in executables:
                self._loaded.append(LoadedModules(device, executable))
                for export in executable.exports:
                    if export.name in self._kernels:
                        check_layout(self._kernels[export.name], self._loaded[-1].kernel(export).kernel, file)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<LoadedExecutable {self._file}: {len(self.exports)} exports on {self.device.name}>"

    @property
    def exports(self) -> tuple[Export, ...]:
        """All its exports."""
        return tuple(export for loaded in self._loaded for export in loaded.executable.exports)

    def lookup(self, name: str) -> Function:
        """The kernel of that export name; see `Executable.lookup` for files that store none.

        Raises:
            NotFoundError: there is none; the message has the nearest names.
            InputError: several kernels have that name.
        """
        found: list[Function] = []
        known: set[str] = set()
        for loaded in self._loaded:
            try:
                export = loaded.executable.lookup(name)
            except NotFoundError as error:
                known.update(error.known)
            else:
                found.append(Function(self, export, loaded.kernel(export), self._kernels.get(export.name)))
        if not found:
            raise NotFoundError("export", name, self._file, known)
        if len(found) > 1:
            raise InputError(
                f"{self._file}: {len(found)} of its executables have an export {name!r}; say which by "
                "load_executable(…, index=)"
            )
        return found[0]

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return not self._loaded

    def close(self) -> None:
        """Unloads its kernels, which must have finished. Closing twice is harmless."""
        while self._loaded:
            self._loaded.pop().close()

    def __enter__(self) -> LoadedExecutable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_loaded", None) and not sys.is_finalizing():
            self.close()


def load_executable(
    path: str | PathLike[str], device: str | Device = "auto", *, index: int | None = None
) -> LoadedExecutable:
    """Loads the kernels of an executable (`.cda1`), of a package (`.coil`) or of an IREE module (`.vmfb`).

    Of a file with executables for several targets, those are loaded that the device runs best.

    Args:
        path: the file.
        device: `auto`, `cuda`, `cuda:N`, or a device.
        index: load only the executable of that number in the file.

    Raises:
        InvalidFileError: it is not a valid file of these kinds.
        TargetMismatchError: it holds no code for the device.
        DeviceError: the device is not there or refuses the code.
        InputError: there is no executable of that number.
    """
    where, file = resolve_device(device), fspath(path)
    if file_kind(map_file(path), file) == "package" and index is None:
        return _load_package(path, where, file)
    executables = read_executables(path)
    if index is not None:
        if not 0 <= index < len(executables):
            raise InputError(f"{file}: has {len(executables)} executables; there is none with index {index}")
        return LoadedExecutable([executables[index]], where, file)
    runnable = [e for e in executables if _runs(e, where)]
    if not runnable:
        targets = ", ".join(sorted({e.target for e in executables})) or "none"
        raise TargetMismatchError(f"{file}: no code for {where.name}, which is {where.description}; it has {targets}")
    best = max(Architecture.parse(e.target).rank for e in runnable)
    return LoadedExecutable([e for e in runnable if Architecture.parse(e.target).rank == best], where, file)


def _load_package(path: str | PathLike[str], device: Device, file: str) -> LoadedExecutable:
    with Package.open(path) as package:
        target, executable = choose_image(package, device, file)
        return LoadedExecutable([executable], device, file, target.kernels)


def load_executables(path: str | PathLike[str], device: str | Device = "auto") -> list[LoadedExecutable]:
    """Loads each executable of a file on its own; arguments and errors as for `load_executable`."""
    where = resolve_device(device)
    return [LoadedExecutable([executable], where, executable.file) for executable in read_executables(path)]


def _runs(executable: Executable, device: Device) -> bool:
    return all(
        Architecture.parse(image.target).runs_on(device.compute_capability, binary=image.kind == "cubin")
        and (image.kind == "ptx" or device.runs_cubins)
        for image in executable.images
    )
