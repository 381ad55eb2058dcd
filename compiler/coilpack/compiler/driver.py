"""From sources to a file: exports, compiles each target in a process of its own, merges, writes."""

from __future__ import annotations

import functools
import os
import queue
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coilpack import schemas
from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.cache import Cache, content_key, default_directory, source_hash
from coilpack.compiler.emit import EMITTERS, IMAGE_KINDS, Emit, ImageChoice, check_output
from coilpack.compiler.iree.emit import next_commands
from coilpack.compiler.kernel_options import KernelOptions
from coilpack.compiler.merge import merge_programs
from coilpack.compiler.mlir.sources import MlirSource
from coilpack.compiler.pt2 import Pt2File
from coilpack.compiler.python_file import python_callable
from coilpack.compiler.target_process import Exporter, Processes, Progress, Work, compile_apart, export_apart
from coilpack.compiler.targets import Target, choose_ptx_version, parse_ptx_version, parse_target
from coilpack.runtime import errors
from coilpack.runtime.errors import InputError, TargetMismatchError
from coilpack.runtime.program import ir
from coilpack.runtime.program.verify_dispatch import MAX_ALTERNATIVES
from coilpack.runtime.tuning.report import TuningReport
from coilpack.schemas.wire import MAX_BINDINGS

MatmulChoice = Literal["triton", "cublaslt"]

_WITHOUT_CANDIDATES: tuple[Emit, ...] = ("cda1", "iree")  # what is emitted for tools that know none


@dataclass(frozen=True)
class CompileOptions:
    """How to compile.

    Attributes:
        targets: architectures, as `sm_80`.
        emit: a package with everything, a bare executable, the program as text, or a folder for IREE's compiler.
        image: the form of the kernels; `both` lets the runtime pick machine code where it fits and PTX elsewhere.
        ptx_version: as `8.4`; None for each target's default.
        jobs: how many processes may compile at once; None for the number of processors.
        cache: folder of the cache; None for none.
        float32_matmul_precision: `highest` for IEEE float32 products, `high` for TF32.
        matmul: `triton` compiles products of matrices with what surrounds them; `cublaslt` leaves them to NVIDIA's
            library, which whoever runs the package then needs.
        candidates: how many configurations to keep of each kernel, 1 to 64, for tuning to choose among.
        tuning: the report of a tuning run, whose choices are taken for the target that it is of; None for none.
    """

    targets: Sequence[str] = ("sm_80",)
    emit: Emit = "coil"
    image: ImageChoice = "both"
    ptx_version: str | None = None
    jobs: int | None = None
    cache: Path | None = None
    float32_matmul_precision: str = "highest"
    matmul: MatmulChoice = "triton"
    candidates: int = 1
    tuning: Path | None = None

    @classmethod
    def cached(cls, **options: Any) -> CompileOptions:
        """Options with the user's cache folder."""
        return cls(cache=default_directory(), **options)


@dataclass(frozen=True)
class CompileReport:
    """What was made.

    Attributes:
        output: the file or folder written.
        nbytes: its size, in all.
        program: the program in it.
        cached_targets: targets that the cache had whole.
        next_commands: what to run on the output, where it is for another tool.
    """

    output: Path
    nbytes: int
    program: ir.Program
    cached_targets: tuple[str, ...]
    next_commands: tuple[str, ...] = ()


def compile_package(
    sources: Mapping[str, str | Path],
    output: Path,
    options: CompileOptions | None = None,
    progress: Progress = lambda message: None,  # noqa: ARG005
) -> CompileReport:
    """Compiles functions into one file.

    Args:
        sources: what each function is compiled from, by the function's name: a `.pt2` file, `module.py:callable`
            (`frontends.export_callable` says what that may return), or `model.mlir:@function`, whose function may be
            left out where it is the file's only public one.
        output: the file to write; replaced only when everything succeeded.
        options: see `CompileOptions`.
        progress: called with short messages, from several threads.

    Raises:
        CoilpackError: an input is wrong or cannot be lowered; nothing is written.
    """
    options = options or CompileOptions.cached()
    targets = _check(options)
    if not sources:
        raise InputError("there is no function to compile; name at least one, with its source")
    check_output(output, sources.values(), options.emit)
    tuning = _tuning(options.tuning, targets, progress) if options.tuning is not None else None
    with tempfile.TemporaryDirectory(prefix="coilpack-") as scratch:
        files = _exported({name: str(source) for name, source in sources.items()}, Path(scratch), progress)
        exported = {}
        for name, path in files.items():
            progress(f"{name}: reading {sources[name]}")
            exported[name] = Pt2File.read(path)
        modules = sorted({str(found[0].resolve()) for s in sources.values() if (found := python_callable(str(s)))})
        work = Work(
            exported,
            modules,
            IMAGE_KINDS[options.image],
            options.ptx_version,
            options.float32_matmul_precision,
            options.matmul,
            MAX_BINDINGS if options.emit == "iree" else None,
            options.candidates,
            tuning,
            options.cache,
            Path(scratch),
            progress,
        )
        bundles, cached = _compile_targets(work, targets, options.jobs or len(os.sched_getaffinity(0)))
        program = merge_programs([bundle.program for bundle in bundles])
        progress(f"writing {output}")
        EMITTERS[options.emit](list(exported.values()), bundles, program, output)
    return _report(options, output, program, cached)


