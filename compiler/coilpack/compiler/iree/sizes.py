"""Sizes of a call as operations of the host: reading them, computing with them, checking them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coilpack.compiler.intervals import always_holds
from coilpack.compiler.iree.text import Block, string
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol, evaluate
from coilpack.runtime.program.types import INT64_MAX
from coilpack.runtime.sizes import format_expr

_OPERATIONS: Final = {
    ExprKind.ADD: "arith.addi",
    ExprKind.MUL: "arith.muli",
    ExprKind.MIN: "arith.minsi",
    ExprKind.MAX: "arith.maxsi",
}
_DIVISIONS: Final = (ExprKind.FLOORDIV, ExprKind.MOD)
_RELATIONS: Final = {ir.GuardKind.EQUAL: "eq", ir.GuardKind.NOT_EQUAL: "ne", ir.GuardKind.LESS_EQUAL: "sle"}
_SIGNS: Final = {ir.GuardKind.EQUAL: "==", ir.GuardKind.NOT_EQUAL: "!=", ir.GuardKind.LESS_EQUAL: "<="}


class Sizes:
    """The sizes of one function, each expression computed once.

    A division by zero is undefined in MLIR. Divisors that may be 0 are replaced by 1 there, and a check that they are
    not goes with the value; where only the grid of a launch needs it, with the launch.

    Args:
        function: its name, for messages.
        block: where operations go.
    """

    def __init__(self, function: str, block: Block) -> None:
        self._function = function
        self._block = block
        self._values: dict[Expr, str] = {}
        self._divisors: dict[Expr, tuple[str, ...]] = {}
        self._checked: set[str] = set()
        self._ranges: dict[str, tuple[int, int]] = {}

    def define(self, symbol: ir.SizeSymbol, definition: Expr, found: str, place: str) -> None:
        """Makes `symbol` known.

        Args:
            symbol: of the signature.
            definition: a * symbol + b, with constants a > 0 and b.
            found: the value, of type index, that it must have.
            place: what that is, for messages.
        """
        summand = evaluate(definition, {symbol.name: 0})
        factor = evaluate(definition, {symbol.name: 1}) - summand
        self._ranges[symbol.name] = (-INT64_MAX, INT64_MAX)  # until it is checked
        value = found
        if summand:
            value = self._block.define(symbol.name, f"arith.subi {value}, {self.value(summand)} : index")
        if factor != 1:
            value = self._block.define(symbol.name, f"arith.floordivsi {value}, {self.value(factor)} : index")
        self._values[Symbol(symbol.name)] = value
        if (factor, summand) != (1, 0):
            self.check_equal(definition, found, f"{place} must be {format_expr(definition)}")
        low, high = symbol.minimum, symbol.maximum
        if low > 0 or symbol.dim is None:
            self.check("sle", low, Symbol(symbol.name), f"{place}: {symbol.name} must be at least {low}")
        if high < INT64_MAX:
            self.check("sle", Symbol(symbol.name), high, f"{place}: {symbol.name} must be at most {high}")
        self._ranges[symbol.name] = low, high

    def value(self, expr: Expr) -> str:
        """The value of an expression, of type index; it is checked that no divisor is 0."""
        name = self._value(expr)
        for divisor in self._divisors.pop(expr, ()):
            self._assert(divisor, f"a size is divided by zero in {format_expr(expr)}")
        return name

    def _value(self, expr: Expr) -> str:
        if expr not in self._values:
            self._values[expr] = self._compute(expr)
        return self._values[expr]

    def _compute(self, expr: Expr) -> str:
        if isinstance(expr, int):
            return self._block.constant(expr, "index")
        assert isinstance(expr, Binary), "the verifier lets no other symbols be"
        lhs, rhs = self._value(expr.lhs), self._value(expr.rhs)
        divisors = (*self._divisors.get(expr.lhs, ()), *self._divisors.get(expr.rhs, ()))
        if expr.kind in _DIVISIONS and not (isinstance(expr.rhs, int) and expr.rhs):
            nonzero = self._block.define("nonzero", f"arith.cmpi ne, {rhs}, {self._value(0)} : index")
            rhs = self._block.define("divisor", f"arith.select {nonzero}, {rhs}, {self._value(1)} : index")
            divisors = (*divisors, nonzero)
        if divisors:
            self._divisors[expr] = divisors
        return self._apply(expr.kind, lhs, rhs)

    def _apply(self, kind: ExprKind, lhs: str, rhs: str) -> str:
        define = self._block.define
        if kind in _OPERATIONS:
            return define("size", f"{_OPERATIONS[kind]} {lhs}, {rhs} : index")
        quotient = define("quotient", f"arith.floordivsi {lhs}, {rhs} : index")
        if kind is ExprKind.FLOORDIV:
            return quotient
        product = define("product", f"arith.muli {quotient}, {rhs} : index")
        return define("rest", f"arith.subi {lhs}, {product} : index")

    def grid(self, axes: Sequence[Expr], limits: Sequence[int], kernel: str) -> list[str]:
        """The workgroups along each axis; where one axis is 0, another may divide by it, and nothing is launched."""
        values = [self._value(axis) for axis in axes]
        divisors = [divisor for axis in axes for divisor in self._divisors.get(axis, ())]
        for axis, limit in zip(axes, limits, strict=True):
            self._range(axis, self._value(axis), 0, limit, f"the grid of {kernel}, {format_expr(axis)},")
        if divisors:
            empty = [
                self._block.define("empty", f"arith.cmpi eq, {value}, {self._value(0)} : index") for value in values
            ]
            any_empty = self._fold("arith.ori", empty)
            fine = self._block.define("fine", f"arith.ori {any_empty}, {self._fold('arith.andi', divisors)} : i1")
            self._assert(fine, f"the grid of {kernel} is divided by zero")
        return values

    def _fold(self, operation: str, flags: Sequence[str]) -> str:
        result = flags[0]
        for flag in flags[1:]:
            result = self._block.define("flag", f"{operation} {result}, {flag} : i1")
        return result

    def hide(self, value: str) -> str:
        """The same value, of which iree-compile knows nothing.

        It is for sizes only: hiding a tensor hides who else uses its memory, too, so that it is overwritten.
        """
        return self._block.define("hidden", f"util.optimization_barrier {value} : index")

    # --- checks ---

    def check(self, relation: str, lhs: Expr, rhs: Expr, message: str) -> None:
        """Ends the call with `message` unless the relation (a predicate of `arith.cmpi`) holds."""
        if relation != "sle" or not self._surely_ordered(lhs, rhs):
            self._compare(relation, self.value(lhs), self.value(rhs), message)

    def check_guard(self, guard: ir.Guard) -> None:
        """Ends the call unless a guard of the signature holds."""
        text = f"{format_expr(guard.lhs)} {_SIGNS[guard.kind]} {format_expr(guard.rhs)} must hold"
        self.check(_RELATIONS[guard.kind], guard.lhs, guard.rhs, text)

    def check_equal(self, expr: Expr, found: str, message: str) -> None:
        """Ends the call unless the value `found` is what the expression gives."""
        self._compare("eq", self.value(expr), found, message)

    def check_range(self, expr: Expr, low: int, high: int, what: str) -> None:
        """Ends the call unless low <= expr <= high."""
        self._range(expr, self.value(expr), low, high, f"{what}, {format_expr(expr)},")

    def _range(self, expr: Expr, value: str, low: int, high: int, what: str) -> None:
        message = f"{what} must be within {low} and {high}"
        if not self._surely_ordered(low, expr):
            self._compare("sle", self.value(low), value, message)
        if not self._surely_ordered(expr, high):
            self._compare("sle", value, self.value(high), message)

    def _surely_ordered(self, lhs: Expr, rhs: Expr) -> bool:
        """Whether lhs <= rhs follows from the ranges of the symbols."""
        return always_holds(ir.Guard(ir.GuardKind.LESS_EQUAL, lhs, rhs), self._ranges)

    def _compare(self, relation: str, lhs: str, rhs: str, message: str) -> None:
        if lhs == rhs and relation != "ne":
            return
        comparison = f"arith.cmpi {relation}, {lhs}, {rhs} : index"
        if comparison not in self._checked:
            self._checked.add(comparison)
            self._assert(self._block.define("ok", comparison), message)

    def _assert(self, condition: str, message: str) -> None:
        self._block.add(f"cf.assert {condition}, {string(f'{self._function}: {message}')}")
