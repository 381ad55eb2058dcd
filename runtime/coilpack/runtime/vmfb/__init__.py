"""IREE's module archives (`.vmfb`): what a module exports, needs and holds. Read only."""

from coilpack.runtime.vmfb.archive import is_vmfb
from coilpack.runtime.vmfb.model import ForeignExecutable, Rodata, VmDependency, Vmfb, VmFunction, VmImport
from coilpack.runtime.vmfb.reader import read_vmfb

__all__ = [
    "ForeignExecutable",
    "Rodata",
    "VmDependency",
    "VmFunction",
    "VmImport",
    "Vmfb",
    "is_vmfb",
    "read_vmfb",
]
