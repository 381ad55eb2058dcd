"""Compiles exported programs for one target: capture, kernels, functions, executables.

Runs in a process of its own for each target, because Inductor bakes the device into module-level caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from coilpack.compiler import PRODUCER
from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.cache import Cache
from coilpack.compiler.capture.bindings import Binding
from coilpack.compiler.capture.build_function import BoundKernel, build_function
from coilpack.compiler.capture.choices import StaticChoices
from coilpack.compiler.capture.functionalise import functionalise, mutated_state, tensors
from coilpack.compiler.capture.host_graph import run_inductor
from coilpack.compiler.capture.interface import read_interface
from coilpack.compiler.capture.offline import target_device
from coilpack.compiler.capture.retrace import retrace
from coilpack.compiler.capture.symbols import with_sizes
from coilpack.compiler.kernels.lower import KernelCompiler
from coilpack.compiler.kernels.lowered import ResourceError
from coilpack.compiler.passes.plan_memory import PlanMemory
from coilpack.compiler.program_kernels import ProgramKernels, write_kernels
from coilpack.compiler.state import State
from coilpack.compiler.targets import PtxVersion, Target
from coilpack.compiler.weights import Weights
from coilpack.runtime.program import ir

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
    """

    image_kinds: tuple[ir.ImageKind, ...] = (ir.ImageKind.PTX, ir.ImageKind.CUBIN)
    ptx_version: PtxVersion | None = None
    float32_matmul_precision: str = "highest"
    matmul: Matmul = "triton"


def compile_target(
    programs: Mapping[str, torch.export.ExportedProgram],
    target: Target,
    options: TargetOptions,
    *,
    jobs: int,
    cache: Cache | None,
    progress: Progress,
    elsewhere: frozenset[str] = frozenset(),
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
    )
    kernels = ProgramKernels(compiler)
    with target_device(target), compiler:
        functional = {name: functionalise(program, name) for name, program in programs.items()}
        state = State(frozenset().union(*map(mutated_state, functional.values())), weights)
        places = {name: _places(name, program, weights, state) for name, program in programs.items()}
        functions = [
            _Function(name, program, functional.pop(name), places[name], weights, options, kernels, progress).compile()
            for name, program in programs.items()
        ]
        compiled = kernels.finish()
    images = tuple(
        ir.Image(kind, f"executables/{target.ptx_name}.{kind.name.lower()}.cda1") for kind in options.image_kinds
    )
    executables = {image.entry: write_kernels(image.kind, compiled) for image in images}
    operations = [operation for function in functions for operation in function.operations]
    globals_ = {op.global_ for op in operations if isinstance(op, ir.GetGlobal)}
    used = {op.storage for op in operations if isinstance(op, ir.Parameter)}
    used |= {global_.initial for global_ in globals_ if global_.initial is not None}
    program_ir = ir.Program(
        producer=PRODUCER,
        signatures=tuple(f.signature for f in functions),
        storages=tuple(sorted(used, key=lambda s: s.name)),
        targets=(ir.Target(target.ptx_name, images, tuple(k.kernel for k in compiled), tuple(functions)),),
        globals=tuple(sorted(globals_, key=lambda g: g.name)),
    )
    return TargetBundle(program_ir, executables, {s.name: weights.storages[s.name] for s in program_ir.storages})


def _places(name: str, program: torch.export.ExportedProgram, weights: Weights, state: State) -> Mapping[str, Binding]:
    """Where the parameters, buffers and constants of the function `name` lie, by qualified name."""
    named = tensors(program)
    kept = state.add(name, named)
    return {n: kept[n] if n in kept else weights.add(n, tensor) for n, tensor in named.items()}


@dataclass
class _Function:
    """The compilation of one function."""

    name: str
    program: torch.export.ExportedProgram
    functional: torch.export.ExportedProgram | None  # made already, for the first attempt; tracing uses it up
    tensors: Mapping[str, Binding]
    weights: Weights
    options: TargetOptions
    kernels: ProgramKernels
    progress: Progress

    @property
    def target(self) -> Target:
        return self.kernels.target

    def compile(self) -> ir.Function:
        """Captures and compiles; when a kernel needs more than the target has, again with its next configuration.

        Where it has no other, tiles get smaller: the estimate that chose a template's tiles is not exact, so its budget
        shrinks until the kernels fit; attention falls back to plain arithmetic on the way.
        """
        limit = self.target.shared_memory_per_block_optin
        attempts = [(limit, True), (limit // 2, True), (limit // 2, False), (limit // 4, False)]
        while True:
            budget, fuse_attention = attempts[0]
            try:
                return self._attempt(budget, fuse_attention)
            except ResourceError as error:
                if not error.another:
                    del attempts[0]
                if not attempts:
                    raise
                self.progress(f"{error}; trying {'its next configuration' if error.another else 'smaller tiles'}")

    def _attempt(self, budget: int, fuse_attention: bool) -> ir.Function:
        self.progress(f"{self.name}: tracing for {self.target.name}")
        program, self.functional = self.functional or functionalise(self.program, self.name), None
        interface = read_interface(program, self.name, self.tensors)
        library_products = self.options.matmul == "cublaslt"
        retraced = retrace(
            program,
            mutations=interface.mutations,
            results=interface.results,
            fuse_attention=fuse_attention,
            library_products=library_products,
        )
        choices = StaticChoices(self.target, budget, self.kernels.unfit, library_products=library_products)
        host = run_inductor(retraced, choices)
        interface = read_interface(program, self.name, self.tensors)  # sizes that turned out equal are one by now
        sizes = retraced.fake_mode.shape_env
        signature = with_sizes(interface.signature(self.name), self.program, retraced.named_inputs, sizes)
        self.progress(f"{self.name}: compiling {len(host.kernels)} kernels for {self.target.name}")
        kernels = self.kernels.compile(self.name, list(host.kernels.values()))
        bound = {
            name: BoundKernel(made.kernel, tuple(p.name for p in made.lowered.parameters))
            for name, made in zip(host.kernels, kernels, strict=True)
        }
        constants = {n: self.weights.add(f"{self.name}.{n}", t.detach().cpu()) for n, t in host.constants.items()}
        function = build_function(signature, host, interface.bindings, constants, bound)
        return PlanMemory().run(function)
