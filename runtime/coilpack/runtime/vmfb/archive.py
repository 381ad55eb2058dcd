"""Where things are in a module archive.

A module is a size-prefixed FlatBuffer with its larger read-only data behind it, aligned to 64 bytes. IREE's compiler
puts a ZIP local file header before it (and others between the data) so that archive tools can list the parts; like IREE
itself, this reader skips the first header and relies on nothing else of the ZIP.
"""

from __future__ import annotations

import struct
from typing import Final

from coilpack.runtime.verifier import Schema, verify
from coilpack.schemas import wire

SCHEMA: Final = "bytecode_module_def"


def is_vmfb(data: bytes | memoryview) -> bool:
    """Says whether `data` claims to be a module archive."""
    view = memoryview(data)
    at = _module_start(view) + wire.SIZE_PREFIX_BYTES + wire.IDENTIFIER_OFFSET
    return bytes(view[at : at + 4]) == wire.MODULE_IDENTIFIER


def verified_parts(data: bytes | bytearray | memoryview, file: str) -> tuple[memoryview, memoryview]:
    """Verifies a module archive; returns its FlatBuffer without the size prefix, and what external offsets count from.

    Args:
        data: the whole file.
        file: its name in messages.

    Raises:
        InvalidFileError: it is not a valid module archive.
    """
    view = memoryview(data).cast("B")
    start = _module_start(view)
    module = view[start:]
    verify(module, Schema.load(SCHEMA), file=file, size_prefixed=True)
    size = wire.SIZE_PREFIX_BYTES + struct.unpack_from("<I", module)[0]
    alignment = wire.SEGMENT_ALIGNMENT
    segments_start = -(-(start + size) // alignment) * alignment
    return module[wire.SIZE_PREFIX_BYTES : size], view[segments_start:]


def _module_start(view: memoryview) -> int:
    """Returns where the module begins: behind the local file header where there is one, else at 0."""
    header = wire.ZIP_LOCAL_HEADER
    if len(view) < header.size or bytes(view[:4]) != wire.ZIP_SIGNATURE:
        return 0
    *_, name_length, extra_length = header.unpack_from(view)
    return int(header.size + name_length + extra_length)
