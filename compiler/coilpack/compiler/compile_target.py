"""Compiles exported programs for one target: capture, kernels, functions, executables.

Runs in a process of its own for each target, because Inductor bakes the device into module-level caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.cache import Cache
from coilpack.compiler.capture.bindings import Binding
from coilpack.compiler.capture.build_function import BoundKernel
from coilpack.compiler.capture.choices import StaticChoices
from coilpack.compiler.capture.host_graph import CapturedKernel, HostGraph, run_inductor
from coilpack.compiler.capture.offline import target_device
from coilpack.compiler.function_source import FunctionSource, finished_function, function_sources, target_bundle
from coilpack.compiler.kernels.lower import KernelCompiler
from coilpack.compiler.kernels.lowered import ResourceError
from coilpack.compiler.kernels.pool import WorkerPool
from coilpack.compiler.passes.common_candidates import launchable_kernels, with_common_candidates
from coilpack.compiler.program_kernels import FunctionKernels, ProgramKernels
from coilpack.compiler.targets import PtxVersion, Target
from coilpack.compiler.tuned_choice import TunedChoice
from coilpack.compiler.weights import Weights
from coilpack.runtime.program import ir
from coilpack.runtime.program.verify_dispatch import MAX_ALTERNATIVES
from coilpack.runtime.tuning.report import TuningReport

Progress = Callable[[str], None]
Matmul = Literal["triton", "cublaslt"]


@dataclass(frozen=True)
class TargetOptions:
    """What decides the code of one target.

    Attributes:
        image_kinds: which forms of the kernels to make.
        ptx_version: the PTX ISA version to write; None for the target's default.
        float32_matmul_precision: as `torch.set_float32_matmul_precision` takes it: `highest` multiplies in IEEE
            float32, `high` in TF32.
        matmul: what multiplies matrices: `triton` takes kernels, `cublaslt` calls the library when the program runs.
        fused_buffers: how many buffers one kernel may bring together by fusion; None for any number.
        candidates: how many configurations to keep of each kernel, for tuning.
        tuning: what tuning found, for this target: the configurations to take, where it has them; None for none.
    """

    image_kinds: tuple[ir.ImageKind, ...] = (ir.ImageKind.PTX, ir.ImageKind.CUBIN)
    ptx_version: PtxVersion | None = None
    float32_matmul_precision: str = "highest"
    matmul: Matmul = "triton"
    fused_buffers: int | None = None
    candidates: int = 1
    tuning: TuningReport | None = None


def compile_target(
    programs: Mapping[str, torch.export.ExportedProgram],
    target: Target,
    options: TargetOptions,
    *,
    jobs: int,
    cache: Cache | None,
    progress: Progress,
    elsewhere: frozenset[str] = frozenset(),
    workers: WorkerPool | None = None,
) -> TargetBundle:
    """Compiles the functions `programs` for `target`.

    Args:
        programs: by function name.
        target: the architecture.
        options: what else decides the code.
        jobs: kernels to compile at once.
        cache: where kernels are kept; None for nowhere.
        progress: called with short messages.
        elsewhere: digests of contents that the bundle need not hold; see `Weights`.
        workers: as `KernelCompiler` takes them.

    Raises:
        UnsupportedError: something cannot be lowered; names the operation and its source line.
        CoilpackError: kernels cannot be compiled.
    """
    torch.set_float32_matmul_precision(options.float32_matmul_precision)
    weights = Weights(elsewhere)
    compiler = KernelCompiler(
        target,
        ptx_version=options.ptx_version,
        cubin=ir.ImageKind.CUBIN in options.image_kinds,
        jobs=jobs,
        cache=cache,
        workers=workers,
    )
    kernels = ProgramKernels(compiler, candidates=options.candidates, progress=progress)
    tuned = TunedChoice(options.tuning, kernels.unfit, progress) if options.tuning else None
    with target_device(target), compiler:
        sources = function_sources(programs, weights)
        functions = with_common_candidates(
            _in_turn(_Function(source, weights, options, kernels, tuned, progress) for source in sources.values())
        )
        if tuned is not None:
            tuned.finish()
        compiled = kernels.finish(launchable_kernels(functions))
    return target_bundle(target, options.image_kinds, functions, compiled, weights)


@dataclass(frozen=True)
class _Captured:
    """A function as it was captured, with its kernels being compiled."""

    host: HostGraph[CapturedKernel]
    signature: ir.Signature
    bindings: tuple[Binding | None, ...]
    kernels: FunctionKernels


@dataclass
class _Function:
    """The compilation of one function."""

    source: FunctionSource
    weights: Weights
    options: TargetOptions
    kernels: ProgramKernels
    tuned: TunedChoice | None
    progress: Progress

    def __post_init__(self) -> None:
        limit = self.target.shared_memory_per_block_optin
        # Budgets of shared memory, and whether attention is fused, in the order in which they are tried.
        self._attempts = [(limit, True), (limit // 2, True), (limit // 2, False), (limit // 4, False)]

    @property
    def target(self) -> Target:
        return self.kernels.target

    def start(self, before: FunctionKernels | None = None) -> None:
        """Captures the function, and begins to compile its kernels.

        Args:
            before: kernels of another function that are begun and will be there before those of this one.
        """
        self._captured = self._capture(before)

    @property
    def started(self) -> FunctionKernels:
        """The kernels that are being compiled."""
        return self._captured.kernels

    def finish(self) -> tuple[ir.Function, bool]:
        """The function, and whether a kernel had needed more than the target has.

        Then it was captured again with that kernel's next configuration. Where there was no other, tiles got smaller:
        the estimate that chose a template's tiles is not exact, so its budget shrinks until the kernels fit; attention
        falls back to plain arithmetic on the way.
        """
        again = False
        while True:
            try:
                return self._built(), again
            except ResourceError as error:
                again = True
                if not error.another:
                    del self._attempts[0]
                if not self._attempts:
                    raise
                self.progress(f"{error}; trying {'its next configuration' if error.another else 'smaller tiles'}")
            self.start()

    def _capture(self, before: FunctionKernels | None) -> _Captured:
        budget, fuse_attention = self._attempts[0]
        name = self.source.name
        self.progress(f"{name}: tracing for {self.target.name}")
        library_products = self.options.matmul == "cublaslt"
        traced = self.source.trace(fuse_attention=fuse_attention, library_products=library_products)
        choices = StaticChoices(
            self.target,
            budget,
            self.kernels.unfit,
            library_products=library_products,
            candidates=MAX_ALTERNATIVES if self.tuned else self.options.candidates,
        )
        host = run_inductor(traced.retraced, choices, self.options.fused_buffers)
        if self.tuned is not None:
            host = self.tuned.choose(name, host)
        signature, bindings = traced.outside()
        self.progress(f"{name}: compiling {len(host.kernels)} kernels for {self.target.name}")
        kernels = self.kernels.start(name, list(host.kernels.values()), before)
        return _Captured(host, signature, bindings, kernels)

    def _built(self) -> ir.Function:
        captured = self._captured
        kernels = self.kernels.add(self.started)
        bound = {
            name: BoundKernel(
                made.first.kernel,
                made.first.argument_names,
                {name: other.kernel for name, other in made.alternatives.items()},
            )
            for name, made in zip(captured.host.kernels, kernels, strict=True)
        }
        return finished_function(captured.signature, captured.bindings, captured.host, bound, self.weights)


def _in_turn(functions: Iterable[_Function]) -> list[ir.Function]:
    """Compiles functions, each captured while the kernels of the one before are compiled."""
    made: list[ir.Function] = []
    waiting: _Function | None = None
    for function in functions:
        function.start(waiting.started if waiting else None)
        if waiting is not None:
            done, again = waiting.finish()
            made.append(done)
            if again:  # kernels that this one counts on may not be there
                function.started.cancel()
                function.start()
        waiting = function
    return made if waiting is None else [*made, waiting.finish()[0]]
