"""A package's executable as one that stands alone: each kernel is called by what the executable says of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coilpack.compiler.iree.abi import iree_kernel
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.executable import BindingFlags, Executable, Export
from coilpack.runtime.program import ir


def standalone_executable(executable: Executable, kernels: Iterable[ir.Kernel]) -> Executable:
    """Brings those kernels into IREE's parameter order that are not; the others stay as they are.

    Args:
        executable: as it stands in a package.
        kernels: what the program says of its exports.

    Raises:
        UnsupportedError: a kernel cannot be called with bindings and constants alone, or is machine code in another
            order.
    """
    modules = list(executable.modules)
    exports = {export.name: export for export in executable.exports}
    for kernel in kernels:
        export = exports[kernel.export_name]
        if export.binding_count + export.constant_count == len(kernel.parameters):
            continue
        _check(export, kernel, executable)
        ptx = bytes(modules[export.module_ordinal]).decode()
        found = iree_kernel(ptx, export.kernel_name, kernel.parameters)
        modules[export.module_ordinal] = found.ptx.encode()
        flags = (BindingFlags.READ_ONLY if read_only else BindingFlags(0) for read_only in found.read_only)
        exports[export.name] = replace(export, binding_flags=tuple(flags), constant_count=len(found.constants))
    return replace(executable, modules=tuple(modules), exports=tuple(exports.values()))


def _check(export: Export, kernel: ir.Kernel, executable: Executable) -> None:
    if kernel.cooperative:
        raise UnsupportedError(
            f"kernel {export.name!r} needs all its workgroups at once, which a bare executable cannot ask for: emit a "
            "package"
        )
    if executable.images[export.module_ordinal].kind != "ptx":
        raise UnsupportedError(
            f"kernel {export.name!r} has {len(kernel.parameters)} parameters that are not at most 16 pointers followed "
            "by at most 64 scalars of 32 bits, and machine code cannot be changed: choose PTX (--image ptx), or emit a "
            "package"
        )
