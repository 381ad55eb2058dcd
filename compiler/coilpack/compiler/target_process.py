"""The processes that export and compile: started, spoken to, and ended together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coilpack.compiler.pt2 import Pt2File
from coilpack.compiler.targets import Target
from coilpack.runtime import errors
from coilpack.runtime.errors import CoilpackError
from coilpack.runtime.program import ir
from coilpack.runtime.tuning.report import TuningReport

Progress = Callable[[str], None]
Exporter = Literal["python", "mlir"]


@dataclass(frozen=True)
class Work:
    """What all targets are compiled from, and how.

    Attributes:
        exported: by function name.
        modules: Python files to import first: they register the custom operators of `exported`.
        image_kinds: which forms of the kernels to make.
        ptx_version: as `8.4`; None for each target's default.
        float32_matmul_precision: `highest` or `high`.
        matmul: `triton` or `cublaslt`.
        fused_buffers: how many buffers one kernel may bring together by fusion; None for any number.
        candidates: how many configurations to keep of each kernel.
        tuning: what tuning found, whichever target it is of; None for nothing.
        cache: folder of the cache of kernels; None for none.
        scratch: a folder for what is needed only meanwhile.
        progress: called with short messages, from several threads.
    """

    exported: Mapping[str, Pt2File]
    modules: Sequence[str]
    image_kinds: tuple[ir.ImageKind, ...]
    ptx_version: str | None
    float32_matmul_precision: str
    matmul: str
    fused_buffers: int | None
    candidates: int
    tuning: TuningReport | None
    cache: Path | None
    scratch: Path
    progress: Progress

    def tuning_of(self, target: Target) -> str | None:
        """What tuning found for a target, as JSON; None where it was another one's."""
        return self.tuning.to_json() if self.tuning is not None and self.tuning.target == target.ptx_name else None


class Processes:
    """The processes that compile now, so that an error in one, or an interrupt, need not wait for the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    @contextmanager
    def running(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Within it, `stop` kills `process`; at the end it is dead."""
        with self._lock:
            self._running.add(process)
            if self._stopped:
                _kill(process)
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(process)
            _kill(process)
            process.wait()

    def stop(self) -> None:
        """Kills what runs, and what starts from now on."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kills a process of `compile_apart` and those that it started; does nothing where it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def export_apart(
    exporter: Exporter,
    path: Path,
    names: Mapping[str, Path],
    scratch: Path,
    progress: Progress,
    processes: Processes,
) -> None:
    """Exports models of one file in a process of its own, which takes them with it when it ends.

    Args:
        exporter: `python` for callables of a Python file, which is run; `mlir` for functions of an MLIR file.
        path: the file.
        names: the `.pt2` file to write for each; the empty name is an MLIR file's only public function.
        scratch: a folder for what is needed only meanwhile.
        progress: called with short messages.
        processes: where to list the process while it runs.

    Raises:
        CoilpackError: the error that the process reported, or how it ended.
    """
    named = [(name, str(target)) for name, target in names.items()]
    request = {"task": "export", "exporter": exporter, "path": str(path), "names": named}
    _run(request, f"exporting {path}", {"TMPDIR": str(scratch)}, progress, processes)


def compile_apart(work: Work, target: Target, jobs: int, processes: Processes) -> Path:
    """Compiles one target in a process of its own.

    Args:
        work: what to compile.
        target: the architecture.
        jobs: kernels to compile at once.
        processes: where to list the process while it runs.

    Returns:
        A file that holds a `TargetBundle`.

    Raises:
        CoilpackError: the error that the process reported, or how it ended.
    """
    scratch = work.scratch
    output = scratch / f"{target.name}.bundle"
    request = {
        "task": "compile",
        "programs": {name: str(file.path.resolve()) for name, file in work.exported.items()},
        "modules": work.modules,
        "elsewhere": sorted({digest for file in work.exported.values() for digest in file.digests.values()}),
        "target": target.name,
        "image_kinds": [kind.name for kind in work.image_kinds],
        "ptx_version": work.ptx_version,
        "float32_matmul_precision": work.float32_matmul_precision,
        "matmul": work.matmul,
        "fused_buffers": work.fused_buffers,
        "candidates": work.candidates,
        "tuning": work.tuning_of(target),
        "jobs": jobs,
        "cache": str(work.cache) if work.cache else None,
        "output": str(output),
    }
    # Inductor and Triton keep caches of their own, and torch leaves temporary files where it is killed: in the scratch
    # folder they stay behind no run and serve none.
    folders = {
        "TMPDIR": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / f"{target.name}.inductor"),
        "TRITON_CACHE_DIR": str(scratch / f"{target.name}.triton"),
    }
    _run(request, f"compiling {target.name}", folders, work.progress, processes)
    return output


def _run(
    request: Mapping[str, Any], what: str, environment: Mapping[str, str], progress: Progress, processes: Processes
) -> None:
    """Lets a process of its own serve `request`."""
    main = f"import sys; sys.path[:] = {sys.path!r}; from coilpack.compiler.worker import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", main],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        process_group=0,
    )
    with processes.running(process):
        error, log = _converse(process, request, progress)
    if error is not None:
        raise _remote_error(error)
    if process.returncode:
        tail = "\n".join(log.splitlines()[-30:])
        raise CoilpackError(f"the process {what} ended with status {process.returncode}:\n{tail}")


def _converse(
    process: subprocess.Popen[str], request: Mapping[str, Any], progress: Progress
) -> tuple[dict[str, Any] | None, str]:
    """Sends the request and reads messages until the process ends: its error, if it sent one, and its log."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    log: list[str] = []
    stderr = process.stderr
    reader = threading.Thread(target=lambda: log.append(stderr.read()), daemon=True)
    reader.start()
    try:
        json.dump(request, process.stdin)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it ended early; the exit status and the log say why
    error = None
    for line in process.stdout:
        message = json.loads(line)
        if "error" in message:
            error = message
        else:
            progress(message["progress"])
    process.wait()
    reader.join()
    return error, "".join(log)


def _remote_error(message: Mapping[str, Any]) -> CoilpackError:
    """The error that a worker sent, as the same kind where it is made from a message alone."""
    kinds = (errors.UnsupportedError, errors.InputError, errors.DeviceError, errors.TargetMismatchError)
    kind = {k.__name__: k for k in kinds}.get(message["kind"], CoilpackError)
    return kind(message["error"])
