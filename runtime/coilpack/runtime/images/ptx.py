"""Reads the header facts of PTX: version, target, and the entries with their parameters.

This is a scanner for directives, not a parser: it looks for the words, skips those in comments and strings, and reads
the few tokens that follow. Speed matters, for it runs over every kernel of a file when it is opened; so comments are
only looked for where a word stands behind something that may begin one. Source: PTX ISA, "Directives".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.images.model import ImageInfo, ParamInfo

_NOT_CODE: Final = re.compile(rb'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_VERSION: Final = re.compile(rb"\.version\s+(\d{1,3})\.(\d{1,3})")
_TARGET: Final = re.compile(rb"\.target\s+(sm_[0-9]{1,4}[a-z]?)\b")
_ENTRY: Final = re.compile(rb"\.entry\s+([A-Za-z_$%][\w$%.]*)\s*(\(?)")
_PARAM: Final = re.compile(
    rb"\s*\.param((?:\s*\.[a-z]\w*(?:\s+\d+)?)+)\s+([A-Za-z_$%][\w$%.]*)\s*(?:\[\s*(\d{1,9})\s*\])?\s*"
)
_ATTRIBUTE: Final = re.compile(rb"\.(\w+)(?:\s+(\d{1,9}))?")
_KEPT_BYTES: Final = 80  # longer lists of attributes are read anew
_SCALAR: Final = re.compile(rb"[busf](8|16|32|64|128)")
# Types whose width does not stand in a name of the form above. References to textures and the like are 64-bit handles.
_OTHER_SIZES: Final = {b"f16x2": 4, b"bf16": 2, b"bf16x2": 4, b"texref": 8, b"samplerref": 8, b"surfref": 8}


def scalar_size(type_: bytes) -> int:
    """Returns the bytes of a PTX type, given without its dot, or 0 if it is none."""
    match = _SCALAR.fullmatch(type_)
    return int(match[1]) // 8 if match else _OTHER_SIZES.get(type_, 0)


def _attributes(source: bytes) -> tuple[str, int, int]:
    """The type, the size and the alignment (bytes) that the words between `.param` and the name state; size 0: none."""
    return _read_attributes(source) if len(source) <= _KEPT_BYTES else _read_attributes.__wrapped__(source)


@functools.lru_cache(maxsize=256)
def _read_attributes(source: bytes) -> tuple[str, int, int]:
    """Kept, for thousands of parameters of a file are declared in the same few ways."""
    type_, size, alignment = b"", 0, 0
    for name, value in _ATTRIBUTE.findall(source):
        if name == b"ptr":  # the alignment that follows is that of the memory it points to
            break
        if name == b"align":
            alignment = int(value or 0)
        elif scalar_size(name):
            type_, size = name, scalar_size(name)
    return type_.decode("ascii"), size, alignment or size


class _Reader:
    """Searches the text, which loses its comments and strings (to blanks: offsets stay) when they are in the way."""

    def __init__(self, text: bytes, file: str, where: str) -> None:
        self.text, self.file, self.where = text, file, where
        self.blanked = False
        if b"/" in text and b"/*" in text:  # one byte is found ten times faster than two, and most kernels have none
            self._blank()

    def fail(self, problem: str) -> InvalidFileError:
        return InvalidFileError(self.file, self.where, problem)

    def _blank(self) -> None:
        self.text = _NOT_CODE.sub(lambda match: b" " * len(match[0]), self.text)
        self.blanked = True

    def _may_hide(self, start: int, end: int) -> bool:
        """Says whether a comment or string may begin between two positions."""
        return not self.blanked and (self.text.find(b"//", start, end) >= 0 or self.text.find(b'"', start, end) >= 0)

    def find(self, pattern: re.Pattern[bytes], word: bytes) -> Iterator[re.Match[bytes]]:
        """Yields the matches of a directive, given with the word that it starts with."""
        position, seen = self.text.find(word), 0
        while position >= 0:
            # What lies before `seen` on the same line has been looked at: long lines cost no more than short ones.
            if self._may_hide(max(self.text.rfind(b"\n", seen, position), seen), position):
                self._blank()
            match = pattern.match(self.text, position)
            if match:
                yield match
            seen = position
            position = self.text.find(word, position + len(word))

    def directive(self, pattern: re.Pattern[bytes], word: bytes, example: str) -> re.Match[bytes]:
        match = next(self.find(pattern, word), None)
        if match is None:
            raise self.fail(f"the image is neither a cubin nor PTX text: it has no directive like `{example}`")
        return match

    def entries(self) -> dict[str, tuple[ParamInfo, ...]]:
        found: dict[str, tuple[ParamInfo, ...]] = {}
        for match in self.find(_ENTRY, b".entry"):
            name = match[1].decode("ascii")
            if name in found:
                raise self.fail(f"the PTX defines the entry {name!r} twice")
            found[name] = self._params(name, match.end()) if match[2] else ()
        return found

    def _params(self, entry: str, start: int) -> tuple[ParamInfo, ...]:
        end = self.text.find(b")", start)
        if end >= 0 and self._may_hide(start, end):
            self._blank()
            end = self.text.find(b")", start)
        if end < 0:
            raise self.fail(f"the parameter list of the entry {entry!r} does not end")
        source = self.text[start:end]
        params: list[ParamInfo] = []
        offset = 0
        for part in source.split(b",") if source.strip() else ():
            param = self._param(entry, len(params), offset, part)
            offset = param.offset + param.size
            params.append(param)
        return tuple(params)

    def _param(self, entry: str, index: int, end: int, source: bytes) -> ParamInfo:
        match = _PARAM.fullmatch(source)
        type_, size, alignment = _attributes(match[1]) if match else ("", 0, 0)
        if match is None or not size:
            text = source.strip()[:80].decode("utf-8", "replace")
            raise self.fail(f"parameter {index} of the entry {entry!r} cannot be read: `{text}`")
        offset = -(-end // alignment) * alignment
        count = int(match[3]) if match[3] else 1
        return ParamInfo(match[2].decode("ascii"), size * count, alignment, type_, offset)


def describe_ptx(image: bytes | memoryview, *, file: str, where: str, kernels: bool) -> ImageInfo:
    """Reads the header facts of PTX text; see `describe_image`."""
    reader = _Reader(bytes(image), file, where)
    version = reader.directive(_VERSION, b".version", ".version 8.7")
    target = reader.directive(_TARGET, b".target", ".target sm_80")
    entries = reader.entries() if kernels else {}
    return ImageInfo("ptx", target[1].decode("ascii"), (int(version[1]), int(version[2])), entries)
