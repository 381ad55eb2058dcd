"""Where in the model's source an operation came from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
UNKNOWN = "an unknown source line"


def source_location(node: Any) -> str:
    """`file:line` of the model's innermost frame that made an FX node; `an unknown source line` where none is kept."""
    frames = _FRAME.findall(getattr(node, "meta", {}).get("stack_trace") or "")
    in_files = [frame for frame in frames if not frame[0].startswith("<")]  # the others are code that torch made
    return ":".join(in_files[-1]) if in_files else UNKNOWN


def portable_location(node: Any) -> str:
    """The same with the file's name alone, so that it is the same on every machine; empty where none is kept."""
    where = source_location(node)
    return "" if where == UNKNOWN else Path(where).name


def first_known(nodes: Iterable[Any]) -> str:
    """The first known location among FX nodes."""
    return next((where for where in map(source_location, nodes) if where != UNKNOWN), UNKNOWN)
