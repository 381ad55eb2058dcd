"""Worker processes that run Triton's stages, so that kernels compile at once and a crash takes down only one."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from coilpack.runtime.errors import CoilpackError

_LOG_BYTES = 4000


class WorkerError(CoilpackError):
    """Triton could not compile a kernel, or ended the process; the message carries what it wrote."""


class _Worker:
    """One process. Not for several threads at once."""

    def __init__(self) -> None:
        # The child shares the file's offset: rewinding it here gives each request a log of its own.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        main = f"import sys; sys.path[:] = {sys.path!r}; from coilpack.compiler.kernels.worker import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", main], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._log.seek(0)
        self._log.truncate()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        reply = json.loads(line) if line else {"error": f"the compiler process ended by {self._ending()}"}
        if "error" in reply:
            raise WorkerError(f"{reply['error']}\n{self._log_tail()}".strip())
        assert isinstance(reply, dict)
        return reply

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _ending(self) -> str:
        code = self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"status {code}"

    def _log_tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-_LOG_BYTES:].decode(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.terminate()  # it holds nothing that must be put in order
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()


class WorkerPool:
    """As many processes as threads that call `run` at once; they stay until `close`."""

    def __init__(self) -> None:
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Lets a worker serve `request` (see `worker`) and returns its reply.

        Raises:
            WorkerError: the kernel does not compile.
        """
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker = _Worker()
        try:
            return worker.run(request)
        finally:
            if worker.alive:
                self._idle.put(worker)
            else:
                worker.close()

    def close(self) -> None:
        """Ends the processes. No `run` may be under way."""
        while not self._idle.empty():
            self._idle.get_nowait().close()
