"""Kernels as IREE's host programs name them: one executable each, around a PTX file."""

from __future__ import annotations

from dataclasses import dataclass

from coilpack.compiler.iree.abi import IreeKernel
from coilpack.compiler.iree.text import string, symbol
from coilpack.runtime.program import ir


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A kernel as the host program launches it.

    Attributes:
        symbol: the entry of its PTX, and the name of its export: of the characters `[A-Za-z0-9_]`, so that every
            release of IREE's compiler asks the driver for this name.
        executable: the name of its executable in the module.
        path: its PTX file, from the folder of the module.
        parameters: what it takes in the program.
        abi: what it takes from IREE.
        block_dims: threads of a workgroup along x, y and z.
        shared_memory_bytes: dynamic shared memory of a workgroup.
    """

    symbol: str
    executable: str
    path: str
    parameters: tuple[ir.KernelParameter, ...]
    abi: IreeKernel
    block_dims: tuple[int, int, int]
    shared_memory_bytes: int = 0

    @property
    def reference(self) -> str:
        """What a dispatch calls it."""
        return f"{symbol(self.executable)}::{symbol(self.symbol)}"


def executable_lines(kernel: HostKernel) -> list[str]:
    """The executable, in the generic form, which all releases read; a launch says its grid.

    The format wants one PTX file an executable.
    """
    return [
        f'"hal.executable.source"() <{{sym_name = {string(kernel.executable)}, sym_visibility = "private",',
        "    objects = #hal.executable.objects<{#target = [",
        f"      #hal.executable.object<{{path = {string(kernel.path)}}}>]}}>}}> ({{",
        f'  "hal.executable.export"() <{{sym_name = {string(kernel.symbol)}, ordinal = 0 : index,',
        f"      layout = {_layout(kernel.abi)},",
        f"      workgroup_size = [{', '.join(f'{size} : index' for size in kernel.block_dims)}],",
        f"      workgroup_local_memory = {kernel.shared_memory_bytes} : index}}> ({{",
        "    ^bb0(%device: !hal.device, %x: index, %y: index, %z: index):",
        "      hal.return %x, %y, %z : index, index, index",
        "  }, {}) : () -> ()",
        '  "hal.executable.source_end"() : () -> ()',
        "}) : () -> ()",
    ]


def _layout(abi: IreeKernel) -> str:
    bindings = [
        f"#hal.pipeline.binding<storage_buffer{', ReadOnly' if read_only else ''}>" for read_only in abi.read_only
    ]
    return f"#hal.pipeline.layout<constants = {len(abi.constants)}, bindings = [{', '.join(bindings)}]>"
