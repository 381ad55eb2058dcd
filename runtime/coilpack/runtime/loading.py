"""Kernels of an executable on a device: modules loaded at once, parameters checked against what the driver reports."""

from __future__ import annotations

from collections.abc import Collection

from coilpack.runtime.devices.base import Device, Kernel, Module
from coilpack.runtime.errors import DeviceError, InvalidFileError
from coilpack.runtime.executable import Executable, Export
from coilpack.runtime.executor import BoundKernel
from coilpack.runtime.program import ir

_POINTER_BYTES = 8


class LoadedModules:
    """The images of an executable, each loaded once; nothing is left to load at the first launch.

    Args:
        device: where to load them.
        executable: the executable.
        ordinals: the modules that are needed; None for all.

    Raises:
        DeviceError: the driver refuses one.
        TargetMismatchError: one is for another architecture.
    """

    def __init__(self, device: Device, executable: Executable, ordinals: Collection[int] | None = None) -> None:
        self.executable = executable
        self._device = device
        self._modules: dict[int, Module] = {}
        try:
            for ordinal in range(len(executable.modules)) if ordinals is None else sorted(ordinals):
                self.load(ordinal)
        except BaseException:
            self.close()
            raise

    def load(self, ordinal: int) -> None:
        """Loads a module that was left out; does nothing where it is loaded.

        Raises:
            DeviceError: the driver refuses it.
            TargetMismatchError: it is for another architecture.
        """
        if ordinal not in self._modules:
            label = f"{self.executable.file}: module {ordinal}"
            self._modules[ordinal] = self._device.load_module(memoryview(self.executable.modules[ordinal]), label)

    def kernel(self, export: Export) -> BoundKernel:
        """The kernel of an export.

        Raises:
            NotFoundError: its module has no such symbol.
        """
        kernel = self._modules[export.module_ordinal].kernel(export.symbol or export.kernel_name)
        return BoundKernel(kernel, export.block_dims, export.shared_memory_bytes)

    def close(self) -> None:
        """Unloads the modules; their kernels must no longer be launched."""
        while self._modules:
            self._modules.popitem()[1].close()


def load_kernels(
    device: Device, executable: Executable, kernels: Collection[ir.Kernel]
) -> tuple[LoadedModules, dict[str, BoundKernel]]:
    """Loads the kernels that a program's dispatches use.

    Returns:
        The modules, to be closed by the caller, and the kernels by export name.

    Raises:
        NotFoundError: the executable lacks one.
        InvalidFileError: one takes other parameters than the program says.
        DeviceError: the driver refuses a module.
    """
    exports = {kernel.export_name: executable.lookup(kernel.export_name) for kernel in kernels}
    modules = LoadedModules(device, executable, {export.module_ordinal for export in exports.values()})
    try:
        bound = {name: modules.kernel(export) for name, export in exports.items()}
        for kernel in kernels:
            check_layout(kernel, bound[kernel.export_name].kernel, executable.file)
    except BaseException:
        modules.close()
        raise
    return modules, bound


def load_candidates(
    modules: LoadedModules, kernels: Collection[ir.Kernel], bound: dict[str, BoundKernel]
) -> dict[str, DeviceError]:
    """Loads kernels that dispatches may launch in place of their own, and adds them to the bound ones.

    Returns:
        Why the device refuses those that it refuses, by export name. They are left out: others can take their place.

    Raises:
        NotFoundError: the executable lacks one.
        InvalidFileError: one takes other parameters than the program says.
        TargetMismatchError: one is for another architecture.
    """
    refused: dict[str, DeviceError] = {}
    executable = modules.executable
    for kernel in kernels:
        export = executable.lookup(kernel.export_name)
        try:
            modules.load(export.module_ordinal)
            loaded = modules.kernel(export)
        except DeviceError as error:
            refused[kernel.export_name] = error
            continue
        check_layout(kernel, loaded.kernel, executable.file)
        bound[kernel.export_name] = loaded
    return refused


def check_layout(kernel: ir.Kernel, loaded: Kernel, file: str) -> None:
    """Compares the parameters that the program states with those that the loaded image has.

    Raises:
        InvalidFileError: their number or the width of one differs; launching would pass garbage.
    """
    stated = [p.dtype.itemsize if isinstance(p, ir.ScalarParameter) else _POINTER_BYTES for p in kernel.parameters]
    found = [size for _, size in loaded.parameter_layout]
    where = f"kernel {kernel.export_name!r}"
    hint = "The package's program and executable do not belong together: write it anew"
    if len(stated) != len(found):
        problem = f"the program passes {len(stated)} parameters, the image takes {len(found)}"
        raise InvalidFileError(file, where, problem, hint)
    for index, (ours, theirs) in enumerate(zip(stated, found, strict=True)):
        if ours != theirs:
            problem = f"the program passes {ours} bytes as parameter {index}, the image takes {theirs}"
            raise InvalidFileError(file, where, problem, hint)
