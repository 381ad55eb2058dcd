"""Builds packages in the test's own process, which takes a second where a process for each would take ten."""

from __future__ import annotations

from pathlib import Path

import torch

from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.cache import Cache
from coilpack.compiler.compile_target import TargetOptions, compile_target
from coilpack.compiler.targets import parse_target
from coilpack.compiler.weights import Weights
from coilpack.runtime.package import write_package
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


def write(bundle: TargetBundle, programs: dict[str, torch.export.ExportedProgram], path: Path) -> Path:
    weights = Weights()
    for program in programs.values():
        weights.add_program(program)
    found = {**weights.storages, **{name: c.storage(name) for name, c in bundle.constants.items()}}
    write_package(path, bundle.program, bundle.executables, [found[s.name] for s in bundle.program.storages])
    return path
