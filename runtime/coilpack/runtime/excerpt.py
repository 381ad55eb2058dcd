"""Shows a place in a text: its line, and a caret below it."""

from __future__ import annotations

_SHOWN_BEFORE, _SHOWN = 60, 120  # characters of a long line that a message shows, and those before the place


def excerpt(text: str, line: int, column: int) -> str:
    """Two indented lines: the line (cut to a window where it is long), and a caret under the column; both from 1."""
    lines = text.split("\n", line)
    content = lines[line - 1].rstrip("\r") if line <= len(lines) else ""
    start = max(0, column - 1 - _SHOWN_BEFORE) if len(content) > _SHOWN else 0
    shown = content[start : start + _SHOWN]
    indent = "".join("\t" if character == "\t" else " " for character in content[start : column - 1])
    return f"  {shown}\n  {indent}^"
