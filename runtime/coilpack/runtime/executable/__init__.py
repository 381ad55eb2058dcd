"""Executables: reading, writing, names."""

from __future__ import annotations

import mmap
from os import PathLike, fspath
from pathlib import Path

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable.model import BindingFlags, Executable, Export, SourceFile, SourceLocation
from coilpack.runtime.executable.names import sanitize, unique_kernel_names
from coilpack.runtime.executable.reader import is_executable, read_executable
from coilpack.runtime.executable.writer import write_executable

__all__ = [
    "BindingFlags",
    "Executable",
    "Export",
    "SourceFile",
    "SourceLocation",
    "map_file",
    "read_executable",
    "read_executables",
    "sanitize",
    "unique_kernel_names",
    "write_executable",
]


def map_file(path: str | PathLike[str]) -> memoryview:
    """Maps a file into memory, read-only; an empty file gives an empty view.

    Raises:
        InvalidFileError: it cannot be opened.
    """
    try:
        with Path(path).open("rb") as stream:
            if not stream.seek(0, 2):
                return memoryview(b"")
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise InvalidFileError(fspath(path), "", f"it cannot be opened: {error.strerror}") from error


def read_executables(path: str | PathLike[str]) -> list[Executable]:
    """Reads the executables of a file, whose kind is told from its content: an executable or an IREE module archive.

    Images stay mapped from the file.

    Raises:
        InvalidFileError: the file is of neither kind, or invalid.
    """
    from coilpack.runtime.vmfb import is_vmfb, read_vmfb

    data, file = map_file(path), fspath(path)
    if is_executable(data):
        return [read_executable(data, file=file)]
    if is_vmfb(data):
        return list(read_vmfb(data, file=file).executables)
    start = bytes(data[:8]).hex(" ")
    raise InvalidFileError(
        file, "", f"it is no executable (.cda1) and no module archive (.vmfb); it starts with {start}"
    )
