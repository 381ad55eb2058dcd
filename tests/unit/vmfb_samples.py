"""IREE modules that are laid out by hand, so that tests can put anything into them."""

from __future__ import annotations

import struct

from executable_samples import Raw


def module(*segments: bytes, external=(), behind: bytes = b"", ordinal: int = 0, zipped: bool = False) -> bytes:
    """Lays out a module with these embedded segments and external ones (offset and length); `behind` follows it."""
    raw = Raw(b"IREE")
    # The size prefix goes before everything, and alignment counts from it.
    raw.data = bytearray(4) + raw.data
    root = raw.table((0, bytes(4)), (7, bytes(4)), (8, bytes(4)), (9, bytes(4)))
    raw.point(root[0], raw.string(b"module"))
    exported, signatures = raw.offsets([0]), raw.offsets([0])
    raw.point(root[7], exported)
    raw.point(root[8], signatures)
    function = raw.table((0, bytes(4)), (1, struct.pack("<i", ordinal)))
    raw.point(exported + 4, function[-1])
    raw.point(function[0], raw.string(b"f"))
    raw.point(signatures + 4, raw.table()[-1])
    vector = raw.offsets([0] * (len(segments) + len(external)))
    raw.point(root[9], vector)
    for index, content in enumerate(segments):
        segment = raw.table((2, bytes(4)))
        raw.point(vector + 4 + 4 * index, segment[-1])
        raw.point(segment[2], raw.vector(content, len(content)))
    for index, (offset, length) in enumerate(external, len(segments)):
        segment = raw.table((3, struct.pack("<Q", offset)), (4, struct.pack("<Q", length)))
        raw.point(vector + 4 + 4 * index, segment[-1])
    raw.align(8)
    raw.point(4, root[-1])
    struct.pack_into("<I", raw.data, 0, len(raw.data) - 4)
    header = b""
    if zipped:
        extra = bytes(64 - 30 - 9)
        header = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 9, len(extra))
        header += b"module.fb" + extra
    data = header + bytes(raw.data)
    return data + (bytes(-len(data) % 64) + behind if behind else b"")
