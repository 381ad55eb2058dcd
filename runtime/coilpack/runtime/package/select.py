"""Writes a package anew in which one target has chosen among the candidates of its dispatches."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from coilpack.runtime.executable import Executable, Export, read_executable, write_executable
from coilpack.runtime.package import layout
from coilpack.runtime.package.reader import Package
from coilpack.runtime.package.writer import write_entries, write_file
from coilpack.runtime.program.encode import encode_program
from coilpack.runtime.program.select import select

_PIECE = 1 << 24  # bytes copied at a time, so that other threads and signals get their turn


def select_candidates(package: Package, path: str | os.PathLike[str], target: str, choices: Mapping[str, str]) -> None:
    """Writes the package that `coilpack.runtime.program.select.select` makes of a package's program.

    The executables of the target lose the kernels that nothing launches any more. All else is copied as it is, weights
    piece by piece; where they lie beside the package, they are copied beside the new one. The file is the one that
    `write_package` writes of the selected program, if it wrote the package.

    Args:
        package: an open package.
        path: the file, which is written whole or not at all, and replaced if it exists.
        target: the name of the target, as `sm_80`.
        choices: the export name of a kernel that dispatches launch, and that of the candidate to launch in its place.

    Raises:
        NotFoundError: there is no such target, kernel or candidate.
        InvalidFileError: the package's weights or an executable are damaged.
        InputError: the file cannot be written.
    """
    package.verify()  # what is copied gets a sum that is right, whatever it is
    program = select(package.program, target, choices)
    before, after = (next(t for t in p.targets if t.name == target) for p in (package.program, program))
    kept = {kernel.export_name for kernel in after.kernels}
    gone = [kernel.export_name for kernel in before.kernels if kernel.export_name not in kept]
    entries = package.entries()
    entries[layout.PROGRAM_ENTRY] = memoryview(encode_program(program))
    for image in before.images if gone else ():
        executable = read_executable(entries[image.entry], file=f"{package.path}: {image.entry}")
        entries[image.entry] = memoryview(write_executable(_without(executable, gone)))
    if package.weights and layout.WEIGHTS_ENTRY not in entries:
        _copy_beside(package, Path(path))
    write_entries(path, {name: (content.nbytes, _pieces(content)) for name, content in entries.items()})


def _without(executable: Executable, names: Collection[str]) -> Executable:
    """The executable without some kernels and the modules that held nothing else; the others keep their order."""
    gone = {executable.lookup(name).ordinal for name in names}
    modules: dict[int, int] = {}
    exports: list[Export] = []
    for export in executable.exports:
        if export.ordinal not in gone:
            module = modules.setdefault(export.module_ordinal, len(modules))
            exports.append(replace(export, ordinal=len(exports), module_ordinal=module))
    return replace(
        executable,
        modules=tuple(executable.modules[old] for old in modules),
        images=tuple(executable.images[old] for old in modules),
        exports=tuple(exports),
    )


def _copy_beside(package: Package, path: Path) -> None:
    """Copies a weights file that lies beside the package to where the new package looks for it, unless it is there."""
    source, target = (file.with_suffix(layout.WEIGHTS_SUFFIX) for file in (package.path, path))
    with suppress(FileNotFoundError):
        if source.samefile(target):
            return
    write_file(target, _pieces(package.weights))


def _pieces(content: memoryview) -> Iterator[memoryview]:
    for start in range(0, content.nbytes, _PIECE):
        yield content[start : start + _PIECE]
