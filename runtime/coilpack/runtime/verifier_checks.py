"""The checks that `coilpack.runtime.verifier` makes of a schema: one object for each kind of thing in a FlatBuffer."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")
_PAIR16: Final = struct.Struct("<HH")

# A table of 4 bytes is the smallest thing there is: with the offset to it, it takes 8 bytes and is charged 20.
_BUDGET_PER_BYTE: Final = 4
_BUDGET_BASE: Final = 1024
TABLE_CHARGE: Final = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what is accepted; the defaults are those of the FlatBuffers library.

    Args:
        max_depth: tables nested in tables.
        max_tables: tables in the buffer.
    """

    max_depth: int = 64
    max_tables: int = 1_000_000


class Invalid(Exception):  # noqa: N818 - control flow between the checks and `verify`, never seen outside
    """Carries a problem up through the tables, which add their field names on the way."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []


def _fail(problem: str) -> NoReturn:
    raise Invalid(problem)


class Run:
    """One verification: the buffer, what has been seen in it, and what work is left."""

    __slots__ = ("budget", "buffer", "limits", "seen", "size", "tables")

    def __init__(self, buffer: memoryview, limits: Limits) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.limits = limits
        self.budget = self.size * _BUDGET_PER_BYTE + _BUDGET_BASE
        self.tables = 0
        # The kind of thing last checked at each position (all are multiples of 4).
        self.seen = bytearray((self.size >> 2) + 1)

    def enter(self, position: int, kind: int) -> bool:
        """Says whether the thing at `position` is yet to be checked as `kind`; the caller then checks it."""
        slot = position >> 2
        if self.seen[slot] == kind:
            return False
        self.seen[slot] = kind
        return True

    def charge(self, nbytes: int) -> None:
        """Takes `nbytes` of work from the budget."""
        self.budget -= nbytes
        if self.budget < 0:
            _fail("its parts overlap: checking them would take more than four times the size of the file")

    def follow(self, position: int) -> int:
        """Returns where the offset at `position` leads: in bounds, aligned, with room for four bytes."""
        offset: int = _U32.unpack_from(self.buffer, position)[0]
        target = position + offset
        if not offset:
            _fail(f"the offset at byte {position} is 0, but it must lead forwards")
        if target > self.size - 4:
            _fail(f"the offset at byte {position} leads to byte {target}, past the limit of {self.size - 4}")
        if target & 3:
            _fail(f"the offset at byte {position} leads to byte {target}, which is not a multiple of 4")
        return target

    def vector(self, position: int, element_size: int) -> int:
        """Returns the length of the vector at `position`, whose elements are all in bounds."""
        length: int = _U32.unpack_from(self.buffer, position)[0]
        room = self.size - position - 4
        if length * element_size > room:
            _fail(
                f"{length} elements of {element_size} bytes at byte {position + 4} do not fit "
                f"into the {room} bytes left"
            )
        return length

    def elements(self, check: Check, start: int, length: int, depth: int) -> None:
        """Checks what the offsets from byte `start` on lead to."""
        index = 0
        try:
            for index in range(length):
                check(self, self.follow(start + 4 * index), depth)
        except Invalid as error:
            error.path.append(f"[{index}]")
            raise


class Check(Protocol):
    """Checks the thing at a position that is in bounds and a multiple of 4."""

    def __call__(self, run: Run, position: int, depth: int) -> None:
        """Raises `Invalid` if it is not what it should be; `depth` is the number of tables around it."""


class String:
    """A string: in bounds with its terminator, and valid UTF-8 unless it may be binary."""

    def __init__(self, kind: int, utf8: bool) -> None:
        self.kind, self.utf8 = kind, utf8

    def __call__(self, run: Run, position: int, depth: int) -> None:  # noqa: ARG002 - the protocol's
        """Checks it."""
        if not run.enter(position, self.kind):
            return
        length = run.vector(position, 1)
        end = position + 4 + length
        if end >= run.size:
            _fail(f"the string of {length} bytes at byte {position + 4} has no room for its terminator")
        if run.buffer[end]:
            _fail(f"the string at byte {position + 4} ends with {run.buffer[end]} at byte {end}, not with 0")
        run.charge(length)
        if self.utf8:
            try:
                str(run.buffer[position + 4 : end], "utf-8")
            except UnicodeDecodeError as error:
                _fail(f"the string at byte {position + 4} is not UTF-8: {error.reason} at byte {error.start} of it")


class InlineVector:
    """A vector of scalars or structs."""

    def __init__(self, size: int, alignment: int) -> None:
        self.size, self.alignment = size, alignment

    def __call__(self, run: Run, position: int, depth: int) -> None:  # noqa: ARG002 - the protocol's
        """Checks it."""
        if run.vector(position, self.size) and (position + 4) % self.alignment:
            _fail(f"the elements at byte {position + 4} are not aligned to {self.alignment} bytes")


class OffsetVector:
    """A vector of tables or strings."""

    def __init__(self, kind: int, element: Check) -> None:
        self.kind, self.element = kind, element

    def __call__(self, run: Run, position: int, depth: int) -> None:
        """Checks it."""
        if not run.enter(position, self.kind):
            return
        length = run.vector(position, 4)
        run.charge(4 * length)
        run.elements(self.element, position + 4, length, depth)


@dataclass(frozen=True, slots=True)
class Inline:
    """A scalar or struct field."""

    slot: int
    name: str
    size: int
    alignment: int
    required: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """A field that holds an offset."""

    slot: int
    name: str
    check: Check
    required: bool


@dataclass(frozen=True, slots=True)
class UnionField:
    """A union's offset, whose type is in the slot before."""

    slot: int
    name: str
    members: dict[int, Check]
    required: bool


