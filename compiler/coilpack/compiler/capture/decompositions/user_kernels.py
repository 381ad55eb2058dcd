"""Launches of a model's own `@triton.jit` kernels: arguments that are not given have the defaults of the function.

A launch that Triton makes itself fills them in; one that is traced records only what was given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.source_location import source_location
from coilpack.runtime.errors import UnsupportedError


@contextmanager
def checked_arguments() -> Iterator[None]:
    """Within it, tracing a launch with a tensor that is no argument by itself is an `UnsupportedError`.

    torch takes a tensor descriptor, or a tuple of tensors, for a constant. It then knows of no tensor that the kernel
    writes, and drops the launch.
    """
    tracer: Any = compat.tracing_triton_hopifier_singleton
    launch = tracer.call_HOP

    def checked(variable: Any, grids: Any, arguments: Mapping[str, Any], *rest: Any) -> Any:
        for name, value in arguments.items():
            if not isinstance(value, torch.Tensor) and _holds_tensor(value):
                kernel = variable.kernel
                while not hasattr(kernel, "params"):  # autotuners and heuristics wrap the function
                    kernel = kernel.fn
                where = source_location(SimpleNamespace(meta=torch.fx.traceback.get_current_meta()))
                raise UnsupportedError(
                    f"the Triton kernel {kernel.__name__!r} at {where} gets a {type(value).__name__} as {name!r}, "
                    "which a package cannot pass; pass tensors themselves, with their sizes and strides as integers"
                )
        return launch(variable, grids, arguments, *rest)

    tracer.call_HOP = checked
    try:
        yield
    finally:
        del tracer.call_HOP


def _holds_tensor(value: Any) -> bool:
    if dataclasses.is_dataclass(value):
        return any(_holds_tensor(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple | list):
        return any(map(_holds_tensor, value))
    return isinstance(value, torch.Tensor)


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
