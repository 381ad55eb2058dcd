"""Arithmetic that Inductor and export hand over as Python source, evaluated without executing it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coilpack.compiler.arithmetic import add, floor_divide, maximum, minimum, modulo, multiply, subtract
from coilpack.runtime.errors import UnsupportedError

Operators = Mapping[type[ast.AST], Callable[..., Any]]


@dataclass
class SourceEvaluator:
    """Evaluates expressions over operands of some kind.

    Args:
        operators: what each operator of the grammar does; comparisons take two operands, `and` and `or` any number.
        functions: what may be called, by name, as `max` or `math.floor`.
        names: values by name, which assignments add to.
        leaf: gives the value of an expression that the evaluator does not know, or None.
        select: gives `chosen if condition else other` from `(condition, chosen, other)`; without it, the one such
            expression that is known is `0 if divisor == 0 else ...`.
    """

    operators: Operators
    functions: Mapping[str, Callable[..., Any]]
    names: dict[str, Any]
    leaf: Callable[[ast.expr], Any] = lambda node: None  # noqa: ARG005
    select: Callable[[Any, Any, Any], Any] | None = None

    def run(self, source: str) -> None:
        """Runs assignments to plain names.

        Raises:
            UnsupportedError: there is anything else.
        """
        for statement in ast.parse(source.strip()).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = self.evaluate(value)
                case _:
                    raise _unknown(statement)

    def value(self, source: str | int) -> Any:
        """The value of an expression.

        Raises:
            UnsupportedError: it holds a construct or a name that is not known; says which.
        """
        return source if isinstance(source, int) else self.evaluate(ast.parse(source.strip(), mode="eval").body)

    def evaluate(self, node: ast.expr) -> Any:
        """As `value`, of an expression that has been parsed."""
        known = self.leaf(node)
        if known is not None:
            return known
        match node:
            case ast.Constant(value=int() | None as value):
                return value
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.BinOp(op=op, left=left, right=right):
                return self._apply(node, op, left, right)
            case ast.UnaryOp(op=op, operand=operand):
                return self._apply(node, op, operand)
            case ast.BoolOp(op=op, values=values):
                return self._apply(node, op, *values)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._apply(node, op, left, right)
            case ast.Call(func=ast.Name() | ast.Attribute() as function, args=arguments, keywords=[]) if (
                ast.unparse(function) in self.functions
            ):
                return self.functions[ast.unparse(function)](*map(self.evaluate, arguments))
            case ast.IfExp(test=test, body=body, orelse=orelse) if self.select is not None:
                return self.select(*map(self.evaluate, (test, body, orelse)))
            case ast.IfExp(
                test=ast.Compare(left=ast.Name(id=divisor), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]),
                body=ast.Constant(value=0),
                orelse=orelse,
            ):
                return self._unless_zero(divisor, orelse)
        raise _unknown(node)

    def _apply(self, node: ast.expr, op: ast.AST, *operands: ast.expr) -> Any:
        operator = self.operators.get(type(op))
        if operator is None:
            raise _unknown(node)
        return operator(*map(self.evaluate, operands))

    def _unless_zero(self, divisor: str, orelse: ast.expr) -> Any:
        """`0 if divisor == 0 else orelse`, for a divisor that is never negative."""
        value = self.names[divisor]
        self.names[divisor] = maximum(value, 1)
        quotient = self.evaluate(orelse)
        self.names[divisor] = value
        return multiply(quotient, minimum(value, 1))


def _unknown(node: ast.AST) -> UnsupportedError:
    return UnsupportedError(f"the size expression `{ast.unparse(node)}` cannot be evaluated in a package")


SIZE_OPERATORS: Operators = {
    ast.Add: add,
    ast.Sub: subtract,
    ast.Mult: multiply,
    ast.FloorDiv: floor_divide,
    ast.Mod: modulo,
    ast.USub: lambda operand: multiply(operand, -1),
}
SIZE_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"max": maximum, "min": minimum}
