"""Assembles PTX to a cubin with NVIDIA's `ptxas`: Triton's bundled one, else the one on PATH."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.targets import Target
from coilpack.runtime.errors import CoilpackError, UnsupportedError

_TIMEOUT = 600.0  # seconds
_LOG_LINES = 20
# Triton 3.7 passes it to avoid wrong code by ptxas 13.x.
_REGISTER_ALLOCATION = ("--regAllocOptLevel=2",)


@dataclass(frozen=True, slots=True)
class Ptxas:
    """An assembler: where it is and its version, as (13, 1, 80)."""

    path: Path
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"ptxas {'.'.join(map(str, self.version))} ({self.path})"


def find_ptxas(target: Target) -> Ptxas:
    """The assembler for `target`; which one that is may change with the environment.

    Raises:
        UnsupportedError: there is none on this machine.
        CoilpackError: it does not run.
    """
    path = triton.bundled_ptxas(target.compute_capability)
    if path is None:
        raise UnsupportedError(
            f"no ptxas for {target.name}: neither Triton nor PATH has one; "
            "ask for PTX images, or install NVIDIA's CUDA toolkit"
        )
    return _ptxas(path)


def known_ptxas(target: Target) -> list[Ptxas]:
    """The assemblers for `target`: that of `find_ptxas`, and Triton's own, where that is another one."""
    first, own = find_ptxas(target), triton.own_ptxas(target.compute_capability)
    return [first] if own is None or own.samefile(first.path) else [first, _ptxas(own)]


@functools.cache
def _ptxas(path: Path) -> Ptxas:
    try:
        result = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise CoilpackError(f"{path} does not run: {error}") from error
    match = re.search(r"V(\d+)\.(\d+)\.(\d+)", result.stdout)
    if match is None:
        raise CoilpackError(f"{path} does not say its version: {result.stdout!r}")
    return Ptxas(path, tuple(map(int, match.groups())))


def assemble(
    ptx: str,
    target: Target,
    *,
    kernel_name: str,
    fp_fusion: bool = True,
    careful_registers: bool = True,
    tool: Ptxas | None = None,
) -> bytes:
    """The cubin of `ptx` for the architecture `target`. The same input gives the same bytes anywhere.

    Args:
        ptx: the text of a PTX module.
        target: what to assemble for.
        kernel_name: for messages.
        fp_fusion: whether multiplications and additions may become fused ones.
        careful_registers: whether registers are allocated in the way that Triton 3.7 asks for; earlier ones do not.
        tool: the assembler; that of `find_ptxas` if None.

    Raises:
        UnsupportedError: there is no assembler, or it knows neither the architecture nor the PTX version.
        CoilpackError: the assembler refuses the PTX; the message carries its log.
    """
    tool = tool or find_ptxas(target)
    options = [f"--gpu-name={target.ptx_name}", *(() if fp_fusion else ("--fmad=false",))]
    if careful_registers and tool.version >= (13,):
        options.extend(_REGISTER_ALLOCATION)
    # Relative names within a directory of its own: the tool may write its file names into its output.
    with tempfile.TemporaryDirectory(prefix="coilpack-") as directory:
        Path(directory, "kernel.ptx").write_text(ptx)
        command = [tool.path, *options, "kernel.ptx", "-o", "kernel.cubin"]
        try:
            result = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CoilpackError(f"kernel {kernel_name!r}: {tool} failed: {error}") from error
        if result.returncode != 0:
            raise _failure(tool, target, kernel_name, result)
        return Path(directory, "kernel.cubin").read_bytes()


def _failure(tool: Ptxas, target: Target, kernel_name: str, result: subprocess.CompletedProcess[str]) -> CoilpackError:
    log = (result.stderr + result.stdout).strip()
    advice = "ask for PTX images, or install a newer ptxas and set TRITON_PTXAS_PATH (TRITON_PTXAS_BLACKWELL_PATH)"
    if "is not defined for option 'gpu-name'" in log:
        return UnsupportedError(f"{tool} cannot assemble for {target.ptx_name}; {advice}")
    if version := re.search(r"Unsupported \.version ([\d.]+); current version is '([\d.]+)'", log):
        return UnsupportedError(
            f"kernel {kernel_name!r} is PTX {version[1]}, and {tool} reads PTX up to {version[2]}; "
            f"choose --ptx-version {version[2]} or older, or {advice}"
        )
    lines = log.splitlines()[:_LOG_LINES] or [f"exit status {result.returncode}, no message"]
    return CoilpackError(f"kernel {kernel_name!r}: {tool} refuses its PTX for {target.ptx_name}:\n" + "\n".join(lines))
