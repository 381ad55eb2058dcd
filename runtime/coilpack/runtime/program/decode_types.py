"""Reads expressions and types from the wire form of programs, and what the other parts share with them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol
from coilpack.runtime.program.reader import ProblemError, Reader, fail
from coilpack.runtime.program.types import MAX_EXPR_DEPTH, MAX_EXPR_NODES, MAX_RANK

_T = TypeVar("_T")
_E = TypeVar("_E", bound=enum.Enum)


def pick(items: Sequence[_T], index: int, what: str, field: str) -> _T:
    """The item of that index; fails for `field`, which held it, where there is none."""
    if index >= len(items):
        fail(f"{what} {index} does not exist; there are {len(items)}", f".{field}")
    return items[index]


def member(kind: type[_E], code: int, field: str) -> _E:
    """The member of an enum with that wire code; fails for `field` where there is none."""
    try:
        return kind(code)
    except ValueError:
        known = ", ".join(str(other.value) for other in kind)
        fail(f"its code is {code}; known are {known}", f".{field}")


def element_type(code: int) -> DType:
    """The element type with that wire code."""
    try:
        return DType.from_code(code)
    except KeyError:
        fail(f"its code is {code}; known are 1 to {len(DType)}", ".element_type")


def each(name: str, rows: Iterable[tuple[Any, ...]], make: Callable[..., _T]) -> tuple[_T, ...]:
    """`make` of every row; problems get `.name[index]` in front."""
    made: list[_T] = []
    try:
        for row in rows:
            made.append(make(*row))  # noqa: PERF401 - the length tells where it failed
    except ProblemError as error:
        error.path.append(f".{name}[{len(made)}]")
        raise
    return tuple(made)


class TypeDecoder:
    """Decodes expressions and types over one list of expressions.

    Args:
        reader: the file.
        expressions: the position of the list.
        symbols: the names of the symbols that expressions refer to by index.
    """

    def __init__(self, reader: Reader, expressions: int, symbols: Sequence[str]) -> None:
        self.reader = reader
        self.symbols = symbols
        self.expressions: list[Expr] = []
        self.types: dict[int, ir.TensorType] = {}
        self._sizes: list[tuple[int, int]] = []  # of each expression as a tree: nodes and depth
        each("expressions", reader.structs(expressions, wire.EXPR), self._expression)

    def _expression(self, value: int, lhs: int, rhs: int, kind: int) -> None:
        if kind == wire.EXPR_CONSTANT or kind == wire.EXPR_SYMBOL:
            if kind == wire.EXPR_SYMBOL and not 0 <= value < len(self.symbols):
                fail(f"symbol {value} does not exist; there are {len(self.symbols)}", ".value")
            self.expressions.append(value if kind == wire.EXPR_CONSTANT else Symbol(self.symbols[value]))
            self._sizes.append((1, 1))
            return
        operator = member(ExprKind, kind, "kind")
        first, second = self.expression(lhs, "lhs"), self.expression(rhs, "rhs")
        (nodes, depth), (more, other) = self._sizes[lhs], self._sizes[rhs]
        nodes, depth = nodes + more + 1, max(depth, other) + 1
        if nodes > MAX_EXPR_NODES or depth > MAX_EXPR_DEPTH:
            limits = f"{MAX_EXPR_NODES} operands and {MAX_EXPR_DEPTH} levels"
            fail(f"it has {nodes} operands in {depth} levels; the limits are {limits}")
        self.expressions.append(Binary(operator, first, second))
        self._sizes.append((nodes, depth))

    def expression(self, index: int, field: str) -> Expr:
        """The expression of that index, which `field` held."""
        return pick(self.expressions, index, "expression", field)

    def type(self, table: int) -> ir.TensorType:
        """The type in the table at that position; a shared table gives one object."""
        known = self.types.get(table)
        if known is None:
            known = self.types[table] = self._type(table)
        return known

    def _type(self, table: int) -> ir.TensorType:
        try:
            code, shape, strides = self.reader.row(table, "TensorType")
            dtype = element_type(code)
            sizes = self._list(shape, "shape")
            if strides:
                return ir.TensorType(dtype, sizes, self._list(strides, "strides"))
            return ir.TensorType.contiguous(dtype, sizes)
        except ProblemError as error:
            error.path.append(".type")
            raise

    def _list(self, at: int, field: str) -> tuple[Expr, ...]:
        indices = self.reader.words(at)
        if len(indices) > MAX_RANK:
            fail(f"it has {len(indices)} dimensions; the limit is {MAX_RANK}", f".{field}")
        return tuple([self.expression(index, field) for index in indices])
