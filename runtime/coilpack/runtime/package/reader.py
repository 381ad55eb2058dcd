"""Reads packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from coilpack.runtime.errors import InvalidFileError, NotFoundError
from coilpack.runtime.files import map_file
from coilpack.runtime.package import layout
from coilpack.runtime.package.archive import ArchiveReader, Entry
from coilpack.runtime.package.safetensors import read_header
from coilpack.runtime.program import ir
from coilpack.runtime.program.decode import decode_program


class Package:
    """A package, mapped into memory and verified. Made by `Package.open`; a context manager that closes it.

    What `image` and `storage` give are views into the mapping, without a copy; pages are read when they are touched.
    The file must not be changed while it is open; replacing it by another, as `write_package` does, is harmless.
    """

    def __init__(
        self,
        path: Path,
        data: memoryview,
        program: ir.Program,
        entries: Mapping[str, Entry],
        weights: tuple[memoryview, Mapping[str, tuple[int, int]]],
    ) -> None:
        self._path = path
        self._data = data
        self._program = program
        self._entries = entries
        self._weights, self._storages = weights

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Package:
        """Opens and verifies a package.

        Everything is checked but the weights' bytes: the archive, the program, that images and storages are there and
        have their sizes, and the CRC of program and executables. `verify` checks the weights' CRC too.

        Args:
            path: the file. Where it holds no `weights.safetensors`, the weights are in the file of the same name with
                the suffix `.safetensors`.

        Raises:
            InvalidFileError: it cannot be opened or is not a valid package.
        """
        file, data = os.fspath(path), map_file(path)
        archive = ArchiveReader(data, file)
        try:
            entries = archive.entries()
        except InvalidFileError:
            _refuse_other_kinds(data, file)
            raise
        for entry in entries.values():
            if entry.name != layout.WEIGHTS_ENTRY:
                archive.check(entry)
        if layout.PROGRAM_ENTRY not in entries:
            listed = ", ".join(sorted(entries)[:5]) or "none"
            raise InvalidFileError(file, "", f"it has no entry {layout.PROGRAM_ENTRY!r}; its entries: {listed}")
        content = _content(data, entries[layout.PROGRAM_ENTRY])
        program = decode_program(content, file=f"{file}: {layout.PROGRAM_ENTRY}")
        for target in program.targets:
            for image in target.images:
                if image.entry not in entries:
                    raise InvalidFileError(file, f"target {target.name}", f"its image {image.entry!r} is not there")
        weights = _open_weights(Path(path), data, entries.get(layout.WEIGHTS_ENTRY), program)
        return cls(Path(path), data, program, entries, weights)

    @property
    def path(self) -> Path:
        """Where it was opened."""
        return self._path

    @property
    def program(self) -> ir.Program:
        """Its program."""
        return self._program

    @property
    def weights(self) -> memoryview:
        """The safetensors file that holds its storages, wherever it lies; empty where there is none."""
        return self._weights

    def entries(self) -> dict[str, memoryview]:
        """What the archive holds, by name: also what no part of the program refers to."""
        return {name: _content(self._data, entry) for name, entry in self._entries.items()}

    def image(self, entry: str) -> memoryview:
        """The executable in an entry, at an address that is a multiple of 64.

        Raises:
            NotFoundError: no image of the program has that entry.
        """
        images = {image.entry for target in self._program.targets for image in target.images}
        if entry not in images:
            raise NotFoundError("image", entry, os.fspath(self._path), images)
        return _content(self._data, self._entries[entry])

    def storage(self, name: str) -> memoryview:
        """The bytes of a storage.

        Raises:
            NotFoundError: the program has no storage of that name.
        """
        if name not in self._storages:
            raise NotFoundError("storage", name, os.fspath(self._path), self._storages)
        begin, end = self._storages[name]
        return self._weights[begin:end]

    def verify(self) -> None:
        """Checks what `open` leaves out: the CRC of the weights in the package, which reads all of them.

        Raises:
            InvalidFileError: it is wrong.
        """
        if layout.WEIGHTS_ENTRY in self._entries:
            archive = ArchiveReader(self._data, os.fspath(self._path))
            archive.check(self._entries[layout.WEIGHTS_ENTRY])

    def close(self) -> None:
        """Gives up the mapping; it lasts until the last view into it is released. Closing twice is harmless."""
        views = self._weights, self._data
        self._weights, self._data = memoryview(b""), memoryview(b"")
        self._storages, self._entries = {}, {}
        for view in views:
            mapping = view.obj if view.nbytes else None
            view.release()
            if mapping is not None:
                with suppress(BufferError):  # views are still in use: the mapping goes with them
                    mapping.close()  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _content(data: memoryview, entry: Entry) -> memoryview:
    return data[entry.start : entry.start + entry.nbytes]


def _open_weights(
    path: Path, data: memoryview, entry: Entry | None, program: ir.Program
) -> tuple[memoryview, dict[str, tuple[int, int]]]:
    """The bytes that hold the weights, and the range of each storage in them."""
    if entry is None and not program.storages:
        return memoryview(b""), {}
    if entry is not None:
        file, content = f"{path}: {entry.name}", _content(data, entry)
    else:
        beside = path.with_suffix(layout.WEIGHTS_SUFFIX)
        if not beside.is_file():
            problem = f"it holds no {layout.WEIGHTS_ENTRY!r}, and there is no {beside.name!r} beside it"
            raise InvalidFileError(os.fspath(path), "", problem, "Put the weights file where the package is")
        file, content = os.fspath(beside), map_file(beside)
    tensors, start = read_header(content, file)
    ranges: dict[str, tuple[int, int]] = {}
    for storage in program.storages:
        tensor = tensors.get(storage.name)
        found = "no such tensor" if tensor is None else f"{tensor.end - tensor.begin} bytes"
        if tensor is None or tensor.end - tensor.begin != storage.nbytes:
            problem = f"the file has {found}; the program wants {storage.nbytes} bytes"
            raise InvalidFileError(file, f"storage {storage.name!r}", problem)
        ranges[storage.name] = (start + tensor.begin, start + tensor.end)
    return content, ranges


def _refuse_other_kinds(data: memoryview, file: str) -> None:
    """Says of an executable or an IREE module that it is one; what is wrong with it as an archive helps nobody."""
    from coilpack.runtime.executable.reader import is_executable
    from coilpack.runtime.vmfb import is_vmfb

    kinds = {"an executable (.cda1)": is_executable, "an IREE module (.vmfb)": is_vmfb}
    for kind, holds in kinds.items():
        if holds(data):
            hint = "Its kernels can be launched one by one: see coilpack.runtime.load_executable"
            raise InvalidFileError(file, "", f"it is {kind}, which holds no program to run", hint)
