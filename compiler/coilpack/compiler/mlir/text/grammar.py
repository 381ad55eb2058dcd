"""Parse trees of MLIR's text, and what a message says where the text leaves the grammar."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import resources
from typing import Any

from lark import Lark, UnexpectedToken
from lark.lexer import PatternStr

from coilpack.compiler.mlir.text.lexer import LexicalError, MlirLexer
from coilpack.compiler.mlir.text.operations import FORMS

Node = Any
"""A `lark.Tree`, a `Word`, or None for what may be left out; the grammar says which stands where."""

_NAMED = {
    "VALUE": "a value (%name)",
    "BLOCK": "a block (^name)",
    "SYMBOL": "a symbol (@name)",
    "STRING": "a string",
    "INTEGER": "an integer",
    "FLOAT": "a number with a point",
    "WORD": "a name",
    "DOTTED": "a name",
    "EOF": "the end of the text",
    "SCALAR": "a type",
    "TYPE": "a type",
    "TYPE_ALIAS": "an alias (!name)",
    "ATTRIBUTE_ALIAS": "an alias (#name)",
    "FASTMATH": "fastmath<…>",
    "OVERFLOW": "overflow<…>",
    "DIALECT_ATTRIBUTE": "an attribute",
    "DENSE": "an attribute",
    "RESOURCE": "an attribute",
    "ARRAY": "an attribute",
    "AFFINE_MAP": "an attribute",
    "CARRIED": "an attribute",
    "RESOURCES": "",
    "LOCATION": "a location",
    **dict.fromkeys(FORMS.values(), "an operation"),
}
_LISTED = 8  # more alternatives than this say little


@functools.cache
def _grammar() -> Lark:
    source = resources.files(__package__).joinpath("mlir.lark").read_text("utf-8")
    return Lark(source, parser="lalr", lexer=MlirLexer, maybe_placeholders=True)


def parse_tree(text: str) -> Node:
    """The tree of a whole text.

    Raises:
        LexicalError: the text breaks the grammar, with the offset where.
        UnknownOperationError: an operation stands there whose form is not known.
    """
    try:
        return _grammar().parse(text)
    except UnexpectedToken as error:
        token: Any = error.token
        offset = token.start_pos if token.type == "EOF" else token.start
        expected = error.accepts or error.expected
        if token.type in ("DOTTED", "WORD", "BRACKETED") and "FUNCTION" in expected:
            raise UnknownOperationError(offset, token.partition("<")[0]) from None
        found = "the text ends here" if token.type == "EOF" else f"unexpected {_shown(token)!r}"
        raise LexicalError(offset, f"{found}; expected {_alternatives(expected)}") from None


class UnknownOperationError(LexicalError):
    """An operation in a form that is not known; `name` is its name."""

    def __init__(self, offset: int, name: str) -> None:
        self.name = name
        super().__init__(offset, name)


def _shown(token: str) -> str:
    return token if len(token) <= 40 else f"{token[:40]}…"


def _alternatives(kinds: Iterable[str]) -> str:
    literals = {t.name: t.pattern.value for t in _grammar().terminals if isinstance(t.pattern, PatternStr)}
    shown = {_NAMED.get(kind) if kind in _NAMED else repr(literals.get(kind, kind)) for kind in kinds}
    names = sorted(name for name in shown if name)
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
