"""Executables: reading, writing, names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilpack.runtime.executable.model import BindingFlags, Executable, Export, SourceFile, SourceLocation
from coilpack.runtime.executable.names import sanitize, unique_kernel_names
from coilpack.runtime.executable.reader import read_executable

if TYPE_CHECKING:
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


def __getattr__(name: str) -> object:
    """Imports the writer when it is first asked for: flatbuffers and the generated code are of no use to readers."""
    if name != "write_executable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coilpack.runtime.executable.writer import write_executable

    globals()[name] = write_executable
    return write_executable
