"""The section `{-# … #-}` of a file, of which the bytes of `dense_resource` are read."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from coilpack.compiler.mlir.text.lexer import LexicalError, closing
from coilpack.compiler.mlir.text.strings import unquoted

_STRING = r'"(?:[^"\\\n]++|\\[^\n])*+"'
_SECTION = re.compile(r"dialect_resources\s*:\s*\{")
_ENTRY = re.compile(rf'\s*,?\s*([A-Za-z_][A-Za-z0-9_$.]*|{_STRING})\s*:\s*(?:"0x((?:[0-9a-fA-F]{{2}})*+)"|\{{)')
_ALIGNMENT_BYTES = 4  # which stand before the data of a resource


class Resources:
    """The resources of a text, found when the first is asked for."""

    def __init__(self, section: str | None) -> None:
        self._section = section or ""

    def data(self, name: str) -> bytes:
        """The bytes of a resource, without the alignment before them.

        Raises:
            LexicalError: there is no such resource.
        """
        digits = self._digits.get(name)
        if digits is None:
            known = ", ".join(map(repr, list(self._digits)[:8])) or "none"
            raise LexicalError(0, f"the text has no resource {name!r}; it has: {known}")
        if len(digits) < 2 * _ALIGNMENT_BYTES:
            raise LexicalError(
                0, f"resource {name!r} does not start with the {_ALIGNMENT_BYTES} bytes of its alignment"
            )
        return bytes.fromhex(digits)[_ALIGNMENT_BYTES:]

    @functools.cached_property
    def _digits(self) -> Mapping[str, str]:
        """The hexadecimal digits of every resource of every dialect, by name."""
        section = _SECTION.search(self._section)
        found: dict[str, str] = {}
        if section is None:
            return found
        position, end = section.end(), closing(self._section, section.end() - 1)
        while match := _ENTRY.match(self._section, position, end):
            name, digits = match.groups()
            position = match.end()
            if digits is not None:
                found[unquoted(name) if name.startswith('"') else name] = digits
            position = _behind_braces(self._section, position)
        return found


def _behind_braces(text: str, position: int) -> int:
    """The offset behind the closing braces that follow."""
    match = re.compile(r"[\s}]*").match(text, position)
    assert match is not None
    return match.end()
