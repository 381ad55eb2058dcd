"""Attributes from parse trees, aliases resolved."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from coilpack.compiler.mlir import syntax
from coilpack.compiler.mlir.syntax import Attribute, ScalarType, TensorType, Type
from coilpack.compiler.mlir.text import dense
from coilpack.compiler.mlir.text.affine import parse_affine_map
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import LexicalError, Word, scalar_name
from coilpack.compiler.mlir.text.numbers import float_of, integer_of, is_float
from coilpack.compiler.mlir.text.reader import Reader, unknown
from coilpack.compiler.mlir.text.strings import unquoted
from coilpack.compiler.mlir.text.types import literal_type

I1, I64, _F64 = ScalarType("i1"), ScalarType("i64"), ScalarType("f64")
_ARRAY = re.compile(r"array\s*<\s*([A-Za-z0-9]+)\s*(?::([^>]*))?>")
_DIALECT = re.compile(r"#([^<]*)(?:<(.*)>)?", re.DOTALL)
_BOOLEANS = {"true": "1", "false": "0"}


def attribute(reader: Reader, node: Node) -> Attribute:
    """The attribute of a tree."""
    return _READERS[node.data](reader, node.children)


def define_attribute(reader: Reader, word: Word, node: Node) -> None:
    """`#name = attribute`."""
    if str(word) in reader.attribute_aliases:
        reader.fail(word, f"{str(word)!r} is defined twice")
    reader.attribute_aliases[str(word)] = attribute(reader, node)


def dictionary(reader: Reader, node: Node | None) -> dict[str, Attribute]:
    """The attributes of `{name = attribute, …}`, of `<{…}>`, or none."""
    return {} if node is None else _entries(reader, node.children)


def _entries(reader: Reader, entries: list[Any]) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for name, value in (entry.children for entry in entries):
        key = text_of(reader, name)
        if key in found:
            reader.fail(name, f"attribute {key!r} is there twice")
        found[key] = syntax.UnitAttr() if value is None else attribute(reader, value)
    return found


def text_of(reader: Reader, word: Word) -> str:
    """The text of a string, of a name, or of a symbol without its `@`."""
    quoted, offset = (word[1:], 1) if word.type == "SYMBOL" else (str(word), 0)
    return reader.read(word, lambda: unquoted(quoted), offset) if quoted.startswith('"') else quoted


def number(reader: Reader, word: Word, type_: Type | None) -> Attribute:
    """An integer or a float of a type; without a type, of 64 bits."""
    text = str(word)
    if type_ is None:
        type_ = _F64 if word.type == "FLOAT" else I64
    if not isinstance(type_, ScalarType):
        reader.fail(word, f"a number cannot be of type {type_}")
    scalar = type_
    if is_float(scalar):
        return syntax.FloatAttr(reader.read(word, lambda: float_of(text, scalar)), scalar)
    if word.type == "FLOAT":
        reader.fail(word, f"a number with a point cannot be of type {scalar}")
    return syntax.IntegerAttr(reader.read(word, lambda: integer_of(text, scalar)), scalar)


def boolean(_reader: Reader, children: list[Any]) -> Attribute:
    """`true` or `false`."""
    return syntax.IntegerAttr(int(children[0] == "true"), I1)


def _number(reader: Reader, children: list[Any]) -> Attribute:
    word, type_ = children
    return number(reader, word, None if type_ is None else reader.type(type_))


def _string(reader: Reader, children: list[Any]) -> Attribute:
    return syntax.StringAttr(text_of(reader, children[0]))


def _symbol(reader: Reader, children: list[Any]) -> Attribute:
    return syntax.SymbolRefAttr(tuple(text_of(reader, word) for word in children))


def _array(reader: Reader, children: list[Any]) -> Attribute:
    return syntax.ArrayAttr(tuple(attribute(reader, child) for child in children))


def _tensor(reader: Reader, word: Word, node: Node) -> TensorType:
    type_ = literal_type(reader.type(node))
    if type_ is None:
        reader.unsupported(word, f"a literal of type {reader.type(node)}; only those of tensors of numbers are covered")
    return type_


def _dense(reader: Reader, children: list[Any]) -> Attribute:
    word, node = children
    type_ = _tensor(reader, word, node)
    start = word.index("<") + 1
    body = word[start:-1]
    return syntax.DenseElementsAttr(type_, reader.read(word, lambda: dense.parse_dense(body, type_), start))


def _resource(reader: Reader, children: list[Any]) -> Attribute:
    word, node = children
    type_ = _tensor(reader, word, node)
    name = word[word.index("<") + 1 : -1].strip()

    def read() -> dense.Array:
        key = unquoted(name) if name.startswith('"') else name
        return dense.from_bytes(reader.resources.data(key), type_)

    return syntax.DenseElementsAttr(type_, reader.read(word, read))


def _dense_array(reader: Reader, children: list[Any]) -> Attribute:
    (word,) = children
    found = reader.memo.get(word)
    if found is None:
        text = str(word)
        found = reader.memo[text] = reader.read(word, lambda: _array_of(text))
    return found


def _array_of(text: str) -> Attribute:
    match = _ARRAY.fullmatch(text)
    if match is None or not scalar_name(match.group(1)):
        raise LexicalError(0, "expected array<type: number, …> with a type of numbers")
    element = ScalarType(match.group(1))
    body = (match.group(2) or "").strip()
    items = [item.strip() for item in body.split(",")] if body else []
    return syntax.DenseArrayAttr(element, tuple(_item(item, element) for item in items))


def _item(text: str, element: ScalarType) -> int | float:
    return (
        float_of(dense.number(text), element)
        if is_float(element)
        else integer_of(dense.number(_BOOLEANS.get(text, text)), element)
    )


def _affine_map(reader: Reader, children: list[Any]) -> Attribute:
    (word,) = children
    found = reader.memo.get(word)
    if found is None:
        start = word.index("<") + 1
        body = word[start:-1]
        found = reader.memo[str(word)] = syntax.AffineMapAttr(reader.read(word, lambda: parse_affine_map(body), start))
    return found


def _carried(_reader: Reader, children: list[Any]) -> Attribute:
    name, body = re.split(r"[<(]", str(children[0]), maxsplit=1)
    return syntax.DialectAttr(name.strip(), body[:-1])


def _alias(reader: Reader, children: list[Any]) -> Attribute:
    (word,) = children
    found = reader.attribute_aliases.get(word)
    if found is None:
        reader.fail(word, unknown("attribute", str(word), reader.attribute_aliases))
    return found


def _dialect(_reader: Reader, children: list[Any]) -> Attribute:
    match = _DIALECT.fullmatch(children[0])
    assert match is not None
    return syntax.DialectAttr(match.group(1), match.group(2) or "")


_READERS: Mapping[str, Callable[[Reader, list[Any]], Attribute]] = {
    "number": _number,
    "string": _string,
    "boolean": boolean,
    "unit": lambda _reader, _children: syntax.UnitAttr(),
    "type_attribute": lambda reader, children: syntax.TypeAttr(reader.type(children[0])),
    "symbol": _symbol,
    "array": _array,
    "dictionary": lambda reader, children: syntax.DictionaryAttr(_entries(reader, children)),
    "dense": _dense,
    "resource": _resource,
    "dense_array": _dense_array,
    "affine_map": _affine_map,
    "carried": _carried,
    "alias": _alias,
    "dialect_attribute": _dialect,
}
