"""Launches of a model's own `@triton.jit` kernels: arguments that are not given have the defaults of the function.

A launch that Triton makes itself fills them in; one that is traced records only what was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coilpack.compiler import _torch_compat as compat


def _with_defaults(operator: Any) -> Callable[..., Any]:
    def launch(
        *, kernel_idx: int, constant_args_idx: int, kwargs: dict[str, Any], grid: list[Any], **options: Any
    ) -> Any:
        constants = compat.kernel_side_table.get_constant_args(constant_args_idx)
        kernel: Any = compat.kernel_side_table.get_kernel(kernel_idx)
        chosen = {name for config in getattr(kernel, "configs", ()) for name in config.kwargs}
        while not hasattr(kernel, "params"):  # autotuners and heuristics wrap the function
            kernel = kernel.fn
        missing = [p for p in kernel.params if p.has_default and p.name not in {*constants, *kwargs, *chosen}]
        if not missing:
            return NotImplemented
        constants = {**constants, **{p.name: p.default for p in missing if p.is_constexpr}}
        return operator(
            kernel_idx=kernel_idx,
            constant_args_idx=compat.kernel_side_table.add_constant_args(constants),
            grid=grid,
            kwargs={**kwargs, **{p.name: p.default for p in missing if not p.is_constexpr}},
            **options,
        )

    return launch


TABLE: Mapping[Any, Callable[..., Any]] = {}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {
    operator: _with_defaults(operator)
    for operator in (compat.triton_kernel_wrapper_functional, compat.triton_kernel_wrapper_mutation)
}
