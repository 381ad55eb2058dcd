"""Gives every intermediate value its place in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr


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
    """

    name = "plan-memory"

    def run(self, function: ir.Function) -> ir.Function:
        """The same function with its memory planned.

        Raises:
            UnsupportedError: a size is not a constant; names the value.
        """
        roots = _roots(function)
        outputs = {roots[v] for op in function.operations if isinstance(op, ir.Return) for v in op.values}
        last_use = _last_uses(function, roots)
        allocs = [
            (position, operation)
            for position, operation in enumerate(function.operations)
            if isinstance(operation, ir.Alloc) and operation.result not in outputs
        ]
        intervals = [Interval(_size(operation), position, last_use[operation.result]) for position, operation in allocs]
        offsets = pack(intervals)
        placed = {operation.result: offset for (_, operation), offset in zip(allocs, offsets, strict=True)}
        ends = [offset + interval.nbytes for offset, interval in zip(offsets, intervals, strict=True)]
        operations = tuple(
            _place(operation, placed) if isinstance(operation, ir.Alloc) else operation
            for operation in function.operations
        )
        return replace(function, operations=operations, arena_nbytes=_aligned(max(ends, default=0)))


def pack(intervals: Sequence[Interval]) -> list[int]:
    """Offsets such that blocks needed at the same time do not overlap, each a multiple of 256 bytes.

    Greedy by size: the largest block first, each in the smallest gap that takes it among the placed blocks that it
    meets. Ties keep the order of the argument, so equal inputs give equal plans.
    """
    offsets = [0] * len(intervals)
    placed: list[int] = []
    for index in sorted(range(len(intervals)), key=lambda i: (-intervals[i].nbytes, i)):
        block = intervals[index]
        if block.nbytes:
            taken = sorted((offsets[i], _aligned(intervals[i].nbytes)) for i in placed if block.meets(intervals[i]))
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


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ir.ARENA_ALIGNMENT) * ir.ARENA_ALIGNMENT


def _size(operation: ir.Alloc) -> int:
    if not isinstance(operation.nbytes, int):
        raise UnsupportedError(
            f"%{operation.result.name} has a size that depends on the inputs; memory is planned statically"
        )
    return operation.nbytes


def _place(operation: ir.Alloc, placed: Mapping[ir.Value, int]) -> ir.Alloc:
    offset: Expr = placed.get(operation.result, 0)
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
