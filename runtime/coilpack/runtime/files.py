"""Files of all three kinds: mapped into memory, told apart by their content, searched for executables."""

from __future__ import annotations

import mmap
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coilpack.runtime.errors import InvalidFileError
from coilpack.schemas import wire

if TYPE_CHECKING:
    from coilpack.runtime.executable import Executable

FileKind = Literal["package", "executable", "vmfb"]


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


def file_kind(data: memoryview, file: str) -> FileKind:
    """Tells from a file's content what it is; whether it is valid is for its reader to say.

    Raises:
        InvalidFileError: it is none of the three.
    """
    from coilpack.runtime.executable.reader import is_executable
    from coilpack.runtime.vmfb import is_vmfb

    if is_executable(data):
        return "executable"
    if is_vmfb(data):
        return "vmfb"
    if bytes(data[:4]) == wire.ZIP_SIGNATURE:
        return "package"
    start = bytes(data[:8]).hex(" ") or "nothing"
    raise InvalidFileError(
        file, "", f"it is no package (.coil), executable (.cda1) or IREE module (.vmfb); it starts with {start}"
    )


def read_executables(path: str | PathLike[str]) -> list[Executable]:
    """Reads all executables of a file: the one that it is, or those in a package or an IREE module.

    Images stay mapped from the file.

    Raises:
        InvalidFileError: the file is of no known kind, or invalid.
    """
    from coilpack.runtime.executable import read_executable
    from coilpack.runtime.package import Package
    from coilpack.runtime.vmfb import read_vmfb

    data, file = map_file(path), fspath(path)
    kind = file_kind(data, file)
    if kind == "executable":
        return [read_executable(data, file=file)]
    if kind == "vmfb":
        return list(read_vmfb(data, file=file).executables)
    package = Package.open(path)  # not closed: the images are views of its mapping, which ends with the last of them
    entries = [image.entry for target in package.program.targets for image in target.images]
    return [read_executable(package.image(entry), file=f"{file}: {entry}") for entry in entries]
