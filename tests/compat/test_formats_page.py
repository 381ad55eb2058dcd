"""docs/formats.md is enough to read an executable: this reader was written from it, with `struct` alone."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from coilpack.runtime.files import read_executables

FOLDER = Path(__file__).parent
FILES = [*sorted((FOLDER / "iree").glob("*.vmfb")), *sorted((FOLDER / "executables").glob("*.cda1"))]


class Table:
    def __init__(self, data: bytes, base: int, at: int) -> None:
        self.data, self.base, self.at = data, base, at
        self.vtable = at - struct.unpack_from("<i", data, base + at)[0]

    def u32(self, at: int) -> int:
        return struct.unpack_from("<I", self.data, self.base + at)[0]

    def field(self, slot: int) -> int:
        size = struct.unpack_from("<H", self.data, self.base + self.vtable)[0]
        entry = 4 + 2 * slot
        offset = struct.unpack_from("<H", self.data, self.base + self.vtable + entry)[0] if entry < size else 0
        return self.at + offset if offset else 0

    def scalar(self, slot: int, layout: str) -> int:
        at = self.field(slot)
        return struct.unpack_from(layout, self.data, self.base + at)[0] if at else 0

    def target(self, slot: int) -> int:
        at = self.field(slot)
        return at + self.u32(at) if at else 0

    def content(self, slot: int, size: int = 1) -> bytes | None:
        at = self.target(slot)
        start = self.base + at + 4
        return self.data[start : start + size * self.u32(at)] if at else None

    def tables(self, slot: int) -> list[Table]:
        at = self.target(slot)
        count = self.u32(at) if at else 0
        places = [at + 4 + 4 * index for index in range(count)]
        return [Table(self.data, self.base, place + self.u32(place)) for place in places]


def executables_of(data: bytes) -> list[bytes]:
    if data[:4] == b"CDA1":
        return [data]
    start = 0
    if data[:4] == b"PK\x03\x04":
        start = 30 + sum(struct.unpack_from("<HH", data, 26))
    size = struct.unpack_from("<I", data, start)[0]
    assert data[start + 8 : start + 12] == b"IREE"
    module = Table(data, start, 4 + struct.unpack_from("<I", data, start + 4)[0])
    behind = (start + 4 + size + 63) // 64 * 64
    found = []
    for segment in module.tables(9):
        content = segment.content(2)
        if content is None:
            at = behind + segment.scalar(3, "<Q")
            content = data[at : at + segment.scalar(4, "<Q")]
        if b"CDA1" in (content[:4], content[4:8]):
            found.append(content)
    return found


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_the_page_suffices(path):
    found = []
    for data in executables_of(path.read_bytes()):
        base = 64 if data[:4] == b"CDA1" else 0
        root = Table(data, base, struct.unpack_from("<I", data, base)[0])
        for export in root.tables(0):
            dims = struct.unpack_from("<3I", data, base + export.field(2))
            flags = export.content(5, 8) or b""
            name = export.content(7)
            found.append(
                (
                    export.scalar(0, "<I"),
                    export.content(1).decode(),
                    dims,
                    export.scalar(3, "<I"),
                    export.scalar(4, "<I"),
                    struct.unpack(f"<{len(flags) // 8}Q", flags),
                    None if name is None else name.decode(),
                )
            )
        assert all(b".entry" in module.content(0) for module in root.tables(1))
    expected = [
        (
            export.module_ordinal,
            export.kernel_name,
            export.block_dims,
            export.shared_memory_bytes,
            export.constant_count,
            tuple(int(flag) for flag in export.binding_flags),
            export.export_name,
        )
        for executable in read_executables(path)
        for export in executable.exports
    ]
    assert found == expected
    assert found
