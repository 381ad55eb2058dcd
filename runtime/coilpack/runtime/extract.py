"""Takes files apart: the executables in a file, and the code in them, as files of their own."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coilpack.runtime.atomic import write_atomically
from coilpack.runtime.errors import InputError
from coilpack.runtime.executable import Executable, read_executable, write_executable
from coilpack.runtime.files import file_kind, map_file
from coilpack.schemas import wire

MAX_STEM_CHARACTERS: Final = 160
"""A longer name is cut, and told apart by a digest; file systems allow 255 bytes with the suffix."""

_NOT_IN_FILE_NAMES: Final = re.compile(r"[^A-Za-z0-9_.$-]")
_DIGEST_DIGITS: Final = 16
_EXECUTABLES_FOLDER: Final = "executables/"


@dataclass(frozen=True)
class Part:
    """What becomes a file.

    Args:
        name: the file's name, without a folder.
        content: its bytes.
        note: what to say of it, if anything.
    """

    name: str
    content: bytes | memoryview
    note: str = ""


@dataclass(frozen=True)
class _Source:
    """An executable, what to call it (empty: as the file that it comes from), and what it was read from."""

    label: str
    executable: Executable
    content: memoryview


def extract(path: str | os.PathLike[str]) -> list[Part]:
    """Takes a package, an executable or an IREE module apart.

    Each executable becomes a `.cda1` file that today's readers take: with a header, which IREE's compilers before 3.9
    left out. It is the file's own content otherwise, save where a compiler gave several exports one kernel name: there
    it is what `read_executable` makes of it. Each image in it becomes a `.ptx` or `.cubin` file. A package also gives
    its program as text, and a list of its weights.

    Args:
        path: the file.

    Raises:
        InvalidFileError: the file is of no known kind, or invalid.
        InputError: it holds no executable for CUDA devices.
    """
    file, stem = Path(path), Path(path).stem
    kind = file_kind(map_file(file), str(file))
    parts = _package_parts(file, stem) if kind == "package" else []
    sources = list(_SOURCES[kind](file))
    for source in sources:
        prefix = f"{stem}.{source.label}" if source.label else stem
        parts.append(_executable_part(prefix, source))
        parts += _image_parts(prefix, source.executable)
    return _with_file_names(parts)


def write_parts(parts: Sequence[Part], folder: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
    """Writes each part as a file, and each file as a whole or not at all.

    A file that is there already and has the same content stays.

    Args:
        parts: what to write.
        folder: where; it is made if it is not there.
        force: whether to replace files that are there.

    Returns:
        The path of each part.

    Raises:
        InputError: the folder cannot be written, or a file is there with other content; nothing has been written then.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target} cannot be made a folder: {error.strerror}") from error
    paths = [target / part.name for part in parts]
    stale = [_is_stale(path, part, force) for path, part in zip(paths, parts, strict=True)]
    for path, part, is_stale in zip(paths, parts, stale, strict=True):
        if is_stale:
            write_atomically(path, bytes(part.content))
    return paths


def _is_stale(path: Path, part: Part, force: bool) -> bool:
    """Whether a part is to be written; raises `InputError` if something is there that may not be replaced."""
    try:
        if path.is_file() and path.stat().st_size == len(part.content) and path.read_bytes() == part.content:
            return False
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if path.is_dir():
        raise InputError(f"{path} is a folder; nothing was written. Take another output folder")
    if os.path.lexists(path) and not force:
        advice = "Take another output folder, or have files replaced (--force)"
        raise InputError(f"{path} is there and has other content; nothing was written. {advice}")
    return True


def _executables_of_executable(path: Path) -> Iterator[_Source]:
    content = map_file(path)
    yield _Source("", read_executable(content, file=str(path)), content)


def _executables_of_module(path: Path) -> Iterator[_Source]:
    from coilpack.runtime.vmfb import read_vmfb

    module = read_vmfb(map_file(path), file=str(path))
    if not module.executables:
        formats = ", ".join(sorted({other.format for other in module.other_executables}))
        has = f"those that it has are {formats}" if formats else "it has none at all"
        raise InputError(f"{path}: it holds no executable for CUDA devices; {has}")
    for index, (executable, content) in enumerate(zip(module.executables, module.contents, strict=True)):
        yield _Source(f"{index}" if len(module.executables) > 1 else "", executable, content)


def _executables_of_package(path: Path) -> Iterator[_Source]:
    from coilpack.runtime.package import Package

    package = Package.open(path)  # not closed: the parts are views of its mapping, which ends with the last of them
    for entry in (image.entry for target in package.program.targets for image in target.images):
        content = package.image(entry)
        label = entry.removeprefix(_EXECUTABLES_FOLDER).removesuffix(".cda1")
        yield _Source(label, read_executable(content, file=f"{path}: {entry}"), content)


_SOURCES: Final = {
    "executable": _executables_of_executable,
    "vmfb": _executables_of_module,
    "package": _executables_of_package,
}


def _package_parts(path: Path, stem: str) -> list[Part]:
    from coilpack.runtime.package import Package
    from coilpack.runtime.program.text import print_program

    with Package.open(path) as package:
        program = package.program
    parts = [Part(f"{stem}.program.txt", print_program(program).encode())]
    if program.storages:
        weights = [{"name": storage.name, "bytes": storage.nbytes} for storage in program.storages]
        listed = json.dumps(weights, indent=1, ensure_ascii=False)
        parts.append(Part(f"{stem}.weights.json", f"{listed}\n".encode()))
    return parts


def _executable_part(prefix: str, source: _Source) -> Part:
    name = f"{prefix}.cda1"
    if any(export.symbol != export.kernel_name for export in source.executable.exports):
        return Part(
            name, write_executable(source.executable), "kernels that shared a name were given names of their own"
        )
    if bytes(source.content[:4]) != wire.EXECUTABLE_IDENTIFIER:
        header = wire.ExecutableHeader.for_content(len(source.content)).pack()
        return Part(name, header + bytes(source.content), "a header was added")
    return Part(name, source.content)


def _image_parts(prefix: str, executable: Executable) -> list[Part]:
    """The images. One of several is called by its kernel, or by its number where it has several."""
    parts = []
    for index, (content, image) in enumerate(zip(executable.modules, executable.images, strict=True)):
        label = f".{index}" if len(executable.modules) > 1 else ""
        if label and len(image.entries) == 1:
            label = f".{next(iter(image.entries))}"
        base = prefix.removesuffix(f".{image.kind}")  # as in `m.sm_80.ptx`, which a package's entry says already
        parts.append(Part(f"{base}{label}.{image.kind}", content))
    return parts


def _with_file_names(parts: list[Part]) -> list[Part]:
    """Gives parts names that any file system takes, and that differ even where case does not count."""
    taken: set[str] = set()
    named = []
    for part in parts:
        name = _file_name(part.name)
        number = 1
        while name.casefold() in taken:
            number += 1
            stem, _, suffix = part.name.rpartition(".")
            name = _file_name(f"{stem}.{number}.{suffix}")
        taken.add(name.casefold())
        named.append(Part(name, part.content, part.note))
    return named


def _file_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    plain = _NOT_IN_FILE_NAMES.sub("_", stem)
    if len(plain) > MAX_STEM_CHARACTERS:
        digest = hashlib.sha256(stem.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_DIGITS]
        plain = f"{plain[: MAX_STEM_CHARACTERS - _DIGEST_DIGITS - 1]}_{digest}"
    return f"{plain}.{suffix}"
