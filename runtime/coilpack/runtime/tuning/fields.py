"""Readers of JSON values that say which field is wrong: small functions, put together as the document is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from coilpack.runtime.errors import InvalidFileError

# Takes a value, its path in the document and the file's name; raises InvalidFileError.
Reader: TypeAlias = Callable[[Any, str, str], Any]
Fields: TypeAlias = Mapping[str, Reader]

_INT64 = 2**63


def _fail(value: Any, where: str, file: str, expected: str) -> NoReturn:
    raise InvalidFileError(file, where, f"it is {str(value)[:40]!r}, and must be {expected}")


def text(value: Any, where: str, file: str) -> str:
    """A string."""
    if not isinstance(value, str):
        _fail(value, where, file, "a string")
    return value


def number(value: Any, where: str, file: str) -> float:
    """A finite number that is not negative, as times are."""
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        _fail(value, where, file, "a number that is not negative")
    return float(value)


def whole(least: int = -_INT64) -> Reader:
    """A reader of 64-bit integers from `least` on; `true` is none."""

    def read(value: Any, where: str, file: str) -> int:
        if type(value) is not int or not least <= value < _INT64:
            _fail(value, where, file, f"an integer of {least} to {_INT64 - 1}")
        return value

    return read


def optional(reader: Reader) -> Reader:
    """A reader of what `reader` reads, or null."""
    return lambda value, where, file: None if value is None else reader(value, where, file)


def list_of(reader: Reader) -> Reader:
    """A reader of arrays, as tuples."""

    def read(value: Any, where: str, file: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            _fail(value, where, file, "an array")
        return tuple(reader(item, f"{where}[{index}]", file) for index, item in enumerate(value))

    return read


def values_of(reader: Reader) -> Reader:
    """A reader of objects that take any keys, as dicts."""

    def read(value: Any, where: str, file: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            _fail(value, where, file, "an object")
        return {key: reader(item, f"{where}[{key[:100]!r}]", file) for key, item in value.items()}

    return read


def object_of(fields: Fields, make: Callable[..., Any]) -> Reader:
    """A reader of objects that have exactly these fields, which `make` gets by name."""

    def read(value: Any, where: str, file: str) -> Any:
        if not isinstance(value, dict):
            _fail(value, where, file, "an object")
        for key in sorted(value.keys() ^ fields.keys()):
            problem = "it is missing" if key in fields else "there is no such field"
            raise InvalidFileError(file, _join(where, key[:100]), problem)
        return make(**{key: reader(value[key], _join(where, key), file) for key, reader in fields.items()})

    return read


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
