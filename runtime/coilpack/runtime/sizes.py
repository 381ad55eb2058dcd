"""The integers of a call: sizes read off its arguments, integer arguments, and the conditions that bind them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from coilpack.runtime.errors import InputError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol, evaluate, symbols

Given = tuple[int, ...] | int  # the shape of an array, or the value of an integer

_UNBOUNDED = 2**62  # from here on a maximum is no limit that a caller meets


def label(signature: ir.Signature, index: int) -> str:
    """What messages call input `index` of a function."""
    return f"{signature.name}: {_argument(signature, index)}"


def as_integer(value: object, what: str) -> int:
    """An integer argument: a Python or numpy integer, or a host array of one without dimensions.

    Raises:
        InputError: it is something else, a bool among them.
    """
    if not isinstance(value, bool | np.bool_) and getattr(value, "shape", ()) == ():
        try:
            return operator.index(value)  # type: ignore[arg-type]  # raises for what is none
        except TypeError:
            pass
    raise InputError(f"{what}: is a {type(value).__name__}, it must be an integer")


def solve_sizes(signature: ir.Signature, given: Sequence[Given]) -> dict[str, int]:
    """The value of each of the signature's symbols, read off the arguments.

    Raises:
        InputError: an array has another number of dimensions; a size or integer is outside the symbol's range, no
            multiple that it must be, or breaks a guard. The message names the argument, the dimension, the value found
            and the values allowed.
    """
    for index, found in enumerate(given):
        _check_rank(signature, index, found)
    sizes: dict[str, int] = {}
    for symbol in signature.symbols:
        found = given[symbol.input]
        size = found if isinstance(found, int) else found[symbol.dim or 0]
        factor, summand = _linear(signature, symbol)
        value, rest = divmod(size - summand, factor)
        if rest or not symbol.minimum <= value <= symbol.maximum:
            allowed = _allowed(symbol, factor, summand)
            raise InputError(f"{signature.name}: {_place(signature, symbol)} is {size}; it must be {allowed}")
        sizes[symbol.name] = value
    for guard in signature.guards:
        _check(signature, guard, sizes)
    return sizes


def check_shapes(signature: ir.Signature, given: Sequence[Given], sizes: Mapping[str, int]) -> None:
    """Compares the shapes of a call's arrays with those that its sizes ask for.

    Raises:
        InputError: one differs; the message says which argument the size comes from.
    """
    for index, (argument, found) in enumerate(zip(signature.inputs, given, strict=True)):
        if isinstance(found, int):  # it is a symbol, and checked as such
            continue
        _check_rank(signature, index, found)
        expected = tuple(value_of(size, signature, sizes) for size in argument.type.shape)
        if found == expected:
            continue
        message = f"{label(signature, index)}: has the shape {found}, it must have {expected}"
        for dim, (size, wanted, expr) in enumerate(zip(found, expected, argument.type.shape, strict=True)):
            if size != wanted and (origins := _origins(signature, expr, sizes)):
                message += f"; dimension {dim} is {format_expr(expr)}, where {origins}"
                break
        raise InputError(message)


def describe_symbol(signature: ir.Signature, symbol: ir.SizeSymbol) -> str:
    """Where a symbol is read and its values: `s27: argument 0 ('x'): dimension 1 (8*s27), 1 to 512`."""
    return f"{symbol.name}: {_place(signature, symbol)}, {_bounds(symbol.minimum, symbol.maximum, symbol)}"


def value_of(expr: Expr, signature: ir.Signature, sizes: Mapping[str, int]) -> int:
    """The value of an expression over the sizes of a call.

    Raises:
        InputError: it divides by zero.
    """
    try:
        return evaluate(expr, sizes)
    except ZeroDivisionError:
        origins = _origins(signature, expr, sizes)
        raise InputError(f"{signature.name}: {origins}; {format_expr(expr)} divides by zero") from None


def _check_rank(signature: ir.Signature, index: int, given: Given) -> None:
    rank = len(signature.inputs[index].type.shape)
    if isinstance(given, tuple) and len(given) != rank:
        raise InputError(f"{label(signature, index)}: has {len(given)} dimensions {given}, it must have {rank}")


# --- symbols ---


def _linear(signature: ir.Signature, symbol: ir.SizeSymbol) -> tuple[int, int]:
    """(a, b) of the dimension a * symbol + b that defines a symbol."""
    expr = _definition(signature, symbol)
    if isinstance(expr, Symbol):  # most are
        return 1, 0
    summand = evaluate(expr, {symbol.name: 0})
    return evaluate(expr, {symbol.name: 1}) - summand, summand


def _definition(signature: ir.Signature, symbol: ir.SizeSymbol) -> Expr:
    argument = signature.inputs[symbol.input]
    return Symbol(symbol.name) if symbol.dim is None else argument.type.shape[symbol.dim]


def _allowed(symbol: ir.SizeSymbol, factor: int, summand: int) -> str:
    low, high = factor * symbol.minimum + summand, factor * symbol.maximum + summand
    if symbol.minimum == symbol.maximum:
        return str(low)
    bounds = _bounds(low, high, symbol)
    if factor == 1:
        return bounds
    name = f"a multiple of {factor}" if summand % factor == 0 else f"{factor} * n + {summand % factor}"
    return f"{name}, {bounds}"


def _bounds(low: int, high: int, symbol: ir.SizeSymbol) -> str:
    return f"{low} to {high}" if symbol.maximum < _UNBOUNDED else f"at least {low}"


# --- guards ---

_HOLDS: dict[ir.GuardKind, Callable[[int, int], bool]] = {
    ir.GuardKind.EQUAL: operator.eq,
    ir.GuardKind.NOT_EQUAL: operator.ne,
    ir.GuardKind.LESS_EQUAL: operator.le,
}
_SIGNS = {ir.GuardKind.EQUAL: "==", ir.GuardKind.NOT_EQUAL: "!=", ir.GuardKind.LESS_EQUAL: "<="}


def _check(signature: ir.Signature, guard: ir.Guard, sizes: Mapping[str, int]) -> None:
    try:
        lhs, rhs = evaluate(guard.lhs, sizes), evaluate(guard.rhs, sizes)
        if _HOLDS[guard.kind](lhs, rhs):
            return
        found = f"; here it is {lhs} {_SIGNS[guard.kind]} {rhs}"
    except ZeroDivisionError:
        found = "; here it divides by zero"
    places = _origins_of(signature, [*symbols(guard.lhs), *symbols(guard.rhs)], sizes)
    condition = f"{format_expr(guard.lhs)} {_SIGNS[guard.kind]} {format_expr(guard.rhs)}"
    if len(places) == 1:
        (name,) = places
        subject = "it" if _is_itself(signature, name) else name
        allowed = _allowed_by(guard)
        rule = f"{subject} must {allowed}" if allowed else f"{condition} must hold{found}"
    elif guard.kind is ir.GuardKind.EQUAL and isinstance(guard.lhs, Symbol) and isinstance(guard.rhs, Symbol):
        names = (
            "they" if all(_is_itself(signature, name) for name in places) else f"{guard.lhs.name} and {guard.rhs.name}"
        )
        rule = f"{names} must be equal"
    else:
        rule = f"{condition} must hold{found}"
    raise InputError(f"{signature.name}: {' and '.join(places.values())}; {rule}")


def _allowed_by(guard: ir.Guard) -> str:
    """What a guard over one symbol says that it must, where that can be said briefly."""
    lhs, rhs, kind = guard.lhs, guard.rhs, guard.kind
    if isinstance(lhs, int) and kind is ir.GuardKind.LESS_EQUAL and isinstance(rhs, Symbol):
        return f"be at least {lhs}"
    if isinstance(lhs, int) and kind is not ir.GuardKind.LESS_EQUAL:
        lhs, rhs = rhs, lhs
    if not isinstance(rhs, int):
        return ""
    be = "not be" if kind is ir.GuardKind.NOT_EQUAL else "be"
    if isinstance(lhs, Symbol):
        return f"be at most {rhs}" if kind is ir.GuardKind.LESS_EQUAL else f"{be} {rhs}"
    if kind is ir.GuardKind.LESS_EQUAL or not isinstance(lhs, Binary) or lhs.kind is not ExprKind.MOD:
        return ""
    if not isinstance(lhs.lhs, Symbol) or not isinstance(lhs.rhs, int):
        return ""
    return f"{be} a multiple of {lhs.rhs}" + (f" plus {rhs}" if rhs else "")


# --- where sizes come from ---


def _argument(signature: ir.Signature, index: int) -> str:
    name = signature.inputs[index].name
    return f"argument {index}" + (f" ({name!r})" if name else "")


def _place(signature: ir.Signature, symbol: ir.SizeSymbol) -> str:
    argument = _argument(signature, symbol.input)
    definition = format_expr(_definition(signature, symbol))
    return f"{argument} ({definition})" if symbol.dim is None else f"{argument}: dimension {symbol.dim} ({definition})"


def _is_itself(signature: ir.Signature, name: str) -> bool:
    """Whether the symbol is a dimension or an integer as it stands."""
    return any(s.name == name and isinstance(_definition(signature, s), Symbol) for s in signature.symbols)


def _origins(signature: ir.Signature, expr: Expr, sizes: Mapping[str, int]) -> str:
    return " and ".join(_origins_of(signature, symbols(expr), sizes).values())


def _origins_of(signature: ir.Signature, names: Iterator[str] | list[str], sizes: Mapping[str, int]) -> dict[str, str]:
    """By each of these symbols, where it is read and what was found there."""
    known = {symbol.name: symbol for symbol in signature.symbols}
    found = {}
    for name in names:
        symbol = known[name]
        definition = _definition(signature, symbol)
        more = "" if isinstance(definition, Symbol) else f", so {name} is {sizes[name]}"
        found[name] = f"{_place(signature, symbol)} is {evaluate(definition, sizes)}{more}"
    return found


# --- expressions ---

_OPERATORS = {
    ExprKind.ADD: (" + ", 1),
    ExprKind.MUL: ("*", 2),
    ExprKind.FLOORDIV: (" // ", 2),
    ExprKind.MOD: (" % ", 2),
}


def format_expr(expr: Expr) -> str:
    """An expression as Python writes it, with no more parentheses than it needs."""
    return _format(expr, 0)


def _format(expr: Expr, outer: int) -> str:
    if not isinstance(expr, Binary):
        return expr.name if isinstance(expr, Symbol) else str(expr)
    if expr.kind not in _OPERATORS:
        return f"{expr.kind.name.lower()}({_format(expr.lhs, 0)}, {_format(expr.rhs, 0)})"
    sign, rank = _OPERATORS[expr.kind]
    lhs, rhs = expr.lhs, expr.rhs
    if expr.kind is ExprKind.MUL and isinstance(rhs, int) and not isinstance(lhs, int):
        lhs, rhs = rhs, lhs  # the number before the symbol
    if expr.kind is ExprKind.ADD and isinstance(rhs, int) and rhs < 0:
        sign, rhs = " - ", -rhs
    # Only a sum in a sum, and a product in a product, may be regrouped on the right side.
    same = isinstance(rhs, Binary) and rhs.kind is expr.kind and expr.kind in (ExprKind.ADD, ExprKind.MUL)
    right = _format(rhs, rank if same else rank + 1)
    text = f"{_format(lhs, rank)}{sign}{right}"
    return f"({text})" if rank < outer else text
