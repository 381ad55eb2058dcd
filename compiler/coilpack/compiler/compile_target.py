"""Compiles exported programs for one target: capture, kernels, functions, executables.

Runs in a process of its own for each target, because Inductor bakes the device into module-level caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from coilpack.compiler import PRODUCER
from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.cache import Cache
from coilpack.compiler.capture.bindings import Binding
from coilpack.compiler.capture.build_function import BoundKernel, build_function
from coilpack.compiler.capture.choices import StaticChoices
from coilpack.compiler.capture.functionalise import functionalise, mutated_state, tensors
from coilpack.compiler.capture.host_graph import CapturedKernel, run_inductor
from coilpack.compiler.capture.interface import read_interface
from coilpack.compiler.capture.offline import target_device
from coilpack.compiler.capture.retrace import retrace
from coilpack.compiler.kernels.access import parameter_access
from coilpack.compiler.kernels.lower import KernelCompiler
from coilpack.compiler.kernels.lowered import LoweredKernel, ResourceError
from coilpack.compiler.kernels.source import KernelSource
from coilpack.compiler.passes.plan_memory import PlanMemory
from coilpack.compiler.state import State
from coilpack.compiler.targets import PtxVersion, Target
from coilpack.compiler.weights import Weights
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.executable import BindingFlags, Executable, Export, write_executable
from coilpack.runtime.executable.names import unique_kernel_names
from coilpack.runtime.program import ir

Progress = Callable[[str], None]


@dataclass(frozen=True)
class TargetOptions:
    """What decides the code of one target.

    Attributes:
        image_kinds: which forms of the kernels to make.
        ptx_version: the PTX ISA version to write; None for the target's default.
        float32_matmul_precision: as `torch.set_float32_matmul_precision` takes it: `highest` multiplies in IEEE
            float32, `high` in TF32.
    """

    image_kinds: tuple[ir.ImageKind, ...] = (ir.ImageKind.PTX, ir.ImageKind.CUBIN)
    ptx_version: PtxVersion | None = None
    float32_matmul_precision: str = "highest"


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
    functional = {name: functionalise(program, name) for name, program in programs.items()}
    weights = Weights(elsewhere)
    state = State(frozenset().union(*map(mutated_state, functional.values())), weights)
    named = {name: _places(name, program, weights, state) for name, program in programs.items()}
    functions: list[ir.Function] = []
    kernels: list[_Kernel] = []
    compiler = KernelCompiler(
        target,
        ptx_version=options.ptx_version,
        cubin=ir.ImageKind.CUBIN in options.image_kinds,
        jobs=jobs,
        cache=cache,
    )
    with target_device(target), compiler:
        for name, program in programs.items():
            made = _Function(name, program, functional.pop(name), named[name], weights, options, compiler, progress)
            function, own = made.compile()
            functions.append(function)
            kernels.extend(own)
        kernels = _with_unique_symbols(compiler, kernels)
    images = tuple(
        ir.Image(kind, f"executables/{target.ptx_name}.{kind.name.lower()}.cda1") for kind in options.image_kinds
    )
    executables = {image.entry: _executable(image.kind, kernels) for image in images}
    operations = [operation for function in functions for operation in function.operations]
    globals_ = {op.global_ for op in operations if isinstance(op, ir.GetGlobal)}
    used = {op.storage for op in operations if isinstance(op, ir.Parameter)}
    used |= {global_.initial for global_ in globals_ if global_.initial is not None}
    program_ir = ir.Program(
        producer=PRODUCER,
        signatures=tuple(f.signature for f in functions),
        storages=tuple(sorted(used, key=lambda s: s.name)),
        targets=(ir.Target(target.ptx_name, images, tuple(k.kernel for k in kernels), tuple(functions)),),
        globals=tuple(sorted(globals_, key=lambda g: g.name)),
    )
    return TargetBundle(program_ir, executables, {s.name: weights.storages[s.name] for s in program_ir.storages})


def _places(name: str, program: torch.export.ExportedProgram, weights: Weights, state: State) -> Mapping[str, Binding]:
    """Where the parameters, buffers and constants of the function `name` lie, by qualified name."""
    named = tensors(program)
    kept = state.add(name, named)
    return {n: kept[n] if n in kept else weights.add(n, tensor) for n, tensor in named.items()}


@dataclass(frozen=True)
class _Kernel:
    """A kernel of the program, what it was compiled from, and what came of that."""

    kernel: ir.Kernel
    source: KernelSource
    lowered: LoweredKernel


def _with_unique_symbols(compiler: KernelCompiler, kernels: Sequence[_Kernel]) -> list[_Kernel]:
    """All kernels of an executable, each with a symbol of its own.

    Each function's symbols are unique by themselves. Where names of two functions meet in one symbol (`a$b`, `a_b`),
    those that must give way are compiled again under their new one.
    """
    symbols = unique_kernel_names([k.kernel.export_name for k in kernels])
    moved = {
        k.kernel.export_name: replace(k.source, kernel_name=symbol)
        for k, symbol in zip(kernels, symbols, strict=True)
        if symbol != k.source.kernel_name
    }
    again = dict(zip(moved, compiler.compile(list(moved.values())), strict=True))
    return [
        replace(k, source=moved[k.kernel.export_name], lowered=again[k.kernel.export_name])
        if k.kernel.export_name in moved
        else k
        for k in kernels
    ]


@dataclass
class _Function:
    """The compilation of one function."""

    name: str
    program: torch.export.ExportedProgram
    functional: torch.export.ExportedProgram | None  # made already, for the first attempt; tracing uses it up
    tensors: Mapping[str, Binding]
    weights: Weights
    options: TargetOptions
    compiler: KernelCompiler
    progress: Progress

    @property
    def target(self) -> Target:
        return self.compiler.target

    def compile(self) -> tuple[ir.Function, list[_Kernel]]:
        """Captures and compiles; when a kernel needs more than the target has, again with smaller tiles.

        The estimate that chose a template's tiles is not exact, so its budget shrinks until the kernels fit; attention
        falls back to plain arithmetic on the way.
        """
        limit = self.target.shared_memory_per_block_optin
        attempts = [(limit, True), (limit // 2, True), (limit // 2, False), (limit // 4, False)]
        for budget, fuse_attention in attempts:
            try:
                return self._attempt(budget, fuse_attention)
            except ResourceError as error:
                self.progress(f"{error}; trying smaller tiles")
                last = error
        raise last

    def _attempt(self, budget: int, fuse_attention: bool) -> tuple[ir.Function, list[_Kernel]]:
        self.progress(f"{self.name}: tracing for {self.target.name}")
        program, self.functional = self.functional or functionalise(self.program, self.name), None
        interface = read_interface(program, self.name, self.tensors)
        retraced = retrace(
            program, mutations=interface.mutations, results=interface.results, fuse_attention=fuse_attention
        )
        host = run_inductor(retraced, self.target, StaticChoices(self.target, budget))
        kernels = self._compile_kernels(list(host.kernels.values()))
        bound = {
            name: BoundKernel(made.kernel, tuple(p.name for p in made.lowered.parameters))
            for name, made in zip(host.kernels, kernels, strict=True)
        }
        constants = {n: self.weights.add(f"{self.name}.{n}", t.detach().cpu()) for n, t in host.constants.items()}
        function = build_function(interface.signature(self.name), host, interface.bindings, constants, bound)
        return PlanMemory().run(function), kernels

    def _compile_kernels(self, captured: Sequence[CapturedKernel]) -> list[_Kernel]:
        names = [f"{self.name}_dispatch_{ordinal}_{k.name}" for ordinal, k in enumerate(captured)]
        sources = [_source(k, symbol) for k, symbol in zip(captured, unique_kernel_names(names), strict=True)]
        self.progress(f"{self.name}: compiling {len(sources)} kernels for {self.target.name}")
        compiled = self.compiler.compile(sources)
        for lowered in compiled:
            _check_launch(lowered)
        return [
            _Kernel(_program_kernel(name, lowered), source, lowered)
            for name, source, lowered in zip(names, sources, compiled, strict=True)
        ]


def _source(kernel: CapturedKernel, kernel_name: str) -> KernelSource:
    meta = kernel.tuner._create_compile_meta(kernel.config)
    options = kernel.tuner._create_compile_options(kernel.config, meta)
    return KernelSource(
        function=kernel.tuner.fn,
        kernel_name=kernel_name,
        signature=meta["signature"],
        constants=meta["constants"],
        attributes=meta["configs"][0],
        options=options,
    )


def _check_launch(kernel: LoweredKernel) -> None:
    """Refuses what no launch can give; a programmatic launch is only an optimisation, and needs nothing."""
    if kernel.num_ctas != 1:
        what = f"clusters of {kernel.num_ctas} workgroups"
        raise UnsupportedError(f"kernel {kernel.kernel_name!r} needs {what}, which a package cannot ask for yet")


def _program_kernel(export_name: str, compiled: LoweredKernel) -> ir.Kernel:
    """The kernel of the program; a pointer that the code never follows counts as read."""
    parameters: list[ir.KernelParameter] = [
        ir.PointerParameter(parameter.dtype, access or ir.Access.READ, parameter.alignment)
        if parameter.is_pointer
        else ir.ScalarParameter(parameter.dtype)
        for parameter, access in zip(compiled.parameters, parameter_access(compiled.ptx), strict=True)
    ]
    return ir.Kernel(export_name, tuple(parameters), cooperative=compiled.cooperative)


def _executable(kind: ir.ImageKind, kernels: Sequence[_Kernel]) -> bytes:
    """The executable of all kernels, one module for each distinct image."""
    modules: dict[bytes, int] = {}
    exports = []
    for ordinal, made in enumerate(kernels):
        image = made.lowered.ptx.encode() if kind is ir.ImageKind.PTX else made.lowered.cubin
        assert image is not None
        module = modules.setdefault(image, len(modules))
        exports.append(replace(_export(ordinal, made.kernel, made.lowered), module_ordinal=module))
    return write_executable(Executable(tuple(modules), tuple(exports)))


def _export(ordinal: int, kernel: ir.Kernel, made: LoweredKernel) -> Export:
    """The export of a kernel.

    Bindings and constants are stated where the parameters have IREE's order and limits; elsewhere there are none, and
    only the program says how the kernel is called.
    """
    pointers = [p for p in kernel.parameters if isinstance(p, ir.PointerParameter)]
    flags = [BindingFlags(0) if ir.Access.WRITE in p.access else BindingFlags.READ_ONLY for p in pointers]
    plain = made.iree_compatible
    return Export(
        ordinal=ordinal,
        kernel_name=made.kernel_name,
        export_name=kernel.export_name,
        block_dims=made.block_dims,
        shared_memory_bytes=made.shared_memory_bytes,
        constant_count=len(kernel.parameters) - len(pointers) if plain else 0,
        binding_flags=tuple(flags) if plain else (),
    )
