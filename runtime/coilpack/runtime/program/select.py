"""Candidates of a target's dispatches: which kernels they leave unused, and a program that has taken some for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from coilpack.runtime.errors import NotFoundError
from coilpack.runtime.program import ir


def dispatches(target: ir.Target) -> Iterator[ir.Dispatch]:
    """The dispatches of all its functions, in order."""
    for function in target.functions:
        for operation in function.operations:
            if isinstance(operation, ir.Dispatch):
                yield operation


def launched_kernels(target: ir.Target) -> tuple[ir.Kernel, ...]:
    """The kernels that its functions launch, in the target's order: all but candidates.

    All kernels where it has no functions: they are launched one by one.
    """
    if not target.functions:
        return target.kernels
    launched: set[str] = set()
    for dispatch in dispatches(target):
        launched.add(dispatch.kernel.export_name)
        if len(launched) == len(target.kernels):  # soon, where there are no candidates
            return target.kernels
    return tuple(kernel for kernel in target.kernels if kernel.export_name in launched)


def select(program: ir.Program, target: str, choices: Mapping[str, str]) -> ir.Program:
    """The program in which one target has candidates no more.

    Args:
        program: a valid program; it stays as it is.
        target: the name of the target, as `sm_80`.
        choices: the export name of a kernel that dispatches launch, and that of the candidate to launch in its place,
            or its own. Kernels that are not named stay.

    Returns:
        A program whose other targets are those of `program`. Kernels that nothing launches any more are gone, if the
        target has functions.

    Raises:
        NotFoundError: there is no such target, no dispatch launches a kernel that is to be replaced, or one that does
            has no such candidate.
    """
    found = next((item for item in program.targets if item.name == target), None)
    if found is None:
        raise NotFoundError("target", target, "the program", [item.name for item in program.targets])
    known = {dispatch.kernel.export_name for dispatch in dispatches(found)}
    for name in choices:
        if name not in known:
            raise NotFoundError("launched kernel", name, f"target {target}", known)
    chosen = replace(found, functions=tuple(_function(function, choices) for function in found.functions))
    chosen = replace(chosen, kernels=launched_kernels(chosen))
    return replace(program, targets=tuple(chosen if item is found else item for item in program.targets))


def _function(function: ir.Function, choices: Mapping[str, str]) -> ir.Function:
    operations = (
        _dispatch(operation, choices) if isinstance(operation, ir.Dispatch) else operation
        for operation in function.operations
    )
    return replace(function, operations=tuple(operations))


def _dispatch(dispatch: ir.Dispatch, choices: Mapping[str, str]) -> ir.Dispatch:
    own = ir.Alternative(dispatch.kernel, dispatch.grid)
    kernels = {choice.kernel.export_name: choice for choice in (own, *dispatch.alternatives)}
    name = choices.get(own.kernel.export_name, own.kernel.export_name)
    if name not in kernels:
        raise NotFoundError("candidate", name, f"the dispatches of kernel {own.kernel.export_name!r}", kernels)
    return replace(dispatch, kernel=kernels[name].kernel, grid=kernels[name].grid, alternatives=())
