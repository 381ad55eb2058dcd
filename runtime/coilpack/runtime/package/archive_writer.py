"""Writes stored ZIP entries at aligned offsets."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from coilpack.runtime.package import layout
from coilpack.runtime.package.crc import crc32_of_zeros


@dataclass(frozen=True, slots=True)
class Zeros:
    """A run of `nbytes` zero bytes, left as a hole in the file: it takes no space where the file system has holes."""

    nbytes: int


Chunk = bytes | memoryview | Zeros


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    offset: int
    nbytes: int
    crc: int


class ArchiveWriter:
    """Writes entries one after another; `finish` writes the directory. Nothing of an entry is kept in memory.

    Args:
        file: a seekable, empty file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries: list[_Entry] = []

    def add(self, name: str, nbytes: int, chunks: Iterable[Chunk], alignment: int) -> None:
        """Writes one entry.

        Args:
            name: its ASCII name.
            nbytes: the size of its data, exactly.
            chunks: the data in order.
            alignment: the data's offset in the file is a multiple of it.
        """
        file, offset, encoded = self._file, self._file.tell(), name.encode("ascii")
        file.write(_local_header(encoded, nbytes, offset, alignment))
        crc, written = 0, 0
        for chunk in chunks:
            if isinstance(chunk, Zeros):
                file.seek(chunk.nbytes, 1)
                crc, size = crc32_of_zeros(chunk.nbytes, crc), chunk.nbytes
            else:
                size = file.write(chunk)
                crc = zlib.crc32(chunk, crc)
            written += size
        assert written == nbytes, f"{name}: {written} bytes were given, {nbytes} announced"
        end = file.tell()
        file.seek(offset + layout.LOCAL_CRC_OFFSET)
        file.write(crc.to_bytes(4, "little"))
        file.seek(end)
        self._entries.append(_Entry(encoded, offset, nbytes, crc))

    def finish(self) -> None:
        """Writes the central directory."""
        start = self._file.tell()
        for entry in self._entries:
            self._file.write(_central_header(entry))
        size, count = self._file.tell() - start, len(self._entries)
        if start >= layout.MAX32:
            self._write_end64(start, size, count)
        capped = min(start, layout.MAX32)
        self._file.write(layout.END.pack(layout.END_SIGNATURE, 0, 0, count, count, size, capped, 0))

    def _write_end64(self, start: int, size: int, count: int) -> None:
        rest = layout.END64.size - 12  # without the signature and this number
        version = layout.VERSION_ZIP64
        self._file.write(
            layout.END64.pack(layout.END64_SIGNATURE, rest, layout.MADE_BY, version, 0, 0, count, count, size, start)
        )
        self._file.write(layout.LOCATOR64.pack(layout.LOCATOR64_SIGNATURE, 0, start + size, 1))


def _local_header(name: bytes, nbytes: int, offset: int, alignment: int) -> bytes:
    """A header with a zero CRC, padded so that the data behind it is aligned."""
    large = nbytes >= layout.MAX32
    extra = layout.EXTRA_HEADER.pack(layout.EXTRA_ZIP64, 16) + nbytes.to_bytes(8, "little") * 2 if large else b""
    padding = -(offset + layout.LOCAL.size + len(name) + len(extra)) % alignment
    if padding:
        padding += alignment if padding < layout.PADDING_MIN else 0
        extra += layout.EXTRA_HEADER.pack(layout.EXTRA_PADDING, padding - layout.EXTRA_HEADER.size)
        extra += alignment.to_bytes(2, "little") + bytes(padding - layout.PADDING_MIN)
    version = layout.VERSION_ZIP64 if large else layout.VERSION_PLAIN
    size = layout.MAX32 if large else nbytes
    times = (0, layout.DATE)
    header = layout.LOCAL.pack(
        layout.LOCAL_SIGNATURE, version, 0, layout.STORED, *times, 0, size, size, len(name), len(extra)
    )
    return header + name + extra


def _central_header(entry: _Entry) -> bytes:
    large, far = entry.nbytes >= layout.MAX32, entry.offset >= layout.MAX32
    numbers = [entry.nbytes] * 2 * large + [entry.offset] * far
    extra = b"".join(number.to_bytes(8, "little") for number in numbers)
    if extra:
        extra = layout.EXTRA_HEADER.pack(layout.EXTRA_ZIP64, len(extra)) + extra
    version = layout.VERSION_ZIP64 if extra else layout.VERSION_PLAIN
    size, offset = layout.MAX32 if large else entry.nbytes, layout.MAX32 if far else entry.offset
    times, sizes = (0, layout.DATE), (len(entry.name), len(extra), 0)
    header = layout.CENTRAL.pack(
        layout.CENTRAL_SIGNATURE, layout.MADE_BY, version, 0, layout.STORED, *times, entry.crc, size, size, *sizes,
        0, 0, layout.FILE_MODE, offset,
    )  # fmt: skip
    return header + entry.name + extra
