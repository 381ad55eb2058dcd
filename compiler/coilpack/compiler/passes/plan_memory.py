"""Gives every intermediate value its place in one arena."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coilpack.compiler.arithmetic import add, align_up, maximum, multiply
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind

_LARGE = 16 * ir.ARENA_ALIGNMENT  # bytes; from here on rounding up to the alignment costs little


@dataclass(frozen=True)
class Interval:
    """A block of memory over time: needed from operation `first` to operation `last`, both inclusive."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: Interval) -> bool:
        """Whether both are needed at the same time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class PlanMemory:
    """Assigns arena offsets from the values' lifetimes, and gives outputs memory of their own.

    Operations run in order on one stream, so a value is live from the operation that makes it to the last that uses it
    or a view of it. Values whose lifetimes do not meet may share memory. Offsets are multiples of 256 bytes; the arena
    is as large as the highest end. Whatever offsets the function had before are replaced.

    Values whose sizes are multiples of one expression are packed together, in units of it, so they are placed as well
    as values of constant size; these are the multiples of 1. Such a group is one block of the arena, which groups with
    other lifetimes may share.
    """

    name = "plan-memory"

    def run(self, function: ir.Function) -> ir.Function:
        """The same function with its memory planned."""
        roots = _roots(function)
        outputs = {roots[v] for op in function.operations if isinstance(op, ir.Return) for v in op.values}
        last_use = _last_uses(function, roots)
        groups: dict[Expr, list[tuple[ir.Value, Interval]]] = {}
        for position, operation in enumerate(function.operations):
            if isinstance(operation, ir.Alloc) and operation.result not in outputs:
                unit, count = _units(operation.nbytes)
                interval = Interval(count, position, last_use[operation.result])
                groups.setdefault(unit, []).append((operation.result, interval))
        placed, arena_nbytes = _place_groups(groups)
        operations = tuple(
            _place(operation, placed) if isinstance(operation, ir.Alloc) else operation
            for operation in function.operations
        )
        return replace(function, operations=operations, arena_nbytes=arena_nbytes)


def _units(nbytes: Expr) -> tuple[Expr, int]:
    """A size as units, each a multiple of 256 bytes, and their number.

    All constant sizes have one unit, and so have all large multiples of one symbolic expression. A small multiple is a
    unit of its own: rounding it up together with the expression would waste more than it holds.
    """
    factors = sorted(_factors(nbytes), key=repr)
    constant = math.prod(factor for factor in factors if isinstance(factor, int))
    symbolic = [factor for factor in factors if not isinstance(factor, int)]
    if not symbolic or constant >= _LARGE or constant % ir.ARENA_ALIGNMENT == 0:
        return multiply(*symbolic, ir.ARENA_ALIGNMENT), -(-constant // ir.ARENA_ALIGNMENT)
    return align_up(multiply(*symbolic, constant), ir.ARENA_ALIGNMENT), 1


def _factors(expr: Expr) -> list[Expr]:
    if isinstance(expr, Binary) and expr.kind is ExprKind.MUL:
        return [*_factors(expr.lhs), *_factors(expr.rhs)]
    return [expr]


def _place_groups(groups: Mapping[Expr, Sequence[tuple[ir.Value, Interval]]]) -> tuple[dict[ir.Value, Expr], Expr]:
    """The offset of each value, and the bytes of the arena.

    Each group takes the first block of the arena that is free for its whole life.
    """
    blocks: list[_Block] = []
    members: list[tuple[_Block, Expr, ir.Value, int]] = []
    for unit, values in groups.items():
        intervals = [interval for _, interval in values]
        offsets = pack(intervals, alignment=1)
        count = max(offset + interval.nbytes for offset, interval in zip(offsets, intervals, strict=True))
        whole = Interval(1, min(i.first for i in intervals), max(i.last for i in intervals))
        block = next((block for block in blocks if not any(whole.meets(other) for other in block.lives)), None)
        if block is None:
            block = _Block([], [])
            blocks.append(block)
        block.lives.append(whole)
        block.sizes.append(multiply(unit, count))
        members += [(block, unit, value, offset) for (value, _), offset in zip(values, offsets, strict=True)]
    starts: dict[int, Expr] = {}
    end: Expr = 0
    for block in blocks:
        starts[id(block)] = end
        end = add(end, maximum(*block.sizes))
    return {value: add(starts[id(block)], multiply(unit, offset)) for block, unit, value, offset in members}, end


@dataclass(frozen=True)
class _Block:
    """A part of the arena that groups use one after another: their lifetimes, and the bytes that each takes."""

    lives: list[Interval]
    sizes: list[Expr]


def pack(intervals: Sequence[Interval], alignment: int = ir.ARENA_ALIGNMENT) -> list[int]:
    """Offsets such that blocks needed at the same time do not overlap, each a multiple of `alignment`.

    Greedy by size: the largest block first, each in the smallest gap that takes it among the placed blocks that it
    meets. Ties keep the order of the argument, so equal inputs give equal plans.
    """
    offsets = [0] * len(intervals)
    placed: list[int] = []
    for index in sorted(range(len(intervals)), key=lambda i: (-intervals[i].nbytes, i)):
        block = intervals[index]
        if block.nbytes:
            taken = sorted(
                (offsets[i], -(-intervals[i].nbytes // alignment) * alignment)
                for i in placed
                if block.meets(intervals[i])
            )
            offsets[index] = _smallest_gap(taken, block.nbytes)
            placed.append(index)
    return offsets


def _smallest_gap(taken: Iterable[tuple[int, int]], nbytes: int) -> int:
    """Where a block goes among `taken` (offset, size), sorted by offset: the tightest gap, else behind them all."""
    best, best_size, end = -1, 0, 0
    for offset, size in taken:
        gap = offset - end
        if gap >= nbytes and (best < 0 or gap < best_size):
            best, best_size = end, gap
        end = max(end, offset + size)
    return best if best >= 0 else end


def _place(operation: ir.Alloc, placed: Mapping[ir.Value, Expr]) -> ir.Alloc:
    offset = placed.get(operation.result, 0)
    space = ir.AllocSpace.ARENA if operation.result in placed else ir.AllocSpace.OUTPUT
    return replace(operation, space=space, offset=offset)


def _roots(function: ir.Function) -> dict[ir.Value, ir.Value]:
    """For each value the one whose memory it lies in: itself, or through views their source."""
    roots = {argument: argument for argument in function.arguments}
    for operation in function.operations:
        for result in ir.results(operation):
            roots[result] = roots[operation.source] if isinstance(operation, ir.View) else result
    return roots


def _last_uses(function: ir.Function, roots: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, int]:
    """For each memory the position of the last operation that touches it; its own, where none does."""
    last: dict[ir.Value, int] = {}
    for position, operation in enumerate(function.operations):
        for value in (*ir.results(operation), *ir.operands(operation)):
            last[roots[value]] = position
    return last
