"""Arrays as text, in the notation of IREE's tools: `4xf32=1 2 3 4`, `2x2xi32=[1 2][3 4]`, `f32=1`, `@x.npy`.

The grammar, after `iree/hal/string_util.c` and `iree/tooling/function_io.c`:

    value    = type [ "=" elements ] | type "=@" path | "@" path ".npy"
    type     = { size "x" } element-type
    elements = nothing (all zero), one element (repeated), or all of them in row-major order, separated by
               spaces or commas; brackets may group them

Where IREE is lenient this module is strict: brackets must close and hold whole rows, integers must be in range, and
finite numbers must stay finite in the element type. It adds two things: complex elements (`cf64=1+2j`; IREE writes
them in hexadecimal), and `4xbf16=@x.npy`, which gives the element type that `.npy` files cannot record.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]

_IREE_NAMES = {DType.complex64: "cf64", DType.complex128: "cf128"}  # IREE counts the bits of both parts
_NAMES = {dtype: _IREE_NAMES.get(dtype, dtype.name) for dtype in DType}
_BY_NAME = {name: dtype for dtype, name in _NAMES.items()} | {
    f"s{dtype.name}": dtype for dtype in (DType.i8, DType.i16, DType.i32, DType.i64)
}

_TYPE = re.compile(r"(?P<shape>(?:\d+x)*)(?P<dtype>[^=x]*)")
_TOKEN = re.compile(r"[\[\]]|[^\[\],\s]+")
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0|[1-9]\d*)")
_REAL = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_BOOLEANS = {"0": False, "1": True, "00": False, "01": True, "false": False, "true": True}
_MAX_RANK = 64  # numpy's


def format_type(dtype: DType, shape: Iterable[object]) -> str:
    """The notation's name of an array type, as `2x3xf32`; sizes may be numbers or the text of expressions."""
    return "x".join([*(str(size) for size in shape), _NAMES[dtype]])


def parse_value(text: str) -> Array:
    """Reads one array from its notation.

    Args:
        text: a value, or a file: `@x.npy`, or `4x4xf32=@x.bin` for raw little-endian bytes in row-major order.
            Paths are relative to the current directory.

    Returns:
        An array that owns its memory; bf16 and fp8 have the dtypes of `ml_dtypes`.

    Raises:
        InputError: the text breaks the grammar, with the column; or the file's contents do not fit.
        OSError: the file cannot be read.
    """
    stripped = text.strip()
    if len(stripped) > 1 and stripped[0] == stripped[-1] == '"':
        stripped = stripped[1:-1]
    if stripped.startswith("@"):
        return _load_npy(Path(stripped[1:]))
    return _Parser(stripped).parse()


def format_value(array: Array, *, digits: int = 6, max_elements: int | None = 1024) -> str:
    """Writes an array in the notation, as IREE's tools print it.

    Args:
        array: any array whose element type is a `DType`.
        digits: significant digits of floating-point elements. Six, as IREE prints, is exact for types of up to 16
            bits; 9 is exact for f32 and 17 for f64.
        max_elements: how many elements are written before the rest becomes `...`; None for all.

    Raises:
        InputError: the element type has no name in the notation.
    """
    try:
        dtype = DType.from_numpy(array.dtype)
    except KeyError:
        raise InputError(
            f"an array of {array.dtype} has no IREE notation; convert it to one of {', '.join(_BY_NAME)}"
        ) from None
    limit = array.size if max_elements is None else min(max_elements, array.size)
    shown = [_formatter(dtype, digits)(item) for item in _to_python(array.reshape(-1)[:limit], dtype)]
    return f"{format_type(dtype, array.shape)}={_format_rows(shown, array.shape or (1,))}"


def _to_python(flat: Array, dtype: DType) -> list[Any]:
    values: list[Any] = (flat.astype(np.float64) if dtype.is_float else flat).tolist()
    return values


