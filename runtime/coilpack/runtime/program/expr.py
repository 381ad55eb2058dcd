"""Integer expressions over the sizes that a caller's arguments have."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


class ExprKind(enum.Enum):
    """Operators; values are the wire codes of `ExprKind` in program_def.fbs (1 and 2 are constant and symbol).

    Attributes:
        apply: what the operator does. It is kept here because a table by member would hash one at each evaluation.
    """

    apply: Callable[[int, int], int]

    def __new__(cls, code: int, apply: Callable[[int, int], int]) -> ExprKind:
        """A member of that code."""
        member = object.__new__(cls)
        member._value_ = code
        member.apply = apply
        return member

    ADD = 3, operator.add
    MUL = 4, operator.mul
    FLOORDIV = 5, operator.floordiv
    MOD = 6, operator.mod
    MIN = 7, min
    MAX = 8, max


@dataclass(frozen=True, slots=True)
class Symbol:
    """The size that the signature's symbol `name` stands for."""

    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    """`kind` applied to two operands; division and remainder round as Python's `//` and `%` do."""

    kind: ExprKind
    lhs: Expr
    rhs: Expr


# A constant is a plain int: most programs hold nothing else.
Expr = int | Symbol | Binary


def evaluate(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The value of `expr` where every symbol has the value that `sizes` gives.

    Raises:
        KeyError: a symbol is not in `sizes` (a verified program has none such).
        ZeroDivisionError: a divisor is zero.
    """
    if isinstance(expr, int):
        return expr
    if isinstance(expr, Symbol):
        return sizes[expr.name]
    return expr.kind.apply(evaluate(expr.lhs, sizes), evaluate(expr.rhs, sizes))


# The right operand that leaves the left one as it is.
_NEUTRAL: dict[ExprKind, int] = {ExprKind.ADD: 0, ExprKind.MUL: 1, ExprKind.FLOORDIV: 1}


def binary(kind: ExprKind, lhs: Expr, rhs: Expr) -> Expr:
    """`kind` applied to both, folded where both are constants or one is neutral.

    A zero divisor is left for evaluation to report.
    """
    foldable = isinstance(lhs, int) and isinstance(rhs, int)
    if foldable and (rhs or kind not in (ExprKind.FLOORDIV, ExprKind.MOD)):
        return evaluate(Binary(kind, lhs, rhs), {})
    neutral = _NEUTRAL.get(kind)
    if rhs == neutral:
        return lhs
    if lhs == neutral and kind is not ExprKind.FLOORDIV:
        return rhs
    return Binary(kind, lhs, rhs)


def symbols(expr: Expr) -> Iterator[str]:
    """The names of all symbols in `expr`, with repeats."""
    if isinstance(expr, Symbol):
        yield expr.name
    elif isinstance(expr, Binary):
        yield from symbols(expr.lhs)
        yield from symbols(expr.rhs)


def linear(expr: Expr, name: str) -> tuple[int, int] | None:
    """The constants (a, b) of an expression that is written as a * symbol + b; None where it is not.

    Only sums, and products with a constant, are looked through.
    """
    if isinstance(expr, int):
        return 0, expr
    if isinstance(expr, Symbol):
        return (1, 0) if expr.name == name else None
    first, second = linear(expr.lhs, name), linear(expr.rhs, name)
    if first is None or second is None:
        return None
    (a, b), (c, d) = first, second
    if expr.kind is ExprKind.ADD:
        return a + c, b + d
    if expr.kind is ExprKind.MUL and not (a and c):
        return a * d + c * b, b * d
    return None