class Table:
    """A table: its vtable, the fields in it, and what they lead to."""

    __slots__ = ("inline", "kind", "references", "slots", "unions")

    def __init__(self, kind: int, slots: int) -> None:
        self.kind, self.slots = kind, slots
        self.inline: tuple[Inline, ...] = ()
        self.references: tuple[Reference, ...] = ()
        self.unions: tuple[UnionField, ...] = ()

    def __call__(self, run: Run, position: int, depth: int) -> None:
        """Checks it."""
        if not run.enter(position, self.kind):
            return
        depth += 1
        run.tables += 1
        if depth > run.limits.max_depth:
            _fail(f"tables are nested deeper than the limit of {run.limits.max_depth}")
        if run.tables > run.limits.max_tables:
            _fail(f"there are more tables than the limit of {run.limits.max_tables}")
        slots, table_size = self._layout(run, position)
        name = ""
        try:
            for field in self.inline:
                name = field.name
                self._inline(position, slots, table_size, field)
            for reference in self.references:
                name = reference.name
                at = self._offset(position, slots, table_size, reference)
                if at:
                    reference.check(run, run.follow(at), depth)
            for union in self.unions:
                name = union.name
                self._union(run, position, slots, table_size, union, depth)
        except Invalid as error:
            error.path.append(f".{name}")
            raise

    def _layout(self, run: Run, position: int) -> tuple[tuple[int, ...], int]:
        """Returns the vtable's slots and the table's size, both in bounds."""
        vtable = position - _I32.unpack_from(run.buffer, position)[0]
        if vtable < 0 or vtable > run.size - 4 or vtable & 1:
            _fail(f"the table at byte {position} has its vtable at byte {vtable}: odd or out of bounds")
        vtable_size, table_size = _PAIR16.unpack_from(run.buffer, vtable)
        if vtable_size < 4 or vtable_size & 1 or vtable + vtable_size > run.size:
            _fail(f"the vtable at byte {vtable} has a size of {vtable_size} bytes: odd, below 4 or out of bounds")
        if table_size < 4 or position + table_size > run.size:
            _fail(f"the table at byte {position} has a size of {table_size} bytes: below 4 or out of bounds")
        # Many tables may share a long vtable; only the slots that the schema knows are read.
        run.charge(max(table_size, TABLE_CHARGE))
        count = min((vtable_size - 4) >> 1, self.slots)
        return _slots(count).unpack_from(run.buffer, vtable + 4), table_size

    @staticmethod
    def _inline(position: int, slots: tuple[int, ...], table_size: int, field: Inline) -> None:
        offset = slots[field.slot] if field.slot < len(slots) else 0
        if not offset:
            if field.required:
                _fail("a required field is absent")
            return
        if offset < 4 or offset + field.size > table_size:
            _fail(f"it lies at byte {offset} of a table of {table_size} bytes and takes {field.size}")
        if (position + offset) % field.alignment:
            _fail(f"it lies at byte {position + offset}, which is not aligned to {field.alignment}")

    @staticmethod
    def _offset(position: int, slots: tuple[int, ...], table_size: int, field: Reference | UnionField) -> int:
        """Returns where the field's offset is, or 0 where the field is absent."""
        offset = slots[field.slot] if field.slot < len(slots) else 0
        if not offset:
            if field.required:
                _fail("a required field is absent")
            return 0
        if offset < 4 or offset + 4 > table_size:
            _fail(f"it lies at byte {offset} of a table of {table_size} bytes and takes 4")
        at = position + offset
        if at & 3:
            _fail(f"it lies at byte {at}, which is not aligned to 4")
        return at

    def _union(
        self, run: Run, position: int, slots: tuple[int, ...], table_size: int, field: UnionField, depth: int
    ) -> None:
        type_slot = field.slot - 1
        type_offset = slots[type_slot] if type_slot < len(slots) else 0
        member = run.buffer[position + type_offset] if type_offset else 0
        at = self._offset(position, slots, table_size, field)
        if bool(member) != bool(at):
            _fail(f"its type is {member}, but its value is {'present' if at else 'absent'}")
        if not at:
            return
        check = field.members.get(member)
        if check is None:
            _fail(f"its type is {member}; known are 1 to {max(field.members, default=0)}")
        check(run, run.follow(at), depth)


@functools.cache
def _slots(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}H")
