"""Runs Inductor with its autotuner on the device: what comes of one function is a module's source and its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.bindings import Binding
from coilpack.compiler.capture.functionalise import tensors
from coilpack.compiler.capture.inductor_run import compile_graph
from coilpack.compiler.capture.library_calls import sums_apart
from coilpack.compiler.capture.offline import served_target
from coilpack.compiler.freezing.from_inductor import bundle_of, live_autotuners, unsettled
from coilpack.compiler.freezing.kernel_bundle import KernelBundle
from coilpack.compiler.freezing.settings import asks_for_libraries
from coilpack.compiler.freezing.size_inputs import add_size_inputs
from coilpack.compiler.function_source import FunctionSource, TracedFunction
from coilpack.compiler.targets import Target, parse_target
from coilpack.runtime.errors import InputError, UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.sizes import solve_sizes

_EMPTY = KernelBundle((), {})
_MOST_RUNS = 3


@dataclass(frozen=True)
class InductorProduct:
    """What Inductor made of one function: all that a package of it is made from.

    Attributes:
        name: of the function.
        module_source: the module that Inductor generated; empty for a function that computes nothing.
        bundle: the kernels that it compiled, with what tuning chose.
        placeholders: for each argument of the module's `call`, its fake tensor, `SymInt` or constant.
        signature: what callers see.
        bindings: what each placeholder stands for.
        constants: tensors that Inductor added, by the names that the module has for them.
        graph: what was compiled.
        cached: whether it came from Inductor's cache of graphs: nothing was compiled.
        compiled: what Inductor made, to call with the arguments in a list; None where nothing was run.
        arguments: what `compiled` was called with.
    """

    name: str
    module_source: str
    bundle: KernelBundle
    placeholders: Sequence[Any]
    signature: ir.Signature
    bindings: tuple[Binding | None, ...]
    constants: Mapping[str, torch.Tensor]
    graph: torch.fx.Graph = field(repr=False)
    cached: bool = False
    compiled: Any = field(default=None, repr=False)
    arguments: tuple[Any, ...] = field(default=(), repr=False)


def cuda_target(device: str) -> Target:
    """The architecture of the device that models are compiled and measured on.

    Args:
        device: as torch names it: `cuda:0`.

    Raises:
        UnsupportedError: this torch has no CUDA, or there is no such device, or of an architecture unknown here.
        InputError: the name is not one of a CUDA device, or this process has compiled for a device that it only
            imagines.
    """
    without = "`coilpack compile --candidates N`, and `coilpack tune` where the device is, do without"
    if torch.version.cuda is None or not torch.cuda.is_available():
        what = "is a build without CUDA" if torch.version.cuda is None else "finds no CUDA device here"
        raise UnsupportedError(
            f"freezing compiles and measures on the device itself, and torch {torch.__version__} {what}; {without}"
        )
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"{device!r} names no device: {error}; give one as cuda:0") from error
    if parsed.type != "cuda" or (parsed.index or 0) != 0:
        raise InputError(
            f"freezing runs on cuda:0, not on {device!r}; choose the device by the environment variable "
            "CUDA_VISIBLE_DEVICES, which makes it the first"
        )
    if (served := served_target()) is not None:
        raise InputError(
            f"this process has compiled for {served.name} without its device, and torch takes that for the device "
            "from then on; freeze in a process of its own"
        )
    major, minor = torch.cuda.get_device_capability(parsed)
    return parse_target(f"sm_{major}{minor}")


class DeviceMemory:
    """Copies of tensors on the device, with the strides that they have; those of one memory share one copy."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by address: the original lives as long

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy of `tensor`."""
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in self._copies or not memory.nbytes():
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(memory)
            self._copies[memory.data_ptr()] = (tensor, whole.to("cuda:0", copy=True))
        _, copied = self._copies[memory.data_ptr()]
        view = torch.empty(0, dtype=tensor.dtype, device=copied.device)
        return view.set_(copied.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def compile_product(
    source: FunctionSource, inputs: Sequence[Any], settings: Mapping[str, Any], memory: DeviceMemory
) -> InductorProduct:
    """Compiles a function with Inductor and runs it once, which is when Inductor measures most kernels.

    Args:
        source: the function.
        inputs: what to run it with: CPU or CUDA tensors and numbers, one for each of its user's inputs.
        settings: of `torch._inductor.config`; see `inductor_settings`.
        memory: where its tensors are copied.

    Raises:
        UnsupportedError: an operation cannot be compiled; names it and its source line.
    """
    libraries = asks_for_libraries(settings)
    traced = source.trace(fuse_attention=True, library_products=libraries)
    retraced = traced.retraced
    sizes = add_size_inputs(retraced)
    hits = compat.graph_cache_hits()
    with compat.tracing_in(retraced.fake_mode), compat.quiet_tuning(), sums_apart() if libraries else nullcontext():
        compiled = compile_graph(retraced, settings)
    cached = compat.graph_cache_hits() > hits
    signature, bindings = traced.outside()
    parts = (retraced.inputs, signature, (*bindings, *[None] * len(sizes)))
    if not isinstance(compiled, compat.CompiledFxGraph):  # there was nothing to compile
        return InductorProduct(source.name, "", _EMPTY, *parts, {}, retraced.graph_module.graph)
    arguments = (*_arguments(traced, inputs, memory), *_values(sizes, signature, inputs))
    tuned = _tuned(compiled, arguments, settings)
    bundle = bundle_of(compiled._triton_bundle or compat.TritonBundle([], []), tuned)
    return InductorProduct(
        source.name,
        compiled.source_code,
        bundle,
        *parts,
        dict(compiled.constants or {}),
        retraced.graph_module.graph,
        cached,
        compiled,
        arguments,
    )


def _values(sizes: Sequence[torch.SymInt], signature: ir.Signature, inputs: Sequence[Any]) -> list[int]:
    """The sizes that the module asks for besides the inputs, for these inputs."""
    if not sizes:
        return []
    given = (value for value in inputs if value is not None)  # those that are always None are no inputs of a package
    solved = solve_sizes(signature, [tuple(v.shape) if isinstance(v, torch.Tensor) else int(v) for v in given])
    return [solved[str(size.node.expr)] for size in sizes]


def _tuned(
    compiled: Any, arguments: Sequence[Any], settings: Mapping[str, Any]
) -> Mapping[str, compat.CachingAutotuner]:
    """The autotuners of the graph after it has run; what is settled is what the next run would take.

    One run settles a kernel that is measured here. One whose choice came from a cache may be searched in a second one.
    """
    tuned = live_autotuners(compiled)
    for _ in range(_MOST_RUNS):
        _run(compiled, arguments, settings)
        if not unsettled(tuned):
            break
    return tuned


def _run(compiled: Any, arguments: Sequence[Any], settings: Mapping[str, Any]) -> None:
    """Runs the graph as Inductor would; numbers that it draws are not missing afterwards."""
    with torch.random.fork_rng(devices=[0]), compat.inductor_config.patch(**settings), torch.no_grad():
        compiled(list(arguments))
        torch.cuda.synchronize()


def _arguments(traced: TracedFunction, inputs: Sequence[Any], memory: DeviceMemory) -> tuple[Any, ...]:
    """What to call the compiled graph with, placeholder by placeholder."""
    named = tensors(traced.program)
    given = iter(inputs)
    values = [
        named[spec.target] if spec.target in named else next(given)
        for spec in traced.functional.graph_signature.input_specs
    ]
    return tuple(memory.copy(value) if isinstance(value, torch.Tensor) else value for value in values)
