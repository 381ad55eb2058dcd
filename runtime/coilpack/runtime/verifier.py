"""A FlatBuffer verifier that is driven by a schema.

A FlatBuffer is a graph of offsets; generated accessors follow them without a check. `verify` walks everything that the
schema can reach and proves that each access stays inside the buffer, so that later code needs no checks of its own.

The schema comes as flatc's binary form (`.bfbs`, a FlatBuffer of `reflection.fbs`) and is compiled once into small
checking objects. Work is bounded by the size of the buffer, whatever it holds: what has been checked as one kind of
thing is not checked again, and a budget in bytes stops a buffer whose parts overlap.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from importlib import resources
from typing import Final

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.reflection import BaseType, Enum, Field, Object, Reflection, Type
from coilpack.runtime.verifier_checks import (
    Check,
    Inline,
    InlineVector,
    Invalid,
    Limits,
    OffsetVector,
    Reference,
    Run,
    String,
    Table,
    UnionField,
)
from coilpack.schemas import wire

__all__ = ["DEFAULT_LIMITS", "Limits", "Schema", "verify"]

_U32: Final = struct.Struct("<I")

DEFAULT_LIMITS: Final = Limits()
_LARGE: Final = 1 << 14  # bytes from which checks by the column pay


class _Compiler:
    """Turns reflection data into checks, one for each table type; recursion between types is allowed."""

    def __init__(self, reflection: Reflection) -> None:
        self.reflection = reflection
        self.tables: dict[int, Table] = {}
        self.kinds = 0
        self.text, self.binary = String(self._kind(), True), String(self._kind(), False)
        self.vectors: dict[int, Check] = {}

    def _kind(self) -> int:
        self.kinds += 1
        assert self.kinds < 256, "kinds are kept in one byte"
        return self.kinds

    def table(self, index: int) -> Table:
        if index in self.tables:
            return self.tables[index]
        definition = self.reflection.objects[index]
        table = self.tables[index] = Table(self._kind(), len(definition.fields))
        inline: list[Inline] = []
        references: list[Reference] = []
        unions: list[UnionField] = []
        for field in definition.fields:
            base = field.type.base_type
            if base is BaseType.UNION:
                unions.append(UnionField(field.slot, field.name, self._members(field.type), field.required))
            elif base in (BaseType.STRING, BaseType.VECTOR) or self._is_table(field.type):
                references.append(Reference(field.slot, field.name, self._reference(field), field.required))
            else:
                inline.append(self._inline(field))
        table.inline, table.references, table.unions = tuple(inline), tuple(references), tuple(unions)
        return table

    def _is_table(self, type_: Type) -> bool:
        return type_.base_type is BaseType.OBJECT and not self.reflection.objects[type_.index].is_struct

    def _inline(self, field: Field) -> Inline:
        size, alignment = self._inline_size(field.type.base_type, field.type)
        return Inline(field.slot, field.name, size, alignment, field.required)

    def _inline_size(self, base: BaseType, type_: Type) -> tuple[int, int]:
        if base is BaseType.OBJECT:
            struct_: Object = self.reflection.objects[type_.index]
            return struct_.byte_size, struct_.alignment
        return base.byte_size, base.byte_size

    def _members(self, type_: Type) -> dict[int, Check]:
        union: Enum = self.reflection.enums[type_.index]
        return {value: self.table(index) for value, index in union.members}

    def _reference(self, field: Field) -> Check:
        type_ = field.type
        if type_.base_type is BaseType.STRING:
            return self.binary if "binary" in field.attributes else self.text
        if type_.base_type is BaseType.OBJECT:
            return self.table(type_.index)
        if type_.element is BaseType.STRING:
            return self._offset_vector(-1, self.text)
        if type_.element is BaseType.OBJECT and not self.reflection.objects[type_.index].is_struct:
            return self._offset_vector(type_.index, self.table(type_.index))
        assert type_.element is not BaseType.UNION, f"{field.name}: vectors of unions are not supported"
        return InlineVector(*self._inline_size(type_.element, type_))

    def _offset_vector(self, key: int, element: Check) -> Check:
        if key not in self.vectors:
            self.vectors[key] = OffsetVector(self._kind(), element)
        return self.vectors[key]


class Schema:
    """A schema, compiled for verification.

    Args:
        binary: flatc's binary form of it (`flatc --binary --schema`). It is trusted.

    Attributes:
        identifier: the file identifier, empty where the schema states none.
        root_name: the full name of the root table.
        slots: the slot of each field in the vtable, by the table's full name and the field's.
    """

    def __init__(self, binary: bytes) -> None:
        reflection = Reflection(binary)
        self.identifier: bytes = reflection.identifier
        self.root_name: str = reflection.objects[reflection.root].name
        self.slots = {item.name: {field.name: field.slot for field in item.fields} for item in reflection.objects}
        self.check: Callable[[Run, int, int], None] = _Compiler(reflection).table(reflection.root)

    @classmethod
    def load(cls, name: str) -> Schema:
        """Returns the schema of `schemas/<name>.fbs`, compiled once in a process."""
        return _load(name)


@functools.cache
def _load(name: str) -> Schema:
    return Schema(resources.files("coilpack.schemas.generated").joinpath(f"{name}.bfbs").read_bytes())


def verify(
    buffer: bytes | bytearray | memoryview,
    schema: Schema,
    *,
    file: str,
    size_prefixed: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Proves that every access through `schema` stays inside `buffer`.

    After it returns, generated accessors of the same schema are safe on the same bytes: offsets lead forwards and stay
    in bounds, scalars are aligned relative to the buffer's start, strings are terminated and (unless marked `binary`)
    valid UTF-8, required fields are there, unions have a known type and a value or neither. Fields that the schema does
    not know are not followed.

    Args:
        buffer: the FlatBuffer, with its size prefix where it has one.
        schema: what it should be.
        file: its name in messages.
        size_prefixed: whether its first four bytes are its size without them. What lies behind is not looked at.
        limits: bounds on nesting and number of tables.

    Raises:
        InvalidFileError: it is not such a FlatBuffer; the error names the field, the bytes and the limit.
    """
    view = memoryview(buffer).cast("B")
    start = wire.SIZE_PREFIX_BYTES if size_prefixed else 0
    minimum = start + wire.FLATBUFFER_MIN_BYTES
    if len(view) < minimum:
        raise InvalidFileError(file, "", f"it has {len(view)} bytes; a FlatBuffer has at least {minimum}")
    if size_prefixed:
        size = start + _U32.unpack_from(view)[0]
        if size > len(view) or size < minimum:
            raise InvalidFileError(file, "", f"its size prefix says {size} bytes, but it has {len(view)}")
        view = view[:size]
    if len(view) > wire.FLATBUFFER_MAX_BYTES:
        limit = wire.FLATBUFFER_MAX_BYTES
        raise InvalidFileError(file, "", f"it has {len(view)} bytes; a FlatBuffer has at most {limit}")
    at = start + wire.IDENTIFIER_OFFSET
    found = bytes(view[at : at + 4])
    if schema.identifier and found != schema.identifier:
        raise InvalidFileError(
            file, f"bytes {at} to {at + 4}", f"the identifier is {found!r}, expected {schema.identifier!r}"
        )
    if len(view) >= _LARGE and _proved_by_columns(view, schema, start, limits):
        return
    run = Run(view, limits)
    try:
        schema.check(run, run.follow(start), 0)
    except Invalid as error:
        where = "".join(reversed(error.path)).removeprefix(".") or schema.root_name.rpartition(".")[2]
        raise InvalidFileError(file, where, error.problem) from None


def _proved_by_columns(view: memoryview, schema: Schema, start: int, limits: Limits) -> bool:
    from coilpack.runtime.verifier_columns import ColumnRun  # small files do without numpy

    run = ColumnRun(view, limits)
    try:
        schema.check(run, run.follow(start), 0)
    except Invalid:
        return False  # the checks one by one say what is wrong, or find that nothing is
    return True
