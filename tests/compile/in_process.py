"""Builds packages in the test's own process, which takes a second where a process for each would take ten."""

from __future__ import annotations

import atexit
from pathlib import Path

import torch

from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.cache import Cache
from coilpack.compiler.compile_target import TargetOptions, compile_target
from coilpack.compiler.iree.emit import write_folder
from coilpack.compiler.kernels.pool import WorkerPool
from coilpack.compiler.targets import parse_target
from coilpack.runtime.executable import read_executable
from coilpack.runtime.package import StorageData, write_package
from coilpack.runtime.program import ir

TARGET = "sm_80"  # one for the whole process: Inductor's caches hold the device; runs on every later one, too

_WORKERS = WorkerPool()  # starting one takes as long as most tests' kernels
atexit.register(_WORKERS.close)


def export(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module.eval(), inputs)


def compile_in_process(
    programs: dict[str, torch.export.ExportedProgram], cache: Path | None = None, **options: object
) -> TargetBundle:
    return compile_target(
        programs,
        parse_target(TARGET),
        TargetOptions(image_kinds=(ir.ImageKind.PTX,), **options),
        jobs=1,
        cache=Cache(cache) if cache else None,
        progress=print,
        workers=_WORKERS,
    )


def storages(bundle: TargetBundle) -> list[StorageData]:
    found = []
    for name, content in bundle.storages.items():
        assert content.data is not None
        found.append(StorageData(name, content.dtype, content.shape, lambda data=content.data: [data]))
    return found


def write(bundle: TargetBundle, path: Path) -> Path:
    write_package(path, bundle.program, bundle.executables, storages(bundle))
    return path


def write_iree(bundle: TargetBundle, folder: Path) -> Path:
    (data,) = bundle.executables.values()
    write_folder(folder, bundle.program, read_executable(data), storages(bundle))
    return folder
