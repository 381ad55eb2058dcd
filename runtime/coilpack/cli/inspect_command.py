"""`coilpack inspect`: what a file holds, for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from coilpack.cli.describe import Description, describe
from coilpack.cli.print_module import print_module_head, print_module_rest
from coilpack.cli.terminal import print_table
from coilpack.runtime.errors import InputError
from coilpack.runtime.files import file_kind, map_file
from coilpack.runtime.package import Package
from coilpack.runtime.program.text import print_program


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--text", "as_text", is_flag=True, help="Print a package's program in its text form.")
def command(file: Path, as_json: bool, as_text: bool) -> None:
    """Show what FILE holds: its kernels, and its functions.

    FILE is a package (.coil), an executable (.cda1) or an IREE module (.vmfb); its content decides, not its name. All
    of it but the bytes of weights is verified first.
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


def _program_text(path: Path) -> str:
    if file_kind(map_file(path), str(path)) != "package":
        raise InputError(f"{path}: only packages hold a program that has a text form")
    with Package.open(path) as package:
        return print_program(package.program)


def _print(path: Path, description: Description) -> None:
    click.echo(f"{path}: {description['kind']}")
    if "producer" in description:
        weights = description["weights"]
        click.echo(f"  producer {description['producer']}; {weights['storages']} weights, {weights['bytes']} bytes")
    if description["kind"] == "vmfb":
        print_module_head(description)
    if description["functions"]:
        rows = [(f["name"], _signature(f["inputs"]), _signature(f["outputs"])) for f in description["functions"]]
        print_table("Functions", ("name", "inputs", "outputs"), rows)
    if conditions := [(f["name"], text) for f in description["functions"] for text in _conditions(f)]:
        print_table("Conditions of a call", ("function", "what must hold"), conditions)
    if description.get("globals"):
        rows = [(g["name"], g["bytes"], g["initial"] or "zeros") for g in description["globals"]]
        print_table("Globals", ("name", "bytes", "starts as"), rows)
    # PTX and machine code of one target hold the same kernels: one table serves both.
    tables: dict[tuple[str, tuple[tuple[object, ...], ...]], list[str]] = {}
    for executable in description["executables"]:
        images = tables.setdefault((executable["target"], tuple(_rows(executable))), [])
        images.append(f"{executable['image']}, {executable['bytes']} bytes")
    for (target, kernels), images in tables.items():
        title = f"Kernels for {target} ({'; '.join(images)})"
        shown = [i for i, column in enumerate(_COLUMNS) if column not in _OPTIONAL or any(row[i] for row in kernels)]
        print_table(title, [_COLUMNS[i] for i in shown], [[row[i] for i in shown] for row in kernels])
    if description["kind"] == "vmfb":
        print_module_rest(description)
    sources = [export["name_source"] for executable in description["executables"] for export in executable["exports"]]
    if fallbacks := sources.count("kernel_name"):
        click.echo(f"{fallbacks} of {len(sources)} kernels have no export_name in the file: kernel_name stands for it")


def _conditions(function: Description) -> Iterator[str]:
    """What a call must keep to, besides the types: sizes in their ranges, guards, and a seed."""
    for symbol in function.get("symbols", ()):
        argument = function["inputs"][symbol["input"]]["name"] or f"argument {symbol['input']}"
        place = f"the value of {argument}" if symbol["dim"] is None else f"dimension {symbol['dim']} of {argument}"
        bounds = f"{symbol['minimum']} to {symbol['maximum']}"
        yield f"{symbol['name']}, in {place}, is {bounds}"
    yield from function.get("guards", ())
    if function.get("random"):
        yield "it draws random numbers: a seed is given"


def _launch(export: Description) -> str:
    """How the program says that a kernel is launched by itself, if it does."""
    words = ["cooperative"] if export.get("cooperative") else []
    if export.get("grid"):
        words.append(f"grid {', '.join(export['grid'])}")
    return "; ".join(words)


def _signature(arguments: Iterable[dict[str, str]]) -> str:
    return ", ".join(f"{a['name']}: {a['type']}" if a["name"] else a["type"] for a in arguments)


def _candidates(export: Description, ordinals: dict[str, int]) -> str:
    """How many candidates a kernel has, or for which kernels it is one."""
    if export.get("candidate_for"):
        return f"for {', '.join(f'#{ordinals[name]}' for name in export['candidate_for'])}"
    return str(export.get("candidates") or "")


_COLUMNS = (
    "#",
    "name",
    "symbol",
    "block",
    "shared",
    "bindings",
    "constants",
    "launch",
    "configuration",
    "candidates",
)
_OPTIONAL = ("launch", "configuration", "candidates")  # left out where no kernel has any


def _rows(executable: Description) -> list[tuple[object, ...]]:
    """A row of `_COLUMNS` for each kernel."""
    ordinals = {export["export_name"]: export["ordinal"] for export in executable["exports"]}
    return [
        (
            export["ordinal"],
            export["export_name"],
            "same" if export["symbol"] == export["export_name"] else export["symbol"],
            "x".join(str(size) for size in export["block_dims"]),
            export["shared_memory_bytes"],
            export["binding_count"],
            export["constant_count"],
            _launch(export),
            export.get("configuration", ""),
            _candidates(export, ordinals),
        )
        for export in executable["exports"]
    ]
