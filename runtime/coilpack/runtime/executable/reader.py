"""Reads executables: a 64-byte header and a FlatBuffer, or (IREE before 3.9) the FlatBuffer alone."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Final

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable.model import BindingFlags, Executable, Export, SourceFile, SourceLocation
from coilpack.runtime.executable.symbols import assign_symbols, legal_symbols, rename_entries
from coilpack.runtime.images import ImageInfo, describe_image
from coilpack.runtime.verifier import Schema, verify
from coilpack.schemas import wire
from coilpack.schemas.generated.cuda_executable_def_generated import ExecutableDef

SCHEMA: Final = "cuda_executable_def"
_KNOWN_FLAGS: Final = int(BindingFlags.READ_ONLY | BindingFlags.INDIRECT)
_BLOCK_DIMS: Final = struct.Struct("<3I")
_NEWER: Final = "It may have been written by a newer version of its producer"


def is_executable(data: bytes | memoryview) -> bool:
    """Says whether `data` claims to be an executable, with or without a header."""
    identifier = wire.EXECUTABLE_IDENTIFIER
    at = wire.IDENTIFIER_OFFSET
    return bytes(data[:4]) == identifier or bytes(data[at : at + 4]) == identifier


def read_executable(data: bytes | bytearray | memoryview, *, file: str = "executable") -> Executable:
    """Reads an executable after verifying all of it.

    Images are slices of `data`, which must stay unchanged while they are in use.

    Args:
        data: the whole file, or any other buffer that holds it.
        file: its name in messages.

    Raises:
        InvalidFileError: it is not a valid executable; the error names the field, the value and the limit.
    """
    content = _content(memoryview(data).cast("B"), file)
    verify(content, Schema.load(SCHEMA), file=file)
    return _Reader(content, file).executable()


def _content(view: memoryview, file: str) -> memoryview:
    """Returns the FlatBuffer, without the header where there is one."""
    if bytes(view[:4]) != wire.EXECUTABLE_IDENTIFIER:
        return view
    size = wire.EXECUTABLE_HEADER.size
    if len(view) < size:
        raise InvalidFileError(file, "header", f"it has {len(view)} bytes; the header alone takes {size}")
    header = wire.ExecutableHeader.unpack(view)
    if header.version != wire.EXECUTABLE_VERSION:
        problem = f"the version is {header.version}; known is {wire.EXECUTABLE_VERSION}"
        raise InvalidFileError(file, "header", problem, _NEWER)
    if any(header.reserved):
        raise InvalidFileError(file, "header", "bytes 16 to 64 are not all zero", _NEWER)
    room = len(view) - size
    if header.content_size > room:
        problem = f"the content size is {header.content_size} bytes, but {room} follow the header"
        raise InvalidFileError(file, "header", problem, "The file may be truncated")
    if any(view[size + header.content_size :]):
        problem = f"the content size is {header.content_size} bytes, but {room} follow that are not padding"
        raise InvalidFileError(file, "header", problem)
    return view[size : size + header.content_size]


class _Reader:
    """Reads a verified FlatBuffer. Strings and tables may be shared in it; each is read once."""

    def __init__(self, content: memoryview, file: str) -> None:
        self.content, self.file = content, file
        root: Any = ExecutableDef  # its generated types know `bytes` only
        self.definition = root.GetRootAs(content, 0)
        self.strings: dict[int, str] = {}
        self.infos: dict[int, ImageInfo] = {}

    def fail(self, where: str, problem: str, hint: str = "") -> InvalidFileError:
        return InvalidFileError(self.file, where, problem, hint)

    def executable(self) -> Executable:
        modules, images = self._modules()
        exports = tuple(self._exports(len(modules)))
        self._check_names(exports)
        modules, images, exports = self._resolve(modules, images, exports)
        return Executable(modules, exports, images, tuple(self._source_files()), self.file)

    def _place(self, accessor: Any, slot: int) -> tuple[int, int]:
        """Returns the first byte and the length of a string or vector; (0, 0) where it is absent."""
        table = accessor._tab
        field = table.Offset(4 + 2 * slot)
        return (table.Vector(field), table.VectorLen(field)) if field else (0, 0)

    def _text(self, accessor: Any, slot: int, where: str) -> str | None:
        """Returns a string, or None where it is absent or empty."""
        start, length = self._place(accessor, slot)
        if not length:
            return None
        if start not in self.strings:
            text = str(self.content[start : start + length], "utf-8")
            if "\0" in text:
                raise self.fail(where, f"the name {text!r} holds a NUL")
            self.strings[start] = text
        return self.strings[start]

    def _count(self, name: str, found: int, limit: int) -> int:
        if found > limit:
            raise self.fail(name, f"there are {found}; the limit is {limit}")
        return found

    def _modules(self) -> tuple[tuple[bytes | memoryview, ...], tuple[ImageInfo, ...]]:
        count = self._count("modules", self.definition.ModulesLength(), wire.MAX_MODULES)
        modules, images = [], []
        for index in range(count):
            where = f"modules[{index}].ptx_image"
            start, length = self._place(self.definition.Modules(index), 0)
            image = self.content[start : start + length]
            if start not in self.infos:
                self.infos[start] = describe_image(image, file=self.file, where=where)
            modules.append(image)
            images.append(self.infos[start])
        return tuple(modules), tuple(images)

    def _exports(self, module_count: int) -> list[Export]:
        count = self._count("exports", self.definition.ExportsLength(), wire.MAX_EXPORTS)
        seen: dict[int, int] = {}
        exports = []
        for index in range(count):
            accessor = self.definition.Exports(index)
            other = seen.setdefault(accessor._tab.Pos, index)
            if other != index:
                raise self.fail(f"exports[{index}]", f"it is stored as the same table as exports[{other}]")
            exports.append(self._export(index, accessor, f"exports[{index}]", module_count))
        return exports

    def _export(self, index: int, accessor: Any, where: str, module_count: int) -> Export:
        module = accessor.ModuleOrdinal()
        if module >= module_count:
            raise self.fail(f"{where}.module_ordinal", f"it is {module}, but there are {module_count} modules")
        kernel_name = self._text(accessor, 1, f"{where}.kernel_name")
        if kernel_name is None:
            raise self.fail(f"{where}.kernel_name", "it is absent or empty")
        constants = self._count(f"{where}.constant_count", accessor.ConstantCount(), wire.MAX_CONSTANTS)
        debug = accessor.DebugInfo()
        location = debug.Location() if debug else None
        return Export(
            ordinal=index,
            kernel_name=kernel_name,
            export_name=self._text(accessor, 7, f"{where}.export_name"),
            block_dims=self._block_dims(accessor.BlockDims(), f"{where}.block_dims"),
            module_ordinal=module,
            shared_memory_bytes=accessor.BlockSharedMemorySize(),
            constant_count=constants,
            binding_flags=self._binding_flags(accessor, f"{where}.binding_flags"),
            debug_name=self._text(debug, 0, f"{where}.debug_info.name") if debug else None,
            location=self._location(location, f"{where}.debug_info.location") if location else None,
        )

    def _location(self, accessor: Any, where: str) -> SourceLocation:
        return SourceLocation(self._text(accessor, 0, f"{where}.filename") or "", accessor.Line())

    def _block_dims(self, accessor: Any, where: str) -> tuple[int, int, int]:
        if accessor is None:
            raise self.fail(where, "it is absent")
        dims: tuple[int, int, int] = _BLOCK_DIMS.unpack_from(self.content, accessor._tab.Pos)
        problem = block_dims_problem(dims)
        if problem:
            raise self.fail(where, problem)
        return dims

    def _binding_flags(self, accessor: Any, where: str) -> tuple[BindingFlags, ...]:
        start, length = self._place(accessor, 5)
        count = self._count(where, length, wire.MAX_BINDINGS)
        flags = struct.unpack_from(f"<{count}Q", self.content, start)
        for index, value in enumerate(flags):
            if value & ~_KNOWN_FLAGS:
                problem = f"it is {value:#x}; known bits are {_KNOWN_FLAGS:#x}"
                raise self.fail(f"{where}[{index}]", problem, _NEWER)
        return tuple(map(BindingFlags, flags))

    def _check_names(self, exports: tuple[Export, ...]) -> None:
        seen: dict[str, int] = {}
        for export in exports:
            if export.export_name is not None:
                other = seen.setdefault(export.export_name, export.ordinal)
                if other != export.ordinal:
                    problem = f"the name {export.export_name!r} is also that of exports[{other}]"
                    raise self.fail(f"exports[{export.ordinal}].export_name", problem)

    def _resolve(
        self,
        modules: tuple[bytes | memoryview, ...],
        images: tuple[ImageInfo, ...],
        exports: tuple[Export, ...],
    ) -> tuple[tuple[bytes | memoryview, ...], tuple[ImageInfo, ...], tuple[Export, ...]]:
        """Finds each export's symbol, and gives symbols that the driver would refuse a legal name."""
        members: dict[int, list[Export]] = {}
        for export in exports:
            members.setdefault(export.module_ordinal, []).append(export)
        new_modules, new_images, new_exports = list(modules), list(images), list(exports)
        for ordinal, group in members.items():

            def fail(position: int, problem: str, group: list[Export] = group) -> InvalidFileError:
                return self.fail(f"exports[{group[position].ordinal}].kernel_name", problem)

            symbols = assign_symbols([export.kernel_name for export in group], images[ordinal], fail)
            renamed = legal_symbols(images[ordinal])
            if renamed:
                new_modules[ordinal] = rename_entries(modules[ordinal], renamed)
                where = f"modules[{ordinal}].ptx_image"
                new_images[ordinal] = describe_image(new_modules[ordinal], file=self.file, where=where)
            for export, symbol in zip(group, symbols, strict=True):
                new_exports[export.ordinal] = replace(export, symbol=renamed.get(symbol, symbol))
        return tuple(new_modules), tuple(new_images), tuple(new_exports)

    def _source_files(self) -> list[SourceFile]:
        count = self._count("source_files", self.definition.SourceFilesLength(), wire.MAX_MODULES)
        files = []
        for index in range(count):
            accessor = self.definition.SourceFiles(index)
            start, length = self._place(accessor, 1)
            path = self._text(accessor, 0, f"source_files[{index}].path") or ""
            files.append(SourceFile(path, self.content[start : start + length]))
        return files


def block_dims_problem(dims: tuple[int, int, int]) -> str:
    """Says what is wrong with a block's dimensions on every CUDA device, or returns an empty string."""
    for axis, size, limit in zip("xyz", dims, wire.MAX_BLOCK_DIMS, strict=True):
        if not 1 <= size <= limit:
            return f"{axis} is {size} threads; it must be 1 to {limit}"
    threads = dims[0] * dims[1] * dims[2]
    if threads > wire.MAX_BLOCK_THREADS:
        return f"{dims[0]}x{dims[1]}x{dims[2]} is {threads} threads; the limit is {wire.MAX_BLOCK_THREADS}"
    return ""
