"""What a module asks a device for, and which parameters it loads, from its read-only data.

Both are operands of calls in the bytecode, which is opaque here; the data that they point to is not. IREE's compilers
(2.9 to 3.13 were looked at) put the segments in the order of their first use, each content once: first what
initialization asks each device, as `hal.device.id`, `cuda`, `hal.executable.format`, `cuda-nvptx-fb`, later the
parameters. What is found here is found by its place; a module of another producer may show less.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Sequence
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

_DEVICE_KEY: Final = "hal.device.id"
_FORMAT_KEY: Final = "hal.executable.format"
_FORMAT: Final = re.compile(r"[\w.-]+-fb|(?:embedded|system)-(?:elf|dylib|dll|wasm)(?:-\w+)?|static")
_MAX_TEXT_BYTES: Final = 1024
_KEY: Final = struct.Struct("<2I")
_SPAN_BYTES: Final = 24
# Text of the messages that IREE's checks of arguments give, besides the arguments' names.
_MESSAGES: Final = frozenset({"tensor"})


class Query(NamedTuple):
    """The devices and the executable formats that a module asks for, by IREE's names."""

    devices: tuple[str, ...]
    formats: tuple[str, ...]


class Parameters(NamedTuple):
    """The scopes and the names of the parameters that a module loads, each once."""

    scopes: tuple[str, ...]
    keys: tuple[str, ...]


def segment_text(content: memoryview) -> str | None:
    """Returns content if it is a short text that can be printed, else None."""
    if not 0 < len(content) <= _MAX_TEXT_BYTES:
        return None
    try:
        text = str(content, "utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def find_query(texts: Sequence[str | None]) -> Query:
    """Finds what a module asks devices for.

    Args:
        texts: the text of each segment, None where it is none.
    """
    if _DEVICE_KEY not in texts:
        return Query((), ())
    start = texts.index(_DEVICE_KEY)
    asked = [text for text in takewhile(lambda text: text is not None, texts[start:]) if text is not None]
    values = [text for text in asked if text not in (_DEVICE_KEY, _FORMAT_KEY)]
    # The first device stands behind its key; another one before a format that no earlier device has.
    formats = [_FORMAT.fullmatch(text) is not None for text in values]
    followed = [*formats[1:], False]
    devices = [
        text
        for index, text in enumerate(values)
        if not formats[index] and (followed[index] or (index == 0 and asked[1:2] == [text]))
    ]
    return Query(tuple(devices), tuple(text for text, is_format in zip(values, formats, strict=True) if is_format))


def find_parameters(
    contents: Sequence[memoryview],
    texts: Sequence[str | None],
    others: Collection[str],
    room: int,
    *,
    scopes_first: bool,
) -> Parameters:
    """Finds the parameters that a module loads; only for modules that depend on `io_parameters`.

    Parameters that are loaded together have a table of keys (offset and length in 32 bits each), the keys one after the
    other, and a table of the ranges to load (24 bytes each). The scope is behind it, in newer modules ahead of
    all queries.

    Args:
        contents: each segment's bytes.
        texts: as those of `find_query`.
        others: texts that are no scopes, as the names of arguments.
        room: how many bytes of tables to look at; segments may overlap.
        scopes_first: whether scopes are ahead of all queries.
    """
    keys: dict[str, None] = {}
    behind: dict[str, None] = {}
    for index, (table, joined) in enumerate(pairwise(contents)):
        room -= len(table)
        if room < 0:
            break
        found = _keys(table, joined)
        keys |= dict.fromkeys(found)
        after = contents[index + 2 : index + 4]
        if found and len(after) == 2 and len(after[0]) == _SPAN_BYTES * len(found):
            text = texts[index + 3]
            behind |= {text: None} if text and text not in others and text not in _MESSAGES else {}
    start = texts.index(_DEVICE_KEY) if _DEVICE_KEY in texts else 0
    ahead = dict.fromkeys(text for text in texts[:start] if text)
    return Parameters(tuple(ahead if scopes_first else behind), tuple(keys))


def _keys(table: memoryview, joined: memoryview) -> list[str]:
    """The keys in `joined`, if `table` divides it into texts without gaps; else none."""
    count, rest = divmod(len(table), _KEY.size)
    if rest or not 0 < count <= len(joined):
        return []
    keys: list[str] = []
    end = 0
    for at in range(0, len(table), _KEY.size):
        offset, length = _KEY.unpack_from(table, at)
        if offset != end or not length:
            return []
        end += length
        text = segment_text(joined[offset:end])
        if text is None:
            return []
        keys.append(text)
    return keys if end == len(joined) else []
