"""All of Triton's private names that the compiler uses, for Triton 3.6 and 3.7, with a check at import.

Kernels are compiled by the stages of Triton's CUDA backend, run here one by one: no driver and no GPU is asked for, and
the stages stop at PTX, so that `ptxas` sees the PTX only after it is normalized.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from coilpack.runtime.errors import CoilpackError

SUPPORTED_VERSIONS = ((3, 6), (3, 7))


def _check_version() -> str:
    try:
        found = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        raise CoilpackError("Triton is not installed; install coilpack[compile]") from None
    if tuple(int(part) for part in found.split(".")[:2]) not in SUPPORTED_VERSIONS:
        wanted = " or ".join(f"{major}.{minor}" for major, minor in SUPPORTED_VERSIONS)
        raise CoilpackError(f"Triton {found} is installed; this compiler works with Triton {wanted}")
    return found


VERSION = _check_version()
"""The version of Triton that is installed."""

try:
    import triton as triton_package
    from triton import knobs
    from triton._C.libtriton import get_cache_invalidating_env_vars, ir
    from triton.backends import Backend
    from triton.backends import backends as triton_backends
    from triton.backends.compiler import GPUTarget, Language
    from triton.backends.driver import DriverBase
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import ASTSource
    from triton.compiler.errors import CompilationError
    from triton.language.core import constexpr, dtype
    from triton.runtime.autotuner import Autotuner, Config, Heuristics
    from triton.runtime.jit import JITCallable, JITFunction
except ImportError as error:
    raise CoilpackError(f"this build of Triton {VERSION} lacks what the compiler needs: {error}") from error

__all__ = [
    "SUPPORTED_VERSIONS",
    "VERSION",
    "CompilationError",
    "Config",
    "Configuration",
    "JITCallable",
    "JITFunction",
    "TunedFunction",
    "bundled_ptxas",
    "constexpr",
    "dtype",
    "environment_settings",
    "lower_ir",
    "make_ir",
    "offline_driver",
    "own_ptxas",
    "tuned_function",
]

_WARP_SIZE = 32


def _backend(compute_capability: int) -> Any:
    return CUDABackend(GPUTarget("cuda", compute_capability, _WARP_SIZE))


def make_ir(
    function: JITFunction,
    signature: Mapping[str, str],
    constants: Mapping[Any, object],
    attributes: Mapping[tuple[int, ...], Any],
    options: Mapping[str, object],
    compute_capability: int,
) -> str:
    """Runs Triton's front end: the text of the Triton IR of `function`, before any pass.

    Args:
        function: a `@triton.jit` function.
        signature: the type of each argument by name, `constexpr` for those that `constants` gives.
        constants: values by argument name or index path.
        attributes: `[["tt.divisibility", 16]]` by index path, for arguments known to be multiples of 16.
        options: of Triton's CUDA backend (`num_warps`, `num_stages`, ...).
        compute_capability: as 90.

    Raises:
        CompilationError: the function is not a valid kernel.
        ValueError, AssertionError: an option or argument does not fit.
    """
    source = ASTSource(function, dict(signature), dict(constants), dict(attributes))
    backend = _backend(compute_capability)
    parsed = backend.parse_options(dict(options))
    if unknown := sorted(set(options) - set(vars(parsed))):
        raise ValueError(f"{unknown[0]!r} is not an option of Triton's CUDA backend")
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    implementation = backend.get_codegen_implementation(parsed)
    module = source.make_ir(backend.target, parsed, implementation, backend.get_module_map(), context)
    return str(module)


def lower_ir(text: str, options: Mapping[str, object], compute_capability: int) -> tuple[str, dict[str, Any]]:
    """Runs the stages from Triton IR to PTX.

    Line information is left out: it holds paths of this machine.

    Args:
        text: what `make_ir` returned.
        options: those given to `make_ir`.
        compute_capability: that given to `make_ir`.

    Returns:
        The PTX, and the metadata that the stages reported, of JSON values.
    """
    knobs.compilation.disable_line_info = True
    backend = _backend(compute_capability)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "kernel.ttir")
        path.write_text(text)
        module = ir.parse_mlir_module(str(path), context)
    module.context = context
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, Language.TRITON)
    metadata: dict[str, Any] = {}
    for stage in ("ttir", "ttgir", "llir", "ptx"):
        module = stages[stage](module, metadata)
    metadata.setdefault("num_warps", parsed.num_warps)
    for option in ("num_ctas", "launch_pdl", "launch_cooperative_grid"):
        metadata[option] = getattr(parsed, option)
    return module, metadata


def bundled_ptxas(compute_capability: int) -> Path | None:
    """The assembler for an architecture: Triton's own, else the one on PATH, else None."""
    tool = "ptxas_blackwell" if compute_capability >= 100 else "ptxas"
    try:
        return Path(getattr(knobs.nvidia, tool).path)
    except (RuntimeError, AttributeError):
        found = shutil.which("ptxas")
        return Path(found) if found else None


