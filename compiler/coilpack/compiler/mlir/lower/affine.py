"""Affine maps evaluated on sizes or on tensors of indices, and the operations of `affine`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.syntax import (
    AffineBinary,
    AffineConstant,
    AffineDim,
    AffineExpr,
    AffineMap,
    AffineMapAttr,
    AffineSymbol,
    Operation,
)

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "*": operator.mul,
    "mod": operator.mod,
    "floordiv": operator.floordiv,
    "ceildiv": lambda a, b: -(-a // b),
}


def evaluate(expression: AffineExpr, dims: Sequence[Data], symbols: Sequence[Data] = ()) -> Data:
    """The value of an expression; all divisions are floor divisions, as Python's and torch's of integers are."""
    match expression:
        case AffineDim(position):
            return dims[position]
        case AffineSymbol(position):
            return symbols[position]
        case AffineConstant(value):
            return value
        case AffineBinary(name, lhs, rhs):
            result: Data = _OPERATORS[name](evaluate(lhs, dims, symbols), evaluate(rhs, dims, symbols))
            return result


def dims_in(expression: AffineExpr) -> frozenset[int]:
    """The positions of the dimensions in an expression."""
    match expression:
        case AffineDim(position):
            return frozenset([position])
        case AffineBinary(_, lhs, rhs):
            return dims_in(lhs) | dims_in(rhs)
        case _:
            return frozenset()


def _results(context: Context, operation: Operation) -> list[Data]:
    attribute = operation.attributes["map"]
    assert isinstance(attribute, AffineMapAttr)
    map_: AffineMap = attribute.map
    data = [context.data(operand) for operand in operation.operands]
    return [evaluate(result, data[: map_.dims], data[map_.dims :]) for result in map_.results]


def _apply(context: Context, operation: Operation) -> Sequence[Data]:
    return _results(context, operation)


def _extreme(on_tensors: Callable[..., torch.Tensor], on_sizes: Callable[[Any, Any], Any]) -> Handler:
    def pick(a: Data, b: Data) -> Data:
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            return on_tensors(*(torch.as_tensor(x, dtype=torch.int64) for x in (a, b)))
        result: Data = on_sizes(a, b)
        return result

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        return (functools.reduce(pick, _results(context, operation)),)

    return handle


OPERATIONS: Mapping[str, Handler] = {
    "affine.apply": _apply,
    "affine.min": _extreme(torch.minimum, torch.sym_min),
    "affine.max": _extreme(torch.maximum, torch.sym_max),
}
