"""What follows about a size expression from the ranges of its symbols alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr, ExprKind, Symbol

Interval = tuple[float, float]  # both ends included; they are int, or infinite
Ranges = Mapping[str, tuple[int, int]]  # of symbols, both ends included


def always_holds(guard: ir.Guard, ranges: Ranges) -> bool:
    """Whether a guard holds whatever its symbols are."""
    low, high = interval(guard.lhs, ranges)
    other_low, other_high = interval(guard.rhs, ranges)
    if guard.kind is ir.GuardKind.LESS_EQUAL:
        return high <= other_low
    if guard.kind is ir.GuardKind.NOT_EQUAL:
        return high < other_low or other_high < low
    return guard.lhs == guard.rhs or low == high == other_low == other_high


def interval(expr: Expr, ranges: Ranges) -> Interval:
    """The least and the greatest value that an expression may have, or something wider."""
    if isinstance(expr, int):
        return expr, expr
    if isinstance(expr, Symbol):
        return ranges[expr.name]
    (a, b), (c, d) = interval(expr.lhs, ranges), interval(expr.rhs, ranges)
    match expr.kind:
        case ExprKind.ADD:
            return a + c, b + d
        case ExprKind.MIN:
            return min(a, c), min(b, d)
        case ExprKind.MAX:
            return max(a, c), max(b, d)
        case ExprKind.MUL:
            products = [_times(x, y) for x in (a, b) for y in (c, d)]
            return min(products), max(products)
        case ExprKind.FLOORDIV if c > 0 or d < 0:
            quotients = [_divided(x, y) for x in (a, b) for y in (c, d)]
            return min(quotients), max(quotients)
        case ExprKind.MOD if c > 0:
            return 0, d - 1
    return -math.inf, math.inf


def _times(x: float, y: float) -> float:
    if not (x and y):
        return 0
    if math.isinf(x) or math.isinf(y):
        return math.inf if (x > 0) == (y > 0) else -math.inf
    return x * y


def _divided(x: float, y: float) -> float:
    if math.isinf(x):
        return _times(x, y)
    if math.isinf(y):
        return 0 if not x or (x > 0) == (y > 0) else -1
    return x // y
