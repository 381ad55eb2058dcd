"""Operators that hold graphs: run inline while a model is traced, so that one list of operations is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.size_expressions import flag
from coilpack.runtime.program.expr import Expr, ExprKind, Symbol


class RefusedError(Exception):
    """Why an operator cannot be lowered; who traces it adds its name and source line."""


RunGraph = Callable[..., Any]
"""Traces a nested graph with the arguments that follow it."""


def _cond(run: RunGraph, predicate: Any, taken: Any, other: Any, operands: Sequence[Any] = ()) -> Any:
    """Computes both branches, which have no effects, and selects; a predicate that is known selects at once."""
    if isinstance(predicate, bool):
        return run(taken if predicate else other, *operands)
    chosen = _device_flag(predicate) if isinstance(predicate, torch.SymBool) else predicate.reshape(())
    results = run(taken, *operands), run(other, *operands)
    return compat.tree_map(lambda a, b: _select(chosen, a, b), *results)


def _select(chosen: torch.Tensor, first: Any, second: Any) -> Any:
    if isinstance(first, torch.Tensor):
        return torch.where(chosen, first, second)
    if first is second or (isinstance(first, int) and first == second):
        return first
    raise RefusedError(f"its branches return {first!r} and {second!r}, and only tensors can differ")


def _device_flag(predicate: torch.SymBool) -> torch.Tensor:
    """A condition on sizes as a scalar on the device."""
    value = _as_size(flag(predicate.node.expr), predicate.node.shape_env)
    return torch.full((), value, dtype=torch.int64, device="cuda") != 0


_OPERATORS: Mapping[ExprKind, Callable[[Any, Any], Any]] = {
    ExprKind.ADD: lambda a, b: a + b,
    ExprKind.MUL: lambda a, b: a * b,
    ExprKind.FLOORDIV: lambda a, b: a // b,
    ExprKind.MOD: lambda a, b: a % b,
    ExprKind.MIN: torch.sym_min,
    ExprKind.MAX: torch.sym_max,
}


def _as_size(expr: Expr, shape_env: Any) -> Any:
    """An expression of the IR as a size of torch's."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, Symbol):
        return compat.symbolic_size(shape_env, expr.name)
    return _OPERATORS[expr.kind](_as_size(expr.lhs, shape_env), _as_size(expr.rhs, shape_env))


def _map(run: RunGraph, function: Any, arrays: Sequence[Any], operands: Sequence[Any] = ()) -> Any:
    """One copy of the graph for each element of the leading dimension."""
    count = arrays[0].shape[0]
    if not isinstance(count, int) or not count:
        raise RefusedError(f"it maps over {count} elements, and their number must be constant and at least 1")
    results = [run(function, *[array[i] for array in arrays], *operands) for i in range(count)]
    return compat.tree_map(lambda *rows: torch.stack(rows), *results)


def _with_grad_mode(run: RunGraph, _enabled: bool, function: Any, *operands: Any) -> Any:
    return run(function, *operands)


def _refused(reason: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise RefusedError(reason)

    return refuse


def handlers() -> Mapping[Any, Callable[..., Any]]:
    """What stands for each operator: called with `RunGraph` and the operator's arguments."""
    operators = torch.ops.higher_order
    return {
        operators.cond: _cond,
        operators.map_impl: _map,
        operators.wrap_with_set_grad_enabled: _with_grad_mode,
        operators.while_loop: _refused("a package has no loops; write one with a constant number of steps"),
        operators.scan: _refused("a package has no loops; write one with a constant number of steps"),
        operators.wrap_with_autocast: _refused("convert the model to its element type before it is exported"),
    }
