"""Executables: reading, writing, names."""

from coilpack.runtime.executable.model import BindingFlags, Executable, Export, SourceFile, SourceLocation
from coilpack.runtime.executable.names import sanitize, unique_kernel_names
from coilpack.runtime.executable.reader import read_executable
from coilpack.runtime.executable.writer import write_executable

__all__ = [
    "BindingFlags",
    "Executable",
    "Export",
    "SourceFile",
    "SourceLocation",
    "read_executable",
    "sanitize",
    "unique_kernel_names",
    "write_executable",
]
