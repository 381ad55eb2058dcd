"""`arith` on floating-point numbers, and conversions from, to and between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from coilpack.compiler.mlir.lower import integers
from coilpack.compiler.mlir.lower.arith_integers import convert, convert_unsigned
from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.lower.elements import DTYPES, element_of
from coilpack.compiler.mlir.syntax import IntegerAttr, Operation

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_NARROW = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
_TO_NEAREST_EVEN = 0  # the one rounding mode that torch's conversions have
_TWO_63 = 2.0**63

BINARY: Mapping[str, Binary] = {
    "arith.addf": torch.add,
    "arith.subf": torch.sub,
    "arith.mulf": torch.mul,
    "arith.divf": torch.div,
    "arith.remf": torch.fmod,
    "arith.maximumf": torch.maximum,  # NaN where one is NaN
    "arith.minimumf": torch.minimum,
    "arith.maxnumf": torch.fmax,  # the other where one is NaN
    "arith.minnumf": torch.fmin,
}

PREDICATES: Sequence[str] = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"
)  # fmt: skip
_ORDERED: Mapping[str, Binary] = {
    "oeq": torch.eq,
    "ogt": torch.gt,
    "oge": torch.ge,
    "olt": torch.lt,
    "ole": torch.le,
}
# The unordered predicate is the opposite of the ordered one that holds in none of its cases.
_OPPOSITES: Mapping[str, str] = {"une": "oeq", "ule": "ogt", "ult": "oge", "uge": "olt", "ugt": "ole"}


def arithmetic(x: torch.Tensor) -> torch.Tensor:
    """What torch computes in: 8-bit numbers as f32."""
    return x.to(torch.float32) if x.dtype in _NARROW else x


def binary(function: Binary) -> Handler:
    """The handler of an operation on two numbers."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        a, b = context.tensors(operation)
        return (function(arithmetic(a), arithmetic(b)).to(a.dtype),)

    return handle


def unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Handler:
    """The handler of an operation on one number."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        (x,) = context.tensors(operation)
        return (function(arithmetic(x)).to(x.dtype),)

    return handle


def compare(predicate: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compares by a predicate of `arith.cmpf`."""
    a, b = arithmetic(a), arithmetic(b)
    if predicate in _ORDERED:
        return _ORDERED[predicate](a, b)
    if predicate in _OPPOSITES:
        return ~_ORDERED[_OPPOSITES[predicate]](a, b)
    unordered = torch.isnan(a) | torch.isnan(b)
    others: Mapping[str, Callable[[], torch.Tensor]] = {
        "false": lambda: torch.zeros_like(unordered),
        "one": lambda: (a < b) | (a > b),
        "ord": lambda: ~unordered,
        "ueq": lambda: ~((a < b) | (a > b)),
        "uno": lambda: unordered,
        "true": lambda: torch.ones_like(unordered),
    }
    return others[predicate]()


def predicate_of(operation: Operation) -> str:
    """The name of the predicate of an `arith.cmpf`."""
    number = operation.attributes["predicate"]
    assert isinstance(number, IntegerAttr)
    return PREDICATES[number.value]


def _cmpf(context: Context, operation: Operation) -> Sequence[Data]:
    a, b = context.tensors(operation)
    return (compare(predicate_of(operation), a, b),)


def _convert_float(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype)


def _from_unsigned(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if x.dtype != torch.int64:
        return convert_unsigned(x, torch.int64).to(dtype)
    # Half of what is 2**63 or more is signed; its lost bit, kept at the end, lets it round as the whole would.
    halved = ((x >> 1) & torch.iinfo(torch.int64).max) | (x & 1)
    return torch.where(x < 0, halved.to(dtype) * 2, x.to(dtype))


def _to_signed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return convert(arithmetic(x).to(torch.int32 if dtype == torch.bool else dtype), dtype)


def _to_unsigned(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    x = arithmetic(x)
    if dtype != torch.int64:
        return convert(x.to(torch.int64), dtype)
    if x.dtype == torch.float16:  # which does not reach 2**63
        return x.to(dtype)
    large = x >= _TWO_63
    return torch.where(large, integers.flipped((x - _TWO_63).to(dtype)), torch.where(large, 0, x).to(dtype))


def _from_signed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return convert(x, torch.int64).to(dtype) if x.dtype == torch.bool else x.to(dtype)


def _bitcast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # A copy, which fuses: Inductor hands a result that only reinterprets an input through under the input's type.
    return x if x.dtype == dtype else x.view(dtype).clone()


def _conversion(function: Callable[[torch.Tensor, torch.dtype], torch.Tensor]) -> Handler:
    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        mode = operation.attributes.get("roundingmode")
        if isinstance(mode, IntegerAttr) and mode.value != _TO_NEAREST_EVEN:
            raise context.unsupported(operation, f"{operation.name}: a rounding mode other than to_nearest_even")
        element = element_of(operation.results[0].type)
        assert element is not None
        return (function(context.tensor(operation.operands[0]), DTYPES[element.name]),)

    return handle


OPERATIONS: Mapping[str, Handler] = {
    **{name: binary(function) for name, function in BINARY.items()},
    "arith.negf": unary(torch.neg),
    "arith.cmpf": _cmpf,
    "arith.extf": _conversion(_convert_float),
    "arith.truncf": _conversion(_convert_float),
    "arith.convertf": _conversion(_convert_float),
    "arith.sitofp": _conversion(_from_signed),
    "arith.uitofp": _conversion(_from_unsigned),
    "arith.fptosi": _conversion(_to_signed),
    "arith.fptoui": _conversion(_to_unsigned),
    "arith.bitcast": _conversion(_bitcast),
}
