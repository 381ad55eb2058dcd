"""Numbers of MLIR's text as Python's and numpy's."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import numpy.typing as npt

from coilpack.compiler.mlir.syntax import ScalarType
from coilpack.compiler.mlir.text.lexer import LexicalError

_FLOATS: dict[str, type] = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
_INTEGER = re.compile(r"(s|u|)i([1-9][0-9]*)")
_MAX_DIGITS = 4300  # Python's own limit on decimal integers
_INDEX_BITS = 64


def numpy_type(element: ScalarType) -> np.dtype[np.generic] | None:
    """Numpy's type of a tensor's elements; None where it has none."""
    name = element.name
    if name in _FLOATS:
        return np.dtype(_FLOATS[name])
    if name == "i1":
        return np.dtype(np.bool_)
    if name == "index":
        return np.dtype(np.int64)
    match = _INTEGER.fullmatch(name)
    if match:
        numpys = f"{'u' if match.group(1) == 'u' else ''}int{match.group(2)}"
    else:
        numpys = f"float{name[1:].lower().replace('e', '_e')}"  # f8E4M3FN is float8_e4m3fn
    found: type | None = getattr(ml_dtypes, numpys, getattr(np, numpys, None) if match else None)
    return None if found is None else np.dtype(found)


def is_float(element: ScalarType) -> bool:
    """Whether the type's numbers have a fraction."""
    return element.name[0] in "fbt"


def bits(element: ScalarType) -> int:
    """The width of a number in bits; of `index`, 64."""
    if element.name == "index":
        return _INDEX_BITS
    match = _INTEGER.fullmatch(element.name)
    if match:
        return int(match.group(2))
    digits = re.match(r"[a-z]+([0-9]+)", element.name)
    assert digits is not None
    return 19 if element.name == "tf32" else int(digits.group(1))


def integer(text: str) -> int:
    """An integer, decimal or hexadecimal.

    Raises:
        LexicalError: it has too many digits.
    """
    if len(text) > _MAX_DIGITS:
        raise LexicalError(0, f"an integer of {len(text)} digits; the limit is {_MAX_DIGITS}")
    return int(text, 16 if "x" in text else 10)


def integer_of(text: str, element: ScalarType) -> int:
    """An integer that must fit a type, with or without a sign.

    Raises:
        LexicalError: it does not, or is no integer.
    """
    if "." in text:
        raise LexicalError(0, f"{_shown(text)} has a point; {element.name} needs an integer")
    value, width = integer(text), bits(element)
    low, high = integer_range(element)
    if not low <= value <= high:
        range_ = f": its integers are {low} to {high}" if width <= _INDEX_BITS else ""
        raise LexicalError(0, f"{_shown(text)} does not fit {element.name}{range_}")
    return value


def integer_range(element: ScalarType) -> tuple[int, int]:
    """The lowest and the highest integer of a type; without a sign of its own it has those of both kinds."""
    width, name = bits(element), element.name
    low = 0 if name.startswith("u") else -(1 << (width - 1))
    return low, (1 << (width - 1 if name.startswith("s") or name == "index" else width)) - 1


def _shown(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:24]}…"


def float_of(text: str, element: ScalarType) -> float:
    """A number with a point, or the bits of one in hexadecimal, as a type holds it.

    Raises:
        LexicalError: it is an integer, or its bits are more than the type has.
    """
    kind = numpy_type(element)
    if not text.lstrip("-").startswith("0x"):
        if "." not in text:
            raise LexicalError(0, f"{_shown(text)} is an integer; {element.name} needs a number with a point")
        return float(text) if kind is None else float(rounded(np.array(float(text)), kind))
    if text.startswith("-"):
        raise LexicalError(0, "the bits of a float have no sign before them")
    value, width = integer(text), bits(element)
    if value >> width:
        raise LexicalError(0, f"{_shown(text)} has more bits than the {width} of {element.name}")
    if kind is None:
        raise LexicalError(0, f"the bits of {element.name} are not read")
    return float(np.frombuffer(value.to_bytes(kind.itemsize, "little"), kind)[0])


def rounded(values: npt.NDArray[np.float64], kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Doubles as another float type, each rounded once to the nearest, ties to even.

    ml_dtypes goes through float32; an odd last bit there (where bits were lost) makes the second rounding right.
    """
    if kind.type in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype(kind)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = np.array(values.astype(np.float32))
        patterns = single.view(np.uint32)
        inexact = np.isfinite(values) & (single.astype(np.float64) != values)
        away = inexact & (np.abs(single.astype(np.float64)) > np.abs(values))
        patterns -= away.astype(np.uint32)  # towards zero, then odd
        patterns |= inexact.astype(np.uint32)
        return single.astype(kind)
