"""Reads the directory of a stored ZIP, and proves that every entry lies where it says.

Two readers of one ZIP can see different files: names twice, local headers that differ from the central ones, data
between entries. None of that is accepted here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NoReturn

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.package import layout

_CRC_PIECE = 1 << 24  # bytes at a time, so that other threads and signals get their turn


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its data is [start, start + nbytes) of the file."""

    name: str
    start: int
    nbytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class _Record:
    """What the central directory says of an entry."""

    raw_name: bytes
    flags: int
    crc: int
    nbytes: int
    offset: int


class ArchiveReader:
    """Reads one archive.

    Args:
        data: the whole file.
        file: its name in messages.
    """

    def __init__(self, data: memoryview, file: str) -> None:
        self._data = data
        self._file = file

    def _fail(self, where: str, problem: str, hint: str = "") -> NoReturn:
        raise InvalidFileError(self._file, where, problem, hint)

    def entries(self) -> dict[str, Entry]:
        """All entries by name.

        Raises:
            InvalidFileError: it is not a ZIP archive of stored, aligned entries that do not overlap.
        """
        start, size, count = self._directory()
        entries: dict[str, Entry] = {}
        position, end = start, 0
        for index in range(count):
            record, position = self._central(position, start + size, index)
            name = self._name(record, index)
            if name in entries:
                self._fail(f"entry {name!r}", "it is there twice; names must be unique")
            if record.offset != end:
                problem = f"it starts at byte {record.offset}, but what is before it ends at {end}"
                self._fail(f"entry {name!r}", problem)
            entries[name] = self._local(record, name, start)
            end = entries[name].start + record.nbytes
        if end != start:
            self._fail("central directory", f"it starts at byte {start}, but the last entry ends at {end}")
        if position != start + size:
            self._fail("central directory", f"it has {size} bytes, but its {count} entries take {position - start}")
        return entries

    def check(self, entry: Entry) -> None:
        """Fails unless the entry's data has the CRC that the archive states."""
        crc, end = 0, entry.start + entry.nbytes
        for at in range(entry.start, end, _CRC_PIECE):
            crc = zlib.crc32(self._data[at : min(at + _CRC_PIECE, end)], crc)
        if crc != entry.crc:
            self._fail(f"entry {entry.name!r}", f"its CRC-32 is {crc:#010x}, stated is {entry.crc:#010x}")

    def _directory(self) -> tuple[int, int, int]:
        """Where the central directory starts, its size, and how many entries it has."""
        at = len(self._data) - layout.END.size
        if at < 0:
            self._fail("", f"it has {len(self._data)} bytes; the smallest archive has {layout.END.size}")
        signature, disk, first, here, count, size, start, comment = layout.END.unpack_from(self._data, at)
        if signature != layout.END_SIGNATURE or comment:
            hint = "A package is a ZIP archive without a comment; this file is truncated or something else"
            self._fail(f"byte {at}", f"there is no end-of-archive record, which begins {layout.END_SIGNATURE!r}", hint)
        if layout.MAX32 in (size, start) or count == layout.MAX16:
            at, disk, first, here, count, size, start = self._end64(at)
        if disk or first or here != count:
            self._fail("end-of-archive record", "it is one of several disks")
        if count > layout.MAX_ENTRIES:
            self._fail("end-of-archive record", f"it states {count} entries; the limit is {layout.MAX_ENTRIES}")
        if start + size != at:
            self._fail("end-of-archive record", f"the directory ends at byte {start + size}, the record is at {at}")
        return start, size, count

    def _end64(self, end: int) -> tuple[int, int, int, int, int, int, int]:
        locator = end - layout.LOCATOR64.size
        at = locator - layout.END64.size
        if at < 0:
            self._fail(f"byte {end}", "there is no room for the ZIP64 record that the end-of-archive record wants")
        signature, disk, stated, disks = layout.LOCATOR64.unpack_from(self._data, locator)
        if signature != layout.LOCATOR64_SIGNATURE or disk or disks != 1 or stated != at:
            self._fail(f"byte {locator}", f"the ZIP64 locator does not lead to byte {at}")
        fields = layout.END64.unpack_from(self._data, at)
        if fields[0] != layout.END64_SIGNATURE or fields[1] != layout.END64.size - 12:
            self._fail(f"byte {at}", "the ZIP64 end-of-archive record is damaged")
        first, directory, here, count, size, start = fields[4:]
        return at, first, directory, here, count, size, start

    def _central(self, at: int, limit: int, index: int) -> tuple[_Record, int]:
        """The record at byte `at`, and where the next one is."""
        where = f"central directory: entry {index}"
        if at + layout.CENTRAL.size > limit:
            self._fail(where, f"its record at byte {at} reaches past the directory's end at {limit}")
        fields = layout.CENTRAL.unpack_from(self._data, at)
        signature, flags, method, crc, packed, nbytes = fields[0], *fields[3:5], *fields[7:10]
        name, extra, comment, disk, offset = *fields[10:14], fields[16]
        start = at + layout.CENTRAL.size
        end = start + name + extra + comment
        if signature != layout.CENTRAL_SIGNATURE or end > limit:
            self._fail(where, f"its record at byte {at} is damaged or reaches past the directory's end at {limit}")
        if comment or disk:
            self._fail(where, "it has a comment or lies on another disk")
        if flags & ~layout.FLAG_UTF8 or method != layout.STORED:
            hint = "Entries of a package are stored as they are"
            self._fail(where, f"it is compressed, encrypted or streamed (method {method}, flags {flags:#06x})", hint)
        numbers = self._zip64(start + name, extra, [packed, nbytes, offset], where)
        if numbers[0] != numbers[1]:
            self._fail(where, f"its packed size is {numbers[0]}, its size {numbers[1]}, though it is stored")
        raw = bytes(self._data[start : start + name])
        return _Record(raw, flags, crc, numbers[1], numbers[2]), end

    def _zip64(self, at: int, length: int, numbers: list[int], where: str) -> list[int]:
        """The numbers, those that are all ones replaced by what the ZIP64 field holds, in the order of its format."""
        found = b""
        end = at + length
        while at < end:
            if at + layout.EXTRA_HEADER.size > end:
                self._fail(where, f"the extra field at byte {at} is cut off")
            kind, size = layout.EXTRA_HEADER.unpack_from(self._data, at)
            at += layout.EXTRA_HEADER.size
            if at + size > end:
                self._fail(where, f"the extra field at byte {at} has {size} bytes, but {end - at} are left")
            if kind == layout.EXTRA_ZIP64:
                found = bytes(self._data[at : at + size])
            at += size
        values = [int.from_bytes(found[i : i + 8], "little") for i in range(0, len(found) - 7, 8)]
        missing = [index for index, number in enumerate(numbers) if number == layout.MAX32]
        if len(found) != 8 * len(missing):
            self._fail(where, f"its ZIP64 field has {len(found)} bytes; {len(missing)} numbers need it")
        # The format puts the size before the packed size; they are equal in what is accepted.
        replaced = dict(zip(missing, values, strict=True))
        return [replaced.get(index, number) for index, number in enumerate(numbers)]

    def _name(self, record: _Record, index: int) -> str:
        raw = record.raw_name
        name = raw.decode("ascii", "replace")
        if len(raw) > layout.MAX_NAME_BYTES or not layout.ENTRY_NAME.fullmatch(name):
            rule = "path segments of ASCII letters, digits, '_', '-' and '.', joined by '/'"
            self._fail(f"central directory: entry {index}", f"its name is {name[:80]!r}; names are {rule}")
        return name

    def _local(self, record: _Record, name: str, limit: int) -> Entry:
        """The entry, once its local header agrees with the directory and its data ends before byte `limit`."""
        where, at = f"entry {name!r}", record.offset
        if at + layout.LOCAL.size > limit:
            self._fail(where, f"its local header at byte {at} reaches past the directory's start at {limit}")
        fields = layout.LOCAL.unpack_from(self._data, at)
        signature, flags, method, crc, packed, nbytes = fields[0], *fields[2:4], *fields[6:9]
        names = at + layout.LOCAL.size
        extra = names + fields[9]
        start = extra + fields[10]
        if signature != layout.LOCAL_SIGNATURE or start + record.nbytes > limit:
            self._fail(where, f"its local header at byte {at} is damaged or its data reaches past byte {limit}")
        packed, nbytes = self._zip64(extra, fields[10], [packed, nbytes], where)
        stated = (record.flags, layout.STORED, record.crc, record.nbytes, record.nbytes, record.raw_name)
        if (flags, method, crc, packed, nbytes, bytes(self._data[names:extra])) != stated:
            self._fail(where, f"its local header at byte {at} differs from the central directory")
        alignment = layout.WEIGHTS_ALIGNMENT if name == layout.WEIGHTS_ENTRY else layout.PROGRAM_ALIGNMENT
        if start % alignment:
            hint = "Packages are written by coilpack; other tools do not align entries"
            self._fail(where, f"its data starts at byte {start}, which is not a multiple of {alignment}", hint)
        return Entry(name, start, record.nbytes, record.crc)
