"""The kernels of a generated module as configurations to compile: each is loaded from its source alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.choices import ordered_configs
from coilpack.compiler.capture.configuration import tuner_configuration
from coilpack.compiler.capture.grid import launch_grid
from coilpack.compiler.kernels.source import KernelSource
from coilpack.compiler.program_kernels import tuner_source
from coilpack.compiler.python_file import import_module
from coilpack.compiler.standalone.generated_module import KernelText
from coilpack.compiler.standalone.model import Candidate, Grid, StandaloneKernel, grid_arguments
from coilpack.compiler.targets import Target
from coilpack.runtime.errors import InputError, UnsupportedError
from coilpack.runtime.executable.names import unique_kernel_names

# Arguments that Inductor's host program fills: scratch memory, and semaphores that must be zero at each launch.
_WORKSPACES = ("ws_ptr", "sem_ptr")


def load_kernels(
    texts: Sequence[KernelText], module: Path, target: Target, folder: Path, progress: Callable[[str], None]
) -> list[StandaloneKernel]:
    """Loads kernels from the sources in a generated module; must run where `offline_driver` is active.

    Args:
        texts: the kernels.
        module: the module's path, for messages.
        target: what they will be compiled for; it decides which configuration comes first.
        folder: where their sources are written: Triton reads them while it compiles.
        progress: called with short messages.

    Raises:
        InputError: a source cannot be run with the torch that is installed, or defines no kernel of Inductor's.
        UnsupportedError: a kernel needs a workspace.
    """
    symbols = unique_kernel_names([text.name for text in texts])
    return [
        _load(text, symbol, f"{module}:{text.line}", target, folder / f"kernel_{number}.py", progress)
        for number, (text, symbol) in enumerate(zip(texts, symbols, strict=True))
    ]


def _load(
    text: KernelText, symbol: str, where: str, target: Target, path: Path, progress: Callable[[str], None]
) -> StandaloneKernel:
    path.write_text(text.source, "utf-8")
    tuner = getattr(import_module(path), text.function, None)
    if not isinstance(tuner, compat.CachingAutotuner):
        raise InputError(f"{where}: the source of {text.name!r} defines no kernel {text.function!r} of Inductor's")
    for name in tuner.triton_meta["signature"]:
        if name.startswith(_WORKSPACES):
            raise UnsupportedError(
                f"{where}: kernel {text.name!r} takes a workspace ({name}), which the module allocates and zeroes at "
                "each launch; a kernel by itself cannot say so. Compile the model instead"
            )
    candidates = []
    for config in ordered_configs(tuner, target):
        source = tuner_source(tuner, config, symbol)
        grid = _grid(tuner, config, source, lambda m: progress(f"{text.name}: {m}"))
        candidates.append(Candidate(source, grid, tuner_configuration(tuner, config), tuple(config.kwargs)))
    return StandaloneKernel(text.name, candidates)


def _grid(tuner: Any, config: Any, source: KernelSource, progress: Callable[[str], None]) -> Grid | None:
    """The grid by the kernel's own arguments; None where the host program computes it (templates, users' kernels)."""
    if tuner.inductor_meta.get("extra_launcher_args"):
        return None
    arguments = grid_arguments(source.parameters(), source.constants)
    try:
        return launch_grid(tuner.inductor_meta, config, arguments)
    except UnsupportedError as error:
        progress(f"its launches must name the grid ({error})")
        return None
