"""Small executables for tests, and FlatBuffers that no writer would write."""

from __future__ import annotations

import struct

from coilpack.runtime.executable import BindingFlags, Executable, Export, SourceFile, SourceLocation

PTX = b"""\
.version 8.7
.target sm_80
.address_size 64
// .globl add_one
.visible .entry add_one(
\t.param .u64 .ptr .global .align 16 add_one_param_0,
\t.param .u64 .ptr .global .align 16 add_one_param_1,
\t.param .u32 add_one_param_2
)
.maxntid 128, 1, 1
{
\tret;
}
.visible .entry twice(.param .u64 x) { ret; }
"""

SMALL_PTX = b".version 8.7\n.target sm_80\n.entry k(.param .u64 a){ret;}\n"


def export(ordinal: int = 0, kernel_name: str = "k", export_name: str | None = "k", **fields: object) -> Export:
    values: dict[str, object] = {"block_dims": (32, 1, 1), "binding_flags": (BindingFlags(0),), **fields}
    return Export(ordinal, kernel_name, export_name, **values)  # type: ignore[arg-type]


def small(**fields: object) -> Executable:
    """One kernel; the smallest file that uses every field of an export."""
    location = SourceLocation("m.py", 3)
    one = export(export_name="k$\u00e9", constant_count=0, debug_name="k", location=location, **fields)
    return Executable((SMALL_PTX,), (one,))


def full() -> Executable:
    """Two modules, three exports, source files."""
    flags = (BindingFlags.READ_ONLY, BindingFlags.READ_ONLY | BindingFlags.INDIRECT)
    exports = (
        export(0, "add_one", "add$one", block_dims=(128, 2, 1), binding_flags=flags, constant_count=1),
        export(1, "twice", None, shared_memory_bytes=4096, location=SourceLocation("m.py", 7)),
        export(2, "k", "\u30ab\u30fc\u30cd\u30eb", module_ordinal=1, debug_name="kernel"),
    )
    return Executable((PTX, SMALL_PTX), exports, source_files=(SourceFile("m.py", b"pass\n"),))


class Raw:
    """Lays out a FlatBuffer by hand: forwards, each part at a place of its own, so that tests can break any of them."""

    def __init__(self, identifier: bytes = b"CDA1") -> None:
        self.data = bytearray(8)
        self.data[4:8] = identifier

    def align(self, alignment: int, ahead: int = 0) -> int:
        while (len(self.data) + ahead) % alignment:
            self.data.append(0)
        return len(self.data)

    def string(self, text: bytes) -> int:
        at = self.align(4)
        self.data += struct.pack("<I", len(text)) + text + b"\0"
        return at

    def vector(self, content: bytes, length: int, alignment: int = 4) -> int:
        at = self.align(alignment, 4) if alignment > 4 else self.align(4)
        self.data += struct.pack("<I", length) + content
        return at

    def table(self, *fields: tuple[int, bytes]) -> dict[int, int]:
        """Appends vtable and table with `(slot, bytes)` fields; returns each slot's place, and the table's under -1."""
        slots = max((slot for slot, _ in fields), default=-1) + 1
        vtable = self.align(2)
        self.data += bytes(4 + 2 * slots)
        table = self.align(4)
        self.data += struct.pack("<i", table - vtable)
        places = {-1: table, -2: vtable}
        for slot, content in fields:
            places[slot] = self.align(min(len(content), 8) if len(content) in (1, 2, 4, 8) else 4)
            self.data += content
            struct.pack_into("<H", self.data, vtable + 4 + 2 * slot, places[slot] - table)
        struct.pack_into("<HH", self.data, vtable, 4 + 2 * slots, len(self.data) - table)
        return places

    def point(self, place: int, target: int) -> None:
        struct.pack_into("<I", self.data, place, target - place)

    def offsets(self, targets: list[int]) -> int:
        """Appends a vector of offsets to things that follow (targets are set later with `point` where they are 0)."""
        at = self.align(4)
        self.data += struct.pack("<I", len(targets)) + bytes(4 * len(targets))
        for index, target in enumerate(targets):
            if target:
                self.point(at + 4 + 4 * index, target)
        return at

    def root(self, table: int) -> bytes:
        self.align(4)
        self.point(0, table)
        return bytes(self.data)


def raw_executable(
    image: bytes = SMALL_PTX, name: bytes = b"k"
) -> tuple[Raw, dict[str, dict[int, int]], dict[str, int]]:
    """Lays out an executable with one export; returns it with the places of its tables' fields and of its vectors."""
    raw = Raw()
    root = raw.table((0, bytes(4)), (1, bytes(4)))
    exports, modules = raw.offsets([0]), raw.offsets([0])
    raw.point(root[0], exports)
    raw.point(root[1], modules)
    entry = raw.table((0, bytes(4)), (1, bytes(4)), (2, struct.pack("<3I", 32, 1, 1)), (5, bytes(4)), (7, bytes(4)))
    raw.point(exports + 4, entry[-1])
    kernel_name = raw.string(name)
    raw.point(entry[1], kernel_name)
    flags = raw.vector(struct.pack("<Q", 1), 1, 8)
    raw.point(entry[5], flags)
    export_name = raw.string(b"name")
    raw.point(entry[7], export_name)
    module = raw.table((0, bytes(4)))
    raw.point(modules + 4, module[-1])
    ptx = raw.string(image)
    raw.point(module[0], ptx)
    raw.root(root[-1])
    parts = {"exports": exports, "modules": modules, "kernel_name": kernel_name, "export_name": export_name}
    return raw, {"root": root, "export": entry, "module": module}, {**parts, "flags": flags, "ptx": ptx}
