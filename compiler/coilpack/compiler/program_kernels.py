"""The kernels of a program: compiled function by function, shared where they are equal, written as executables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from coilpack.compiler.capture.choices import UnfitConfigs
from coilpack.compiler.capture.host_graph import CapturedKernel
from coilpack.compiler.kernels.access import parameter_access
from coilpack.compiler.kernels.lower import KernelCompiler
from coilpack.compiler.kernels.lowered import LoweredKernel, ResourceError
from coilpack.compiler.kernels.source import KernelSource
from coilpack.compiler.targets import Target
from coilpack.runtime.errors import CoilpackError, UnsupportedError
from coilpack.runtime.executable import BindingFlags, Executable, Export, write_executable
from coilpack.runtime.executable.names import unique_kernel_names
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr


class WrittenKernel(Protocol):
    """A kernel of the program, and its code."""

    @property
    def kernel(self) -> ir.Kernel:
        """What the program says of it."""

    @property
    def lowered(self) -> LoweredKernel:
        """Its code."""


@dataclass(frozen=True)
class ProgramKernel:
    """A kernel of the program, what it was compiled from, and what came of that."""

    kernel: ir.Kernel
    source: KernelSource
    lowered: LoweredKernel


@dataclass(frozen=True)
class _Started:
    """A kernel that is being compiled."""

    name: str
    captured: CapturedKernel
    source: KernelSource
    lowered: Future[LoweredKernel]


@dataclass(frozen=True)
class FunctionKernels:
    """The kernels of a function: what each is made of, in order, and those that the program did not have yet."""

    contents: tuple[str, ...]
    started: Mapping[str, _Started]

    def cancel(self) -> None:
        """Drops what has not begun."""
        for kernel in self.started.values():
            kernel.lowered.cancel()


@dataclass
class ProgramKernels:
    """The kernels of a program so far.

    A kernel is named after the first function that needs it; functions whose kernels are made of the same source share
    it.
    """

    compiler: KernelCompiler
    unfit: UnfitConfigs = field(default_factory=UnfitConfigs)
    _all: list[ProgramKernel] = field(default_factory=list)
    _by_content: dict[str, ProgramKernel] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        """What the kernels are compiled for."""
        return self.compiler.target

    def start(
        self, function: str, captured: Sequence[CapturedKernel], before: FunctionKernels | None = None
    ) -> FunctionKernels:
        """Begins to compile the kernels of `function` that the program does not have.

        Args:
            function: its name.
            captured: its kernels.
            before: those of another function, begun and not added yet, which will be added before these.
        """
        names = [f"{function}_dispatch_{ordinal}_{k.name}" for ordinal, k in enumerate(captured)]
        contents: list[str] = []
        started: dict[str, _Started] = {}
        for kernel, name, symbol in zip(captured, names, unique_kernel_names(names), strict=True):
            source = tuner_source(kernel.tuner, kernel.config, symbol)
            content = _content(source, name)
            contents.append(content)
            known = content in self._by_content or content in started
            if not known and not (before is not None and content in before.started):
                started[content] = _Started(name, kernel, source, self.compiler.submit(source))
        return FunctionKernels(tuple(contents), started)

    def add(self, kernels: FunctionKernels) -> list[ProgramKernel]:
        """Adds the kernels of a function when they are compiled; its kernels, in order.

        Raises:
            ResourceError: one needs more than the target has; none is added, and `unfit` has its configuration.
            CoilpackError: one cannot be compiled, or launched by a package.
        """
        made: dict[str, ProgramKernel] = {}
        for content, kernel in kernels.started.items():
            try:
                lowered = kernel.lowered.result()
                made[content] = ProgramKernel(program_kernel(kernel.name, lowered), kernel.source, lowered)
            except CoilpackError as error:
                kernels.cancel()
                if isinstance(error, ResourceError):
                    error.another = self.unfit.add(kernel.captured.tuner, kernel.captured.config)
                raise
        self._by_content.update(made)
        self._all.extend(made.values())
        return [self._by_content[content] for content in kernels.contents]

    def finish(self) -> list[ProgramKernel]:
        """All kernels of the program, each with a symbol of its own.

        Each function's symbols are unique by themselves. Where names of two functions meet in one symbol (`a$b`,
        `a_b`), those that must give way are compiled again under their new one.
        """
        symbols = unique_kernel_names([k.kernel.export_name for k in self._all])
        moved = {
            k.kernel.export_name: replace(k.source, kernel_name=symbol)
            for k, symbol in zip(self._all, symbols, strict=True)
            if symbol != k.source.kernel_name
        }
        again = dict(zip(moved, self.compiler.compile(list(moved.values())), strict=True))
        return [
            replace(k, source=moved[k.kernel.export_name], lowered=again[k.kernel.export_name])
            if k.kernel.export_name in moved
            else k
            for k in self._all
        ]


def _content(source: KernelSource, name: str) -> str:
    """What decides the code of the kernel `name` but for its symbol; where that cannot be told, its name."""
    identity = source.identity()
    if identity is None:
        return name
    options = {name: value for name, value in source.options.items() if value is not None}
    return json.dumps([{**identity, "kernel_name": ""}, options], sort_keys=True, default=repr)


def tuner_source(tuner: Any, config: Any, kernel_name: str) -> KernelSource:
    """One configuration of a kernel of Inductor's, to be compiled under that symbol."""
    meta = tuner._create_compile_meta(config)
    options = tuner._create_compile_options(config, meta)
    return KernelSource(
        function=tuner.fn,
        kernel_name=kernel_name,
        signature=meta["signature"],
        constants=meta["constants"],
        attributes=meta["configs"][0],
        options=options,
    )


def program_kernel(export_name: str, compiled: LoweredKernel, grid: tuple[Expr, Expr, Expr] | None = None) -> ir.Kernel:
    """The kernel of the program; a pointer that the code never follows counts as read.

    That it may start before the kernel ahead of it has ended is only an optimisation, and needs nothing.
    """
    if compiled.num_ctas != 1:
        raise UnsupportedError(
            f"kernel {compiled.kernel_name!r} needs clusters of {compiled.num_ctas} workgroups, which a package cannot "
            "ask for; compile it with num_ctas=1"
        )
    parameters: list[ir.KernelParameter] = [
        ir.PointerParameter(parameter.dtype, access or ir.Access.READ, parameter.alignment)
        if parameter.is_pointer
        else ir.ScalarParameter(parameter.dtype)
        for parameter, access in zip(compiled.parameters, parameter_access(compiled.ptx), strict=True)
    ]
    return ir.Kernel(export_name, tuple(parameters), compiled.cooperative, grid)


def write_images(
    target: Target, kinds: Sequence[ir.ImageKind], kernels: Sequence[WrittenKernel]
) -> tuple[tuple[ir.Image, ...], dict[str, bytes]]:
    """The images of a target, one of each kind, and the executable of all kernels behind each, by package entry."""
    images = tuple(ir.Image(kind, f"executables/{target.ptx_name}.{kind.name.lower()}.cda1") for kind in kinds)
    return images, {image.entry: _write_kernels(image.kind, kernels) for image in images}


def _write_kernels(kind: ir.ImageKind, kernels: Sequence[WrittenKernel]) -> bytes:
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
