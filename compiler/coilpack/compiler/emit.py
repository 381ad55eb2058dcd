"""Writes what was compiled: a package, an executable, text, or a folder for IREE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from coilpack.compiler.bundle import StorageContent, TargetBundle
from coilpack.compiler.iree.emit import check_folder, write_folder
from coilpack.compiler.iree.standalone import standalone_executable
from coilpack.compiler.pt2 import Pt2File
from coilpack.runtime.atomic import check_file, check_parent, write_atomically
from coilpack.runtime.errors import InputError
from coilpack.runtime.executable import read_executable, write_executable
from coilpack.runtime.package import StorageData, write_package
from coilpack.runtime.program import ir
from coilpack.runtime.program.text import print_program

Emit = Literal["coil", "cda1", "text", "iree"]
ImageChoice = Literal["ptx", "cubin", "both"]

IMAGE_KINDS: Mapping[ImageChoice, tuple[ir.ImageKind, ...]] = {
    "ptx": (ir.ImageKind.PTX,),
    "cubin": (ir.ImageKind.CUBIN,),
    "both": (ir.ImageKind.PTX, ir.ImageKind.CUBIN),
}
"""The forms of the kernels that each choice stands for."""


def check_output(output: Path, sources: Iterable[str | Path], emit: Emit) -> None:
    """Refuses a file or folder that cannot be written, or is an input, before any work."""
    if emit == "iree":
        check_parent(output)
        check_folder(output)
    else:
        check_file(output)
    for source in map(Path, sources):
        if output.exists() and source.exists() and output.samefile(source):
            raise InputError(f"{str(output)!r} is the input too; write to another file")


def emit_package(
    exported: Sequence[Pt2File], bundles: Sequence[TargetBundle], program: ir.Program, output: Path
) -> None:
    """Writes a package.

    Args:
        exported: files that hold the weights which are not in the bundles.
        bundles: one for each target.
        program: that of all targets.
        output: the file; replaced only when everything succeeded.
    """
    contents = _storages(exported, bundles, program)
    executables = {entry: data for bundle in bundles for entry, data in bundle.executables.items()}
    write_package(output, program, executables, contents)


def _storages(exported: Sequence[Pt2File], bundles: Sequence[TargetBundle], program: ir.Program) -> list[StorageData]:
    """The program's storages with their bytes."""
    contents = {name: content for bundle in bundles for name, content in bundle.storages.items()}
    return [_storage_data(storage.name, contents[storage.name], exported) for storage in program.storages]


def _storage_data(name: str, content: StorageContent, exported: Sequence[Pt2File]) -> StorageData:
    """A storage with its bytes: those in the bundle, or streamed from the file that holds them."""
    data = content.data
    if data is not None:
        return StorageData(name, content.dtype, content.shape, lambda: [data])
    found = next(filter(None, (file.content(content.digest) for file in exported)))
    return StorageData(name, content.dtype, content.shape, found)


def _emit_executable(
    exported: Sequence[Pt2File],  # noqa: ARG001
    bundles: Sequence[TargetBundle],
    program: ir.Program,
    output: Path,
) -> None:
    (data,) = bundles[0].executables.values()
    executable = standalone_executable(read_executable(data), program.targets[0].kernels)
    write_atomically(output, write_executable(executable))


def _emit_text(
    exported: Sequence[Pt2File],  # noqa: ARG001
    bundles: Sequence[TargetBundle],  # noqa: ARG001
    program: ir.Program,
    output: Path,
) -> None:
    write_atomically(output, print_program(program).encode())


def _emit_iree(exported: Sequence[Pt2File], bundles: Sequence[TargetBundle], program: ir.Program, output: Path) -> None:
    (data,) = bundles[0].executables.values()
    write_folder(output, program, read_executable(data), _storages(exported, bundles, program))


EMITTERS: Mapping[Emit, Callable[[Sequence[Pt2File], Sequence[TargetBundle], ir.Program, Path], None]] = {
    "coil": emit_package,
    "cda1": _emit_executable,
    "text": _emit_text,
    "iree": _emit_iree,
}
