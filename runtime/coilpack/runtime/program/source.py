"""The text of a program: its parse tree, its tokens' meaning, and messages that point into it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.excerpt import excerpt
from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.expr import Binary, Expr, Symbol
from coilpack.runtime.program.text import OPERATORS
from coilpack.runtime.program.types import MAX_EXPR_DEPTH, MAX_RANK

if TYPE_CHECKING:
    from lark import Lark, Token

Node = Any
"""A `lark.Tree` or a `lark.Token`; the grammar says which stands where."""

_T = TypeVar("_T")

DTYPES = {dtype.name: dtype for dtype in DType}
_OPERATORS = {text: kind for kind, text in OPERATORS.items()}

TERMINALS = {
    "VALUE": "a value (%name)",
    "REF": "a symbol (@name)",
    "NAME": "a name",
    "STRING": "a string",
    "INT": "an integer",
    "DIM": "a size (4x)",
    "OPERATOR": " ".join(OPERATORS.values()),
    "RELATION": "== != <=",
    "FLOAT": "a float",
    "FLOAT_BITS": "f64(0x...)",
    "$END": "the end",
    "alternatives": "a list of kernels, each with its grid (@name [x, y, z])",
}


@functools.cache
def _grammar() -> Lark:
    from lark import Lark  # only where text is read: importing it takes longer than opening a package

    text = resources.files("coilpack.runtime.program").joinpath("program.lark").read_text("utf-8")
    return Lark(text, start="program", parser="lalr", lexer="contextual", maybe_placeholders=False)


class Source:
    """The text, and where in it things stand."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.marks: dict[int, Token] = {}  # of IR objects by identity, which the program keeps alive

    def mark(self, thing: _T, at: Token) -> _T:
        """Remembers where an object stands, for problems that the verifier finds."""
        self.marks[id(thing)] = at
        return thing

    def tree(self) -> Node:
        """The parse tree."""
        from lark import exceptions

        try:
            return _grammar().parse(self.text)
        except exceptions.UnexpectedToken as error:
            found = "the text ends" if error.token.type == "$END" else f"unexpected {str(error.token)!r}"
            self._unexpected(error, found, error.accepts or error.expected)
        except exceptions.UnexpectedCharacters as error:
            self._unexpected(error, f"unexpected {error.char!r}", error.allowed or ())

    def _unexpected(self, error: Any, found: str, expected: Iterable[str]) -> NoReturn:
        patterns = {terminal.name: terminal.pattern for terminal in _grammar().terminals}
        names = sorted(TERMINALS.get(key) or repr(patterns[key].value) for key in expected)
        line, column = error.line, error.column
        if line < 1:  # lark does not say where a text ends
            lines = self.text.splitlines() or [""]
            line, column = len(lines), len(lines[-1]) + 1
        self._fail(line, column, f"{found}; expected {' or '.join(names)}")

    def fail(self, at: Token, problem: str) -> NoReturn:
        """Raises for the token, with its line, its column and a caret."""
        assert at.line is not None
        assert at.column is not None
        self._fail(at.line, at.column, problem)

    def _fail(self, line: int, column: int, problem: str) -> NoReturn:
        shown = excerpt(self.text, line, column)
        raise InvalidFileError(self.file, f"line {line}, column {column}", f"{problem}\n{shown}")

    # --- tokens ---

    def integer(self, token: Token) -> int:
        """The number of an integer or a size."""
        digits = token.rstrip("x") if token.type == "DIM" else token
        if len(digits) > 20:
            self.fail(token, f"a number of {len(digits)} characters; the limit is 64 bits")
        return int(digits, 16 if "x" in digits else 10)

    def float(self, token: Token) -> float:
        """The number of a float, decimal or as the bits of a double."""
        if token.type == "FLOAT":
            return float(token)
        number: float = wire.DOUBLE.unpack(wire.UINT64.pack(int(token[4:-1], 16)))[0]
        return number

    def string(self, token: Token) -> str:
        """The text of a string token, or of a name behind `%` or `@`."""
        literal = token[1:] if token.type in ("VALUE", "REF") else token
        if not literal.startswith('"'):
            return str(literal)
        try:
            return str(json.loads(literal))
        except json.JSONDecodeError as error:
            self.fail(token, f"the string is not as in JSON: {error.msg}")

    def lookup(self, token: Token, table: Mapping[str, _T], kind: str) -> _T:
        """What the table has under the token's text."""
        key = self.string(token) if token.type in ("VALUE", "REF") else str(token)
        found = table.get(key)
        if found is None:
            known = ", ".join(list(table)[:8]) or "none"
            more = f" and {len(table) - 8} more" if len(table) > 8 else ""
            self.fail(token, f"there is no {kind} {key!r}; known: {known}{more}")
        return found

    # --- expressions and types ---

    def expression(self, node: Node, depth: int = 1) -> Expr:
        """An expression, as it stands: nothing is folded."""
        if not is_tree(node):
            return self.integer(node) if node.type == "INT" else Symbol(str(node))
        lhs, operator, rhs = node.children
        if depth >= MAX_EXPR_DEPTH:
            self.fail(operator, f"the expression is nested deeper than the limit of {MAX_EXPR_DEPTH}")
        kind = _OPERATORS[str(operator)]
        return Binary(kind, self.expression(lhs, depth + 1), self.expression(rhs, depth + 1))

    def expressions(self, node: Node) -> tuple[Expr, ...]:
        """A list of expressions."""
        return tuple(self.expression(child) for child in node.children)

    def type(self, node: Node) -> ir.TensorType:
        """A tensor type."""
        children = list(node.children)
        strides = children.pop() if is_tree(children[-1]) else None
        *sizes, element = children
        dtype = self.lookup(element, DTYPES, "element type")
        if len(sizes) > MAX_RANK:
            self.fail(element, f"the type has {len(sizes)} dimensions; the limit is {MAX_RANK}")
        shape = tuple(self.expression(size.children[0]) if is_tree(size) else self.integer(size) for size in sizes)
        if strides is None:
            return ir.TensorType.contiguous(dtype, shape)
        return ir.TensorType(dtype, shape, self.expressions(strides))


def is_tree(node: Node) -> bool:
    """Whether a node is a tree and not a token."""
    return hasattr(node, "children")
