"""Gives all dispatches of a kernel the same candidates, so that one of them can be chosen for the whole program.

Functions may launch one kernel for different sizes, and so prefer, or find, other configurations of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from coilpack.runtime.program import ir


def with_common_candidates(functions: Sequence[ir.Function]) -> list[ir.Function]:
    """The functions of one target, whose dispatches of a kernel have the same alternatives in the same order.

    The order is that of the first dispatch; what another lacks is dropped.
    """
    common: dict[str, list[str]] = {}
    for dispatch in _dispatches(functions):
        own = [alternative.kernel.export_name for alternative in dispatch.alternatives]
        before = common.get(dispatch.kernel.export_name, own)
        common[dispatch.kernel.export_name] = [name for name in before if name in own]
    return [
        replace(
            function,
            operations=tuple(
                _with(operation, common[operation.kernel.export_name])
                if isinstance(operation, ir.Dispatch) and operation.alternatives
                else operation
                for operation in function.operations
            ),
        )
        for function in functions
    ]


def launchable_kernels(functions: Iterable[ir.Function]) -> set[str]:
    """Export names of the kernels that the functions launch, and of their candidates."""
    kernels = (k for d in _dispatches(functions) for k in (d.kernel, *(a.kernel for a in d.alternatives)))
    return {kernel.export_name for kernel in kernels}


def _dispatches(functions: Iterable[ir.Function]) -> Iterator[ir.Dispatch]:
    for function in functions:
        for operation in function.operations:
            if isinstance(operation, ir.Dispatch):
                yield operation


def _with(dispatch: ir.Dispatch, names: Sequence[str]) -> ir.Dispatch:
    by_name = {alternative.kernel.export_name: alternative for alternative in dispatch.alternatives}
    return replace(dispatch, alternatives=tuple(by_name[name] for name in names))
