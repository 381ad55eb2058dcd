"""Arithmetic on size expressions, folded where a part is constant so that what is stored stays small."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from coilpack.runtime.program.expr import Binary, Expr, ExprKind, binary


def add(*terms: Expr) -> Expr:
    """The sum of the terms; 0 of none. Constants are gathered at the end."""
    constant = sum(term for term in terms if isinstance(term, int))
    symbolic: list[Expr] = [term for term in terms if not isinstance(term, int)]
    return reduce(_add, [*symbolic, constant])


def _add(lhs: Expr, rhs: Expr) -> Expr:
    if isinstance(rhs, int) and isinstance(lhs, Binary) and lhs.kind is ExprKind.ADD and isinstance(lhs.rhs, int):
        return binary(ExprKind.ADD, lhs.lhs, lhs.rhs + rhs)
    return binary(ExprKind.ADD, lhs, rhs)


def multiply(*factors: Expr) -> Expr:
    """The product of the factors; 1 of none. Constants are gathered at the end."""
    constant = 1
    symbolic: list[Expr] = []
    for factor in factors:
        if isinstance(factor, Binary) and factor.kind is ExprKind.MUL and isinstance(factor.rhs, int):
            constant *= factor.rhs
            symbolic.append(factor.lhs)
        elif isinstance(factor, int):
            constant *= factor
        else:
            symbolic.append(factor)
    return reduce(lambda a, b: binary(ExprKind.MUL, a, b), [*symbolic, constant]) if constant else 0


def subtract(lhs: Expr, rhs: Expr) -> Expr:
    """`lhs - rhs`."""
    return 0 if lhs == rhs else add(lhs, multiply(rhs, -1))


def floor_divide(lhs: Expr, rhs: Expr) -> Expr:
    """`lhs // rhs`, rounded down."""
    return 0 if lhs == 0 else binary(ExprKind.FLOORDIV, lhs, rhs)


def ceil_divide(lhs: Expr, rhs: int) -> Expr:
    """`lhs / rhs`, rounded up; `rhs` is a positive constant."""
    return floor_divide(add(lhs, rhs - 1), rhs)


def modulo(lhs: Expr, rhs: Expr) -> Expr:
    """`lhs % rhs`, with the sign of the divisor."""
    return 0 if lhs == 0 or rhs == 1 else binary(ExprKind.MOD, lhs, rhs)


def minimum(*operands: Expr) -> Expr:
    """The least of one or more."""
    return reduce(lambda a, b: a if a == b else binary(ExprKind.MIN, a, b), _constants_last(operands, min))


def maximum(*operands: Expr) -> Expr:
    """The greatest of one or more."""
    return reduce(lambda a, b: a if a == b else binary(ExprKind.MAX, a, b), _constants_last(operands, max))


def _constants_last(operands: Iterable[Expr], fold: object) -> list[Expr]:
    """Each different operand once, in order, the constants folded into one at the end."""
    constants: list[int] = []
    symbolic: dict[Expr, None] = {}
    for operand in operands:
        if isinstance(operand, int):
            constants.append(operand)
        else:
            symbolic[operand] = None
    folded: list[int] = [fold(constants)] if constants else []  # type: ignore[operator]
    return [*symbolic, *folded]


def align_up(expr: Expr, alignment: int) -> Expr:
    """The least multiple of `alignment`, a positive constant, that is not below `expr`."""
    match expr:
        case Binary(kind=ExprKind.MUL, rhs=int() as factor) if factor % alignment == 0:
            return expr
    return multiply(ceil_divide(expr, alignment), alignment)
