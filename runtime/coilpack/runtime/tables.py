"""Reads single tables of a verified FlatBuffer by the names of their fields.

The generated accessors look a field up in its vtable anew at each access, at several calls each; here a vtable is read
once for all the tables that share it.
"""

from __future__ import annotations

import struct
from typing import Final

from coilpack.runtime.verifier import Schema

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I32: Final = struct.Struct("<i")


class Table:
    """One table. Absent numbers are 0, absent tables None, absent strings and vectors empty."""

    __slots__ = ("_buffer", "_offsets", "position")

    def __init__(self, buffer: Tables, position: int, offsets: dict[str, int]) -> None:
        self._buffer = buffer
        self._offsets = offsets
        self.position = position

    def place(self, field: str) -> int:
        """The first byte of what is stored inline; 0 where it is absent."""
        offset = self._offsets[field]
        return self.position + offset if offset else 0

    def u32(self, field: str) -> int:
        """A number of 32 bits without a sign."""
        at = self.place(field)
        return self._buffer.u32(at) if at else 0

    def u64(self, field: str) -> int:
        """A number of 64 bits without a sign."""
        at = self.place(field)
        value: int = _U64.unpack_from(self._buffer.data, at)[0] if at else 0
        return value

    def i32(self, field: str) -> int:
        """A number of 32 bits with a sign."""
        at = self.place(field)
        value: int = _I32.unpack_from(self._buffer.data, at)[0] if at else 0
        return value

    def vector(self, field: str) -> tuple[int, int]:
        """The first byte and the length of a string or vector; (0, 0) where it is absent."""
        at = self.place(field)
        if not at:
            return 0, 0
        start = at + self._buffer.u32(at)
        return start + 4, self._buffer.u32(start)

    def table(self, field: str, kind: str) -> Table | None:
        """The table of that kind which a field leads to."""
        at = self.place(field)
        return self._buffer.table(at + self._buffer.u32(at), kind) if at else None

    def element(self, field: str, index: int, kind: str) -> Table:
        """An element of a vector of tables, which has more than `index`."""
        at = self.vector(field)[0] + 4 * index
        return self._buffer.table(at + self._buffer.u32(at), kind)


class Tables:
    """The tables of a buffer that `verify` has passed.

    Args:
        data: the FlatBuffer.
        schema: what it was verified against.
    """

    def __init__(self, data: memoryview, schema: Schema) -> None:
        self.data = data
        self._schema = schema
        self._layouts: dict[tuple[str, int], dict[str, int]] = {}

    def root(self) -> Table:
        """The root table."""
        return self.table(self.u32(0), self._schema.root_name)

    def u32(self, at: int) -> int:
        """The unsigned 32-bit number at a byte."""
        value: int = _U32.unpack_from(self.data, at)[0]
        return value

    def table(self, position: int, kind: str) -> Table:
        """The table at a byte; `kind` is its full name in the schema."""
        vtable = position - _I32.unpack_from(self.data, position)[0]
        offsets = self._layouts.get((kind, vtable))
        if offsets is None:
            offsets = self._layouts[kind, vtable] = self._layout(kind, vtable)
        return Table(self, position, offsets)

    def _layout(self, kind: str, vtable: int) -> dict[str, int]:
        """The offset of each field in tables with that vtable, 0 where it is absent."""
        end = vtable + _U16.unpack_from(self.data, vtable)[0]
        return {
            field: _U16.unpack_from(self.data, vtable + 4 + 2 * slot)[0] if vtable + 4 + 2 * slot < end else 0
            for field, slot in self._schema.slots[kind].items()
        }
