"""Which candidate of each kernel to take, from the times of all its launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from coilpack.runtime.program import ir
from coilpack.runtime.steps import LaunchStep
from coilpack.runtime.tuning.bench import choices_of
from coilpack.runtime.tuning.measure import Measurement
from coilpack.runtime.tuning.report import Candidate, KernelChoice

State = Literal["cold", "hot"]

_SAME_PART, _SAME_TIME = 0.01, 0.2  # of the faster one, and microseconds: below both, two candidates are as fast


@dataclass(frozen=True)
class LaunchKey:
    """What makes launches of a kernel take the same time: the grids and scalars of all candidates."""

    choices: tuple[tuple[str, tuple[int, int, int]], ...]
    scalars: tuple[bytes, ...]

    @classmethod
    def of(cls, step: LaunchStep) -> LaunchKey:
        """That of a launch."""
        choices = tuple((choice.kernel.export_name, choice.grid) for choice in choices_of(step))
        return cls(choices, tuple(value for value in step.parameters if isinstance(value, bytes)))


@dataclass
class LaunchTimes:
    """The candidates of launches that are alike, and what was measured of them.

    Attributes:
        kernels: the candidates, the launches' own kernel first.
        count: how many such launches there are in one call of each function.
        measured: one item for each candidate; empty until they are measured.
    """

    kernels: tuple[ir.Kernel, ...]
    count: int = 0
    measured: Sequence[Measurement] = ()


@dataclass
class _Total:
    kernel: ir.Kernel
    time: float = 0.0
    error: str = ""


def count_launches(steps: Iterable[object], found: dict[LaunchKey, LaunchTimes]) -> None:
    """Adds the launches of a plan that have alternatives."""
    for step in steps:
        if isinstance(step, LaunchStep) and step.alternatives:
            kernels = tuple(choice.kernel for choice in choices_of(step))
            found.setdefault(LaunchKey.of(step), LaunchTimes(kernels)).count += 1


def choose(launches: Iterable[LaunchTimes], state: State, *, is_exact: bool) -> list[KernelChoice]:
    """For each kernel the candidate whose launches take the least time in all.

    Args:
        launches: all that were measured.
        state: of the caches, in which times count.
        is_exact: times do not vary; the least difference decides.
    """
    by_kernel: dict[str, list[LaunchTimes]] = {}
    for item in launches:
        by_kernel.setdefault(item.kernels[0].export_name, []).append(item)
    return [_choose(items, state, is_exact) for items in by_kernel.values()]


def untuned(choices: Iterable[KernelChoice]) -> list[KernelChoice]:
    """The same with the first candidates chosen."""
    return [dataclasses.replace(choice, choice=0) for choice in choices]


def _choose(items: Sequence[LaunchTimes], state: State, is_exact: bool) -> KernelChoice:
    count = sum(item.count for item in items)
    candidates = [
        Candidate(
            total.kernel.export_name,
            total.kernel.source,
            total.kernel.configuration,
            None if total.error else total.time / count,
            total.error,
        )
        for total in _totals(items, state)
    ]
    return KernelChoice(candidates[0].kernel, count, tuple(candidates), _fastest(candidates, is_exact))


def _totals(items: Sequence[LaunchTimes], state: State) -> list[_Total]:
    """The time of all launches with each candidate that every one of them has."""
    totals = {kernel.export_name: _Total(kernel) for kernel in items[0].kernels}
    for item in items:
        measured = {found.kernel: found for found in item.measured}
        for name, total in totals.items():
            found = measured.get(name)
            if found is None:
                total.error = total.error or "it is no candidate of some of the launches"
                continue
            time = found.cold if state == "cold" else found.hot
            total.error = total.error or found.error
            total.time += item.count * (time or 0.0)
    return list(totals.values())


def _fastest(candidates: Sequence[Candidate], is_exact: bool) -> int:
    """The index of the fastest; of those that are as fast, the first."""
    times = [(candidate.time, index) for index, candidate in enumerate(candidates) if candidate.time is not None]
    least = min(times)[0]
    limit = least if is_exact else min(least * (1 + _SAME_PART), least + _SAME_TIME)
    return next(index for time, index in times if time <= limit)
