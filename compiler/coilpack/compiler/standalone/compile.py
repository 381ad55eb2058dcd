"""Compiles kernels without a model for one target: the first configuration of each that the target can run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from coilpack.compiler import PRODUCER
from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.kernel_options import KernelOptions
from coilpack.compiler.kernels.lower import KernelCompiler, Progress
from coilpack.compiler.program_kernels import ProgramKernel, program_kernel, write_images
from coilpack.compiler.standalone.generated_module import read_module
from coilpack.compiler.standalone.inductor_kernels import load_kernels
from coilpack.compiler.standalone.model import StandaloneKernel
from coilpack.compiler.standalone.triton_function import read_function
from coilpack.runtime.program import ir


def compile_function(
    path: Path,
    name: str,
    options: KernelOptions,
    compiler: KernelCompiler,
    image_kinds: Sequence[ir.ImageKind],
    progress: Progress,
) -> TargetBundle:
    """The Triton function `name` of a Python file, which is run; see `read_function` and `compile_kernels`."""
    with _offline(compiler):
        return compile_kernels([read_function(path, name, options)], compiler, image_kinds, progress)


def compile_module(
    path: Path, folder: Path, compiler: KernelCompiler, image_kinds: Sequence[ir.ImageKind], progress: Progress
) -> TargetBundle:
    """All kernels of a module that Inductor generated; see `load_kernels` and `compile_kernels`."""
    texts = read_module(path)
    with _offline(compiler):
        kernels = load_kernels(texts, path, compiler.target, folder, progress)
        return compile_kernels(kernels, compiler, image_kinds, progress)


def _offline(compiler: KernelCompiler) -> AbstractContextManager[None]:
    """Within it, what files ask Triton about the GPU is answered for the target."""
    target = compiler.target
    return triton.offline_driver(
        target.compute_capability,
        target.shared_memory_per_block_optin,
        target.multiprocessor_count,
        target.registers_per_multiprocessor,
    )


def compile_kernels(
    kernels: Sequence[StandaloneKernel],
    compiler: KernelCompiler,
    image_kinds: Sequence[ir.ImageKind],
    progress: Progress,
) -> TargetBundle:
    """A program of the kernels alone, and its executables.

    Raises:
        ResourceError: no configuration of a kernel fits the target.
        CoilpackError: a kernel cannot be compiled.
    """
    target = compiler.target
    progress(f"compiling {len(kernels)} kernels for {target.name}")
    chosen = compiler.compile_first_fitting([[c.source for c in k.candidates] for k in kernels], progress)
    made = []
    for kernel, (number, lowered) in zip(kernels, chosen, strict=True):
        candidate = kernel.candidates[number]
        described = replace(
            program_kernel(kernel.export_name, lowered, candidate.grid),
            source=candidate.source.digest(candidate.configured),
            configuration=candidate.configuration,
        )
        made.append(ProgramKernel(described, candidate.source, lowered))
    images, executables = write_images(target, image_kinds, made)
    compiled = ir.Target(target.ptx_name, images, tuple(k.kernel for k in made), ())
    return TargetBundle(ir.Program(PRODUCER, (), (), (compiled,)), executables, {})
