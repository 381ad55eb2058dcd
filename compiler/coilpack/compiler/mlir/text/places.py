"""Lines and columns of a text."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right

from coilpack.compiler.mlir.syntax import Location


class Places:
    """Where the characters of a text stand."""

    def __init__(self, text: str) -> None:
        self._text = text

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self._text))]

    def location(self, offset: int) -> Location:
        """Line and column, both from 1, of the character at an offset from 0."""
        line = bisect_right(self._starts, offset)
        return Location(line, offset - self._starts[line - 1] + 1)
