"""Takes for each kernel the configuration that a tuning run found fastest, in the place of the cost model's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coilpack.compiler.capture.choices import UnfitConfigs
from coilpack.compiler.capture.host_graph import CapturedKernel, HostGraph, dispatch
from coilpack.compiler.program_kernels import tuner_source
from coilpack.runtime.errors import InputError
from coilpack.runtime.tuning.report import Candidate, TuningReport

_Identity = tuple[str, str]  # of a configured kernel across builds: the digest of its source, and its configuration


@dataclass
class TunedChoice:
    """The choices of a tuning report, and how far they applied.

    Args:
        report: what was measured.
        unfit: configurations that are not chosen.
        progress: called with a message for each kernel that the report does not have.
    """

    report: TuningReport
    unfit: UnfitConfigs
    progress: Callable[[str], None]
    _found: dict[str, tuple[int, Sequence[str]]] = field(default_factory=dict)  # by function: how many, and the others

    def __post_init__(self) -> None:
        choices = self.report.kernels
        self._by_first = {_recorded(c.candidates[0]): _recorded(c.winner) for c in choices}
        self._winners = set(self._by_first.values())

    def choose(self, function: str, host: HostGraph[CapturedKernel]) -> HostGraph[CapturedKernel]:
        """The host program of a function with the winners in the place of its kernels.

        A kernel with one configuration only, or none that won, stays as it is.

        Args:
            function: its name.
            host: its host program, whose kernels have all their configurations as alternatives.
        """
        launches = [node for node in host.graph.nodes if node.target is dispatch]
        kernels, missing, count = dict(host.kernels), [], 0
        for name, kernel in host.kernels.items():
            grids = [dict(node.args[3]) for node in launches if node.args[0] == name]
            launchable = [k for k in kernel.alternatives if all(k.name in own for own in grids)]
            winner = self._winner(kernel, launchable)
            if winner is not None:
                kernels[name], count = winner, count + 1
            elif launchable:
                missing.append(name)
        for node in launches:
            name, grid, operands, alternatives = node.args
            own: Mapping[str, Any] = {name: grid, **dict(alternatives)}
            node.args = (name, own[kernels[name].name], operands)
        self._found[function] = count, missing
        renamed = {name: dataclasses.replace(k, name=name, alternatives=()) for name, k in kernels.items()}
        return HostGraph(host.graph, renamed, host.constants)

    def _winner(self, kernel: CapturedKernel, others: Sequence[CapturedKernel]) -> CapturedKernel | None:
        """The configuration that won where the first of the kernel was measured; else the first that won anywhere."""
        identities = {_identity(one): one for one in (*reversed(others), kernel) if self._fits(one)}
        identities.pop(("", ""), None)
        winner = identities.get(self._by_first.get(_identity(kernel), ("", "")))
        if winner is not None:
            return winner
        return next((one for identity, one in reversed(identities.items()) if identity in self._winners), None)

    def _fits(self, kernel: CapturedKernel) -> bool:
        return not self.unfit.holds(kernel.tuner, kernel.config)

    def finish(self) -> None:
        """Says which kernels the report did not have, when all functions are compiled.

        Raises:
            InputError: it had none.
        """
        found = sum(count for count, _ in self._found.values())
        missing = [f"{function}: {name}" for function, (_, names) in self._found.items() for name in names]
        if missing and not found:
            raise InputError(
                f"none of the {len(missing)} kernels for {self.report.target} is in the tuning report, which is of "
                f"another model, or was made by another version of the compiler: {self.report.producer}"
            )
        for name in missing:
            self.progress(f"{name} is not in the tuning report; the cost model chose its configuration")
        self.progress(f"{found} of {found + len(missing)} kernels for {self.report.target} are as they were tuned")


def _recorded(candidate: Candidate) -> _Identity:
    return candidate.source, candidate.configuration


def _identity(kernel: CapturedKernel) -> _Identity:
    """What tells a configured kernel from all others; empty where nothing does."""
    source = tuner_source(kernel.tuner, kernel.config, kernel.name).digest(kernel.config.kwargs)
    return (source, kernel.configuration) if source else ("", "")