def _formatter(dtype: DType, digits: int) -> Callable[[Any], str]:
    def real(value: float) -> str:
        minus = "-" if math.isnan(value) and math.copysign(1, value) < 0 else ""  # as C prints it, and Python does not
        return f"{minus}{value:.{digits}G}"

    if dtype is DType.i1:
        return lambda value: f"{int(value):02}"  # IREE writes booleans as bytes in hexadecimal
    if dtype in _IREE_NAMES:
        return lambda value: f"{value.real:.{digits}G}{value.imag:+.{digits}G}j"
    return real if dtype.is_float else str


def _format_rows(shown: list[str], shape: Sequence[int]) -> str:
    """Joins the shown elements, innermost dimension by spaces, outer ones as brackets."""
    if len(shape) == 1:
        return " ".join(shown[: shape[0]]) + ("..." if len(shown) < shape[0] else "")
    step = math.prod(shape[1:])
    rows = (shown[row * step : (row + 1) * step] for row in range(shape[0]))
    return "".join(f"[{_format_rows(row, shape[1:])}]" for row in rows)


class _Parser:
    """Parses one value; holds its text, so that every message can point into it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def parse(self) -> Array:
        dtype, shape, end = self._type()
        contents = self.text[end + 1 :]
        if contents.startswith("@"):
            return _load_typed(Path(contents[1:]), dtype, shape)
        elements = self._elements(dtype, shape, end + 1)
        try:
            if len(elements) <= 1:
                return np.full(shape, elements[0] if elements else np.zeros((), dtype.numpy), dtype.numpy)
            return np.array(elements, dtype.numpy).reshape(shape)
        except (MemoryError, ValueError):
            self._fail(0, f"an array of {format_type(dtype, shape)} does not fit in memory")

    def _fail(self, offset: int, problem: str) -> NoReturn:
        start = max(0, offset - 30)
        before, after = "..." if start else "", "..." if len(self.text) > start + 60 else ""
        excerpt = f"{before}{self.text[start : start + 60]}{after}"
        raise InputError(f"value {excerpt!r}: column {offset + 1}: {problem}")

    def _type(self) -> tuple[DType, tuple[int, ...], int]:
        match = _TYPE.match(self.text)
        assert match is not None  # every part of the pattern may be empty
        name, start, end = match["dtype"], match.start("dtype"), match.end()
        if name not in _BY_NAME:
            found = f"{name!r} is not an element type" if name else "an element type is missing"
            self._fail(start, f"{found}; expected sizes and a type, as 4xf32, with one of {', '.join(_BY_NAME)}")
        if end < len(self.text) and self.text[end] != "=":
            self._fail(end, f"expected '=' after the type, found {self.text[end]!r}")
        sizes = match["shape"].split("x")[:-1]
        if len(sizes) > _MAX_RANK:
            self._fail(0, f"{len(sizes)} dimensions; the limit is {_MAX_RANK}")
        return _BY_NAME[name], tuple(int(size) for size in sizes), end

    def _elements(self, dtype: DType, shape: tuple[int, ...], start: int) -> list[Any]:
        """The elements from offset `start` on: none, one, or as many as the shape has."""
        count = math.prod(shape)
        groups = {math.prod(shape[axis:]) for axis in range(len(shape))} or {1}
        parse = _element_parser(dtype)
        elements: list[Any] = []
        opened: list[tuple[int, int]] = []  # offset of each open bracket, and how many elements stood before it
        for match in _TOKEN.finditer(self.text, start):
            item, offset = match[0], match.start()
            if item == "[":
                opened.append((offset, len(elements)))
            elif item == "]":
                if not opened:
                    self._fail(offset, "']' closes nothing")
                size = len(elements) - opened.pop()[1]
                if size not in groups:
                    expected = " or ".join(str(group) for group in sorted(groups))
                    self._fail(offset, f"brackets around {size} elements; {format_type(dtype, shape)} has {expected}")
            elif len(elements) == count:
                self._fail(offset, f"{item!r} is one too many; {format_type(dtype, shape)} has {count} elements")
            else:
                try:
                    elements.append(parse(item))
                except ValueError as error:
                    self._fail(offset, str(error))
        if opened:
            self._fail(opened[-1][0], "'[' is not closed")
        if 1 < len(elements) < count:
            self._fail(len(self.text), f"{len(elements)} elements; {format_type(dtype, shape)} has {count}")
        return elements


def _element_parser(dtype: DType) -> Callable[[str], Any]:
    if dtype is DType.i1:
        return _parse_boolean
    if dtype in _IREE_NAMES:
        return lambda token: _parse_complex(token, dtype)
    return lambda token: _parse_real(token, dtype) if dtype.is_float else _parse_integer(token, dtype)


def _parse_boolean(token: str) -> bool:
    if token not in _BOOLEANS:
        raise ValueError(f"{token!r} is not an i1; expected 0, 1, true or false")
    return _BOOLEANS[token]


def _parse_integer(token: str, dtype: DType) -> int:
    if not _INTEGER.fullmatch(token):
        raise ValueError(f"{token!r} is not an {dtype.name}; expected a decimal or 0x hexadecimal integer")
    value, limits = int(token, 0), np.iinfo(dtype.numpy)
    if not limits.min <= value <= limits.max:
        raise ValueError(f"{token} is out of range for {dtype.name}: {limits.min} to {limits.max}")
    return value


def _parse_real(token: str, dtype: DType) -> float:
    if not _REAL.fullmatch(token):
        raise ValueError(f"{token!r} is not an {dtype.name}; expected a decimal number, inf or nan")
    value = float(token)
    with np.errstate(over="ignore"):
        stored = float(np.float64(value).astype(dtype.numpy))
    if not math.isfinite(stored):
        spelled, reached = token.lower().lstrip("+-")[:3], "nan" if math.isnan(stored) else "inf"
        if spelled != reached:
            raise ValueError(f"{token} is out of range for {dtype.name}")
    return value


def _parse_complex(token: str, dtype: DType) -> complex:
    try:
        return complex(token)
    except ValueError:
        raise ValueError(f"{token!r} is not a {_NAMES[dtype]}; expected a number as 1+2j") from None


def _load_npy(path: Path) -> Array:
    """Reads a `.npy` file whose element type is one that numpy has."""
    array = _read_npy(path)
    try:
        DType.from_numpy(array.dtype)
    except KeyError:
        hint = f"; give the type, as {format_type(DType.bf16, array.shape)}=@{path}" if array.dtype.kind == "V" else ""
        raise InputError(f"{path}: elements of {array.dtype.str!r} have no counterpart here{hint}") from None
    return array


def _load_typed(path: Path, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Reads raw bytes, or a `.npy` file whose elements are `dtype` or opaque items of its size."""
    if path.suffix == ".npy":
        array = _read_npy(path)
        opaque = array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize
        if array.shape != shape or not (opaque or array.dtype == dtype.numpy):
            found = "x".join([*(str(size) for size in array.shape), str(array.dtype)])
            raise InputError(f"{path}: expected {format_type(dtype, shape)}, found {found}")
        return array.view(dtype.numpy)
    expected, found_bytes = math.prod(shape) * dtype.itemsize, path.stat().st_size
    if found_bytes != expected:
        raise InputError(f"{path}: {format_type(dtype, shape)} takes {expected} bytes, the file has {found_bytes}")
    return np.frombuffer(bytearray(path.read_bytes()), dtype.numpy).reshape(shape)


def _read_npy(path: Path) -> Array:
    """Reads a `.npy` file as a contiguous, native-endian array; refuses pickled objects."""
    if path.suffix != ".npy":
        raise InputError(f"{path}: files without a type must be .npy; for raw bytes write as 4xf32=@{path}")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: not a readable .npy file: {error}") from error
    if not isinstance(array, np.ndarray):  # numpy tells formats by content, so an archive of arrays gets here
        raise InputError(f"{path}: holds several arrays; expected one, as numpy.save writes")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
