"""What a launch of a kernel of Inductor's passes: which argument belongs to which parameter, and the grid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from coilpack.compiler.capture.grid import launch_grid
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program.expr import Expr

Grid = tuple[Expr, Expr, Expr]


class LaunchedKernel(Protocol):
    """A kernel as Inductor generated it, in the one configuration that was chosen."""

    @property
    def name(self) -> str:
        """What the host program calls it."""

    @property
    def signature(self) -> Mapping[str, str]:
        """Argument names to Triton types, `constexpr` included, in declaration order."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """Values of arguments that are the same at each launch; those that the configuration chooses are not there."""

    @property
    def constexprs(self) -> Collection[str]:
        """The parameters that the source declares `constexpr`."""

    @property
    def inductor_meta(self) -> Mapping[str, Any]:
        """What Inductor notes for its launcher; `grid_type` names the rule of the grid."""

    @property
    def config(self) -> Any:
        """The configuration, as Triton's `Config`."""


def bind_launch(kernel: LaunchedKernel, args: tuple[Any, ...]) -> tuple[dict[str, Any], Grid]:
    """The operands of a launch by argument name, and the grid: workgroups along x, y and z.

    Args:
        kernel: what is launched.
        args: what the host program passes. Grid arguments of templates and of users' kernels follow at the end.

    Raises:
        UnsupportedError: the arguments do not match the parameters, or the grid is no integer arithmetic on sizes.
    """
    extra = list(kernel.inductor_meta.get("extra_launcher_args") or ())
    passed, tail = args[: len(args) - len(extra)], args[len(args) - len(extra) :]
    names = _passed_names(kernel, len(passed))
    operands = dict(zip(names, passed, strict=True))
    environment = {**kernel.constants, **operands, **dict(zip(extra, tail, strict=True))}
    return operands, launch_grid(kernel.inductor_meta, kernel.config, environment)


def _passed_names(kernel: LaunchedKernel, count: int) -> list[str]:
    """The arguments that Inductor passes at a launch, in order; which ones depends on who wrote the kernel.

    Each rule leaves out at least what the one before leaves out, so the one that gives the right number is right.
    """
    declared, constants = set(kernel.constexprs), set(kernel.constants)
    chosen = set(kernel.config.kwargs)  # block sizes, in Inductor's own kernels
    # Users' kernels: None and 1 are passed, what is declared `constexpr` is not (before torch 2.9, no constant is).
    for left_out in (chosen, chosen | declared, chosen | declared | constants):
        names = [name for name in kernel.signature if name not in left_out]
        if len(names) == count:
            return names
    raise UnsupportedError(
        f"kernel {kernel.name} is launched with {count} arguments, which do not match its parameters "
        f"{list(kernel.signature)}, of which {sorted(constants)} are constants"
    )
