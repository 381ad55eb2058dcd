"""The checks of `coilpack.runtime.verifier_checks`, made of all elements of a long vector at once.

A large program is thousands of small tables; asking numpy the same questions about all of them is an order of magnitude
faster than asking Python about each. Nothing is said here about what is wrong: a run that fails here is made again
without columns, which finds the place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from coilpack.runtime.verifier_checks import (
    TABLE_CHARGE,
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

Positions = npt.NDArray[np.int64]

_FEW: Final = 16  # elements that are checked faster one by one
_ELEMENTS_PER_BYTE: Final = 32  # a vector with more than one element in so many bytes is checked without columns


def _need(holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        raise Invalid("")


class ColumnRun(Run):
    """A run that checks long vectors of tables and strings by the column; `Invalid` has no text and no path.

    It proves what `Run` proves: whatever passes here passes there.
    """

    __slots__ = ("marks", "u8", "u16", "u32")

    def __init__(self, buffer: memoryview, limits: Limits) -> None:
        super().__init__(buffer, limits)
        self.u8 = np.frombuffer(buffer, np.uint8)
        self.u16 = np.frombuffer(buffer, "<u2", self.size // 2)
        self.u32 = np.frombuffer(buffer, "<u4", self.size // 4)
        self.marks = np.frombuffer(self.seen, np.uint8)

    def elements(self, check: Check, start: int, length: int, depth: int) -> None:
        """Checks the elements of one vector of offsets."""
        if length <= _FEW:
            super().elements(check, start, length, depth)
        else:
            self.bound(length)
            self.each(check, self.targets(start + 4 * np.arange(length)), depth)

    def each(self, check: Check, positions: Positions, depth: int) -> None:
        """Checks the things at `positions`, all of one kind."""
        if len(positions) <= _FEW:
            for position in positions.tolist():
                check(self, position, depth)
        else:
            _COLUMNS[type(check)](self, check, positions, depth)

    def bound(self, count: int) -> None:
        """Refuses numbers of elements whose columns would take a multiple of the buffer's memory."""
        if count * _ELEMENTS_PER_BYTE > self.size:
            raise Invalid("")

    def fresh(self, positions: Positions, kind: int) -> Positions:
        """Those of `positions`, each once, that are yet to be checked as `kind`; the caller then checks them."""
        distinct = np.unique(positions)
        unseen: Positions = distinct[self.marks[distinct >> 2] != kind]
        self.marks[unseen >> 2] = kind
        return unseen

    def targets(self, positions: Positions) -> Positions:
        """Where the offsets at `positions` lead; see `Run.follow`."""
        targets: Positions = positions + self.u32[positions >> 2]
        _need((targets > positions) & (targets <= self.size - 4) & (targets & 3 == 0))
        return targets

    def lengths(self, positions: Positions, element_size: int) -> Positions:
        """The lengths of the vectors at `positions`; see `Run.vector`."""
        lengths: Positions = self.u32[positions >> 2].astype(np.int64)
        _need(lengths * element_size <= self.size - positions - 4)
        return lengths


def _strings(run: ColumnRun, check: String, positions: Positions, depth: int) -> None:  # noqa: ARG001
    positions = run.fresh(positions, check.kind)
    starts = positions + 4
    ends = starts + run.lengths(positions, 1)
    _need(ends < run.size)
    _need(run.u8[ends] == 0)
    run.charge(int((ends - starts).sum()))
    if check.utf8:
        buffer = run.buffer
        try:
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                str(buffer[start:end], "utf-8")
        except UnicodeDecodeError:
            raise Invalid("") from None


def _inline_vectors(run: ColumnRun, check: InlineVector, positions: Positions, depth: int) -> None:  # noqa: ARG001
    empty = run.lengths(positions, check.size) == 0
    _need(empty | ((positions + 4) % check.alignment == 0))


def _offset_vectors(run: ColumnRun, check: OffsetVector, positions: Positions, depth: int) -> None:
    positions = run.fresh(positions, check.kind)
    lengths = run.lengths(positions, 4)
    total = int(lengths.sum())
    run.charge(4 * total)
    run.bound(total)
    firsts = positions + 4 - 4 * (np.cumsum(lengths) - lengths)
    run.each(check.element, run.targets(np.repeat(firsts, lengths) + 4 * np.arange(total)), depth)


def _tables(run: ColumnRun, check: Table, positions: Positions, depth: int) -> None:
    positions = run.fresh(positions, check.kind)
    depth += 1
    run.tables += len(positions)
    if depth > run.limits.max_depth or run.tables > run.limits.max_tables:
        raise Invalid("")
    layout = _Layout(run, check, positions)
    for field in check.inline:
        layout.field(field, field.size, field.alignment)
    for reference in check.references:
        at = layout.field(reference, 4, 4)
        run.each(reference.check, run.targets(at[at > 0]), depth)
    for union in check.unions:
        _union(run, layout, union, depth)


def _union(run: ColumnRun, layout: _Layout, union: UnionField, depth: int) -> None:
    types = layout.at(union.slot - 1)
    members = np.where(types > 0, run.u8[types], 0)
    at = layout.field(union, 4, 4)
    _need((members > 0) == (at > 0))
    for member in np.unique(members[members > 0]).tolist():
        if member not in union.members:
            raise Invalid("")
        run.each(union.members[member], run.targets(at[members == member]), depth)


class _Layout:
    """Where the fields of many tables of one kind are; the vtables that they share are looked at once."""

    def __init__(self, run: ColumnRun, check: Table, positions: Positions) -> None:
        vtables = positions - run.u32[positions >> 2].view("<i4")
        _need((vtables >= 0) & (vtables <= run.size - 4) & (vtables & 1 == 0))
        distinct, self.which = np.unique(vtables, return_inverse=True)
        words = distinct >> 1
        sizes, self.table_sizes = run.u16[words].astype(np.int64), run.u16[words + 1].astype(np.int64)
        _need((sizes >= 4) & (sizes & 1 == 0) & (distinct + sizes <= run.size) & (self.table_sizes >= 4))
        _need(positions + self.table_sizes[self.which] <= run.size)
        run.charge(int(np.maximum(self.table_sizes, TABLE_CHARGE)[self.which].sum()))
        slots = np.arange(check.slots)
        present = slots < ((sizes - 4) >> 1)[:, None]
        offsets = run.u16[np.where(present, words[:, None] + 2 + slots, 0)]
        self.offsets = np.where(present, offsets, 0).astype(np.int64)
        self.positions = positions

    def at(self, slot: int) -> Positions:
        """Where a field is in each table, 0 where it is absent."""
        offsets = self.offsets[:, slot]
        if not offsets.all():
            offsets = offsets[self.which]
            return np.where(offsets > 0, self.positions + offsets, 0)
        return self.positions + offsets[self.which]

    def field(self, field: Inline | Reference | UnionField, size: int, alignment: int) -> Positions:
        """The same, once it is proved that the field lies in its table and is aligned."""
        offsets = self.offsets[:, field.slot]
        present = offsets > 0
        _need(present | (not field.required))
        _need(~present | (offsets >= 4) & (offsets + size <= self.table_sizes))
        at = self.at(field.slot)
        if alignment > 1:
            _need(at % alignment == 0)
        return at


_COLUMNS: Final[dict[type, Callable[[ColumnRun, Any, Positions, int], None]]] = {
    String: _strings,
    InlineVector: _inline_vectors,
    OffsetVector: _offset_vectors,
    Table: _tables,
}
