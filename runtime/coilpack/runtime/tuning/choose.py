"""Which candidate of each kernel to take, from the times of all its launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from coilpack.runtime.program import ir
from coilpack.runtime.program.select import dispatches
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


def choose(launches: Iterable[LaunchTimes], state: State, target: ir.Target, *, is_exact: bool) -> list[KernelChoice]:
    """For each kernel the candidate whose launches take the least time in all.

    Args:
        launches: all that were measured.
        state: of the caches, in which times count.
        target: what they are of. A candidate must be one of all dispatches of its kernel, measured or not.
        is_exact: times do not vary; the least difference decides.
    """
    by_kernel: dict[str, list[LaunchTimes]] = {}
    for item in launches:
        by_kernel.setdefault(item.kernels[0].export_name, []).append(item)
    common = _common(target)
    return [_choose(items, state, common[name], is_exact) for name, items in by_kernel.items()]


def untuned(choices: Iterable[KernelChoice]) -> list[KernelChoice]:
    """The same with the first candidates chosen."""
    return [dataclasses.replace(choice, choice=0) for choice in choices]


def _common(target: ir.Target) -> dict[str, set[str]]:
    """For each kernel that is launched, the candidates that all its dispatches have, itself among them."""
    found: dict[str, set[str]] = {}
    for dispatch in dispatches(target):
        own = dispatch.kernel.export_name
        names = {own, *(alternative.kernel.export_name for alternative in dispatch.alternatives)}
        found[own] = found.get(own, names) & names
    return found


def _choose(items: Sequence[LaunchTimes], state: State, common: Set[str], is_exact: bool) -> KernelChoice:
    count = sum(item.count for item in items)
    candidates = [
        Candidate(
            total.kernel.export_name,
            total.kernel.source,
            total.kernel.configuration,
            None if total.error else total.time / count,
            total.error,
        )
        for total in _totals(items, state, common)
    ]
    return KernelChoice(candidates[0].kernel, count, tuple(candidates), _fastest(candidates, is_exact))


def _totals(items: Sequence[LaunchTimes], state: State, common: Set[str]) -> list[_Total]:
    """The time of all launches with each candidate."""
    totals = [_Total(kernel) for kernel in items[0].kernels]
    for total in totals:
        name = total.kernel.export_name
        if name not in common:
            total.error = "it is no candidate of some of the launches"
            continue
        for item in items:
            found = next(measured for measured in item.measured if measured.kernel == name)
            time = found.cold if state == "cold" else found.hot
            total.error = total.error or found.error
            total.time += item.count * (time or 0.0)
    return totals


def _fastest(candidates: Sequence[Candidate], is_exact: bool) -> int:
    """The index of the fastest; of those that are as fast, the first."""
    times = [(candidate.time, index) for index, candidate in enumerate(candidates) if candidate.time is not None]
    least = min(times)[0]
    limit = least if is_exact else min(least * (1 + _SAME_PART), least + _SAME_TIME)
    return next(index for time, index in times if time <= limit)
