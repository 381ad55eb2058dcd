"""Which steps of a plan must wait for which: the edges of its graph, from what the steps read and write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from coilpack.runtime.steps import Base, MatmulStep, Range, Step

# Steps that may run at once. Branches of a CUDA graph take device memory (H200, driver 580: 1 MB for 4, 4 MB for 8,
# 5 MB for 16), and 100 small kernels ran no slower with 8 at once than with 50.
MAX_WIDTH = 8

_Access = tuple[int, int, int]  # first byte, the byte after the last, number of the step


@dataclass(slots=True)
class _Memory:
    """What was done to one piece of memory: the latest accesses to each byte, with older ones that overlap them."""

    reads: list[_Access] = field(default_factory=list)
    writes: list[_Access] = field(default_factory=list)


def step_dependencies(steps: Sequence[Step], width: int = MAX_WIDTH) -> list[tuple[int, ...]]:
    """The steps that each step must wait for, by number, without those that the others wait for anyway.

    A step waits for those that wrote what it reads (or writes), and for those that read what it writes. Arguments are
    taken to be apart; products share a workspace, so they come one after another. Where more than `width` steps could
    run at once, some wait although memory does not ask for it.
    """
    spaces: dict[tuple[Base, int], _Memory] = {}
    found: list[tuple[int, ...]] = []
    reached: list[int] = []  # for each step all those before it, one bit each
    branches: list[int] = []  # the last step of each sequence of steps that wait for one another
    product: int | None = None
    for number, step in enumerate(steps):
        needed = _conflicts(spaces, step)
        if isinstance(step, MatmulStep):
            needed.update(() if product is None else (product,))
            product = number
        kept, bits = _reduced(needed, reached)
        if (extra := _join(branches, number, bits, width)) is not None:
            kept, bits = _reduced({*kept, extra}, reached)
        found.append(tuple(kept))
        reached.append(bits)
        _record(spaces, step, number)
    return found


def _reduced(needed: Iterable[int], reached: Sequence[int]) -> tuple[list[int], int]:
    """Those of some steps that no other of them waits for, the latest first, and all that they wait for as bits."""
    kept, bits = [], 0
    for other in sorted(needed, reverse=True):
        if not bits >> other & 1:
            kept.append(other)
            bits |= reached[other] | 1 << other
    return kept, bits


def _join(branches: list[int], number: int, bits: int, width: int) -> int | None:
    """Puts a step at the end of a branch, and returns what it must wait for besides, as there are enough branches."""
    followed = [branch for branch, last in enumerate(branches) if bits >> last & 1]
    if followed:
        branches[max(followed, key=branches.__getitem__)] = number
        return None
    if len(branches) < width:
        branches.append(number)
        return None
    oldest = min(range(width), key=branches.__getitem__)
    waits_for, branches[oldest] = branches[oldest], number
    return waits_for


def _conflicts(spaces: dict[tuple[Base, int], _Memory], step: Step) -> set[int]:
    needed: set[int] = set()
    for place in step.reads:
        memory = spaces.get((place.base, place.index))
        if memory is not None:
            needed.update(_overlapping(memory.writes, place))
    for place in step.writes:
        memory = spaces.get((place.base, place.index))
        if memory is not None:
            needed.update(_overlapping(memory.writes, place))
            needed.update(_overlapping(memory.reads, place))
    return needed


def _overlapping(accesses: Iterable[_Access], place: Range) -> Iterable[int]:
    return [number for begin, end, number in accesses if begin < place.end and place.begin < end]


def _record(spaces: dict[tuple[Base, int], _Memory], step: Step, number: int) -> None:
    for place in step.writes:
        memory = spaces.setdefault((place.base, place.index), _Memory())
        # Whoever conflicts with an access that this one covers conflicts with this one, which waits for it.
        memory.reads = _uncovered(memory.reads, place)
        memory.writes = _uncovered(memory.writes, place)
        memory.writes.append((place.begin, place.end, number))
    for place in step.reads:
        if place.base is not Base.WEIGHTS and place not in step.writes:
            memory = spaces.setdefault((place.base, place.index), _Memory())
            memory.reads.append((place.begin, place.end, number))


def _uncovered(accesses: Iterable[_Access], place: Range) -> list[_Access]:
    return [access for access in accesses if access[0] < place.begin or place.end < access[1]]
