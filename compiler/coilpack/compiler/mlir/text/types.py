"""Types from their text."""

from __future__ import annotations

import re
from collections.abc import Callable

from coilpack.compiler.mlir.syntax import OtherType, ScalarType, TensorType, Type
from coilpack.compiler.mlir.text.lexer import LexicalError, scalar_name

MAX_SIZE = (1 << 63) - 1
MAX_RANK = 64
_MAX_BITS = (1 << 24) - 1  # of an integer type, as in MLIR

_SPACE = r"(?:[ \t\r\n]|//[^\n]*)*"
_TENSOR = re.compile(
    rf"tensor{_SPACE}<{_SPACE}((?:(?:[0-9]+|\?){_SPACE}x{_SPACE})*+)([A-Za-z_][A-Za-z0-9_]*|![A-Za-z0-9_$.\-]+){_SPACE}>"
)
_VECTOR = re.compile(r"vector ?< ?(?:[0-9]+ ?x ?)*[a-z][A-Za-z0-9]* ?>")
_SIZE = re.compile(r"[0-9]+|\?")
_WHITE = re.compile(r"(?:[ \t\r\n]|//[^\n]*)+")


def parse_type(text: str, alias: Callable[[str], Type]) -> Type:
    """The type that a token stands for.

    Args:
        text: the token.
        alias: gives the type of `!name`.

    Raises:
        LexicalError: there is no such type; the offset counts within `text`.
    """
    if text.startswith("!") and "." not in text and "<" not in text:
        return alias(text)
    if scalar_name(text):
        return _scalar(text)
    match = _TENSOR.fullmatch(text)
    if match is None:
        return OtherType(_WHITE.sub(" ", text))
    name = match.group(2)
    element = alias(name) if name.startswith("!") else _scalar(name, match.start(2))
    sizes = match.group(1)
    if not isinstance(element, ScalarType):
        return OtherType(_WHITE.sub(" ", text))
    shape = tuple(None if size == "?" else int(size[:20]) for size in _SIZE.findall(_without_comments(sizes)))
    if len(shape) > MAX_RANK:
        raise LexicalError(0, f"a tensor of {len(shape)} dimensions; the limit is {MAX_RANK}")
    for size in shape:
        if size is not None and size > MAX_SIZE:
            raise LexicalError(0, f"a dimension of this tensor is larger than the limit of {MAX_SIZE}")
    return TensorType(shape, element)


def literal_type(type_: Type) -> TensorType | None:
    """The type of a literal: a vector's are those of a tensor of its shape; None where there is none."""
    if isinstance(type_, OtherType) and _VECTOR.fullmatch(type_.text):
        found = parse_type(f"tensor{type_.text.removeprefix('vector')}", _no_alias)
        return found if isinstance(found, TensorType) else None
    return type_ if isinstance(type_, TensorType) else None


def _no_alias(name: str) -> Type:
    raise LexicalError(0, f"{name!r} stands in a vector")


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text) if "/" in text else text


def _scalar(text: str, offset: int = 0) -> ScalarType:
    if not scalar_name(text):
        raise LexicalError(offset, f"there is no type {text!r}")
    digits = text.lstrip("sui")
    if digits.isdecimal() and (len(digits) > 8 or int(digits) > _MAX_BITS):
        raise LexicalError(offset, f"an integer of {digits[:20]} bits; the limit is {_MAX_BITS}")
    return ScalarType(text)
