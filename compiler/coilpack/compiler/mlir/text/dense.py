"""Literals of tensors: `dense<…>`, and the bytes of a `dense_resource<…>`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from coilpack.compiler.mlir.syntax import ScalarType, TensorType
from coilpack.compiler.mlir.text.lexer import LexicalError
from coilpack.compiler.mlir.text.numbers import float_of, integer_of, integer_range, is_float, numpy_type, rounded

_COMMENT = re.compile(r"//[^\n]*")
_OUTSIDE_LISTS = re.compile(r"[^\[\],]+")
_DECIMALS = re.compile(r"(?:-?[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?,)*+")
_INTEGERS = re.compile(r"(?:-?[0-9]{1,18},)*+")
_HEX = re.compile(r'"0[xX]((?:[0-9a-fA-F]{2})*+)"')
_BOOLEANS = {"true": "1", "false": "0"}
_SHOWN = 30

Array = npt.NDArray[np.generic]


def parse_dense(body: str, type_: TensorType) -> Array:
    """The elements of `dense<body> : type`.

    Returns:
        An array of the type's shape, or one without dimensions where one value stands for all.

    Raises:
        LexicalError: the literal does not fit the type; the offset counts within `body`.
    """
    shape, kind = _layout(type_)
    text = body.strip()
    if text.startswith('"'):
        return _from_hex(text, type_)
    text = "".join((_COMMENT.sub("", text) if "//" in text else text).split())
    if not text:
        if math.prod(shape):
            raise LexicalError(0, f"a literal without elements; {type_} has {math.prod(shape)}")
        return _shaped(np.zeros(0, kind), type_, shape)
    if not text.startswith("["):
        return _elements([text], type_.element, kind).reshape(())
    return _nested(text, type_, shape, kind)


def _layout(type_: TensorType) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """The sizes and the elements of an array of a type."""
    if None in type_.shape:
        raise LexicalError(0, f"a literal of {type_}: its sizes must be known")
    kind = numpy_type(type_.element)
    if kind is None:
        raise LexicalError(0, f"a literal whose elements are {type_.element} is not read")
    return tuple(size for size in type_.shape if size is not None), kind


def _nested(text: str, type_: TensorType, shape: tuple[int, ...], kind: np.dtype[np.generic]) -> Array:
    """Lists in lists; their brackets and commas must be those of the shape."""
    leaves = text.replace("[", "").replace("]", "").split(",") if math.prod(shape) else []
    brackets = _OUTSIDE_LISTS.sub("", text)
    if len(leaves) != math.prod(shape) or len(brackets) != _skeleton_size(shape) or brackets != _skeleton(shape):
        raise LexicalError(0, f"the lists of this literal are not those of {type_}")
    if not all(leaves):
        raise LexicalError(0, "an element of this literal is missing")
    return _shaped(_elements(leaves, type_.element, kind), type_, shape)


def _shaped(values: Array, type_: TensorType, shape: tuple[int, ...]) -> Array:
    try:
        return values.reshape(shape)
    except ValueError as error:
        raise LexicalError(0, f"{type_} is larger than numpy's arrays may be") from error


def _skeleton_size(shape: Sequence[int]) -> int:
    size = 0
    for length in reversed(shape):
        size = length * size + max(length - 1, 0) + len("[]")
    return size


def _skeleton(shape: Sequence[int]) -> str:
    inner = ""
    for size in reversed(shape):
        inner = f"[{','.join([inner] * size)}]"
    return inner


def _elements(leaves: list[str], element: ScalarType, kind: np.dtype[np.generic]) -> Array:
    """One number for each text, read at once where all are of the usual kind."""
    joined = ",".join(leaves) + ","
    if is_float(element):
        if _DECIMALS.fullmatch(joined):
            return rounded(np.array(list(map(float, leaves))), kind)
        return np.array([float_of(number(leaf), element) for leaf in leaves], np.float64).astype(kind)
    if kind.type in _NUMPY_INTEGERS and _INTEGERS.fullmatch(joined):
        values = np.array(list(map(int, leaves)), np.int64)
        low, high = integer_range(element)
        if low <= values.min() and values.max() <= high:
            return values.astype(kind)  # which wraps as MLIR does
    return _wrapped([integer_of(number(_BOOLEANS.get(leaf, leaf)), element) for leaf in leaves], kind)


def number(text: str) -> str:
    """The text itself, which must be a number.

    Raises:
        LexicalError: it is something else.
    """
    if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?)?)", text) is None:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise LexicalError(0, f"{shown!r} is no element of a literal")
    if "." in text and len(text) > 4096:
        raise LexicalError(0, "a number of more than 4096 characters")
    return text


def _wrapped(values: list[int], kind: np.dtype[np.generic]) -> Array:
    """Integers whose bits a type has, as that type's numbers: 255 is -1 of int8."""
    if kind == np.bool_:
        return np.array([value & 1 for value in values], np.bool_)
    width = 8 * kind.itemsize if kind.type in _NUMPY_INTEGERS else (2 if "2" in kind.name else 4)
    signed = kind.name.startswith("int")
    half, whole = 1 << (width - 1), 1 << width
    return np.array([value - whole if signed and value >= half else value for value in values]).astype(kind)


_NUMPY_INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


def _from_hex(text: str, type_: TensorType) -> Array:
    match = _HEX.fullmatch(text)
    if match is None:
        raise LexicalError(0, 'the bytes of a literal are written "0x…", two digits for each')
    return from_bytes(bytes.fromhex(match.group(1)), type_)


def from_bytes(data: bytes, type_: TensorType) -> Array:
    """Elements from their bytes, the lowest first; `i1` and numbers of less than a byte take a byte each.

    Raises:
        LexicalError: there are not as many bytes as the type has, nor those of one element for all.
    """
    shape, kind = _layout(type_)
    count, size = math.prod(shape), kind.itemsize
    if kind == np.bool_:
        values: Array = np.frombuffer(data, np.uint8) != 0
    elif len(data) % size == 0:
        values = np.frombuffer(data, kind)
    else:
        values = np.zeros(0, kind)
    if len(data) == count * size:
        return _shaped(values, type_, shape)
    if len(data) == size:
        return values.reshape(())
    raise LexicalError(0, f"{len(data)} bytes; {type_} has {count} elements of {size}")
