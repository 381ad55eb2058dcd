"""`math`: functions that torch has, and compositions for those that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from coilpack.compiler.mlir.lower import integers
from coilpack.compiler.mlir.lower.arith_floats import arithmetic, binary, unary
from coilpack.compiler.mlir.lower.arith_integers import is_bit, narrowed, widened
from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.syntax import Operation

Unary = Callable[[torch.Tensor], torch.Tensor]


def _cbrt(x: torch.Tensor) -> torch.Tensor:
    """The cube root, of f64 with a step of Newton's method, whose guess is as good as `pow` is."""
    magnitude = x.to(torch.float64).abs()
    guess = magnitude.pow(1.0 / 3.0)
    usable = (guess > 0) & torch.isfinite(guess)
    divisor = torch.where(usable, guess * guess, 1)
    better = guess - (guess - magnitude / divisor) / 3
    return torch.copysign(torch.where(usable, better, guess), x.to(torch.float64)).to(x.dtype)


def _round(x: torch.Tensor) -> torch.Tensor:
    """To the nearest integer, halves away from 0; torch's goes to even ones."""
    towards_zero = torch.trunc(x)  # the difference from which is exact
    away = (x - towards_zero).abs() >= 0.5
    return torch.where(away, towards_zero + torch.copysign(torch.ones_like(x), x), towards_zero)


def _is_normal(x: torch.Tensor) -> torch.Tensor:
    return torch.isfinite(x) & (x.abs() >= torch.finfo(x.dtype).tiny)


def _predicate(function: Unary) -> Handler:
    """The handler of a question about a number."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        (x,) = context.tensors(operation)
        return (function(arithmetic(x)),)

    return handle


def _fma(context: Context, operation: Operation) -> Sequence[Data]:
    """A product and a sum, which the GPU's compiler contracts to one operation with one rounding."""
    a, b, c = context.tensors(operation)
    return ((arithmetic(a) * arithmetic(b) + arithmetic(c)).to(a.dtype),)


def _clampf(context: Context, operation: Operation) -> Sequence[Data]:
    x, low, high = context.tensors(operation)
    return (torch.minimum(torch.maximum(arithmetic(x), arithmetic(low)), arithmetic(high)).to(x.dtype),)


def _sincos(context: Context, operation: Operation) -> Sequence[Data]:
    (x,) = context.tensors(operation)
    return torch.sin(arithmetic(x)).to(x.dtype), torch.cos(arithmetic(x)).to(x.dtype)


def _fpowi(context: Context, operation: Operation) -> Sequence[Data]:
    """A number to an integer power; the sign is that of the integer's lowest bit, which a float may not hold."""
    base, exponent = context.tensors(operation)
    x = arithmetic(base)
    magnitude = torch.pow(x.abs(), exponent.to(torch.promote_types(x.dtype, torch.float32)))
    negative = torch.signbit(x) & ((exponent & 1) != 0)
    return (torch.where(negative, -magnitude, magnitude).to(base.dtype),)


def _integer_unary(function: Unary, of_bit: Unary) -> Handler:
    """The handler of an operation on one integer; `of_bit` is what it is on `i1`."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        (x,) = context.tensors(operation)
        return (of_bit(x) if is_bit(operation) else function(x),)

    return handle


def _ipowi(context: Context, operation: Operation) -> Sequence[Data]:
    base, exponent = context.tensors(operation)
    return (narrowed(integers.power(widened(base), widened(exponent)), is_bit(operation)),)


_FLOAT_UNARY: Mapping[str, Unary] = {
    "absf": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "cbrt": _cbrt,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "round": _round,
    "roundeven": torch.round,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
}
_FLOAT_BINARY: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "powf": torch.pow,
}
_PREDICATES: Mapping[str, Unary] = {
    "isfinite": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "isnormal": _is_normal,
}

OPERATIONS: Mapping[str, Handler] = {
    **{f"math.{name}": unary(function) for name, function in _FLOAT_UNARY.items()},
    **{f"math.{name}": binary(function) for name, function in _FLOAT_BINARY.items()},
    **{f"math.{name}": _predicate(function) for name, function in _PREDICATES.items()},
    "math.fma": _fma,
    "math.clampf": _clampf,
    "math.sincos": _sincos,
    "math.fpowi": _fpowi,
    "math.ipowi": _ipowi,
    "math.absi": _integer_unary(torch.abs, lambda x: x),
    "math.ctlz": _integer_unary(integers.count_leading_zeros, torch.logical_not),
    "math.cttz": _integer_unary(integers.count_trailing_zeros, torch.logical_not),
    "math.ctpop": _integer_unary(integers.count_ones, lambda x: x),
}
