"""Facts about bytes that no schema holds: magic numbers, headers and limits. They are stated here and nowhere else.

The executable's facts are IREE's (`iree_flatbuffer_file_header_t` in `base/internal/flatcc/parsing.h`, the limits in
`hal/drivers/cuda/native_executable.c`); the module archive's are in its `vm/bytecode/archive.c`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

# FlatBuffers: 32-bit offsets, of which tables use the signed half.
FLATBUFFER_MIN_BYTES: Final = 8
FLATBUFFER_MAX_BYTES: Final = 2**31 - 1
IDENTIFIER_OFFSET: Final = 4
SIZE_PREFIX_BYTES: Final = 4

# The CUDA executable.
EXECUTABLE_IDENTIFIER: Final = b"CDA1"
EXECUTABLE_VERSION: Final = 0
EXECUTABLE_HEADER: Final = struct.Struct("<4sIQ48s")
"""Magic, version, size of the content behind the header in bytes, 48 zero bytes."""

MAX_BINDINGS: Final = 16
"""Buffers that a kernel may be given (`IREE_HAL_CUDA_MAX_DISPATCH_BINDING_COUNT`)."""
MAX_CONSTANTS: Final = 64
"""32-bit constants that a kernel may be given (`IREE_HAL_CUDA_MAX_DISPATCH_CONSTANT_COUNT`)."""
MAX_BLOCK_DIMS: Final = (1024, 1024, 64)
"""Threads per block along x, y and z on every CUDA architecture."""
MAX_BLOCK_THREADS: Final = 1024
MAX_EXPORTS: Final = 1 << 16
"""Ours, to bound what a hostile file can make a reader allocate; far above what compilers write."""
MAX_MODULES: Final = 1 << 16
"""Ours, as `MAX_EXPORTS`; a model with candidates has some for each of its kernels."""

# IREE's module archive (`.vmfb`).
MODULE_IDENTIFIER: Final = b"IREE"
SEGMENT_ALIGNMENT: Final = 64
"""External segments start at the end of the FlatBuffer rounded up to this, counted from the start of the file."""
MAX_MODULE_ITEMS: Final = 1 << 16
"""Ours, as `MAX_EXPORTS`: functions that a module exports or imports, and segments of its read-only data."""

# ZIP (APPNOTE.TXT 4.3.7). The fields a reader of `.vmfb` needs: signature, version, flags, method, time, date, CRC,
# compressed size, size, name length, extra length.
ZIP_SIGNATURE: Final = b"PK\x03\x04"
ZIP_LOCAL_HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
ZIP_STORED: Final = 0

# Images.
ELF_MAGIC: Final = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class ExecutableHeader:
    """The 64 bytes before an executable's FlatBuffer.

    Args:
        magic: `EXECUTABLE_IDENTIFIER`.
        version: `EXECUTABLE_VERSION`.
        content_size: bytes of FlatBuffer that follow.
        reserved: 48 bytes, all zero.
    """

    magic: bytes
    version: int
    content_size: int
    reserved: bytes

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> ExecutableHeader:
        """Reads a header from the start of `data`, which holds at least `EXECUTABLE_HEADER.size` bytes."""
        return cls(*EXECUTABLE_HEADER.unpack_from(data))

    @classmethod
    def for_content(cls, content_size: int) -> ExecutableHeader:
        """Returns the header of a FlatBuffer of `content_size` bytes."""
        return cls(EXECUTABLE_IDENTIFIER, EXECUTABLE_VERSION, content_size, bytes(48))

    def pack(self) -> bytes:
        """Returns the header's bytes."""
        return EXECUTABLE_HEADER.pack(self.magic, self.version, self.content_size, self.reserved)
