"""Sizes that are known only at a call: torch's symbolic expressions as expressions of the IR, and what bounds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.arithmetic import add, floor_divide, maximum, minimum, modulo, multiply, subtract
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr, Symbol

_MAX_EXPONENT = 8


def expression(size: Any) -> Expr:
    """A size of torch's as an expression of the IR.

    Args:
        size: an int, a `SymInt`, or a sympy expression over size symbols.

    Raises:
        UnsupportedError: it depends on the model's data, or uses a function that has no counterpart; names it.
    """
    if isinstance(size, int):
        return int(size)
    return _convert(size.node.expr if isinstance(size, torch.SymInt) else size)


def _convert(expr: sympy.Expr) -> Expr:
    handler = _HANDLERS.get(type(expr).__name__)
    if handler is not None:
        return handler(expr)
    if expr.is_Integer:
        return int(expr)
    raise _unsupported(expr)


def _unsupported(expr: Any) -> UnsupportedError:
    return UnsupportedError(
        f"the size {expr} uses {type(expr).__name__}, which a package cannot compute when it is called"
    )


def _symbol(expr: sympy.Symbol) -> Expr:
    if compat.is_unbacked(expr):
        message = f"the size {expr} depends on what the model computes; sizes must follow from those of the inputs"
        raise UnsupportedError(message)
    return Symbol(expr.name)


def _product(expr: sympy.Expr) -> Expr:
    """A product, in which fractions and negative powers are a divisor; as a size is whole, it divides exactly."""
    above: list[Expr] = []
    below: list[Expr] = []
    for factor in sympy.Mul.make_args(expr):
        if isinstance(factor, sympy.Rational):
            above.append(int(factor.p))
            below.append(int(factor.q))
        elif isinstance(factor, sympy.Pow) and factor.exp.is_negative:
            below.append(_convert(factor.base**-factor.exp))
        else:
            above.append(_convert(factor))
    divisor = multiply(*below)
    return multiply(*above) if divisor == 1 else _divide(multiply(*above), divisor, _denominator(expr))


def _denominator(expr: sympy.Expr) -> sympy.Expr:
    return sympy.fraction(expr)[1]


def _power(expr: sympy.Expr) -> Expr:
    base, exponent = expr.args
    if exponent.is_Integer and 0 <= exponent <= _MAX_EXPONENT:
        return multiply(*[_convert(base)] * int(exponent))
    if exponent.is_Integer and exponent < 0:
        return _product(expr)
    raise _unsupported(expr)


def _divide(lhs: Expr, rhs: Expr, divisor: sympy.Expr) -> Expr:
    """A quotient; where the divisor is a size that may be 0, then by 1: what depends on it has no elements."""
    if not isinstance(rhs, int):
        rhs = maximum(rhs, 1) if divisor.is_nonnegative else minimum(rhs, -1) if divisor.is_nonpositive else rhs
    return floor_divide(lhs, rhs)


def _quotient(expr: sympy.Expr) -> Expr:
    lhs, rhs = expr.args
    return _divide(_convert(lhs), _convert(rhs), rhs)


def _ceil_quotient(expr: sympy.Expr) -> Expr:
    lhs, rhs = expr.args
    return multiply(_divide(multiply(_convert(lhs), -1), _convert(rhs), rhs), -1)


def _remainder(expr: sympy.Expr) -> Expr:
    lhs, rhs = expr.args
    divisor = _convert(rhs)
    if not isinstance(divisor, int) and rhs.is_nonnegative:
        divisor = maximum(divisor, 1)
    return modulo(_convert(lhs), divisor)


def _modular_indexing(expr: sympy.Expr) -> Expr:
    base, divisor, modulus = expr.args
    quotient = _divide(_convert(base), _convert(divisor), divisor)
    return modulo(quotient, modulus if isinstance(modulus, int) else maximum(_convert(modulus), 1))


def _rounded(round_quotient: Callable[[sympy.Expr], Expr]) -> Callable[[sympy.Expr], Expr]:
    """A rounding of a true quotient, which is a quotient of integers."""

    def convert(expr: sympy.Expr) -> Expr:
        (inner,) = expr.args
        if type(inner).__name__ == "IntTrueDiv":
            return round_quotient(inner)
        above, below = sympy.fraction(sympy.together(inner))
        return round_quotient(sympy.Tuple(above, below))  # it has the same `args`

    return convert


def _where(expr: sympy.Expr) -> Expr:
    condition, chosen, other = expr.args
    return _select(condition, _convert(chosen), _convert(other))


def _piecewise(expr: sympy.Expr) -> Expr:
    *cases, (last, always) = expr.args
    if always != sympy.true:
        raise _unsupported(expr)
    result = _convert(last)
    for value, condition in reversed(cases):
        result = _select(condition, _convert(value), result)
    return result


def _select(condition: sympy.Basic, chosen: Expr, other: Expr) -> Expr:
    return add(other, multiply(flag(condition), subtract(chosen, other)))


def _absolute(expr: sympy.Expr) -> Expr:
    operand = _convert(expr.args[0])
    return maximum(operand, multiply(operand, -1))


# By the name of the class: some are torch's, some sympy's.
_HANDLERS: Mapping[str, Callable[[Any], Expr]] = {
    "Symbol": _symbol,
    "Dummy": _symbol,
    "Add": lambda expr: add(*map(_convert, expr.args)),
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _quotient,
    "CleanDiv": _quotient,
    "IntTrueDiv": _quotient,  # only where the size is whole
    "CeilDiv": _ceil_quotient,
    "Mod": _remainder,
    "PythonMod": _remainder,
    "ModularIndexing": _modular_indexing,
    "Min": lambda expr: minimum(*map(_convert, expr.args)),
    "Max": lambda expr: maximum(*map(_convert, expr.args)),
    "floor": _rounded(_quotient),
    "FloorToInt": _rounded(_quotient),
    "ceiling": _rounded(_ceil_quotient),
    "CeilToInt": _rounded(_ceil_quotient),
    "Identity": lambda expr: _convert(expr.args[0]),
    "Where": _where,
    "Piecewise": _piecewise,
    "Abs": _absolute,
}


# --- what must hold ---


def conditions(expr: Any) -> tuple[ir.Guard, ...]:
    """A relation between sizes, a sympy Boolean, as guards that hold together exactly where it does.

    Raises:
        UnsupportedError: it uses a function that has no counterpart, or it never holds.
    """
    if expr == sympy.true:
        return ()
    if expr == sympy.false:
        raise UnsupportedError("the model was exported under a condition on its sizes that never holds")
    if isinstance(expr, sympy.And):
        return tuple(guard for part in expr.args for guard in conditions(part))
    if isinstance(expr, sympy.Not):
        return conditions(_negated(expr.args[0]))
    if isinstance(expr, sympy.Or):
        return (ir.Guard(ir.GuardKind.LESS_EQUAL, _excess(expr), 0),)
    relation = _RELATIONS.get(type(expr).__name__)
    if relation is None:
        raise _unsupported(expr)
    return (relation(*map(_convert, _whole_sides(expr))),)


def flag(condition: Any) -> Expr:
    """1 where a relation between sizes holds, else 0."""
    if condition in (sympy.true, sympy.false):
        return int(condition == sympy.true)
    return maximum(minimum(subtract(1, _excess(condition)), 1), 0)


def _excess(expr: Any) -> Expr:
    """An expression that is at most 0 where a relation between sizes holds, and at least 1 elsewhere."""
    if isinstance(expr, sympy.Or):
        return minimum(*map(_excess, expr.args))
    guards = conditions(expr)
    return maximum(*(_guard_excess(guard) for guard in guards)) if guards else 0


def _guard_excess(guard: ir.Guard) -> Expr:
    difference = subtract(guard.lhs, guard.rhs)
    if guard.kind is ir.GuardKind.LESS_EQUAL:
        return difference
    distance = maximum(difference, subtract(guard.rhs, guard.lhs))
    return distance if guard.kind is ir.GuardKind.EQUAL else subtract(1, distance)


def _negated(expr: Any) -> Any:
    if isinstance(expr, sympy.And | sympy.Or):
        parts = map(_negated, expr.args)
        return sympy.Or(*parts) if isinstance(expr, sympy.And) else sympy.And(*parts)
    return expr.args[0] if isinstance(expr, sympy.Not) else expr.negated


def _whole_sides(expr: sympy.Rel) -> tuple[sympy.Expr, sympy.Expr]:
    """Both sides of a relation without fractions."""
    lhs, rhs = (side.replace(_is_true_division, lambda e: e.args[0] / e.args[1]) for side in expr.args)
    if not any(_has_fraction(side) for side in (lhs, rhs)):
        return lhs, rhs
    above, below = sympy.fraction(sympy.together(lhs - rhs))
    if not below.is_positive:
        raise _unsupported(expr)
    return above, sympy.S.Zero


def _is_true_division(expr: Any) -> bool:
    return type(expr).__name__ == "IntTrueDiv"


def _has_fraction(expr: sympy.Expr) -> bool:
    return any(
        (isinstance(part, sympy.Rational) and not part.is_Integer)
        or (isinstance(part, sympy.Pow) and part.exp.is_negative)
        for part in sympy.preorder_traversal(expr)
    )


def _less(lhs: Expr, rhs: Expr) -> ir.Guard:
    if isinstance(rhs, int):
        return ir.Guard(ir.GuardKind.LESS_EQUAL, lhs, rhs - 1)
    return ir.Guard(ir.GuardKind.LESS_EQUAL, add(lhs, 1), rhs)


_RELATIONS: Mapping[str, Callable[[Expr, Expr], ir.Guard]] = {
    "Equality": lambda lhs, rhs: ir.Guard(ir.GuardKind.EQUAL, lhs, rhs),
    "Unequality": lambda lhs, rhs: ir.Guard(ir.GuardKind.NOT_EQUAL, lhs, rhs),
    "LessThan": lambda lhs, rhs: ir.Guard(ir.GuardKind.LESS_EQUAL, lhs, rhs),
    "GreaterThan": lambda lhs, rhs: ir.Guard(ir.GuardKind.LESS_EQUAL, rhs, lhs),
    "StrictLessThan": _less,
    "StrictGreaterThan": lambda lhs, rhs: _less(rhs, lhs),
}
