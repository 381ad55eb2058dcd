"""What a file holds, as plain data: the content of `coilpack inspect --json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coilpack.cli.describe_module import describe_module
from coilpack.runtime.executable import Executable, Export, read_executable
from coilpack.runtime.files import file_kind, map_file
from coilpack.runtime.loading import check_layout
from coilpack.runtime.package import Package
from coilpack.runtime.program.ir import Argument, Kernel, Signature, SizeSymbol, Target
from coilpack.runtime.program.select import dispatches, launched_kernels
from coilpack.runtime.program.text import print_argument, print_expr, print_guard, print_parameter
from coilpack.runtime.vmfb import read_vmfb

Description = dict[str, Any]


def describe(path: Path, *, weights: bool = False) -> Description:
    """Describes a file after verifying it.

    Args:
        path: the file.
        weights: also read all the weights of a package, and check their sum.

    Returns:
        `kind` (`package`, `executable` or `vmfb`), `executables` and `functions`; of a package also its `globals`, and
        of its functions and kernels what the program says about them; of a module also what `describe_module` gives.
        An export's `export_name` is the name it is looked up by: the stored one or, where the file has none, its
        `kernel_name`; `name_source` says which. `symbol` is what the driver is asked for: `kernel_name`, save in files
        that gave several exports one kernel name.

    Raises:
        InvalidFileError: the file is invalid, or none of these.
        NotFoundError: a package's executable lacks a kernel that its program launches.
    """
    data, file = map_file(path), str(path)
    kind = file_kind(data, file)
    if kind == "executable":
        return {"kind": "executable", "executables": [_executable(read_executable(data, file=file))], "functions": []}
    if kind == "vmfb":
        module = read_vmfb(data, file=file)
        return {
            "kind": "vmfb",
            **describe_module(module),
            "executables": [_executable(executable) for executable in module.executables],
        }
    with Package.open(path) as package:
        if weights:
            package.verify()
        return _package(package, file)


def _package(package: Package, file: str) -> Description:
    program = package.program
    executables = []
    for target in program.targets:
        for image in target.images:
            executable = read_executable(package.image(image.entry), file=f"{file}: {image.entry}")
            _check_kernels(target, executable)
            described = _executable(executable, target=target.name, entry=image.entry)
            kernels = _kernels(target)
            for export in described["exports"]:
                export |= kernels.get(export["export_name"], {})
            executables.append(described)
    return {
        "kind": "package",
        "producer": program.producer,
        "executables": executables,
        "functions": [_function(signature) for signature in program.signatures],
        "globals": [
            {"name": g.name, "bytes": g.nbytes, "initial": g.initial.name if g.initial else None}
            for g in program.globals
        ],
        "weights": {"storages": len(program.storages), "bytes": sum(storage.nbytes for storage in program.storages)},
    }


@dataclass(frozen=True)
class _KernelInImage:
    """A kernel as its image describes it; stands for one that a device has loaded."""

    name: str
    parameter_layout: tuple[tuple[int, int], ...]
    max_threads_per_block: int = 1024


def _check_kernels(target: Target, executable: Executable) -> None:
    """Checks what loading would check: the executable has every kernel of the program, with its parameters."""
    for kernel in target.kernels:
        export = executable.lookup(kernel.export_name)
        parameters = executable.images[export.module_ordinal].entries[export.symbol]
        layout = tuple((parameter.offset, parameter.size) for parameter in parameters)
        check_layout(kernel, _KernelInImage(export.symbol, layout), executable.file)


def _executable(executable: Executable, **more: str) -> Description:
    return {
        "target": executable.target,
        "image": executable.image_kind,
        "bytes": sum(len(module) for module in executable.modules),
        **more,
        "exports": [_export(export) for export in executable.exports],
    }


def _export(export: Export) -> Description:
    return {
        "ordinal": export.ordinal,
        "export_name": export.name,
        "kernel_name": export.kernel_name,
        "name_source": export.name_source,
        "symbol": export.symbol,
        "block_dims": list(export.block_dims),
        "shared_memory_bytes": export.shared_memory_bytes,
        "constant_count": export.constant_count,
        "binding_count": export.binding_count,
    }


def _kernels(target: Target) -> dict[str, Description]:
    """What the program says of its kernels, by export name.

    `candidates` is how many others a dispatch of it may launch instead, at most; `candidate_for` names the kernels
    whose place it may take, and is empty for a kernel that is launched as it is.
    """
    launched = {kernel.export_name for kernel in launched_kernels(target)}
    described = {k.export_name: {**_kernel(k), "candidates": 0, "candidate_for": []} for k in target.kernels}
    for dispatch in dispatches(target):
        first = dispatch.kernel.export_name
        described[first]["candidates"] = max(described[first]["candidates"], len(dispatch.alternatives))
        for alternative in dispatch.alternatives:
            name = alternative.kernel.export_name
            if name not in launched and first not in described[name]["candidate_for"]:
                described[name]["candidate_for"].append(first)
    return described


def _kernel(kernel: Kernel) -> Description:
    grid = None if kernel.grid is None else [print_expr(size) for size in kernel.grid]
    return {
        "parameters": [print_parameter(parameter) for parameter in kernel.parameters],
        "cooperative": kernel.cooperative,
        "grid": grid,
        "source": kernel.source,
        "configuration": kernel.configuration,
    }


def _function(signature: Signature) -> Description:
    return {
        "name": signature.name,
        "inputs": _arguments(signature.inputs),
        "outputs": _arguments(signature.outputs),
        "symbols": [_symbol(symbol) for symbol in signature.symbols],
        "guards": [print_guard(guard) for guard in signature.guards],
        "random": signature.random,
    }


def _symbol(symbol: SizeSymbol) -> Description:
    return {
        "name": symbol.name,
        "input": symbol.input,
        "dim": symbol.dim,
        "minimum": symbol.minimum,
        "maximum": symbol.maximum,
    }


def _arguments(arguments: Sequence[Argument]) -> list[dict[str, str]]:
    return [{"name": argument.name, "type": print_argument(argument)} for argument in arguments]
