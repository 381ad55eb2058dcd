"""JSON from files that anybody may have written: objects whose keys are distinct, and numbers that are finite."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from coilpack.runtime.errors import InvalidFileError


def parse_object(data: bytes | memoryview, file: str, where: str = "") -> dict[str, Any]:
    """The JSON object that UTF-8 text holds.

    Args:
        data: the text.
        file: its file in messages.
        where: its place in that file, if it is not all of it.

    Raises:
        InvalidFileError: it is not JSON or not an object, a key is there twice, or a number is not finite.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InvalidFileError(file, where, f"the key {twice[:200]!r} is there twice")
        return made

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number")

    try:
        value = json.loads(str(data, "utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise InvalidFileError(file, where, "the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidFileError(file, where, f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidFileError(file, where, "the JSON is not an object")
    return value
