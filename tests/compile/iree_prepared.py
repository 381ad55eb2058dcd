"""Files of the models of `iree_models.py`, made ready for a machine with a GPU, which needs no compiler then.

    python tests/compile/iree_prepared.py DIR [--iree FOLDER]...

For each model: `MODEL-<n>.pt2` (its functions), `MODEL.coil` for this project's runtime, `MODEL/` as `--emit iree`
writes it, and for each release of IREE, in `iree-<release>/`, `MODEL.vmfb` and the tools that run it. FOLDER has the
tools of a release; without any, the release that is installed serves.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from iree_releases import Release, installed

from coilpack import runtime
from coilpack.runtime.dtypes import DType

_PREFIX = "iree-"


@dataclass(frozen=True)
class Prepared:
    """A folder of prepared files."""

    folder: Path

    def package(self, model: str) -> Path:
        """The package of a model."""
        return self.folder / f"{model}.coil"

    @property
    def releases(self) -> list[Release]:
        """The releases of IREE that it has modules and tools for, oldest first."""
        folders = sorted(self.folder.glob(f"{_PREFIX}*"), key=lambda f: [int(n) for n in _version(f).split(".")])
        return [Release(folder, _version(folder)) for folder in folders]

    def module(self, model: str, release: Release) -> Path:
        """The VMFB of a model that the compiler of a release made."""
        return self.folder / f"{_PREFIX}{release.version}" / f"{model}.vmfb"

    def call(self, model: str, function: str, release: Release, inputs: Sequence[tuple[str, Path]]) -> list[str]:
        """The arguments of `iree-run-module` and `iree-benchmark-module`, but for the device.

        Args:
            model: one of `MODELS`.
            function: its name.
            release: whose compiler made the module.
            inputs: type, as `4xf32`, and file of each.
        """
        weights = self.folder / model / "weights.safetensors"
        return [
            f"--module={self.module(model, release)}",
            f"--function={function}",
            *([f"--parameters=model={weights}"] if weights.exists() else []),
            *(f"--input={type_}=@{path}" for type_, path in inputs),
        ]


def _version(folder: Path) -> str:
    return folder.name.removeprefix(_PREFIX)


def write_inputs(tensors: Iterable[torch.Tensor], folder: Path) -> list[tuple[str, Path]]:
    """Writes inputs as raw bytes: for each its type as IREE's tools write it, as `4x2xf32`, and its file."""
    inputs = []
    for index, tensor in enumerate(tensors):
        array = runtime.to_device(tensor, "emulator").numpy()  # numpy of any type that torch has
        path = folder / f"input{index}.bin"
        path.write_bytes(array.tobytes())
        inputs.append(("x".join([*map(str, array.shape), DType.from_numpy(array.dtype).name]), path))
    return inputs


def prepare(folder: Path, releases: Iterable[Release], models: Iterable[str]) -> Prepared:
    """Adds models to a folder.

    Args:
        folder: it need not exist; files of the same models that it holds are replaced.
        releases: of IREE, with their compilers.
        models: of `MODELS`.
    """
    prepared = Prepared(folder)
    folder.mkdir(exist_ok=True)
    releases = list(releases)
    for release in releases:
        tools = folder / f"{_PREFIX}{release.version}"
        tools.mkdir(exist_ok=True)
        release.copy_runtime(tools)
    for model in models:
        _compile(prepared, model)
        for release in releases:
            compile_module(folder / model, release, prepared.module(model, release))
    return prepared


def _compile(prepared: Prepared, model: str) -> None:
    """Exports a model, and compiles the exported files into a package and into a folder for IREE."""
    from in_process import compile_in_process, write, write_iree
    from iree_models import exported

    from coilpack.compiler.frontends import load_program

    programs = {}
    for number, (function, program) in enumerate(exported(model).items()):
        path = prepared.folder / f"{model}-{number}.pt2"
        torch.export.save(program, path)
        programs[function] = load_program(path)
    bundle = compile_in_process(programs)
    write(bundle, prepared.package(model))
    write_iree(bundle, prepared.folder / model)


def compile_module(folder: Path, release: Release, output: Path) -> None:
    """Makes a VMFB of a folder for IREE."""
    from coilpack.compiler.iree.emit import compile_command

    tool, *arguments = shlex.split(compile_command(folder))
    release.checked(tool, *arguments, "-o", output)


def main() -> None:
    """Prepares all models."""
    from iree_models import MODELS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--iree", type=Path, action="append", default=[], help="folder with the tools of a release")
    arguments = parser.parse_args()
    prepare(arguments.folder, installed(arguments.iree), MODELS)


if __name__ == "__main__":
    main()
