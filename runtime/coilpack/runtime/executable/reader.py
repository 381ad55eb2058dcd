"""Reads executables: a 64-byte header and a FlatBuffer, or (IREE before 3.9) the FlatBuffer alone."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from coilpack.runtime.collector import no_collections
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable.model import BindingFlags, Executable, Export, SourceFile, SourceLocation
from coilpack.runtime.executable.symbols import assign_symbols, legal_symbols, rename_entries
from coilpack.runtime.images import ImageInfo, describe_image
from coilpack.runtime.tables import Table, Tables
from coilpack.runtime.verifier import Schema, verify
from coilpack.schemas import wire

SCHEMA: Final = "cuda_executable_def"
_EXPORT: Final = "coilpack.cuda_executable.ExportDef"
_MODULE: Final = "coilpack.cuda_executable.ModuleDef"
_SOURCE_FILE: Final = "coilpack.cuda_executable.SourceFileDef"
_DEBUG: Final = "coilpack.cuda_executable.ExportDebugDef"
_LOCATION: Final = "coilpack.cuda_executable.FileLineLocDef"
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
    with no_collections():
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
        self.definition = Tables(content, Schema.load(SCHEMA)).root()
        self.strings: dict[int, str] = {}
        self.flags: dict[bytes, tuple[BindingFlags, ...]] = {}
        self.infos: dict[int, ImageInfo] = {}

    def fail(self, where: str, problem: str, hint: str = "") -> InvalidFileError:
        return InvalidFileError(self.file, where, problem, hint)

    def executable(self) -> Executable:
        modules, images = self._modules()
        exports = tuple(self._exports(len(modules)))
        self._check_names(exports)
        modules, images, exports = self._resolve(modules, images, exports)
        return Executable(modules, exports, images, tuple(self._source_files()), self.file)

    def _text(self, table: Table, field: str, where: str) -> str | None:
        """Returns a string, or None where it is absent or empty."""
        start, length = table.vector(field)
        if not length:
            return None
        if start not in self.strings:
            text = str(self.content[start : start + length], "utf-8")
            if "\0" in text:
                raise self.fail(f"{where}.{field}", f"the name {text!r} holds a NUL")
            self.strings[start] = text
        return self.strings[start]

    def _count(self, name: str, found: int, limit: int) -> int:
        if found > limit:
            raise self.fail(name, f"there are {found}; the limit is {limit}")
        return found

    def _modules(self) -> tuple[tuple[bytes | memoryview, ...], tuple[ImageInfo, ...]]:
        count = self._count("modules", self.definition.vector("modules")[1], wire.MAX_MODULES)
        modules, images = [], []
        for index in range(count):
            where = f"modules[{index}].ptx_image"
            start, length = self.definition.element("modules", index, _MODULE).vector("ptx_image")
            image = self.content[start : start + length]
            if start not in self.infos:
                self.infos[start] = describe_image(image, file=self.file, where=where)
            modules.append(image)
            images.append(self.infos[start])
        return tuple(modules), tuple(images)

    def _exports(self, module_count: int) -> list[Export]:
        count = self._count("exports", self.definition.vector("exports")[1], wire.MAX_EXPORTS)
        seen: dict[int, int] = {}
        exports = []
        for index in range(count):
            table = self.definition.element("exports", index, _EXPORT)
            other = seen.setdefault(table.position, index)
            if other != index:
                raise self.fail(f"exports[{index}]", f"it is stored as the same table as exports[{other}]")
            exports.append(self._export(index, table, f"exports[{index}]", module_count))
        return exports

    def _export(self, index: int, table: Table, where: str, module_count: int) -> Export:
        module = table.u32("module_ordinal")
        if module >= module_count:
            raise self.fail(f"{where}.module_ordinal", f"it is {module}, but there are {module_count} modules")
        kernel_name = self._text(table, "kernel_name", where)
        if kernel_name is None:
            raise self.fail(f"{where}.kernel_name", "it is absent or empty")
        constants = self._count(f"{where}.constant_count", table.u32("constant_count"), wire.MAX_CONSTANTS)
        debug = table.table("debug_info", _DEBUG)
        location = debug.table("location", _LOCATION) if debug else None
        return Export(
            ordinal=index,
            kernel_name=kernel_name,
            symbol=kernel_name,  # but for a few files: `_resolve` says which
            export_name=self._text(table, "export_name", where),
            block_dims=self._block_dims(table.place("block_dims"), f"{where}.block_dims"),
            module_ordinal=module,
            shared_memory_bytes=table.u32("block_shared_memory_size"),
            constant_count=constants,
            binding_flags=self._binding_flags(table, f"{where}.binding_flags"),
            debug_name=self._text(debug, "name", f"{where}.debug_info") if debug else None,
            location=self._location(location, f"{where}.debug_info.location") if location else None,
        )

    def _location(self, table: Table, where: str) -> SourceLocation:
        return SourceLocation(self._text(table, "filename", where) or "", table.i32("line"))

    def _block_dims(self, at: int, where: str) -> tuple[int, int, int]:
        if not at:
            raise self.fail(where, "it is absent")
        dims: tuple[int, int, int] = _BLOCK_DIMS.unpack_from(self.content, at)
        problem = block_dims_problem(dims)
        if problem:
            raise self.fail(where, problem)
        return dims

    def _binding_flags(self, table: Table, where: str) -> tuple[BindingFlags, ...]:
        start, length = table.vector("binding_flags")
        count = self._count(where, length, wire.MAX_BINDINGS)
        content = bytes(self.content[start : start + 8 * count])
        if content not in self.flags:  # most exports have the bindings of another
            flags = struct.unpack(f"<{count}Q", content)
            for index, value in enumerate(flags):
                if value & ~_KNOWN_FLAGS:
                    problem = f"it is {value:#x}; known bits are {_KNOWN_FLAGS:#x}"
                    raise self.fail(f"{where}[{index}]", problem, _NEWER)
            self.flags[content] = tuple(map(BindingFlags, flags))
        return self.flags[content]

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
                symbol = renamed.get(symbol, symbol)
                if symbol != export.symbol:
                    new_exports[export.ordinal] = replace(export, symbol=symbol)
        return tuple(new_modules), tuple(new_images), tuple(new_exports)

    def _source_files(self) -> list[SourceFile]:
        count = self._count("source_files", self.definition.vector("source_files")[1], wire.MAX_MODULES)
        files = []
        for index in range(count):
            table = self.definition.element("source_files", index, _SOURCE_FILE)
            start, length = table.vector("content")
            path = self._text(table, "path", f"source_files[{index}]") or ""
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
