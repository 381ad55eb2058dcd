"""Builds packages in the test's own process, which takes a second where a process for each would take ten."""

from __future__ import annotations

from pathlib import Path

import torch

from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.cache import Cache
from coilpack.compiler.compile_target import TargetOptions, compile_target
from coilpack.compiler.targets import parse_target
from coilpack.runtime.package import StorageData, write_package
from coilpack.runtime.program import ir

TARGET = "sm_80"  # one for the whole process: Inductor's caches hold the device; runs on every later one, too


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
    )


def write(bundle: TargetBundle, path: Path) -> Path:
    storages = []
    for name, content in bundle.storages.items():
        assert content.data is not None
        storages.append(StorageData(name, content.dtype, content.shape, lambda data=content.data: [data]))
    write_package(path, bundle.program, bundle.executables, storages)
    return path
