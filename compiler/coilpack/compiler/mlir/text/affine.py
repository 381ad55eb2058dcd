"""Affine maps from their text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from coilpack.compiler.mlir.syntax import (
    AffineBinary,
    AffineConstant,
    AffineDim,
    AffineExpr,
    AffineMap,
    AffineSymbol,
)
from coilpack.compiler.mlir.text.lexer import LexicalError

MAX_EXPRESSION_DEPTH = 64
_MAX_DIGITS = 19  # an index has 64 bits


@functools.cache
def _grammar() -> Lark:
    source = resources.files(__package__).joinpath("affine.lark").read_text("utf-8")
    return Lark(source, parser="lalr", lexer="contextual", maybe_placeholders=False)


def parse_affine_map(body: str) -> AffineMap:
    """The map of what stands between the brackets of `affine_map<…>`.

    Raises:
        LexicalError: it is none, or nested deeper than the limit; the offset counts within `body`.
    """
    try:
        tree: Any = _grammar().parse(body)
    except UnexpectedInput as error:
        raise _problem(body, error) from None
    lists = [child for child in tree.children if _is(child, "dims") or _is(child, "symbols")]
    names: dict[str, AffineExpr] = {}
    makers: tuple[Callable[[int], AffineExpr], ...] = (AffineDim, AffineSymbol)
    for node, make in zip(lists, makers, strict=False):
        for position, name in enumerate(node.children):
            if name in names:
                raise LexicalError(name.start_pos, f"{str(name)!r} is there twice")
            names[str(name)] = make(position)
    results = tuple(_expression(child, names, 1) for child in tree.children[len(lists) :])
    symbols = len(lists[1].children) if len(lists) > 1 else 0
    return AffineMap(len(lists[0].children), symbols, results)


def _is(node: Any, kind: str) -> bool:
    return not isinstance(node, Token) and node.data == kind


def _problem(body: str, error: UnexpectedInput) -> LexicalError:
    if isinstance(error, UnexpectedCharacters):
        return LexicalError(error.pos_in_stream or 0, f"unexpected {error.char!r} in an affine map")
    assert isinstance(error, UnexpectedToken)
    if error.token.type == "$END":
        return LexicalError(len(body), "this affine map ends too early")
    return LexicalError(error.token.start_pos or 0, f"unexpected {str(error.token)!r} in an affine map")


def _expression(node: Any, names: Mapping[str, AffineExpr], depth: int) -> AffineExpr:
    if isinstance(node, Token):
        return _leaf(node, names)
    if depth > MAX_EXPRESSION_DEPTH:
        raise LexicalError(0, f"an affine expression is nested deeper than the limit of {MAX_EXPRESSION_DEPTH}")
    parts = [_expression(child, names, depth + 1) for child in node.children if not _is_operator(child)]
    if node.data == "negated":
        return _negated(parts[0])
    operator = str(node.children[1])
    if operator == "-":
        return AffineBinary("+", parts[0], _negated(parts[1]))
    return AffineBinary(operator, parts[0], parts[1])


def _is_operator(node: Any) -> bool:
    return isinstance(node, Token) and node.type in ("ADD", "MULTIPLY")


def _negated(expression: AffineExpr) -> AffineExpr:
    if isinstance(expression, AffineConstant):
        return AffineConstant(-expression.value)
    return AffineBinary("*", expression, AffineConstant(-1))


def _leaf(token: Token, names: Mapping[str, AffineExpr]) -> AffineExpr:
    start = token.start_pos or 0
    if token.type == "INTEGER":
        if len(token) > _MAX_DIGITS:
            raise LexicalError(start, f"an integer of {len(token)} digits; the limit is 64 bits")
        return AffineConstant(int(token))
    found = names.get(str(token))
    if found is None:
        known = ", ".join(names) or "none"
        raise LexicalError(start, f"{str(token)!r} is no dimension or symbol of this map; it has: {known}")
    return found
