"""Arithmetic and relations on sizes in Python source, as expressions of sympy's and torch's.

Those become expressions of the IR by the rules of `size_expressions`, where what torch knows of its symbols, as that no
size is negative, decides about divisors.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import sympy
import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.source_expressions import Operators, SourceEvaluator

RELATION_OPERATORS: Operators = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda lhs, rhs: compat.FloorDiv(sympy.sympify(lhs), sympy.sympify(rhs)),
    ast.Mod: lambda lhs, rhs: compat.Mod(sympy.sympify(lhs), sympy.sympify(rhs)),
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.And: sympy.And,
    ast.Or: sympy.Or,
    ast.Not: sympy.Not,
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.LtE: sympy.Le,
    ast.Lt: sympy.Lt,
    ast.GtE: sympy.Ge,
    ast.Gt: sympy.Gt,
}
RELATION_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": lambda *args: reduce(compat.Max, args),
    "min": lambda *args: reduce(compat.Min, args),
}

# What Inductor prints besides: quotients that are rounded, remainders of what may be negative.
_PRINTED_OPERATORS: Operators = {
    **RELATION_OPERATORS,
    ast.Div: lambda lhs, rhs: compat.IntTrueDiv(sympy.sympify(lhs), sympy.sympify(rhs)),
    ast.Mod: lambda lhs, rhs: compat.PythonMod(sympy.sympify(lhs), sympy.sympify(rhs)),
}
_PRINTED_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **RELATION_FUNCTIONS,
    "abs": lambda size: sympy.Abs(sympy.sympify(size)),
    "int": lambda size: size,
    "math.floor": lambda size: compat.FloorToInt(sympy.sympify(size)),
    "math.ceil": lambda size: compat.CeilToInt(sympy.sympify(size)),
}


def as_sympy(size: int | torch.SymInt) -> sympy.Expr:
    """A size of torch's as an expression of sympy's."""
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


def printed_sizes(names: dict[str, Any]) -> SourceEvaluator:
    """An evaluator of sizes as Inductor prints them in Python.

    Args:
        names: sizes by name, expressions of sympy's; it sees what is added later.
    """
    return SourceEvaluator(_PRINTED_OPERATORS, _PRINTED_FUNCTIONS, names, select=_select)


def _select(condition: Any, chosen: Any, other: Any) -> Any:
    return compat.Where(*map(sympy.sympify, (condition, chosen, other)))
