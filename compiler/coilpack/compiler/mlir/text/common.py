"""What the forms of several dialects share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coilpack.compiler.mlir.syntax import (
    Attribute,
    DenseArrayAttr,
    DialectAttr,
    OtherType,
    ScalarType,
    TensorType,
    Type,
    UnitAttr,
    Value,
)
from coilpack.compiler.mlir.text.attributes import I1, I64
from coilpack.compiler.mlir.text.builder import Builder
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import Word

INDEX = ScalarType("index")
DYNAMIC = -(1 << 63)  # stands in a list of known sizes for one that is an operand
_I32 = ScalarType("i32")


class _Flags(NamedTuple):
    """A list of flags: the attribute that holds it, and the flags in the order in which MLIR writes them."""

    key: str
    attribute: str
    comma: str
    known: tuple[str, ...]


_FASTMATH = ("none", "reassoc", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "fast")
_FLAGS = {
    "FASTMATH": _Flags("fastmath", "arith.fastmath", ",", _FASTMATH),
    "OVERFLOW": _Flags("overflowFlags", "arith.overflow", ", ", ("none", "nsw", "nuw")),
}
_WORD_FLAGS = {"exact": "isExact", "nneg": "nonNeg"}


def truths(type_: Type) -> Type:
    """The type of one truth for each element."""
    return TensorType(type_.shape, I1) if isinstance(type_, TensorType) else I1


def flag(b: Builder, node: Node) -> dict[str, Attribute]:
    """The attribute that `fastmath<…>`, `overflow<…>`, `exact` or `nneg` stands for."""
    if node is None:
        return {}
    (word,) = node.children
    if word.type not in _FLAGS:
        return {_WORD_FLAGS[word]: UnitAttr()}
    flags = _FLAGS[word.type]
    given = {value.strip() for value in word[word.index("<") + 1 : -1].split(",")}
    if given - set(flags.known):
        b.fail(word, f"there is no flag {min(given - set(flags.known))!r}; expected {', '.join(flags.known)}")
    return {flags.key: DialectAttr(flags.attribute, flags.comma.join(key for key in flags.known if key in given))}


def typed(b: Builder, node: Node, at: Word) -> tuple[Value, ...]:
    """The values of `%a, %b : type, type`; none where it is left out."""
    if node is None:
        return ()
    operands, types = node.children
    return b.uses(operands.children, [b.type(type_) for type_ in types.children], at)


def tensor(b: Builder, word: Word, type_: Type) -> TensorType:
    """The type, which must be a tensor of known rank."""
    if isinstance(type_, OtherType):
        b.unsupported(word, f"{word!s} with type {type_}; only ranked tensors of numbers are covered")
    if not isinstance(type_, TensorType):
        b.fail(word, f"{word!s} with type {type_}; expected a tensor")
    return type_


def sizes(b: Builder, node: Node) -> tuple[list[Value], DenseArrayAttr]:
    """`[%a, 4]`: the values, and all with DYNAMIC where a value stands."""
    values: list[Value] = []
    known: list[int | float] = []
    for word in node.children:
        if word.type == "VALUE":
            values.append(b.use(word, INDEX))
            known.append(DYNAMIC)
        else:
            known.append(b.integer(word))
    return values, DenseArrayAttr(I64, tuple(known))


def segments(*counts: int) -> dict[str, Attribute]:
    """How many operands each group has."""
    return {"operandSegmentSizes": DenseArrayAttr(_I32, counts)}


def indices(b: Builder, node: Node) -> tuple[Value, ...]:
    """`[%i, %j]`."""
    return () if node is None else tuple(b.use(word, INDEX) for word in node.children)


def same(b: Builder, words: Sequence[Word], type_: Type) -> tuple[Value, ...]:
    """Values that are all of one type."""
    return tuple(b.use(word, type_) for word in words)


def count(b: Builder, at: Word, words: Sequence[Word], expected: int) -> Sequence[Word]:
    """The words, which must be as many as expected."""
    if len(words) != expected:
        b.fail(at, f"{at!s} needs another number of operands: {expected}, not {len(words)}")
    return words
