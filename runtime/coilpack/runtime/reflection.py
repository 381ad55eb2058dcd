"""Reads flatc's binary schemas (`.bfbs`): a FlatBuffer of FlatBuffers' own `reflection.fbs`.

Only what the verifier needs is read. Binary schemas are part of this distribution and are trusted.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class BaseType(enum.Enum):
    """What a field or a vector's element is, in the order of `reflection.fbs`; with its size in bytes inline."""

    NONE = (0, 1)
    UNION_TYPE = (1, 1)
    BOOL = (2, 1)
    BYTE = (3, 1)
    UBYTE = (4, 1)
    SHORT = (5, 2)
    USHORT = (6, 2)
    INT = (7, 4)
    UINT = (8, 4)
    LONG = (9, 8)
    ULONG = (10, 8)
    FLOAT = (11, 4)
    DOUBLE = (12, 8)
    STRING = (13, 4)
    VECTOR = (14, 4)
    OBJECT = (15, 0)
    UNION = (16, 4)

    def __init__(self, code: int, byte_size: int) -> None:
        self.code = code
        self.byte_size = byte_size


_BASE_TYPES: Final = {base.code: base for base in BaseType}


@dataclass(frozen=True, slots=True)
class Type:
    """A field's type; `element` is a vector's element type, `index` the object or enum where there is one."""

    base_type: BaseType
    element: BaseType
    index: int


@dataclass(frozen=True, slots=True)
class Field:
    """A table's field; `slot` is its position in the vtable."""

    name: str
    type: Type
    slot: int
    required: bool
    attributes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Object:
    """A table or a struct; size and alignment (bytes) are a struct's."""

    name: str
    fields: tuple[Field, ...]
    is_struct: bool
    alignment: int
    byte_size: int


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum; `members` are a union's values with the objects they stand for."""

    name: str
    members: tuple[tuple[int, int], ...]


class _Table:
    """Untyped access to one table by slot."""

    def __init__(self, buffer: bytes, position: int) -> None:
        self.buffer, self.position = buffer, position
        self.vtable = position - self._read("<i", position)
        self.slots = (self._read("<H", self.vtable) - 4) // 2

    def _read(self, layout: str, position: int) -> int:
        value: int = struct.unpack_from(layout, self.buffer, position)[0]
        return value

    def _at(self, slot: int) -> int:
        offset = self._read("<H", self.vtable + 4 + 2 * slot) if slot < self.slots else 0
        return self.position + offset if offset else 0

    def _follow(self, position: int) -> int:
        return position + self._read("<I", position)

    def scalar(self, slot: int, layout: str, default: int = 0) -> int:
        at = self._at(slot)
        return self._read(layout, at) if at else default

    def text(self, slot: int) -> str:
        at = self._at(slot)
        if not at:
            return ""
        start = self._follow(at)
        return self.buffer[start + 4 : start + 4 + self._read("<I", start)].decode()

    def table(self, slot: int) -> _Table:
        return _Table(self.buffer, self._follow(self._at(slot)))

    def tables(self, slot: int) -> Iterator[_Table]:
        at = self._at(slot)
        if at:
            start = self._follow(at)
            for index in range(self._read("<I", start)):
                yield _Table(self.buffer, self._follow(start + 4 + 4 * index))


class Reflection:
    """The objects and enums of a binary schema, and which object is the root.

    Args:
        binary: the content of a `.bfbs` file.
    """

    def __init__(self, binary: bytes) -> None:
        schema = _Table(binary, struct.unpack_from("<I", binary)[0])
        self.objects = tuple(_object(table) for table in schema.tables(0))
        self.enums = tuple(_enum(table) for table in schema.tables(1))
        self.identifier = schema.text(2).encode()
        root = schema.table(4).text(0)
        self.root = next(index for index, item in enumerate(self.objects) if item.name == root)


def _type(table: _Table) -> Type:
    return Type(_BASE_TYPES[table.scalar(0, "<b")], _BASE_TYPES[table.scalar(1, "<b")], table.scalar(2, "<i", -1))


def _field(table: _Table) -> Field:
    attributes = frozenset(entry.text(0) for entry in table.tables(9))
    return Field(table.text(0), _type(table.table(1)), table.scalar(2, "<H"), bool(table.scalar(7, "<?")), attributes)


def _object(table: _Table) -> Object:
    fields = sorted((_field(entry) for entry in table.tables(1)), key=lambda field: field.slot)
    return Object(
        table.text(0), tuple(fields), bool(table.scalar(2, "<?")), table.scalar(3, "<i"), table.scalar(4, "<i")
    )


def _enum(table: _Table) -> Enum:
    """Reads an enum; a plain one has no members that stand for objects."""
    members = []
    if table.scalar(2, "<?"):
        for value in table.tables(1):
            code = value.scalar(1, "<q")
            if code:
                members.append((code, _type(value.table(3)).index))
    return Enum(table.text(0), tuple(members))
