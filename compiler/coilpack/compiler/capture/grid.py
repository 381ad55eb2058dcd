"""How many workgroups a launch has, as expressions over its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.source_expressions import SIZE_FUNCTIONS, SIZE_OPERATORS, SourceEvaluator
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program.expr import Binary, Expr, Symbol


def launch_grid(inductor_meta: Mapping[str, Any], config: Any, arguments: Mapping[str, Any]) -> tuple[Expr, Expr, Expr]:
    """The grid of a generated kernel: workgroups along x, y and z.

    Inductor states it as Python source over the names of the kernel's arguments and of extra launch arguments, in which
    `-(n // -block)` rounds up.

    Args:
        inductor_meta: the kernel's `inductor_meta`; `grid_type` names the rule.
        config: the chosen configuration.
        arguments: the value of each name: an expression, or anything else where the rule does not use it.

    Raises:
        UnsupportedError: the rule uses something else than integer arithmetic on sizes.
    """
    rule = compat.GridExpr.from_meta(dict(inductor_meta), config)
    evaluator = SourceEvaluator(SIZE_OPERATORS, SIZE_FUNCTIONS, dict(arguments))
    for line in rule.prefix:
        evaluator.run(line)
    x, y, z = (_workgroups(evaluator.value(size), size) for size in (rule.x_grid, rule.y_grid, rule.z_grid))
    return x, y, z


def _workgroups(value: Any, source: str | int) -> Expr:
    if isinstance(value, int | Symbol | Binary):
        return value
    raise UnsupportedError(f"the grid size `{source}` is {value!r}, which is no integer expression")
