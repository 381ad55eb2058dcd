"""Compiles kernels for a target: front end here, Triton's stages in worker processes, then the two last steps."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.cache import Cache, content_key, source_hash
from coilpack.compiler.kernels.assemble import assemble, find_ptxas
from coilpack.compiler.kernels.lowered import LoweredKernel, ResourceError, check_resources
from coilpack.compiler.kernels.normalize import normalize_ptx
from coilpack.compiler.kernels.pool import WorkerError, WorkerPool
from coilpack.compiler.kernels.signature import Parameter
from coilpack.compiler.kernels.source import KernelSource
from coilpack.compiler.targets import PtxVersion, Target, choose_ptx_version, format_ptx_version
from coilpack.runtime.errors import CoilpackError, UnsupportedError
from coilpack.runtime.images.cubin import register_counts

Progress = Callable[[str], None]


class KernelCompiler:
    """Compiles kernels for one target, several at once, each only once in the life of the cache.

    `submit` may be called while a model is still being captured. Use it as a context manager: it holds processes.

    Args:
        target: the architecture.
        ptx_version: the PTX version to write; the target's default if None.
        cubin: whether to assemble machine code as well.
        jobs: how many kernels to compile at once; the number of processors if None.
        cache: where results are kept; None for nowhere.
        workers: processes to use and to leave running, for whoever makes several compilers one after another: starting
            one takes as long as compiling several kernels. None for processes that end with this compiler.

    Attributes:
        compiled: how many kernels went through Triton's stages so far.
        assembled: how many went through the assembler.
        cached: how many times the cache had PTX or a cubin.

    Raises:
        InputError: the PTX version does not know the target.
    """

    def __init__(
        self,
        target: Target,
        *,
        ptx_version: PtxVersion | None = None,
        cubin: bool = True,
        jobs: int | None = None,
        cache: Cache | None = None,
        workers: WorkerPool | None = None,
    ) -> None:
        self.target = target
        self.ptx_version = choose_ptx_version(target, ptx_version)
        self.cubin = cubin
        self.compiled = self.assembled = self.cached = 0
        self._cache = cache
        self._count_lock = threading.Lock()
        self._workers = workers or WorkerPool()
        self._owns_workers = workers is None
        self._threads = ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0)), "coilpack-kernels")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drops what was submitted and has not begun, waits for the rest, and ends its own worker processes."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._owns_workers:
            self._workers.close()
        if self._cache is not None and (self.compiled or self.assembled):
            self._cache.prune()

    def submit(self, source: KernelSource) -> Future[LoweredKernel]:
        """Begins to compile `source`; call it from one thread at a time, as Triton's front end wants.

        Returns:
            The kernel to come. Its errors: `InputError` and `UnsupportedError` for a source that cannot be compiled,
            `ResourceError` where the target has not what the kernel asks for, `CoilpackError` for a failing tool.
        """
        try:
            parameters = source.parameters()
            options = source.backend_options(self.ptx_version)
            key = self._key(source, options)
            kernel = self._load(key)
            if kernel is not None:
                return self._threads.submit(self._finish, kernel, options)
            ir = source.front_end(self.target, self.ptx_version)
        except CoilpackError as error:
            failed: Future[LoweredKernel] = Future()
            failed.set_exception(error)
            return failed
        return self._threads.submit(self._compile, source, ir, options, parameters, key)

    def assemble(self, kernel: LoweredKernel, *, fp_fusion: bool = True) -> Future[LoweredKernel]:
        """Begins the last step of a kernel whose PTX is there: the check of what it needs, and its cubin.

        Args:
            kernel: with its PTX, for this target.
            fp_fusion: whether multiplications and additions may become fused ones.

        Returns:
            The kernel to come, as from `submit`.
        """
        return self._threads.submit(self._finish, kernel, {"enable_fp_fusion": fp_fusion})

    def compile(self, sources: Sequence[KernelSource]) -> list[LoweredKernel]:
        """Compiles all of `sources`.

        Raises:
            CoilpackError: as `submit`; that of the first source which fails, the rest is dropped.
        """
        futures = [self.submit(source) for source in sources]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def compile_first_fitting(
        self, kernels: Sequence[Sequence[KernelSource]], progress: Progress
    ) -> list[tuple[int, LoweredKernel]]:
        """Compiles the first configuration of each kernel that the target has the resources for.

        Args:
            kernels: the configurations of each, the preferred one first.
            progress: called with a message for each that does not fit.

        Returns:
            For each kernel which configuration it is, and what came of it.

        Raises:
            ResourceError: of a kernel none fits; the error is the last one's.
            CoilpackError: as `submit`.
        """
        futures = [self.submit(configurations[0]) for configurations in kernels]
        chosen: list[tuple[int, LoweredKernel]] = []
        try:
            for configurations, first in zip(kernels, futures, strict=True):
                chosen.append(self._first_fitting(configurations, first, progress))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return chosen

    def _first_fitting(
        self, configurations: Sequence[KernelSource], first: Future[LoweredKernel], progress: Progress
    ) -> tuple[int, LoweredKernel]:
        future = first
        for number in range(len(configurations)):
            try:
                return number, future.result()
            except ResourceError as error:
                if number + 1 == len(configurations):
                    raise
                progress(f"{error}; trying the next configuration")
                future = self.submit(configurations[number + 1])
        raise AssertionError("a kernel has at least one configuration")

    def _compile(
        self,
        source: KernelSource,
        ir: str,
        options: Mapping[str, object],
        parameters: tuple[Parameter, ...],
        key: str | None,
    ) -> LoweredKernel:
        request = {"ir": ir, "options": options, "compute_capability": self.target.compute_capability}
        try:
            reply = self._workers.run(request)
        except WorkerError as error:
            raise UnsupportedError(f"{source}: Triton cannot compile it for {self.target.name}: {error}") from error
        with self._count_lock:
            self.compiled += 1
        kernel = self._kernel(source, reply["ptx"], reply["metadata"], parameters)
        if self._cache is not None and key is not None:
            self._cache.put(key, kernel.to_bytes())
        return self._finish(kernel, options)

    def _kernel(
        self, source: KernelSource, ptx: str, metadata: Mapping[str, Any], parameters: tuple[Parameter, ...]
    ) -> LoweredKernel:
        scratch = metadata["global_scratch_size"] + metadata["profile_scratch_size"]
        normalized = normalize_ptx(ptx, source.kernel_name, parameters, scratch_bytes=scratch)
        if (normalized.version, normalized.target) != (self.ptx_version, self.target.ptx_name):
            raise CoilpackError(
                f"{source}: Triton wrote PTX {format_ptx_version(normalized.version)} for {normalized.target} where "
                f"{format_ptx_version(self.ptx_version)} for {self.target.ptx_name} was asked for"
            )
        return LoweredKernel(
            kernel_name=normalized.kernel_name,
            ptx=normalized.text,
            parameters=normalized.parameters,
            num_warps=metadata["num_warps"],
            num_ctas=metadata["num_ctas"],
            shared_memory_bytes=metadata["shared"],
            tensor_memory_columns=metadata["tmem_size"] or 0,
            cooperative=metadata["launch_cooperative_grid"],
            programmatic_launch=metadata["launch_pdl"],
        )

    def _finish(self, kernel: LoweredKernel, options: Mapping[str, object]) -> LoweredKernel:
        """Checks what `kernel` needs, and adds the cubin, which says how many registers it takes."""
        check_resources(kernel, self.target)
        if not self.cubin:
            return kernel
        fp_fusion = bool(options.get("enable_fp_fusion", True))
        key = content_key(
            what="cubin",
            ptx=kernel.ptx,
            target=self.target.ptx_name,
            ptxas=find_ptxas(self.target).version,
            fp_fusion=fp_fusion,
            compiler=_own_code(),
        )
        cubin = self._cache.get(key) if self._cache is not None else None
        if cubin is not None:
            with self._count_lock:
                self.cached += 1
        else:
            cubin = assemble(kernel.ptx, self.target, kernel_name=kernel.kernel_name, fp_fusion=fp_fusion)
            with self._count_lock:
                self.assembled += 1
            if self._cache is not None:
                self._cache.put(key, cubin)
        registers = register_counts(cubin).get(kernel.kernel_name, 0)
        kernel = dataclasses.replace(kernel, cubin=cubin, registers=registers)
        check_resources(kernel, self.target)
        return kernel

    def _key(self, source: KernelSource, options: Mapping[str, object]) -> str | None:
        identity = source.identity() if self._cache is not None else None
        if identity is None:
            return None
        return content_key(
            what="ptx",
            source=identity,
            options=dict(options),
            target=self.target.ptx_name,
            triton=triton.VERSION,
            environment=triton.environment_settings(),
            compiler=_own_code(),
        )

    def _load(self, key: str | None) -> LoweredKernel | None:
        data = self._cache.get(key) if self._cache is not None and key is not None else None
        if data is None:
            return None
        with self._count_lock:
            self.cached += 1
        return LoweredKernel.from_bytes(data)


@functools.cache
def _own_code() -> str:
    """The hash of the code that makes kernels, so that a changed compiler does not serve what an older one made."""
    return source_hash([*Path(__file__).parent.glob("*.py"), Path(triton.__file__ or "")])


def lower_many(
    sources: Sequence[KernelSource],
    target: Target,
    *,
    ptx_version: PtxVersion | None = None,
    cubin: bool = True,
    jobs: int | None = None,
    cache: Cache | None = None,
) -> list[LoweredKernel]:
    """Compiles `sources` for `target`; see `KernelCompiler` for the arguments and errors."""
    with KernelCompiler(target, ptx_version=ptx_version, cubin=cubin, jobs=jobs, cache=cache) as compiler:
        return compiler.compile(sources)