def compile_kernels(
    source: str,
    output: Path,
    options: CompileOptions,
    kernel_options: KernelOptions | None = None,
    progress: Progress = lambda message: None,  # noqa: ARG005
) -> CompileReport:
    """Compiles kernels without a model into one file.

    Args:
        source: `kernels.py:function`, a bare Triton function; or a module that Inductor generated.
        output: the file to write; replaced only when everything succeeded.
        options: see `CompileOptions`.
        kernel_options: how the function is called; None for a generated module.
        progress: called with short messages, from several threads.

    Raises:
        CoilpackError: an input is wrong or cannot be compiled; nothing is written.
    """
    targets = _check(options)
    function = python_callable(source)
    path, name = function or (Path(source), "")
    check_output(output, [path], options.emit)
    if options.candidates > 1 or options.tuning is not None:
        raise InputError("tuning chooses among the kernels of a model, whose functions launch them to be measured")
    if name and kernel_options is None:
        raise InputError(f"{source!r} is one function; give the signature that it is compiled for")
    if kernel_options is not None and not name:
        raise InputError(f"a signature is one function's; name that as {source}:function")
    bundles = [_compile_standalone(path, name, target, options, kernel_options, progress) for target in targets]
    program = merge_programs([bundle.program for bundle in bundles])
    progress(f"writing {output}")
    EMITTERS[options.emit]([], bundles, program, output)
    return _report(options, output, program)


def _report(options: CompileOptions, output: Path, program: ir.Program, cached: tuple[str, ...] = ()) -> CompileReport:
    files = [path for path in output.rglob("*") if path.is_file()] if output.is_dir() else [output]
    commands = next_commands(output, program) if options.emit == "iree" else ()
    return CompileReport(output, sum(path.stat().st_size for path in files), program, cached, commands)


def _compile_standalone(
    path: Path,
    name: str,
    target: Target,
    options: CompileOptions,
    kernel_options: KernelOptions | None,
    progress: Progress,
) -> TargetBundle:
    from coilpack.compiler.kernels.lower import KernelCompiler  # brings in Triton, as the next does torch
    from coilpack.compiler.standalone.compile import compile_function, compile_module

    kinds = IMAGE_KINDS[options.image]
    compiler = KernelCompiler(
        target,
        ptx_version=parse_ptx_version(options.ptx_version) if options.ptx_version else None,
        cubin=ir.ImageKind.CUBIN in kinds,
        jobs=options.jobs,
        cache=Cache(options.cache) if options.cache else None,
    )
    with compiler, tempfile.TemporaryDirectory(prefix="coilpack-") as folder:
        if kernel_options is not None:
            return compile_function(path, name, kernel_options, compiler, kinds, progress)
        return compile_module(path, Path(folder), compiler, kinds, progress)


def _check(options: CompileOptions) -> list[Target]:
    """Checks options before any work; the targets, each once."""
    targets = list(dict.fromkeys(parse_target(name) for name in options.targets))
    if not targets:
        raise InputError("no target is named; give at least one, as sm_80")
    for target in targets:
        choose_ptx_version(target, parse_ptx_version(options.ptx_version) if options.ptx_version else None)
    if options.emit == "iree" and (len(targets) > 1 or options.image != "ptx"):
        raise InputError("a module for IREE holds the PTX of one target; name one target, and ptx")
    if options.emit == "cda1" and (len(targets) > 1 or options.image == "both"):
        raise InputError("an executable holds one image kind of one target; name one target and ptx or cubin")
    if not 1 <= options.candidates <= MAX_ALTERNATIVES:
        kept = f"{options.candidates} candidates of each kernel cannot be kept"
        raise InputError(f"{kept}; ask for 1 to {MAX_ALTERNATIVES}")
    if options.candidates > 1 and options.emit in _WITHOUT_CANDIDATES:
        raise InputError(f"--emit {options.emit} has one kernel for each launch; keep candidates in a package")
    if options.candidates > 1 and options.tuning is not None:
        raise InputError("a tuning report leaves one configuration of each kernel; ask for it, or for candidates")
    return targets


