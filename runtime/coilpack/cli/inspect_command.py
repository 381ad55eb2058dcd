"""`coilpack inspect`: what a file holds, for people or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from coilpack.cli.terminal import print_table
from coilpack.runtime.errors import InputError
from coilpack.runtime.executable import Executable, Export, is_executable, map_file, read_executable
from coilpack.runtime.package import Package
from coilpack.runtime.program.ir import Argument, Image, Signature
from coilpack.runtime.program.text import print_program, print_type
from coilpack.runtime.vmfb import VmFunction, is_vmfb, read_vmfb

Description = dict[str, Any]

# `%name: type` in the declaration of a VM function, as `sync func @f(%input0: tensor<4xf32>) -> (%output0: ...)`.
_DECLARED = re.compile(r"%([\w$.-]+): ((?:[^,()<>]|<[^<>]*>)+)")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--text", "as_text", is_flag=True, help="Print a package's program in its text form.")
def command(file: Path, as_json: bool, as_text: bool) -> None:
    """Show what FILE holds: its kernels, and its functions.

    FILE is a package (.coil), an executable (.cda1) or an IREE module (.vmfb); its content decides, not its name. All
    of it is verified first.
    """
    if as_json and as_text:
        raise click.UsageError("--json and --text exclude each other")
    if as_text:
        click.echo(_program_text(file), nl=False)
        return
    description = describe(file)
    if as_json:
        click.echo(json.dumps(description, indent=2, ensure_ascii=False))
    else:
        _print(file, description)


def describe(path: Path) -> Description:
    """Describes a file as `inspect --json` prints it.

    Returns:
        `kind` (`package`, `executable` or `vmfb`), `executables` and `functions`. An export's `export_name` is the
        name it is looked up by: the stored one or, where the file has none, its `kernel_name`; `name_source` says
        which. `symbol` is what the driver is asked for: `kernel_name`, save in files that gave several exports one
        kernel name.

    Raises:
        InvalidFileError: the file is invalid, or none of these.
    """
    data, file = map_file(path), str(path)
    if is_executable(data):
        executable = read_executable(data, file=file)
        return {"kind": "executable", "executables": [_executable(executable)], "functions": []}
    if is_vmfb(data):
        module = read_vmfb(data, file=file)
        functions = [_vm_function(f) for f in module.functions if not f.name.startswith("__")]
        executables = [_executable(executable) for executable in module.executables]
        return {"kind": "vmfb", "executables": executables, "functions": functions, "module": module.module_name}
    with Package.open(path) as package:
        return _package(package)


def _program_text(path: Path) -> str:
    data = map_file(path)
    if is_executable(data) or is_vmfb(data):
        raise InputError(f"{path}: only packages hold a program that has a text form")
    with Package.open(path) as package:
        return print_program(package.program)


def _package(package: Package) -> Description:
    program = package.program
    executables = [
        _executable(package.executable(image), target=target.name, image=image)
        for target in program.targets
        for image in target.images
    ]
    weights = {"storages": len(program.storages), "bytes": sum(storage.nbytes for storage in program.storages)}
    return {
        "kind": "package",
        "producer": program.producer,
        "executables": executables,
        "functions": [_function(signature) for signature in program.signatures],
        "weights": weights,
    }


def _executable(executable: Executable, target: str | None = None, image: Image | None = None) -> Description:
    found: Description = {"target": target or executable.target, "image": executable.image_kind}
    if image is not None:
        found["entry"] = image.entry
    found["bytes"] = sum(len(module) for module in executable.modules)
    found["exports"] = [_export(export) for export in executable.exports]
    return found


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


def _function(signature: Signature) -> Description:
    return {
        "name": signature.name,
        "inputs": _arguments(signature.inputs),
        "outputs": _arguments(signature.outputs),
    }


def _arguments(arguments: Sequence[Argument]) -> list[dict[str, str]]:
    return [{"name": argument.name, "type": print_type(argument.type)} for argument in arguments]


def _vm_function(function: VmFunction) -> Description:
    inputs, _, outputs = function.declaration.partition(" -> ")
    return {"name": function.name, "inputs": _declared(inputs), "outputs": _declared(outputs)}


def _declared(text: str) -> list[dict[str, str]]:
    return [{"name": name, "type": type_.strip()} for name, type_ in _DECLARED.findall(text)]


# --- for people ---


def _print(path: Path, description: Description) -> None:
    click.echo(f"{path}: {description['kind']}")
    if "producer" in description:
        weights = description["weights"]
        click.echo(f"  producer {description['producer']}; {weights['storages']} weights, {weights['bytes']} bytes")
    if description["functions"]:
        rows = [(f["name"], _signature(f["inputs"]), _signature(f["outputs"])) for f in description["functions"]]
        print_table("Functions", ("name", "inputs", "outputs"), rows)
    for executable in description["executables"]:
        title = f"Kernels for {executable['target']} ({executable['image']}, {executable['bytes']} bytes)"
        print_table(title, ("#", "name", "symbol", "block", "shared", "bindings", "constants"), _rows(executable))
    sources = [export["name_source"] for executable in description["executables"] for export in executable["exports"]]
    if fallbacks := sources.count("kernel_name"):
        click.echo(f"{fallbacks} of {len(sources)} kernels have no export_name in the file: kernel_name stands for it")


def _signature(arguments: Iterable[dict[str, str]]) -> str:
    return ", ".join(f"{a['name']}: {a['type']}" if a["name"] else a["type"] for a in arguments)


def _rows(executable: Description) -> list[tuple[object, ...]]:
    return [
        (
            export["ordinal"],
            export["export_name"],
            "same" if export["symbol"] == export["export_name"] else export["symbol"],
            "x".join(str(size) for size in export["block_dims"]),
            export["shared_memory_bytes"],
            export["binding_count"],
            export["constant_count"],
        )
        for export in executable["exports"]
    ]