def own_ptxas(compute_capability: int) -> Path | None:
    """The assembler that is part of Triton's package, whatever the environment names; None where it has none."""
    path = Path(triton_package.__file__ or "").parent / "backends" / "nvidia" / "bin"
    path /= "ptxas-blackwell" if compute_capability >= 100 else "ptxas"
    return path if path.is_file() else None


def environment_settings() -> dict[str, str]:
    """The environment variables that change what Triton generates, with their values."""
    return dict(get_cache_invalidating_env_vars())


@dataclass(frozen=True)
class Configuration:
    """One choice of a tuner: the values of constants by name, and options of the backend."""

    values: Mapping[str, object]
    options: Mapping[str, object]


@dataclass(frozen=True)
class TunedFunction:
    """A `@triton.jit` function, and the configurations among which `@triton.autotune` chooses (one without it)."""

    function: JITFunction
    configs: Sequence[Configuration]


def tuned_function(value: object) -> TunedFunction | None:
    """The function behind the decorators `jit`, `autotune` and `heuristics`; None for anything else."""
    configs = [Configuration({}, {})]
    while isinstance(value, Autotuner | Heuristics):
        if isinstance(value, Autotuner):
            configs = [
                Configuration(
                    config.kwargs,
                    {name: option for name, option in config.all_kwargs().items() if name not in config.kwargs},
                )
                for config in value.configs
            ]
        value = value.fn
    return TunedFunction(value, configs) if isinstance(value, JITFunction) else None


@contextmanager
def offline_driver(
    compute_capability: int, max_shared_memory: int, multiprocessor_count: int, registers: int
) -> Iterator[None]:
    """Within it, `triton.runtime.driver.active` answers for a GPU of that kind, without one.

    Inductor asks it for the target while it generates kernels. Launching and benchmarking through it are errors.
    """
    properties = {
        "max_shared_mem": max_shared_memory,
        "multiprocessor_count": multiprocessor_count,
        "max_num_regs": registers,
    }

    class Offline(DriverBase):  # type: ignore[misc]
        class utils:  # noqa: N801 (Triton's name)
            get_device_properties = staticmethod(lambda device: properties)  # noqa: ARG005

        @classmethod
        def is_active(cls) -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", compute_capability, _WARP_SIZE)

        def get_current_device(self) -> int:
            return 0

        def get_active_torch_device(self) -> str:
            return "cuda:0"

        def get_benchmarker(self) -> NoReturn:
            raise CoilpackError("a kernel was to be benchmarked while compiling without a device")

        def map_python_to_cpp_type(self, ty: str) -> NoReturn:
            raise CoilpackError(f"a launcher for {ty} was to be built while compiling without a device")

    before = triton_backends["nvidia"]
    triton_backends["nvidia"] = Backend(before.compiler, Offline)
    try:
        yield
    finally:
        triton_backends["nvidia"] = before
