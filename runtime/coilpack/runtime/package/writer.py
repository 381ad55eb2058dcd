"""Writes packages."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coilpack.runtime.atomic import atomic_file
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.package import layout
from coilpack.runtime.package.archive_writer import ArchiveWriter, Chunk, Zeros
from coilpack.runtime.package.safetensors import pack_header
from coilpack.runtime.program import ir

__all__ = ["StorageData", "Zeros", "write_package", "write_weights"]

_RESERVED_STORAGE = "__metadata__"  # what safetensors keeps for itself


@dataclass(frozen=True, slots=True)
class StorageData:
    """The bytes of one storage.

    Args:
        name: the storage's name in the program.
        dtype: the element type that readers of the safetensors file see.
        shape: the shape that they see; its elements are all the bytes of the storage.
        chunks: gives the bytes in order, row-major and little endian, in pieces of any size. It is called once, when
            the storage is written, so that only one piece need be in memory.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Chunk]]

    @property
    def nbytes(self) -> int:
        """The size of all its bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_package(
    path: str | os.PathLike[str],
    program: ir.Program,
    executables: Mapping[str, bytes],
    storages: Sequence[StorageData],
    *,
    weights: Literal["inside", "beside"] = "inside",
) -> None:
    """Writes a package, whole or not at all; equal arguments give equal bytes.

    Args:
        path: the file, which is replaced if it exists.
        program: the program.
        executables: the content of each image entry of the program.
        storages: the content of each storage of the program, in any order.
        weights: where the storages go: into the package, or into a file of its name with the suffix `.safetensors`.

    Raises:
        InvalidFileError: the program breaks a rule of the IR.
        InputError: executables or storages are not those of the program, or have other sizes; the file cannot be
            written.
    """
    from coilpack.runtime.program.encode import encode_program  # the generated code takes long to import

    _check_executables(program, executables)
    ordered = _ordered(program, storages)
    entries: dict[str, tuple[int, Iterable[Chunk]]] = {name: (len(data), [data]) for name, data in executables.items()}
    encoded = encode_program(program)
    entries[layout.PROGRAM_ENTRY] = (len(encoded), [encoded])
    if ordered:
        nbytes, content = _weights(ordered)
        if weights == "beside":
            write_file(Path(path).with_suffix(layout.WEIGHTS_SUFFIX), content)
        else:
            entries[layout.WEIGHTS_ENTRY] = (nbytes, content)
    write_entries(path, entries)


def write_entries(path: str | os.PathLike[str], entries: Mapping[str, tuple[int, Iterable[Chunk]]]) -> None:
    """Writes the archive of a package, whole or not at all.

    Args:
        path: the file, which is replaced if it exists.
        entries: the size in bytes of each entry's data, and the data in order.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_file(path) as file:
        archive = ArchiveWriter(file)
        for name in sorted(entries):
            nbytes, chunks = entries[name]
            alignment = layout.WEIGHTS_ALIGNMENT if name == layout.WEIGHTS_ENTRY else layout.PROGRAM_ALIGNMENT
            archive.add(name, nbytes, chunks, alignment)
        archive.finish()


def _check_executables(program: ir.Program, executables: Mapping[str, bytes]) -> None:
    named = {image.entry for target in program.targets for image in target.images}
    for entry in sorted(named ^ executables.keys()):
        lack = "there is no executable for it" if entry in named else "the program has no such image"
        raise InputError(f"package entry {entry!r}: {lack}")
    for entry in named:
        if not layout.ENTRY_NAME.fullmatch(entry) or len(entry) > layout.MAX_NAME_BYTES:
            rule = "path segments of ASCII letters, digits, '_', '-' and '.', joined by '/'"
            raise InputError(
                f"package entry {entry[:300]!r}: a name must be {rule}, up to {layout.MAX_NAME_BYTES} bytes"
            )
        if entry in (layout.PROGRAM_ENTRY, layout.WEIGHTS_ENTRY):
            raise InputError(f"package entry {entry!r}: the package keeps this name for itself")


def _ordered(program: ir.Program, storages: Sequence[StorageData]) -> list[StorageData]:
    """The storages by falling element size, then by name, so that each is aligned to its elements without gaps."""
    sizes = {storage.name: storage.nbytes for storage in program.storages}
    given = {storage.name: storage for storage in storages}
    if len(given) < len(storages):
        raise InputError("two storages of the package have the same name")
    for name in sorted(sizes.keys() ^ given.keys()):
        lack = "there is no data for it" if name in sizes else "the program has no such storage"
        raise InputError(f"storage {name!r}: {lack}")
    for storage in storages:
        if storage.nbytes != sizes[storage.name]:
            stated = f"{storage.dtype.name} of shape {storage.shape}, which takes {storage.nbytes} bytes"
            raise InputError(f"storage {storage.name!r}: {stated}; the program has {sizes[storage.name]} bytes")
        if storage.name == _RESERVED_STORAGE:
            raise InputError(f"storage {storage.name!r}: safetensors keeps this name for itself")
    return sorted(storages, key=lambda storage: (-storage.dtype.itemsize, storage.name))


def _checked_chunks(storage: StorageData) -> Iterator[Chunk]:
    """The storage's chunks as flat bytes; fails as soon as there are more or fewer than its size."""
    left = storage.nbytes
    for chunk in storage.chunks():
        piece = chunk if isinstance(chunk, Zeros) else memoryview(chunk).cast("B")
        left -= piece.nbytes
        if left < 0:
            break
        yield piece
    if left:
        found = f"more than {storage.nbytes}" if left < 0 else str(storage.nbytes - left)
        raise InputError(f"storage {storage.name!r}: its chunks have {found} bytes, not {storage.nbytes}")


def write_weights(path: str | os.PathLike[str], program: ir.Program, storages: Sequence[StorageData]) -> None:
    """Writes the storages of a program as a safetensors file, whole or not at all.

    Raises:
        InputError: they are not those of the program, or have other sizes; the file cannot be written.
    """
    write_file(Path(path), _weights(_ordered(program, storages))[1])


def _weights(ordered: Sequence[StorageData]) -> tuple[int, Iterable[Chunk]]:
    """The size and the content of the safetensors file of these storages."""
    header = pack_header([(item.name, item.dtype, item.shape) for item in ordered])
    content = itertools.chain([header], *(_checked_chunks(item) for item in ordered))
    return len(header) + sum(item.nbytes for item in ordered), content


def write_file(path: Path, content: Iterable[Chunk]) -> None:
    """Writes a file of those chunks, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    with atomic_file(path) as file:
        for chunk in content:
            if isinstance(chunk, Zeros):
                file.seek(chunk.nbytes, 1)
            else:
                file.write(chunk)
        file.truncate()  # a hole at the end has no size until then
