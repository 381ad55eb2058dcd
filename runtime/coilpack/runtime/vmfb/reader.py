"""Reads module archives: what a module exports, needs and holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable.model import Executable
from coilpack.runtime.executable.reader import is_executable, read_executable
from coilpack.runtime.tables import Table, Tables
from coilpack.runtime.verifier import Schema
from coilpack.runtime.vmfb.archive import SCHEMA, verified_parts
from coilpack.runtime.vmfb.foreign import VMVX, foreign_format
from coilpack.runtime.vmfb.model import ForeignExecutable, Rodata, RodataKind, VmDependency, Vmfb, VmFunction, VmImport
from coilpack.runtime.vmfb.strings import Parameters, Query, find_parameters, find_query, segment_text
from coilpack.schemas import wire

_SPACE: Final = "coilpack.bytecode_module."
_OPTIONAL: Final = 2  # `ImportFlagBits.OPTIONAL` and `ModuleDependencyFlagBits.OPTIONAL`
_PARAMETERS_MODULE: Final = "io_parameters"
_SCOPES_FIRST: Final = 17  # the major version of the bytecode from which on scopes come first: that of IREE 3.11
_ARGUMENT: Final = re.compile(r"%([\w$.-]+):")

T = TypeVar("T")


def read_vmfb(data: bytes | bytearray | memoryview, *, file: str = "module") -> Vmfb:
    """Reads a module archive after verifying it, and the CUDA executables in it.

    Args:
        data: the whole file. Images and contents stay slices of it.
        file: its name in messages.

    Raises:
        InvalidFileError: it is not a valid module archive, or a CUDA executable in it is invalid.
    """
    module, behind = verified_parts(data, file)
    return _Reader(module, behind, file).vmfb()


class _Segment:
    """A segment of read-only data: its bytes, and which part of the file they are in, and where."""

    __slots__ = ("content", "place", "text")

    def __init__(self, place: tuple[int, int], content: memoryview) -> None:
        self.place, self.content = place, content
        # The verifier sees to it that embedded data does not overlap, so that all texts together fit the file.
        self.text = segment_text(content) if self.embedded else None

    @property
    def embedded(self) -> bool:
        return self.place[0] == 0


class _Reader:
    """Reads a verified module. Strings and tables may be shared in it; each is read once."""

    def __init__(self, module: memoryview, behind: memoryview, file: str) -> None:
        self.module, self.behind, self.file = module, behind, file
        self.definition = Tables(module, Schema.load(SCHEMA)).root()
        self.strings: dict[int, str] = {}
        self.attributes: dict[int, tuple[tuple[str, str], ...]] = {}

    def fail(self, where: str, problem: str, hint: str = "") -> InvalidFileError:
        return InvalidFileError(self.file, where, problem, hint)

    def vmfb(self) -> Vmfb:
        version = self.definition.u32("bytecode_version")
        functions = tuple(self._each("exported_functions", "ExportFunctionDef", self._function))
        dependencies = tuple(self._each("dependencies", "ModuleDependencyDef", self._dependency))
        segments = self._each("rodata_segments", "RodataSegmentDef", self._segment)
        query = find_query([segment.text for segment in segments])
        parameters = self._parameters(segments, functions, dependencies)
        places = self._executables(segments)
        foreign = self._foreign(segments, query)
        return Vmfb(
            module_name=self._text(self.definition, "name"),
            version=self.definition.u32("version"),
            bytecode_version=(version >> 16, version & 0xFFFF),
            functions=functions,
            imports=tuple(self._each("imported_functions", "ImportFunctionDef", self._import)),
            dependencies=dependencies,
            devices=query.devices,
            formats=query.formats,
            parameter_scopes=parameters.scopes,
            parameter_keys=parameters.keys,
            executables=tuple(executable for executable, _ in places.values()),
            contents=tuple(content for _, content in places.values()),
            other_executables=tuple(foreign.values()),
            rodata=self._rodata(segments, places.keys() | foreign.keys()),
        )

    def _text(self, table: Table, field: str) -> str:
        """Returns a string; absent: empty."""
        start, length = table.vector(field)
        if not length:
            return ""
        if start not in self.strings:
            self.strings[start] = str(self.module[start : start + length], "utf-8", "replace")
        return self.strings[start]

    def _each(self, field: str, kind: str, read: Callable[[Table, str], T]) -> list[T]:
        """Reads a vector of tables of the module."""
        return self._elements(self.definition, field, kind, read)

    def _elements(self, owner: Table, field: str, kind: str, read: Callable[[Table, str], T]) -> list[T]:
        """Reads a vector of tables; what several elements share is read once."""
        count = owner.vector(field)[1]
        if count > wire.MAX_MODULE_ITEMS:
            raise self.fail(field, f"there are {count}; the limit is {wire.MAX_MODULE_ITEMS}")
        made: dict[int, T] = {}
        items = []
        for index in range(count):
            table = owner.element(field, index, _SPACE + kind)
            if table.position not in made:
                made[table.position] = read(table, f"{field}[{index}]")
            items.append(made[table.position])
        return items

    def _function(self, table: Table, where: str) -> VmFunction:
        ordinal, count = table.i32("internal_ordinal"), self.definition.vector("function_signatures")[1]
        if not 0 <= ordinal < count:
            problem = f"it is {ordinal}, but there are {count} function signatures"
            raise self.fail(f"{where}.internal_ordinal", problem)
        name = self._text(table, "local_name")
        if not name:
            raise self.fail(f"{where}.local_name", "it is absent or empty")
        signature = self.definition.element("function_signatures", ordinal, f"{_SPACE}FunctionSignatureDef")
        return VmFunction(name, self._text(signature, "calling_convention"), self._attributes(signature))

    def _attributes(self, signature: Table) -> tuple[tuple[str, str], ...]:
        start, _ = signature.vector("attrs")
        if start not in self.attributes:
            self.attributes[start] = tuple(self._elements(signature, "attrs", "AttrDef", self._attribute))
        return self.attributes[start]

    def _attribute(self, table: Table, where: str) -> tuple[str, str]:
        del where  # a key may be empty: it is for people
        return self._text(table, "key"), self._text(table, "value")

    def _import(self, table: Table, where: str) -> VmImport:
        name = self._text(table, "full_name")
        if not name:
            raise self.fail(f"{where}.full_name", "it is absent or empty")
        signature = table.table("signature", f"{_SPACE}FunctionSignatureDef")
        convention = self._text(signature, "calling_convention") if signature else ""
        return VmImport(name, convention, bool(table.u32("flags") & _OPTIONAL))

    def _dependency(self, table: Table, where: str) -> VmDependency:
        name = self._text(table, "name")
        if not name:
            raise self.fail(f"{where}.name", "it is absent or empty")
        return VmDependency(name, table.u32("minimum_version"), bool(table.u32("flags") & _OPTIONAL))

    def _segment(self, table: Table, where: str) -> _Segment:
        if table.place("embedded_data"):
            start, length = table.vector("embedded_data")
            return _Segment((0, start), self.module[start : start + length])
        start, length = table.u64("external_data_offset"), table.u64("external_data_length")
        if start + length > len(self.behind):
            problem = f"{length} bytes from byte {start} on do not fit the {len(self.behind)} behind the module"
            raise self.fail(where, problem, "The file may be truncated")
        return _Segment((1, start), self.behind[start : start + length])

    def _executables(self, segments: list[_Segment]) -> dict[tuple[int, int], tuple[Executable, memoryview]]:
        """Reads the CUDA executables, by their places."""
        executables: dict[tuple[int, int], tuple[Executable, memoryview]] = {}
        room = len(self.module) + len(self.behind)
        for index, segment in enumerate(segments):
            if segment.place in executables or not is_executable(segment.content):
                continue
            room -= len(segment.content)
            where = f"rodata_segments[{index}]"
            if room < 0:
                raise self.fail(where, "the executables overlap: together they are larger than the file")
            executable = read_executable(segment.content, file=f"{self.file}: {where}")
            executables[segment.place] = executable, segment.content
        return executables

    def _foreign(self, segments: list[_Segment], query: Query) -> dict[tuple[int, int], ForeignExecutable]:
        found: dict[tuple[int, int], ForeignExecutable] = {}
        room = len(self.module) + len(self.behind)
        for index, segment in enumerate(segments):
            format_ = None if segment.place in found else foreign_format(segment.content, query.formats)
            if format_ is None:
                continue
            exports = None
            if format_ == VMVX:
                room -= len(segment.content)
                where = f"rodata_segments[{index}]"
                if room < 0:
                    raise self.fail(where, "the executables overlap: together they are larger than the file")
                exports = _vmvx_exports(segment.content, f"{self.file}: {where}")
            found[segment.place] = ForeignExecutable(format_, len(segment.content), index, exports)
        return found

    def _rodata(self, segments: list[_Segment], executables: set[tuple[int, int]]) -> tuple[Rodata, ...]:
        made: dict[_Segment, Rodata] = {}
        for segment in segments:
            if segment not in made:
                data: RodataKind = "data" if segment.text is None else "text"
                kind: RodataKind = "executable" if segment.place in executables else data
                made[segment] = Rodata(len(segment.content), segment.embedded, kind, segment.text)
        return tuple(made[segment] for segment in segments)

    def _parameters(
        self, segments: list[_Segment], functions: tuple[VmFunction, ...], dependencies: tuple[VmDependency, ...]
    ) -> Parameters:
        if not any(dependency.name == _PARAMETERS_MODULE for dependency in dependencies):
            return Parameters((), ())
        arguments = {name for function in functions for name in _ARGUMENT.findall(function.declaration)}
        contents, texts = [segment.content for segment in segments], [segment.text for segment in segments]
        newer = self.definition.u32("bytecode_version") >> 16 >= _SCOPES_FIRST
        room = len(self.module) + len(self.behind)
        return find_parameters(contents, texts, arguments, room, scopes_first=newer)


def _vmvx_exports(content: memoryview, file: str) -> tuple[str, ...]:
    """The functions of a module that is an executable itself; what lies deeper is not looked at."""
    module, behind = verified_parts(content, file)
    reader = _Reader(module, behind, file)
    functions = reader._each("exported_functions", "ExportFunctionDef", reader._function)
    return tuple(function.name for function in functions if not function.name.startswith("__"))
