"""Bare kernels: executables loaded from `.cda1` and `.vmfb` files and launched by export name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike, fspath
from types import TracebackType

from coilpack.runtime.arrays import DeviceArray, as_device_view
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Device, LaunchConfig
from coilpack.runtime.errors import InputError, NotFoundError, TargetMismatchError
from coilpack.runtime.executable import Executable, Export
from coilpack.runtime.executor import BoundKernel
from coilpack.runtime.files import read_executables
from coilpack.runtime.loading import LoadedModules
from coilpack.runtime.streams import stream_handle
from coilpack.runtime.targets import Architecture

_POINTER_BYTES, _CONSTANT_BYTES = 8, 4


class Function:
    """A kernel that can be launched while its executable, which it keeps, is open."""

    def __init__(self, executable: LoadedExecutable, export: Export, bound: BoundKernel) -> None:
        self.export = export
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
        grid: int | Sequence[int],
        bindings: Sequence[object],
        constants: Sequence[int] = (),
        *,
        stream: object = None,
    ) -> None:
        """Queues one launch; block size and shared memory are the export's.

        Args:
            grid: workgroups along x, y and z; one number, or up to three. A zero launches nothing.
            bindings: arrays on the device whose addresses the kernel takes, in order.
            constants: 32-bit integers, signed or unsigned, that follow them.
            stream: None for the default stream, a handle, or an object with `__cuda_stream__`.

        Raises:
            InputError: it is closed, a number or size of parameters differs from the kernel's, an array is not on the
                device, or the grid is over the device's limits.
            DeviceError: the launch fails.
        """
        if self._executable.closed:
            raise InputError(f"{self.name}: its executable is closed")
        handle = stream_handle(stream, self._device)
        self._check_counts(len(bindings), len(constants))
        views = [self._binding(index, binding, handle) for index, binding in enumerate(bindings)]
        parameters = [view.address.to_bytes(_POINTER_BYTES, "little") for view in views]
        parameters += [self._constant(index, value) for index, value in enumerate(constants)]
        config = LaunchConfig(_grid(grid, self.name), self._bound.block, self._bound.shared_memory_bytes)
        launch = self._device.prepare(self._bound.kernel, config, parameters)
        with self._device.activate():
            launch.run(handle)
        for view in views:
            self._device.order(handle, view.stream)  # whoever uses or frees it there comes after this launch

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
    """

    def __init__(self, executables: Sequence[Executable], device: Device, file: str) -> None:
        self.device = device
        self._file = file
        self._loaded: list[LoadedModules] = []
        try:
            for executable in executables:
                self._loaded.append(LoadedModules(device, executable))
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
                found.append(Function(self, export, loaded.kernel(export)))
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
    """Loads the kernels of an executable (`.cda1`) or of the executables in an IREE module (`.vmfb`).

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
