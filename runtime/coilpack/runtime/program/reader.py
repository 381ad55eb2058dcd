"""Reads tables of a verified FlatBuffer by the column.

A program holds thousands of small tables. The generated accessors look each field up in its vtable, one call a field;
here numpy looks up a field of all tables of a vector at once, an order of magnitude faster.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from coilpack.runtime.program import wire

Positions = npt.NDArray[np.int64]

_U16 = struct.Struct("<H").unpack_from
_U32 = struct.Struct("<I").unpack_from
_I32 = struct.Struct("<i").unpack_from
_CODES = {"u8": "<B", "u64": "<Q", "i64": "<q", "f64": "<d"}
_NUMBERS = {kind: struct.Struct(code).unpack_from for kind, code in _CODES.items()}
_NUMBERS["u32"] = _NUMBERS["ref"] = _NUMBERS["text"] = _U32

_ABSENT = {"f64": 0.0}  # what stands for a field that is not there, where it is not 0

_FEW = 12  # tables that are read faster one by one

_ELEMENT_CHARGE = 12  # bytes of a file that an element of a vector of tables takes at the least: its offset and itself


class ProblemError(Exception):
    """What is wrong with a file, on its way up; each level appends its part of the path, innermost first."""

    def __init__(self, problem: str, *path: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = list(path)


def fail(problem: str, *path: str) -> NoReturn:
    """Raises a `ProblemError`."""
    raise ProblemError(problem, *path)


@functools.cache
def _words(count: int) -> Callable[[bytes, int], tuple[int, ...]]:
    return struct.Struct(f"<{count}I").unpack_from


class Reader:
    """Access to a buffer that `coilpack.runtime.verifier.verify` has passed. Position 0 stands for what is absent.

    Every vector may be read once: the bytes of all that were read never exceed the file's, so that what is decoded
    stays in proportion to it. Strings may be shared.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        size = len(data)
        self._views = {
            "u8": (np.frombuffer(data, np.uint8), 0),
            "u16": (np.frombuffer(data, "<u2", size // 2), 1),
            "u32": (np.frombuffer(data, "<u4", size // 4), 2),
            "u64": (np.frombuffer(data, "<u8", size // 8), 3),
            "i64": (np.frombuffer(data, "<i8", size // 8), 3),
            "f64": (np.frombuffer(data, "<f8", size // 8), 3),
        }
        self._budget = size
        self._strings: dict[int, str] = {0: ""}

    def root(self) -> int:
        """The position of the root table."""
        target: int = _U32(self.data, 0)[0]
        return target

    def charge(self, nbytes: int) -> None:
        """Counts bytes that were read; more than the file has means that parts of it are used twice."""
        self._budget -= nbytes
        if self._budget < 0:
            fail("it uses vectors or tables other than types twice, which a program may not")

    def vector(self, at: int) -> tuple[int, int]:
        """Where the elements of a vector start, and how many there are."""
        return (at + 4, _U32(self.data, at)[0]) if at else (0, 0)

    def words(self, at: int) -> tuple[int, ...]:
        """A vector of u32."""
        start, count = self.vector(at)
        self.charge(4 * count)
        return _words(count)(self.data, start) if count < 256 else struct.unpack_from(f"<{count}I", self.data, start)

    def structs(self, at: int, layout: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """A vector of structs."""
        start, count = self.vector(at)
        self.charge(layout.size * count)
        return layout.iter_unpack(memoryview(self.data)[start : start + layout.size * count])

    def texts(self, at: int) -> list[str]:
        """A vector of strings."""
        return self._texts(self._targets(at))

    def rows(self, at: int, name: str) -> Iterator[tuple[Any, ...]]:
        """A vector of tables: a tuple of their fields (as `wire.FIELDS` lists them) for each."""
        return self.tables(self._targets(at), name)

    def columns(self, at: int, name: str) -> list[list[Any]]:
        """A vector of tables: for each field a list of its values in all of them."""
        return self._columns(self._targets(at), name)

    def row(self, table: int, name: str) -> tuple[Any, ...]:
        """The fields of one table."""
        self.charge(_ELEMENT_CHARGE)
        return self._row(table, name)

    def tables(self, tables: Positions, name: str) -> Iterator[tuple[Any, ...]]:
        """The fields of the tables at those positions."""
        return zip(*self._columns(tables, name), strict=True)

    def _columns(self, tables: Positions, name: str) -> list[list[Any]]:
        self.charge(_ELEMENT_CHARGE * len(tables))
        kinds = wire.FIELDS[name].values()
        if len(tables) <= _FEW:
            rows = [self._row(table, name) for table in tables.tolist()]
            return [[row[index] for row in rows] for index in range(len(kinds))]
        positions = self._field_positions(tables, len(kinds))
        return [self._column(*item) for item in zip(positions, kinds, strict=True)]

    def _row(self, table: int, name: str) -> tuple[Any, ...]:
        data = self.data
        vtable = table - _I32(data, table)[0]
        present = (_U16(data, vtable)[0] - 4) // 2
        values: list[Any] = []
        for slot, kind in enumerate(wire.FIELDS[name].values()):
            offset = _U16(data, vtable + 4 + 2 * slot)[0] if slot < present else 0
            value: Any = _NUMBERS[kind](data, table + offset)[0] if offset else _ABSENT.get(kind, 0)
            if kind in ("ref", "text"):
                value = table + offset + value if offset else 0
            values.append(self._text(value) if kind == "text" else value)
        return tuple(values)

    def _targets(self, at: int) -> Positions:
        """What the elements of a vector of offsets lead to."""
        start, count = self.vector(at)
        self.charge(4 * count)
        positions = start + 4 * np.arange(count)
        return positions + self._numbers(positions, "u32").astype(np.int64)

    def _numbers(self, positions: Positions, kind: str) -> npt.NDArray[Any]:
        view, shift = self._views[kind]
        numbers: npt.NDArray[Any] = view[positions >> shift]
        return numbers

    def _field_positions(self, tables: Positions, count: int) -> npt.NDArray[np.int64]:
        """For each of the first `count` fields the positions in all tables, 0 where a field is absent."""
        vtables = tables - self._numbers(tables, "u32").view(np.int32)
        distinct, which = np.unique(vtables, return_inverse=True)
        slots = (self._numbers(distinct, "u16").astype(np.int64) - 4) // 2
        present = np.arange(count) < slots[:, None]
        at = np.where(present, distinct[:, None] + 4 + 2 * np.arange(count), 0)
        offsets = np.where(present, self._numbers(at, "u16"), 0)[which]
        return np.where(offsets, tables[:, None] + offsets, 0).T

    def _column(self, positions: Positions, kind: str) -> list[Any]:
        absent = positions == 0
        if kind in ("ref", "text"):
            targets = np.where(absent, 0, positions + self._numbers(positions, "u32"))
            return targets.tolist() if kind == "ref" else self._texts(targets)
        numbers: list[Any] = np.where(absent, 0, self._numbers(positions, kind)).tolist()
        return numbers

    def _texts(self, positions: Positions) -> list[str]:
        listed: list[int] = positions.tolist()
        for at in set(listed) - self._strings.keys():
            self._text(at)
        return list(map(self._strings.__getitem__, listed))

    def _text(self, at: int) -> str:
        text = self._strings.get(at)
        if text is None:
            end = at + 4 + _U32(self.data, at)[0]
            text = self._strings[at] = self.data[at + 4 : end].decode()
        return text
