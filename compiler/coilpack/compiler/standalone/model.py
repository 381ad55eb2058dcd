"""A kernel that is compiled by itself: its configurations, each with the grid that launches it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coilpack.compiler.kernels.signature import Parameter
from coilpack.compiler.kernels.source import KernelSource
from coilpack.runtime.program import wire
from coilpack.runtime.program.expr import Expr, Symbol

Grid = tuple[Expr, Expr, Expr]


@dataclass(frozen=True)
class Candidate:
    """One configuration of a kernel.

    Attributes:
        source: what it is compiled from.
        grid: over symbols `p<i>`; None where nothing says the grid.
        configuration: as text.
        configured: the constants that the configuration chooses.
    """

    source: KernelSource
    grid: Grid | None
    configuration: str
    configured: Collection[str]


@dataclass(frozen=True)
class StandaloneKernel:
    """A kernel: its export name, and its configurations, the preferred one first."""

    export_name: str
    candidates: Sequence[Candidate]


def grid_arguments(parameters: Sequence[Parameter], constants: Mapping[Any, object]) -> dict[str, object]:
    """What the names in a launch rule stand for: integer parameters as symbols, integer constants as they are."""
    symbols = wire.launch_symbols(len(parameters))
    integers = {
        parameter.name: Symbol(symbol)
        for parameter, symbol in zip(parameters, symbols, strict=True)
        if not parameter.is_pointer and not parameter.dtype.is_float
    }
    numbers = {n: value for n, value in constants.items() if isinstance(n, str) and isinstance(value, int)}
    return {**numbers, **integers}
