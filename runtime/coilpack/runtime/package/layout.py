"""What a package is made of: entry names, alignments, and the records of the ZIP format (APPNOTE.TXT 6.3.10)."""

from __future__ import annotations

import re
import struct
from typing import Final

PROGRAM_ENTRY: Final = "program.fb"
WEIGHTS_ENTRY: Final = "weights.safetensors"
WEIGHTS_SUFFIX: Final = ".safetensors"
"""Of the file beside the package that holds the weights where the package does not."""

PROGRAM_ALIGNMENT: Final = 64
"""Bytes, from the start of the file; of every entry but the weights."""
WEIGHTS_ALIGNMENT: Final = 4096
"""Bytes: a page, so that the weights alone can be mapped."""

ENTRY_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
"""Names that mean the same on every system and stay inside the folder that they are unpacked into."""
MAX_NAME_BYTES: Final = 255
MAX_ENTRIES: Final = 4096

# APPNOTE 4.3.7: signature, version needed, flags, method, time, date, CRC, packed size, size, lengths of name and
# extra.
LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
LOCAL_SIGNATURE: Final = b"PK\x03\x04"
LOCAL_CRC_OFFSET: Final = 14
# 4.3.12: signature, version made by, version needed, flags, method, time, date, CRC, packed size, size, lengths of
# name, extra and comment, disk, internal and external attributes, offset of the local header.
CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
# 4.3.16: signature, disk, disk of the directory, entries on this disk, entries, size and offset of the directory,
# comment length.
END: Final = struct.Struct("<4sHHHHIIH")
END_SIGNATURE: Final = b"PK\x05\x06"
# 4.3.14: signature, size of the rest, version made by, version needed, disk, disk of the directory, entries on this
# disk, entries, size and offset of the directory.
END64: Final = struct.Struct("<4sQHHIIQQQQ")
END64_SIGNATURE: Final = b"PK\x06\x06"
# 4.3.15: signature, disk of the ZIP64 end record, its offset, number of disks.
LOCATOR64: Final = struct.Struct("<4sIQI")
LOCATOR64_SIGNATURE: Final = b"PK\x06\x07"

EXTRA_HEADER: Final = struct.Struct("<HH")  # identifier, size of the rest
EXTRA_ZIP64: Final = 0x0001
EXTRA_PADDING: Final = 0xD935  # of Android's zipalign: the alignment as u16, then zeros
PADDING_MIN: Final = EXTRA_HEADER.size + 2

STORED: Final = 0
FLAG_UTF8: Final = 0x0800
VERSION_PLAIN: Final = 10
VERSION_ZIP64: Final = 45
MADE_BY: Final = 3 << 8 | VERSION_ZIP64  # Unix
FILE_MODE: Final = (
    0o100644 << 16
)  # a regular file, readable by all: without it `unzip` makes files that nobody can read
DATE: Final = 1 << 5 | 1  # 1980-01-01, the format's first day: the same whenever the package is built
MAX16: Final = 0xFFFF
MAX32: Final = 0xFFFFFFFF
