"""The kernels of a program: compiled function by function, shared where they are equal, written as executables."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from coilpack.compiler.capture.choices import UnfitConfigs
from coilpack.compiler.capture.host_graph import CapturedKernel
from coilpack.compiler.kernels.access import parameter_access
from coilpack.compiler.kernels.lower import KernelCompiler, Progress
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

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The captured argument behind each parameter."""
        return tuple(parameter.name for parameter in self.lowered.parameters)

    def replaceable_by(self, other: ProgramKernel) -> bool:
        """Whether `other` can be launched in its place, on the same operands."""
        return (self.kernel.parameters, self.kernel.cooperative, self.argument_names) == (
            other.kernel.parameters,
            other.kernel.cooperative,
            other.argument_names,
        )

    @property
    def image(self) -> str:
        """What it does, in the terms of a device: equal for two kernels whose code differs in nothing but symbols."""
        code = self.lowered
        return f"{code.num_warps} {code.shared_memory_bytes} {code.ptx.replace(code.kernel_name, '')}"


@dataclass(frozen=True)
class MadeKernel:
    """A kernel of a function, and those that can take its place, by captured name, in the order of preference."""

    first: ProgramKernel
    alternatives: Mapping[str, ProgramKernel]


@dataclass(frozen=True)
class _Configured:
    """One configuration of a kernel, to be compiled under a name."""

    name: str
    captured: CapturedKernel
    source: KernelSource
    content: str


@dataclass(frozen=True)
class FunctionKernels:
    """The kernels of a function: the configurations of each, in order, and what is being compiled for it.

    What is being compiled is what the program did not have yet, by content.
    """

    configured: tuple[tuple[_Configured, ...], ...]
    started: dict[str, Future[LoweredKernel]]

    def cancel(self) -> None:
        """Drops what has not begun."""
        for lowered in self.started.values():
            lowered.cancel()


@dataclass
class ProgramKernels:
    """The kernels of a program so far.

    A kernel is named after the first function that needs it; functions whose kernels are made of the same source share
    it.

    Attributes:
        compiler: what compiles them.
        unfit: configurations that turned out not to fit.
        candidates: how many configurations to keep of each kernel.
        progress: called with a message for each candidate that is dropped.
    """

    compiler: KernelCompiler
    unfit: UnfitConfigs = field(default_factory=UnfitConfigs)
    candidates: int = 1
    progress: Progress = lambda message: None  # noqa: ARG005
    _by_content: dict[str, ProgramKernel | CoilpackError] = field(default_factory=dict)  # or why it does not compile
    _used: dict[str, ProgramKernel] = field(default_factory=dict)  # by export name

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
        every = [[(name, k), *_alternatives(name, k)] for name, k in zip(names, captured, strict=True)]
        symbols = iter(unique_kernel_names([name for some in every for name, _ in some]))
        kernels = FunctionKernels(
            tuple(tuple(_configured(name, k, next(symbols)) for name, k in some) for some in every), {}
        )
        ahead = before.started if before is not None else {}
        for configured in kernels.configured:
            for one in configured[: self.candidates]:
                if one.content not in ahead:
                    self._start(one, kernels)
        return kernels

    def _start(self, one: _Configured, kernels: FunctionKernels) -> None:
        if one.content not in self._by_content and one.content not in kernels.started:
            kernels.started[one.content] = self.compiler.submit(one.source)

    def add(self, kernels: FunctionKernels) -> list[MadeKernel]:
        """Adds the kernels of a function when they are compiled; its kernels, in order.

        Raises:
            ResourceError: one needs more than the target has; none is added, and `unfit` has its configuration.
            CoilpackError: one cannot be compiled, or launched by a package.
        """
        firsts = []
        for first, *_ in kernels.configured:
            try:
                firsts.append(self._made(first, kernels))
            except CoilpackError as error:
                kernels.cancel()
                for content in kernels.started:  # another attempt gives their names to other kernels
                    self._by_content.pop(content, None)
                if isinstance(error, ResourceError):
                    error.another = self.unfit.add(first.captured.tuner, first.captured.config)
                raise
        made = []
        for first_made, configured in zip(firsts, kernels.configured, strict=True):
            self._used.setdefault(first_made.kernel.export_name, first_made)
            alternatives = self._candidates(first_made, configured[1:], kernels)
            self._used.update({one.kernel.export_name: one for one in alternatives.values()})
            made.append(MadeKernel(first_made, alternatives))
        return made

    def _made(self, one: _Configured, kernels: FunctionKernels) -> ProgramKernel:
        known = self._by_content.get(one.content)
        if isinstance(known, CoilpackError):  # it was a candidate of another function
            raise known
        if known is not None:
            return known
        self._start(one, kernels)
        lowered = kernels.started[one.content].result()
        digest = one.source.digest(one.captured.config.kwargs)
        kernel = replace(
            program_kernel(one.name, lowered), source=digest, configuration=one.captured.configuration if digest else ""
        )
        made = self._by_content[one.content] = ProgramKernel(kernel, one.source, lowered)
        return made

    def _candidates(
        self, first: ProgramKernel, others: Sequence[_Configured], kernels: FunctionKernels
    ) -> dict[str, ProgramKernel]:
        """As many of the others as are to be kept and can take the place of `first`, each of another image."""
        images, found = {first.image}, dict[str, ProgramKernel]()
        for one in others:
            if len(found) + 1 == self.candidates:
                break
            made = self._candidate(one, kernels)
            if made is None or made.image in images:
                continue
            if not first.replaceable_by(made):
                self.progress(f"{one.name} ({one.captured.configuration}) is no candidate: its parameters differ")
                continue
            images.add(made.image)
            found[one.captured.name] = made
        return found

    def _candidate(self, one: _Configured, kernels: FunctionKernels) -> ProgramKernel | None:
        """A candidate; None for one that cannot be compiled, which costs a message and no more."""
        if isinstance(self._by_content.get(one.content), CoilpackError):
            return None
        try:
            return self._made(one, kernels)
        except CoilpackError as error:
            self._by_content[one.content] = error
            self.progress(f"{one.name} ({one.captured.configuration}) is no candidate: {error}")
            return None

    def finish(self, launched: Collection[str]) -> list[ProgramKernel]:
        """The kernels of the program, each with a symbol of its own.

        Each function's symbols are unique by themselves. Where names of two functions meet in one symbol (`a$b`,
        `a_b`), those that must give way are compiled again under their new one.

        Args:
            launched: the export names of those that functions launch, or may launch; the others are left out.
        """
        kept = [kernel for name, kernel in self._used.items() if name in launched]
        symbols = unique_kernel_names([k.kernel.export_name for k in kept])
        moved = {
            k.kernel.export_name: replace(k.source, kernel_name=symbol)
            for k, symbol in zip(kept, symbols, strict=True)
            if symbol != k.source.kernel_name
        }
        again = dict(zip(moved, self.compiler.compile(list(moved.values())), strict=True))
        return [
            replace(k, source=moved[k.kernel.export_name], lowered=again[k.kernel.export_name])
            if k.kernel.export_name in moved
            else k
            for k in kept
        ]


def _alternatives(name: str, kernel: CapturedKernel) -> list[tuple[str, CapturedKernel]]:
    """The alternatives of a kernel that is exported under `name`, and the names for them."""
    return [(f"{name}{other.name.removeprefix(kernel.name)}", other) for other in kernel.alternatives]


def _configured(name: str, kernel: CapturedKernel, symbol: str) -> _Configured:
    source = tuner_source(kernel.tuner, kernel.config, symbol)
    return _Configured(name, kernel, source, _content(source, name))


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
