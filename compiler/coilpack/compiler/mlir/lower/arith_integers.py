"""`arith` on integers, `index` and `i1`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

import torch

from coilpack.compiler.mlir.lower import integers
from coilpack.compiler.mlir.lower.context import Context, Data, Handler, Size
from coilpack.compiler.mlir.lower.elements import DTYPES, bits_of, element_of
from coilpack.compiler.mlir.syntax import IntegerAttr, Operation

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SizeBinary = Callable[[Size, Size], Size]


def _by_unsigned_order(of_signed: Binary) -> Binary:
    """An operation on the signed order as the same on the unsigned order."""
    return lambda a, b: integers.flipped(of_signed(integers.flipped(a), integers.flipped(b)))


BINARY: Mapping[str, Binary] = {
    "arith.addi": torch.add,
    "arith.subi": torch.sub,
    "arith.muli": torch.mul,
    "arith.divsi": integers.divide,
    "arith.divui": integers.divide_unsigned,
    "arith.ceildivsi": integers.ceil_divide,
    "arith.ceildivui": integers.ceil_divide_unsigned,
    "arith.floordivsi": integers.floor_divide,
    "arith.remsi": integers.remainder,
    "arith.remui": integers.remainder_unsigned,
    "arith.andi": torch.bitwise_and,
    "arith.ori": torch.bitwise_or,
    "arith.xori": torch.bitwise_xor,
    "arith.shli": torch.bitwise_left_shift,
    "arith.shrsi": torch.bitwise_right_shift,
    "arith.shrui": integers.shift_right_logical,
    "arith.maxsi": torch.maximum,
    "arith.minsi": torch.minimum,
    "arith.maxui": _by_unsigned_order(torch.maximum),
    "arith.minui": _by_unsigned_order(torch.minimum),
}

# On sizes, which stay symbolic: they are never negative, and neither wrap nor are what they are computed from.
_ON_SIZES: Mapping[str, SizeBinary] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.floordivsi": operator.floordiv,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.maxsi": torch.sym_max,
    "arith.minsi": torch.sym_min,
    "arith.maxui": torch.sym_max,
    "arith.minui": torch.sym_min,
}
_OF_NATURALS: Mapping[str, SizeBinary] = {
    "arith.divsi": operator.floordiv,
    "arith.divui": operator.floordiv,
    "arith.remsi": operator.mod,
    "arith.remui": operator.mod,
}

_PREDICATES: Sequence[str] = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_COMPARISONS: Mapping[str, Binary] = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


def is_bit(operation: Operation) -> bool:
    """Whether the first operand is `i1`, or a tensor of it."""
    element = element_of(operation.operands[0].type)
    return element is not None and element.name == "i1"


def widened(x: torch.Tensor) -> torch.Tensor:
    """Bits as int8 that are read as signed: 0 and -1."""
    return -x.to(torch.int8) if x.dtype == torch.bool else x


def narrowed(x: torch.Tensor, bit: bool) -> torch.Tensor:
    """The lowest bit of each, if `bit`; else the same."""
    return (x & 1) != 0 if bit else x


def binary(function: Binary) -> Handler:
    """The handler of an operation on two integers, which on `i1` is that on int8, cut to a bit."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        a, b = context.tensors(operation)
        return (narrowed(function(widened(a), widened(b)), is_bit(operation)),)

    return handle


def _on_integers_or_sizes(name: str, function: Binary) -> Handler:
    on_tensors = binary(function)

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        a, b = (context.data(operand) for operand in operation.operands)
        if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
            on_sizes = _ON_SIZES.get(name)
            if name in _OF_NATURALS and isinstance(b, int) and b > 0 and not (isinstance(a, int) and a < 0):
                on_sizes = _OF_NATURALS[name]
            if on_sizes is not None and not (name.startswith(("arith.floor", "arith.ceil")) and b == 0):
                return (on_sizes(a, b),)
        return on_tensors(context, operation)

    return handle


def compare(predicate: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compares integers by a predicate of `arith.cmpi`."""
    a, b = widened(a), widened(b)
    if predicate.startswith("u"):
        a, b = integers.flipped(a), integers.flipped(b)
    return _COMPARISONS[predicate if predicate in _COMPARISONS else predicate[1:]](a, b)


def predicate_of(operation: Operation) -> str:
    """The name of the predicate of an `arith.cmpi`."""
    number = operation.attributes["predicate"]
    assert isinstance(number, IntegerAttr)
    return _PREDICATES[number.value]


def _cmpi(context: Context, operation: Operation) -> Sequence[Data]:
    a, b = context.tensors(operation)
    return (compare(predicate_of(operation), a, b),)


def _select(context: Context, operation: Operation) -> Sequence[Data]:
    condition, chosen, other = operation.operands
    return (torch.where(context.tensor(condition), context.tensor(chosen), context.tensor(other)),)


def _extended(high: Binary) -> Handler:
    """The two halves of a product."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        a, b = context.tensors(operation)
        if is_bit(operation):  # -1 * -1 is 1 in two bits, and 1 * 1 too
            return a & b, torch.zeros_like(a & b)
        return a * b, high(a, b)

    return handle


def _addui_extended(context: Context, operation: Operation) -> Sequence[Data]:
    a, b = context.tensors(operation)
    if is_bit(operation):
        return a ^ b, a & b
    total = a + b
    return total, integers.flipped(total) < integers.flipped(a)


def _index_cast(context: Context, operation: Operation) -> Sequence[Data]:
    """A signed conversion; between `index` and `i64` a size stays one."""
    (operand,) = operation.operands
    data, element = context.data(operand), element_of(operation.results[0].type)
    assert element is not None
    if not isinstance(data, torch.Tensor) and bits_of(element) == 64:
        return (data,)
    return (convert(context.tensor(operand), DTYPES[element.name]),)


def convert(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Signed integers of another width: sign bits are added, or upper bits cut."""
    return narrowed(x, True) if dtype == torch.bool and x.dtype != torch.bool else widened(x).to(dtype)


def convert_unsigned(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Unsigned integers of another width: zeros are added, or upper bits cut."""
    if dtype == torch.bool:
        return convert(x, dtype)
    return (x if x.dtype == torch.bool else integers.unsigned(x, x.dtype.itemsize * 8)).to(dtype)


def _conversion(function: Callable[[torch.Tensor, torch.dtype], torch.Tensor]) -> Handler:
    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        element = element_of(operation.results[0].type)
        assert element is not None
        return (function(context.tensor(operation.operands[0]), DTYPES[element.name]),)

    return handle


def _index_castui(context: Context, operation: Operation) -> Sequence[Data]:
    data = context.data(operation.operands[0])
    handler = _conversion(convert_unsigned) if isinstance(data, torch.Tensor) else _index_cast
    return handler(context, operation)


OPERATIONS: Mapping[str, Handler] = {
    **{name: _on_integers_or_sizes(name, function) for name, function in BINARY.items()},
    "arith.cmpi": _cmpi,
    "arith.select": _select,
    "arith.mulsi_extended": _extended(integers.multiply_high_signed),
    "arith.mului_extended": _extended(integers.multiply_high_unsigned),
    "arith.addui_extended": _addui_extended,
    "arith.index_cast": _index_cast,
    "arith.index_castui": _index_castui,
    "arith.extsi": _conversion(convert),
    "arith.extui": _conversion(convert_unsigned),
    "arith.trunci": _conversion(convert),
}