def _tuning(path: Path, targets: Sequence[Target], progress: Progress) -> TuningReport:
    """The tuning report in a file, which must be one of a target."""
    try:
        report = TuningReport.read(path)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}; name the report of coilpack tune") from error
    names = [target.ptx_name for target in targets]
    if report.target not in names:
        raise TargetMismatchError(f"{path} is a report of tuning for {report.target}; compiled is {', '.join(names)}")
    for name in names:
        if name != report.target:
            progress(f"{name}: the tuning report is of {report.target}, so the cost model chooses here")
    return report


def _exported(sources: Mapping[str, str], scratch: Path, progress: Progress) -> dict[str, Path]:
    """The `.pt2` file of each function: the source itself, or what it is exported to in `scratch`."""
    files: dict[str, Path] = {}
    exports: dict[tuple[Exporter, Path], dict[str, Path]] = {}  # by what exports, its file, and the name in it
    for number, (function, source) in enumerate(sources.items()):
        if callable_ := python_callable(source):
            path, name = callable_
            exports_of = exports.setdefault(("python", path), {})
            files[function] = exports_of.setdefault(name, scratch / f"{number}.pt2")
        elif mlir := MlirSource.parse(source):
            exports_of = exports.setdefault(("mlir", mlir.path), {})
            files[function] = exports_of.setdefault(mlir.function or "", scratch / f"{number}.pt2")
        elif not Path(source).is_file():
            raise InputError(f"there is no file {source!r}; give a .pt2 or .mlir file, or module.py:callable")
        elif Path(source).suffix != ".pt2":
            raise InputError(
                f"{source!r} is neither a .pt2 or .mlir file nor module.py:callable, nor a module that Inductor "
                "generated (.py)"
            )
        else:
            files[function] = Path(source)
    for (exporter, path), names in exports.items():
        processes = Processes()
        try:
            export_apart(exporter, path, names, scratch, progress, processes)
        except BaseException:
            processes.stop()
            raise
    return files


# --- one process for each target ---


def _compile_targets(work: Work, targets: Sequence[Target], jobs: int) -> tuple[list[TargetBundle], tuple[str, ...]]:
    """The bundle of each target, from the cache or compiled, and which came from the cache."""
    # The code of custom operators is not in the exported files, so their digests do not say what it computes.
    known = not any(file.custom_operators for file in work.exported.values())
    cache = Cache(work.cache) if work.cache and known else None
    cached: queue.SimpleQueue[str] = queue.SimpleQueue()
    at_once = min(len(targets), jobs)
    processes = Processes()

    def one(target: Target) -> TargetBundle:
        key = _bundle_key(work, target) if cache else ""
        data = cache.get(key) if cache else None
        if data is not None:
            cached.put(target.name)
            return TargetBundle.from_bytes(data, f"cached {target.name}")
        data = compile_apart(work, target, max(1, jobs // at_once), processes).read_bytes()
        if cache:
            cache.put(key, data)
        return TargetBundle.from_bytes(data, f"compiled {target.name}")

    with ThreadPoolExecutor(at_once) as pool:
        try:
            bundles = list(pool.map(one, targets))
        except BaseException:
            processes.stop()
            raise
    names = {cached.get() for _ in range(cached.qsize())}
    return bundles, tuple(target.name for target in targets if target.name in names)


def _bundle_key(work: Work, target: Target) -> str:
    """The key of a whole compiled target: everything that decides its bytes."""
    from importlib.metadata import version

    return content_key(
        what="target",
        programs=[[name, file.fingerprint] for name, file in work.exported.items()],  # in order: it names the kernels
        target=target.ptx_name,
        images=[kind.name for kind in work.image_kinds],
        ptx_version=work.ptx_version,
        float32_matmul_precision=work.float32_matmul_precision,
        matmul=work.matmul,
        fused_buffers=work.fused_buffers,
        candidates=work.candidates,
        tuning=work.tuning_of(target),
        versions={name: version(name) for name in ("torch", "triton")},
        environment={name: value for name, value in os.environ.items() if _changes_code(name)},
        compiler=_own_code(),
    )


def _changes_code(variable: str) -> bool:
    """Whether torch, Triton or LLVM may compile otherwise for an environment variable; one too many costs time only."""
    prefixes = ("TORCH", "TRITON_", "DISABLE_", "LLVM_", "MLIR_", "NVPTX_")
    return variable.startswith(prefixes) and not variable.endswith(("_CACHE_DIR", "_HOME"))


@functools.cache
def _own_code() -> str:
    """A hash of the source of all that compiles and writes, so that a change in it compiles again."""
    roots = [Path(__file__).parent, Path(errors.__file__).parent, Path(schemas.__file__).parent]
    return source_hash(file for root in roots for file in root.rglob("*.py"))
