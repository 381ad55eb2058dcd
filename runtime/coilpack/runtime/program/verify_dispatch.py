"""The rules of what a dispatch launches: its grid, and the kernels that may take the place of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr
from coilpack.runtime.program.types import TypeChecker

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ programming guide, technical specifications
MAX_ALTERNATIVES = 64  # of a dispatch: each is loaded and measured by tuning


def grid_problem(grid: Sequence[Expr], checker: TypeChecker) -> str:
    """What is wrong with a grid as far as is known before a call; empty where nothing is.

    Raises:
        TypeProblemError: a size breaks a rule of its own.
    """
    if len(grid) != len(MAX_GRID):
        return f"the grid has {len(grid)} sizes; it must have {len(MAX_GRID)}"
    for axis, size, limit in zip("xyz", grid, MAX_GRID, strict=True):
        workgroups = checker.value(size)
        if workgroups is not None and not 0 <= workgroups <= limit:
            return f"the grid has {workgroups} workgroups along {axis}; the limit is {limit}"
    return ""


def kernel_problem(kernel: ir.Kernel, kernels: Mapping[str, ir.Kernel]) -> str:
    """Says so where a kernel is not one of the target's, which are given by export name; else empty."""
    known = kernels.get(kernel.export_name)
    if known is not kernel and known != kernel:
        return f"kernel {kernel.export_name!r} is not one of the target's"
    return ""


def alternatives_problem(operation: ir.Dispatch, kernels: Mapping[str, ir.Kernel], checker: TypeChecker) -> str:
    """What is wrong with the alternatives of a dispatch; empty where nothing is.

    Whichever of them is launched, operands and order of steps are the same: so are the parameters.

    Raises:
        TypeProblemError: a size of a grid breaks a rule of its own.
    """
    if len(operation.alternatives) > MAX_ALTERNATIVES:
        return f"it has {len(operation.alternatives)} alternatives; the limit is {MAX_ALTERNATIVES}"
    seen = {operation.kernel.export_name}
    for index, alternative in enumerate(operation.alternatives):
        kernel = alternative.kernel
        problem = kernel_problem(kernel, kernels) or grid_problem(alternative.grid, checker)
        if not problem and kernel.export_name in seen:
            problem = f"kernel {kernel.export_name!r} is there already; kernels of a dispatch must differ"
        problem = problem or _difference(kernel, operation.kernel)
        if problem:
            return f"alternative {index}: {problem}"
        seen.add(kernel.export_name)
    return ""


def _difference(kernel: ir.Kernel, first: ir.Kernel) -> str:
    """How a kernel is called in another way than the one whose place it takes; empty where in the same."""
    if kernel.parameters is not first.parameters and kernel.parameters != first.parameters:
        return f"kernel {kernel.export_name!r} has other parameters than {first.export_name!r}"
    if kernel.cooperative != first.cooperative:
        kinds = {True: "cooperative", False: "not cooperative"}
        other = f"kernel {first.export_name!r} is {kinds[first.cooperative]}"
        return f"kernel {kernel.export_name!r} is {kinds[kernel.cooperative]}, but {other}"
    return ""
