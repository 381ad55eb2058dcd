"""Writes executables. The same executable gives the same bytes, on any machine."""

from __future__ import annotations

import re
from typing import Any, Final

from coilpack.runtime.errors import InputError
from coilpack.runtime.executable.model import Executable, Export, SourceLocation
from coilpack.runtime.executable.names import check_export_name
from coilpack.runtime.executable.reader import block_dims_problem
from coilpack.runtime.images import ImageInfo, describe_image
from coilpack.schemas import wire
from coilpack.schemas.generated import cuda_executable_def_generated as cuda
from coilpack.schemas.generated import executable_debug_info_generated as debug

_KERNEL_NAME: Final = re.compile(r"[A-Za-z_$%][A-Za-z0-9_$]*")
_INITIAL_BYTES: Final = 1024


def write_executable(executable: Executable) -> bytes:
    """Returns the executable as the content of a `.cda1` file: header and FlatBuffer.

    Only what the format holds is written; an export's symbol (where set) is written as its kernel name. Bytes depend on
    nothing but the argument.

    Raises:
        InputError: the executable breaks a rule of the format; the message names the export, the value and the limit.
        InvalidFileError: an image is neither PTX nor a cubin.
    """
    images = [
        describe_image(image, file=executable.file, where=f"modules[{index}]")
        for index, image in enumerate(executable.modules)
    ]
    _check(executable, images)
    content = _Writer(executable).content()
    return wire.ExecutableHeader.for_content(len(content)).pack() + content


def _check(executable: Executable, images: list[ImageInfo]) -> None:
    if len(images) > wire.MAX_MODULES:
        raise InputError(f"{executable.file}: it has {len(images)} modules; at most {wire.MAX_MODULES}")
    if len(executable.exports) > wire.MAX_EXPORTS:
        raise InputError(f"{executable.file}: it has {len(executable.exports)} exports; at most {wire.MAX_EXPORTS}")
    names: dict[str, int] = {}
    symbols: dict[str, int] = {}
    for index, export in enumerate(executable.exports):
        problem = _export_problem(export, index, images)
        for kind, name, seen in (("export", export.export_name, names), ("kernel", _kernel_name(export), symbols)):
            if name is not None and seen.setdefault(name, index) != index:
                problem = problem or f"its {kind} name {name!r} is also that of export {seen[name]}"
        if problem:
            raise InputError(f"{executable.file}: export {index} ({export.name!r}): {problem}")


def _kernel_name(export: Export) -> str:
    return export.symbol or export.kernel_name


def _export_problem(export: Export, index: int, images: list[ImageInfo]) -> str:
    """Says what is wrong with an export, or returns an empty string."""
    name = _kernel_name(export)
    if export.ordinal != index:
        return f"its ordinal is {export.ordinal}, but it stands at {index}"
    if export.export_name is not None:
        check_export_name(export.export_name)
    if not 0 <= export.module_ordinal < len(images):
        return f"its module ordinal is {export.module_ordinal}, but there are {len(images)} modules"
    if not _KERNEL_NAME.fullmatch(name):
        return f"its kernel name {name!r} is no PTX identifier"
    if name not in images[export.module_ordinal].entries:
        known = ", ".join(repr(entry) for entry in list(images[export.module_ordinal].entries)[:5])
        return f"module {export.module_ordinal} has no kernel {name!r}; it has {known or 'none'}"
    if len(export.binding_flags) > wire.MAX_BINDINGS:
        return f"it has {len(export.binding_flags)} bindings; the limit is {wire.MAX_BINDINGS}"
    if not 0 <= export.constant_count <= wire.MAX_CONSTANTS:
        return f"it has {export.constant_count} constants; the limit is {wire.MAX_CONSTANTS}"
    if not 0 <= export.shared_memory_bytes < 2**32:
        return f"it has {export.shared_memory_bytes} bytes of shared memory; the field holds 32 bits"
    return block_dims_problem(export.block_dims)


