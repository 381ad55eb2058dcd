"""Finds the CUDA executables inside IREE's module archives (`.vmfb`).

A module is a size-prefixed FlatBuffer with its larger read-only data behind it, aligned to 64 bytes. IREE's compiler
puts a ZIP local file header before it (and others between the data) so that archive tools can list the parts; like IREE
itself, this reader skips the first header and relies on nothing else of the ZIP.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable.model import Executable
from coilpack.runtime.executable.reader import is_executable, read_executable
from coilpack.runtime.verifier import Schema, verify
from coilpack.schemas import wire
from coilpack.schemas.generated.bytecode_module_def_generated import BytecodeModuleDef

SCHEMA: Final = "bytecode_module_def"


@dataclass(frozen=True, slots=True)
class VmFunction:
    """A function that a module exports.

    Args:
        name: without the module's.
        calling_convention: IREE's encoding of argument and result types, as `0r_r`; empty where absent.
        declaration: the signature as its author wrote it, as `sync func @f(%input0: tensor<8xf32>) -> (…)`; empty
            where absent.
    """

    name: str
    calling_convention: str
    declaration: str


@dataclass(frozen=True, slots=True)
class Vmfb:
    """A module archive.

    Args:
        module_name: the namespace of its functions.
        bytecode_version: major and minor.
        functions: what it exports, `__init` and the like included.
        executables: the CUDA executables in it.
    """

    module_name: str
    bytecode_version: tuple[int, int]
    functions: tuple[VmFunction, ...]
    executables: tuple[Executable, ...]


def is_vmfb(data: bytes | memoryview) -> bool:
    """Says whether `data` claims to be a module archive."""
    view = memoryview(data)
    start = _module_start(view)
    at = start + wire.SIZE_PREFIX_BYTES + wire.IDENTIFIER_OFFSET
    return bytes(view[at : at + 4]) == wire.MODULE_IDENTIFIER


def _module_start(view: memoryview) -> int:
    """Returns where the module begins: behind the local file header where there is one, else at 0."""
    header = wire.ZIP_LOCAL_HEADER
    if len(view) < header.size or bytes(view[:4]) != wire.ZIP_SIGNATURE:
        return 0
    *_, name_length, extra_length = header.unpack_from(view)
    return int(header.size + name_length + extra_length)


def read_vmfb(data: bytes | bytearray | memoryview, *, file: str = "module") -> Vmfb:
    """Reads a module archive after verifying it, and the executables in it.

    Args:
        data: the whole file. Images stay slices of it.
        file: its name in messages.

    Raises:
        InvalidFileError: it is not a valid module archive, or an executable in it is invalid.
    """
    view = memoryview(data).cast("B")
    start = _module_start(view)
    module = view[start:]
    verify(module, Schema.load(SCHEMA), file=file, size_prefixed=True)
    size = wire.SIZE_PREFIX_BYTES + struct.unpack_from("<I", module)[0]
    alignment = wire.SEGMENT_ALIGNMENT
    segments_start = -(-(start + size) // alignment) * alignment
    return _Reader(module[:size], view[segments_start:], file).vmfb()


class _Reader:
    """Reads a verified module. Strings and tables may be shared in it; each is read once."""

    def __init__(self, module: memoryview, behind: memoryview, file: str) -> None:
        self.module, self.behind, self.file = module, behind, file
        root: Any = BytecodeModuleDef  # its generated types know `bytes` only
        self.definition = root.GetRootAs(module, wire.SIZE_PREFIX_BYTES)
        self.strings: dict[int, str] = {}
        self.declarations: dict[int, str] = {}

    def fail(self, where: str, problem: str, hint: str = "") -> InvalidFileError:
        return InvalidFileError(self.file, where, problem, hint)

    def vmfb(self) -> Vmfb:
        version = self.definition.BytecodeVersion()
        return Vmfb(
            module_name=self._text(self.definition, 0),
            bytecode_version=(version >> 16, version & 0xFFFF),
            functions=tuple(self._functions()),
            executables=tuple(self._executables()),
        )

    def _text(self, accessor: Any, slot: int) -> str:
        """Returns a string; absent: empty."""
        table = accessor._tab
        field = table.Offset(4 + 2 * slot)
        start = table.Vector(field) if field else 0
        if start and start not in self.strings:
            self.strings[start] = str(self.module[start : start + table.VectorLen(field)], "utf-8", "replace")
        return self.strings[start] if start else ""

    def _executables(self) -> list[Executable]:
        executables = []
        seen: set[tuple[int, int]] = set()
        room = len(self.module) + len(self.behind)
        for index in range(self.definition.RodataSegmentsLength()):
            where = f"rodata_segments[{index}]"
            place, content = self._segment(self.definition.RodataSegments(index), where)
            if not is_executable(content) or place in seen:
                continue
            seen.add(place)
            room -= len(content)
            if room < 0:
                raise self.fail(where, "the executables overlap: together they are larger than the file")
            executables.append(read_executable(content, file=f"{self.file}: {where}"))
        return executables

    def _segment(self, segment: Any, where: str) -> tuple[tuple[int, int], memoryview]:
        """Returns a segment's place (which part of the file, and where in it) and its bytes."""
        field = segment._tab.Offset(8)
        if field:
            start, length = segment._tab.Vector(field), segment._tab.VectorLen(field)
            return (0, start), self.module[start : start + length]
        start, length = segment.ExternalDataOffset(), segment.ExternalDataLength()
        if start + length > len(self.behind):
            problem = f"{length} bytes from byte {start} on do not fit the {len(self.behind)} behind the module"
            raise self.fail(where, problem, "The file may be truncated")
        return (1, start), self.behind[start : start + length]

    def _functions(self) -> list[VmFunction]:
        made: dict[int, VmFunction] = {}
        functions = []
        for index in range(self.definition.ExportedFunctionsLength()):
            export = self.definition.ExportedFunctions(index)
            position = export._tab.Pos
            if position not in made:
                made[position] = self._function(export, f"exported_functions[{index}]")
            functions.append(made[position])
        return functions

    def _function(self, export: Any, where: str) -> VmFunction:
        ordinal, count = export.InternalOrdinal(), self.definition.FunctionSignaturesLength()
        if not 0 <= ordinal < count:
            problem = f"it is {ordinal}, but there are {count} function signatures"
            raise self.fail(f"{where}.internal_ordinal", problem)
        name = self._text(export, 0)
        if not name:
            raise self.fail(f"{where}.local_name", "it is absent or empty")
        signature = self.definition.FunctionSignatures(ordinal)
        return VmFunction(name, self._text(signature, 0), self._declaration(signature))

    def _declaration(self, signature: Any) -> str:
        field = signature._tab.Offset(6)
        attributes = signature._tab.Vector(field) if field else 0
        if attributes not in self.declarations:
            pairs = (signature.Attrs(index) for index in range(signature.AttrsLength()))
            found = (self._text(pair, 1) for pair in pairs if self._text(pair, 0) == "iree.abi.declaration")
            self.declarations[attributes] = next(found, "")
        return self.declarations[attributes]
