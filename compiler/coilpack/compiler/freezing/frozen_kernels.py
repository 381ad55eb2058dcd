"""Makes kernels of the package from what Triton compiled for Inductor: the same code under a symbol of their own.

The PTX is normalized as that of every other kernel, and assembled again. What was measured is what runs only if the
assembler gives the machine code that it gave Triton, so the two are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coilpack.compiler.capture.build_function import BoundKernel
from coilpack.compiler.capture.configuration import configuration_text, noted_sizes
from coilpack.compiler.freezing.kernel_text import ChosenKernel
from coilpack.compiler.freezing.registration import Bound
from coilpack.compiler.kernels.assemble import assemble, known_ptxas
from coilpack.compiler.kernels.lower import KernelCompiler
from coilpack.compiler.kernels.lowered import LoweredKernel
from coilpack.compiler.kernels.normalize import normalize_ptx
from coilpack.compiler.kernels.signature import runtime_parameters
from coilpack.compiler.program_kernels import program_kernel
from coilpack.compiler.targets import Target
from coilpack.runtime.errors import CoilpackError, TargetMismatchError, UnsupportedError
from coilpack.runtime.executable.names import unique_kernel_names
from coilpack.runtime.images.cubin import code_sections, register_counts
from coilpack.runtime.program import ir

_NEUTRAL = "triton_kernel"


def lowered_kernel(kernel: ChosenKernel, bound: Bound, symbol: str, target: Target) -> LoweredKernel:
    """A kernel as Triton compiled it for Inductor, with normalized PTX and without machine code.

    Args:
        kernel: as the generated module has it, in the configuration that it runs in.
        bound: what Triton wrote for that.
        symbol: the name to give its entry.
        target: what it must be compiled for.

    Raises:
        TargetMismatchError: it is compiled for another architecture.
        UnsupportedError: it needs what a package cannot give it: scratch memory, parameters of another kind.
        CoilpackError: its PTX, its description and its signature do not fit together.
    """
    artifact = bound.artifact
    assert artifact.ptx is not None  # `register` has seen to it
    facts = _Facts(kernel.name, artifact.metadata)
    generated = kernel.generated
    parameters = runtime_parameters(
        generated.argument_names, generated.signature, kernel.compiled_constants, generated.attributes
    )
    scratch = facts.number("global_scratch_size", 0) + facts.number("profile_scratch_size", 0)
    normalized = normalize_ptx(artifact.ptx, symbol, parameters, scratch_bytes=scratch)
    if normalized.target != target.ptx_name:
        raise TargetMismatchError(
            f"kernel {kernel.name!r} was compiled for {normalized.target}, and the package is for {target.ptx_name}"
        )
    return LoweredKernel(
        kernel_name=symbol,
        ptx=normalized.text,
        parameters=normalized.parameters,
        num_warps=facts.number("num_warps"),
        num_ctas=facts.number("num_ctas", 1),
        shared_memory_bytes=facts.number("shared"),
        tensor_memory_columns=facts.number("tmem_size", 0),
        cooperative=bool(facts.number("launch_cooperative_grid", 0)),
        programmatic_launch=bool(facts.number("launch_pdl", 0)),
    )


@dataclass(frozen=True)
class _Facts:
    """What Triton says of a kernel that it compiled."""

    kernel: str
    metadata: Mapping[str, object]

    def number(self, name: str, default: int | None = None) -> int:
        """An integer or a truth value; the default where it is missing or None."""
        value = self.metadata.get(name)
        value = default if value is None else value
        if isinstance(value, int):
            return int(value)
        raise CoilpackError(
            f"kernel {self.kernel!r}: Triton's description gives {name}={value!r}, not a number; "
            "empty Triton's cache and compile anew"
        )


@dataclass(frozen=True)
class FrozenKernel:
    """A kernel of the program, and its code."""

    kernel: ir.Kernel
    lowered: LoweredKernel


@dataclass(frozen=True)
class _Bound:
    """A kernel of the program, and where its code comes from."""

    kernel: ir.Kernel
    chosen: ChosenKernel
    bound: Bound

    @property
    def fp_fusion(self) -> bool:
        return _fp_fusion(self.bound)

    def is_code_of(self, made: LoweredKernel) -> bool:
        """Whether `made` has the machine code that was measured; also where there is none to compare."""
        cubin, measured = made.cubin, self.bound.artifact.cubin
        if cubin is None or measured is None:
            return True
        own, code = code_sections(cubin), code_sections(measured).get(self.bound.configuration.symbol)
        return code is not None and own.get(made.kernel_name) == code


@dataclass
class FrozenKernels:
    """The kernels of a package so far; functions share those whose code is the same.

    Args:
        compiler: of the target that they are for; assembles them.
    """

    compiler: KernelCompiler
    _kernels: dict[tuple[LoweredKernel, bool], _Bound] = field(default_factory=dict)  # by code, and how it is assembled

    def add(
        self, function: str, launched: Mapping[str, ChosenKernel], bound: Mapping[str, Bound]
    ) -> dict[str, BoundKernel]:
        """Adds the kernels of a function.

        Args:
            function: its name.
            launched: the kernels that its module launches, in the order of their first launch.
            bound: what each was compiled to.

        Returns:
            The kernels of the program, by the module's names.

        Raises:
            CoilpackError: as `lowered_kernel`.
        """
        made: dict[str, BoundKernel] = {}
        for ordinal, (name, chosen) in enumerate(launched.items()):
            neutral = lowered_kernel(chosen, bound[name], _NEUTRAL, self.compiler.target)
            key = neutral, _fp_fusion(bound[name])
            if key not in self._kernels:
                kernel = replace(
                    program_kernel(f"{function}_dispatch_{ordinal}_{name}", neutral),
                    source=chosen.generated.digest,
                    configuration=_configuration(chosen),
                )
                self._kernels[key] = _Bound(kernel, chosen, bound[name])
            made[name] = BoundKernel(self._kernels[key].kernel, tuple(p.name for p in neutral.parameters))
        return made

    def finish(self) -> tuple[list[FrozenKernel], tuple[str, ...]]:
        """All kernels of the package, each with a symbol of its own, assembled.

        Returns:
            The kernels, and the names of those of which the assembler of this machine makes other machine code than
            was measured.

        Raises:
            CoilpackError: one cannot be assembled, or needs more than the target has.
        """
        kernels = list(self._kernels.values())
        symbols = unique_kernel_names([kernel.kernel.export_name for kernel in kernels])
        futures = [
            self.compiler.assemble(
                lowered_kernel(k.chosen, k.bound, symbol, self.compiler.target), fp_fusion=k.fp_fusion
            )
            for k, symbol in zip(kernels, symbols, strict=True)
        ]
        made = [self._as_measured(k, future.result()) for k, future in zip(kernels, futures, strict=True)]
        differing = [k.kernel.export_name for k, own in zip(kernels, made, strict=True) if not k.is_code_of(own)]
        return [FrozenKernel(k.kernel, own) for k, own in zip(kernels, made, strict=True)], tuple(differing)

    def _as_measured(self, kernel: _Bound, made: LoweredKernel) -> LoweredKernel:
        """The kernel with the machine code that was measured, where an assembler here makes that in one way or another.

        Inductor's workers take torch's assembler; its own process, which compiles what it finds step by step, Triton's.
        """
        if kernel.is_code_of(made):
            return made
        ways = itertools.product(known_ptxas(self.compiler.target), (True, False))
        for tool, careful in itertools.islice(ways, 1, None):  # the first is how it was made
            try:
                cubin = assemble(
                    made.ptx,
                    self.compiler.target,
                    kernel_name=made.kernel_name,
                    fp_fusion=kernel.fp_fusion,
                    careful_registers=careful,
                    tool=tool,
                )
            except UnsupportedError:  # the PTX is newer than this one
                continue
            other = replace(made, cubin=cubin, registers=register_counts(cubin).get(made.kernel_name, 0))
            if kernel.is_code_of(other):
                return other
        return made


def _fp_fusion(bound: Bound) -> bool:
    """Whether multiplications and additions may become fused ones when a kernel is assembled."""
    return bool(bound.artifact.metadata.get("enable_fp_fusion", True))


def _configuration(kernel: ChosenKernel) -> str:
    """The configuration that a kernel runs in, written as that of a kernel which is compiled."""
    chosen = kernel.configuration
    return configuration_text(chosen.values or noted_sizes(kernel.inductor_meta), chosen.num_warps, chosen.num_stages)
