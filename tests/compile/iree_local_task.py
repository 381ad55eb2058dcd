"""MLIR files compiled and run by IREE's released tools on the CPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mlir_corpus import DTYPES

from coilpack.compiler.mlir.syntax import ScalarType, TensorType, Type

_BIN = Path(sys.executable).parent
_TARGET = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",  # without it, functions such as trunc are calls into a library that is not linked
    "--iree-input-demote-f64-to-f32=false",
)


def missing() -> str:
    """Which of the tools is not installed; empty where all are."""
    return ", ".join(tool for tool in ("iree-compile", "iree-run-module") if not _tool(tool))


def _tool(name: str) -> str | None:
    return shutil.which(name, path=str(_BIN)) or shutil.which(name)


def _run(tool: str, *arguments: str) -> None:
    done = subprocess.run([_tool(tool) or tool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool} {' '.join(arguments)}\n{done.stderr}"


def compile_file(source: Path, target: Path) -> None:
    """Compiles all functions of an MLIR file for this machine's processor."""
    _run("iree-compile", *_TARGET, str(source), "-o", str(target))


def run_function(
    module: Path, name: str, inputs: Sequence[tuple[Type, np.ndarray]], results: Sequence[TensorType], folder: Path
) -> list[np.ndarray]:
    """Runs a function; its results, whose shapes come from IREE where its file format holds them."""
    arguments = [_argument(type_, array, folder / f"input{number}") for number, (type_, array) in enumerate(inputs)]
    files = [folder / f"output{number}{_suffix(type_)}" for number, type_ in enumerate(results)]
    outputs = [f"--output=@{file}" for file in files]
    _run("iree-run-module", "--device=local-task", f"--module={module}", f"--function={name}", *arguments, *outputs)
    return [_result(type_, file) for type_, file in zip(results, files, strict=True)]


def _suffix(type_: TensorType) -> str:
    """NumPy's file format has no bfloat16, so that its bytes go alone."""
    return ".bin" if type_.element.name == "bf16" else ".npy"


def _argument(type_: Type, array: np.ndarray, file: Path) -> str:
    if isinstance(type_, ScalarType):
        return f"--input={array.item()}"
    assert isinstance(type_, TensorType)
    if _suffix(type_) == ".npy":
        np.save(file.with_suffix(".npy"), array)
        return f"--input=@{file}.npy"
    array.tofile(file.with_suffix(".bin"))
    sizes = "".join(f"{size}x" for size in array.shape)
    return f"--input={sizes}{type_.element}=@{file}.bin"


def _result(type_: TensorType, file: Path) -> np.ndarray:
    if _suffix(type_) == ".npy":
        return np.load(file)
    assert None not in type_.shape, "only a NumPy file says the sizes"
    return np.fromfile(file, DTYPES[type_.element.name]).reshape(type_.shape)
