"""What each combining operation makes of many values at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from coilpack.compiler.mlir.lower import arith_floats, arith_integers, integers

Reduce = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]


@dataclass(frozen=True)
class Reducer:
    """A combining operation over many values.

    Attributes:
        family: operations of one family can be mixed on the way from the old value to the new one.
        reduce: combines along dimensions, which stay with size 1; there is at least one value.
        combine: the operation itself, of the value so far and what was combined.
        commutes: whether the value so far may be either operand; else it is the first.
    """

    family: str
    reduce: Reduce
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    commutes: bool = True


def _sum(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    if x.is_floating_point():
        return arith_floats.arithmetic(x).sum(dims, keepdim=True).to(x.dtype)
    wide = torch.int64 if x.dtype == torch.int64 else torch.int32  # whose low bits are those of any narrower sum
    return arith_integers.convert(arith_integers.convert(x, wide).sum(dims, keepdim=True, dtype=wide), x.dtype)


def _product(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    if x.dtype == torch.bool:
        return torch.all(x, dim=dims, keepdim=True)
    result = arith_floats.arithmetic(x) if x.is_floating_point() else x.to(torch.int64)
    for dim in dims:
        result = result.prod(dim, keepdim=True)
    return result.to(x.dtype)


def _largest(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    x8 = arith_integers.widened(x)
    return arith_integers.narrowed(arith_floats.arithmetic(x8).amax(dims, keepdim=True).to(x8.dtype), x is not x8)


def _smallest(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    x8 = arith_integers.widened(x)
    return arith_integers.narrowed(arith_floats.arithmetic(x8).amin(dims, keepdim=True).to(x8.dtype), x is not x8)


def _by_unsigned_order(reduce: Reduce) -> Reduce:
    def reduce_unsigned(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        x8 = arith_integers.widened(x)
        return arith_integers.narrowed(integers.flipped(reduce(integers.flipped(x8), dims)), x is not x8)

    return reduce_unsigned


def _of_numbers(reduce: Reduce, nothing: float) -> Reduce:
    """An extreme of those that are numbers; NaN where none is."""

    def reduce_numbers(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        missing = torch.isnan(arith_floats.arithmetic(x))
        found = reduce(torch.where(missing, nothing, arith_floats.arithmetic(x)).to(x.dtype), dims)
        return torch.where(torch.all(missing, dim=dims, keepdim=True), math.nan, found).to(x.dtype)

    return reduce_numbers


def _bitwise(of_bits: Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]) -> Reduce:
    """A reduction of bits, done for each bit of the type apart: torch has none of integers."""

    def reduce(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        if x.dtype == torch.bool:
            return of_bits(x.to(torch.int32), dims) != 0
        bits = x.dtype.itemsize * 8
        parts = [of_bits(((x >> bit) & 1).to(torch.int32), dims).to(x.dtype) << bit for bit in range(bits)]
        result = parts[0]
        for part in parts[1:]:
            result = result | part
        return result

    return reduce


def _parity(bits: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    total: torch.Tensor = bits.sum(dims, keepdim=True, dtype=torch.int32)
    return total & 1


def _of_bits(name: str, reduce: Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]) -> Reducer:
    return Reducer(name, _bitwise(reduce), _on_integers(name))


def _on_integers(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    function = arith_integers.BINARY[name]

    def combine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        bit = a.dtype == torch.bool
        return arith_integers.narrowed(function(arith_integers.widened(a), arith_integers.widened(b)), bit)

    return combine


def _on_floats(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    function = arith_floats.BINARY[name]
    return lambda a, b: function(arith_floats.arithmetic(a), arith_floats.arithmetic(b)).to(a.dtype)


REDUCERS: Mapping[str, Reducer] = {
    "arith.addf": Reducer("sum", _sum, _on_floats("arith.addf")),
    "arith.subf": Reducer("sum", _sum, _on_floats("arith.subf"), commutes=False),
    "arith.addi": Reducer("sum", _sum, _on_integers("arith.addi")),
    "arith.subi": Reducer("sum", _sum, _on_integers("arith.subi"), commutes=False),
    "arith.mulf": Reducer("product", _product, _on_floats("arith.mulf")),
    "arith.muli": Reducer("product", _product, _on_integers("arith.muli")),
    "arith.maximumf": Reducer("maximumf", _largest, _on_floats("arith.maximumf")),
    "arith.minimumf": Reducer("minimumf", _smallest, _on_floats("arith.minimumf")),
    "arith.maxnumf": Reducer("maxnumf", _of_numbers(_largest, -math.inf), _on_floats("arith.maxnumf")),
    "arith.minnumf": Reducer("minnumf", _of_numbers(_smallest, math.inf), _on_floats("arith.minnumf")),
    "arith.maxsi": Reducer("maxsi", _largest, _on_integers("arith.maxsi")),
    "arith.minsi": Reducer("minsi", _smallest, _on_integers("arith.minsi")),
    "arith.maxui": Reducer("maxui", _by_unsigned_order(_largest), _on_integers("arith.maxui")),
    "arith.minui": Reducer("minui", _by_unsigned_order(_smallest), _on_integers("arith.minui")),
    "arith.andi": _of_bits("arith.andi", lambda bits, dims: bits.amin(dims, keepdim=True)),
    "arith.ori": _of_bits("arith.ori", lambda bits, dims: bits.amax(dims, keepdim=True)),
    "arith.xori": _of_bits("arith.xori", _parity),
}
