"""The package of `runtime_samples` with candidates: kernels that scale as `scale$1` does, on grids of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from runtime_samples import ADD, PTX, SCALE, WEIGHTS, MemoryPackage, add, program, scale

from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import Executable, Export, write_executable
from coilpack.runtime.package import StorageData, write_package
from coilpack.runtime.program import ir

WIDE = dataclasses.replace(SCALE, export_name="scale$1.c1", configuration="XBLOCK=64")
NARROW = dataclasses.replace(SCALE, export_name="scale$1.c2", configuration="XBLOCK=1")
KERNELS = (SCALE, ADD, WIDE, NARROW)
BODIES = {"scale": scale, "add": add, "scale_c1": scale, "scale_c2": scale}
_EXPORTS = {
    SCALE.export_name: ("scale", (32, 1, 1)),
    ADD.export_name: ("add", (4, 1, 1)),
    WIDE.export_name: ("scale_c1", (64, 1, 1)),
    NARROW.export_name: ("scale_c2", (1, 1, 1)),
}


def candidates(dispatch: ir.Dispatch) -> ir.Dispatch:
    """The dispatch with candidates, if it scales."""
    if dispatch.kernel is not SCALE:
        return dispatch
    count = dispatch.operands[3]
    alternatives = (ir.Alternative(WIDE, dispatch.grid), ir.Alternative(NARROW, (count, 1, 1)))
    return dataclasses.replace(dispatch, alternatives=alternatives)


def with_candidates(target: ir.Target) -> ir.Target:
    functions = tuple(
        dataclasses.replace(
            function,
            operations=tuple(candidates(op) if isinstance(op, ir.Dispatch) else op for op in function.operations),
        )
        for function in target.functions
    )
    return dataclasses.replace(target, kernels=KERNELS, functions=functions)


def candidate_program(*targets: str) -> ir.Program:
    made = program(dict.fromkeys(targets or ("sm_80",), "8.7"))
    return dataclasses.replace(made, targets=tuple(map(with_candidates, made.targets)))


def candidate_executable(kernels: Sequence[ir.Kernel] = KERNELS, target: str = "sm_80") -> bytes:
    """An executable of kernels, each in a module of its own, as the compiler writes it."""
    images, exports = [], []
    text = PTX.format(target=target, version="8.7")
    for ordinal, kernel in enumerate(kernels):
        symbol, block = _EXPORTS[kernel.export_name]
        entry = "add" if symbol == "add" else "scale"
        images.append(text.replace(f".entry {entry}(", f".entry {symbol}(").encode())
        exports.append(Export(ordinal, symbol, kernel.export_name, block, ordinal))
    return write_executable(Executable(tuple(images), tuple(exports)))


def candidate_package() -> MemoryPackage:
    """A package in memory that has candidates."""
    package = MemoryPackage()
    package.program = candidate_program()
    package.images = {entry: candidate_executable() for entry in package.images}
    return package


def storages() -> list[StorageData]:
    types = {np.dtype(np.float32): DType.f32, np.dtype(np.uint8): DType.ui8}
    return [
        StorageData(name, types[array.dtype], array.shape, lambda array=array: [array.tobytes()])
        for name, array in WEIGHTS.items()
    ]


def write_candidates(path: Path, made: ir.Program, **options: str) -> None:
    """Writes the package of such a program, with all kernels that it states."""
    executables = {
        image.entry: candidate_executable(target.kernels, target.name)
        for target in made.targets
        for image in target.images
    }
    write_package(path, made, executables, storages(), **options)