class _Writer:
    """Builds the FlatBuffer, back to front as the builder does."""

    def __init__(self, executable: Executable) -> None:
        import flatbuffers

        self.executable = executable
        self.builder = flatbuffers.Builder(_INITIAL_BYTES)

    def content(self) -> bytes:
        builder = self.builder
        sources = [self._source_file(file.path, bytes(file.content)) for file in self.executable.source_files]
        modules = [self._module(image) for image in self.executable.modules]
        exports = [self._export(export) for export in self.executable.exports]
        vectors = [self._vector(items) for items in (exports, modules, sources)]
        cuda.ExecutableDefStart(builder)
        cuda.ExecutableDefAddExports(builder, vectors[0])
        cuda.ExecutableDefAddModules(builder, vectors[1])
        if sources:
            cuda.ExecutableDefAddSourceFiles(builder, vectors[2])
        builder.Finish(cuda.ExecutableDefEnd(builder), file_identifier=wire.EXECUTABLE_IDENTIFIER)
        return bytes(builder.Output())

    def _vector(self, items: list[int]) -> int:
        self.builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            self.builder.PrependUOffsetTRelative(item)
        return int(self.builder.EndVector())

    def _module(self, image: bytes | memoryview) -> int:
        text = self.builder.CreateString(bytes(image))
        cuda.ModuleDefStart(self.builder)
        cuda.ModuleDefAddPtxImage(self.builder, text)
        return int(cuda.ModuleDefEnd(self.builder))

    def _source_file(self, path: str, content: bytes) -> int:
        name, data = self.builder.CreateString(path), self.builder.CreateByteVector(content)
        debug.SourceFileDefStart(self.builder)
        debug.SourceFileDefAddPath(self.builder, name)
        debug.SourceFileDefAddContent(self.builder, data)
        return int(debug.SourceFileDefEnd(self.builder))

    def _debug_info(self, name: str | None, location: SourceLocation | None) -> int:
        builder = self.builder
        name_at = builder.CreateString(name) if name else 0
        location_at = 0
        if location and location.filename:
            filename = builder.CreateString(location.filename)
            debug.FileLineLocDefStart(builder)
            debug.FileLineLocDefAddFilename(builder, filename)
            debug.FileLineLocDefAddLine(builder, location.line)
            location_at = debug.FileLineLocDefEnd(builder)
        if not name_at and not location_at:
            return 0
        debug.ExportDebugDefStart(builder)
        if name_at:
            debug.ExportDebugDefAddName(builder, name_at)
        if location_at:
            debug.ExportDebugDefAddLocation(builder, location_at)
        return int(debug.ExportDebugDefEnd(builder))

    def _export(self, export: Export) -> int:
        builder: Any = self.builder
        kernel_name = builder.CreateString(_kernel_name(export))
        export_name = 0 if export.export_name is None else builder.CreateString(export.export_name)
        flags = 0
        if export.binding_flags:
            builder.StartVector(8, len(export.binding_flags), 8)
            for flag in reversed(export.binding_flags):
                builder.PrependUint64(int(flag))
            flags = builder.EndVector()
        info = self._debug_info(export.debug_name, export.location)
        cuda.ExportDefStart(builder)
        cuda.ExportDefAddModuleOrdinal(builder, export.module_ordinal)
        cuda.ExportDefAddKernelName(builder, kernel_name)
        cuda.ExportDefAddBlockDims(builder, cuda.CreateBlockDims(builder, *export.block_dims))
        cuda.ExportDefAddBlockSharedMemorySize(builder, export.shared_memory_bytes)
        cuda.ExportDefAddConstantCount(builder, export.constant_count)
        if flags:
            cuda.ExportDefAddBindingFlags(builder, flags)
        if info:
            cuda.ExportDefAddDebugInfo(builder, info)
        if export_name:
            cuda.ExportDefAddExportName(builder, export_name)
        return int(cuda.ExportDefEnd(builder))
