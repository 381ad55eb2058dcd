"""Prints what only IREE modules have, for `coilpack inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from coilpack.cli.terminal import print_table, printable


def print_module_head(description: dict[str, Any]) -> None:
    """Prints what a module is called and what it needs, ahead of its functions."""
    needs = [_dependency(dependency) for dependency in description["dependencies"]]
    version, bytecode = description["version"], description["bytecode_version"]
    _line(f"module {description['module']}, version {version}, bytecode {bytecode}; needs {_list(needs)}")
    _line(f"for devices: {_list(description['devices'])}; executable formats: {_list(description['formats'])}")


def print_module_rest(description: dict[str, Any]) -> None:
    """Prints a module's executables that are not for CUDA, its parameters, other data and imports."""
    if description["other_executables"]:
        rows = [
            (other["format"], other["bytes"], other["segment"], _exports(other["exports"]))
            for other in description["other_executables"]
        ]
        print_table("Executables for other devices", ("format", "bytes", "segment", "exports"), rows)
    parameters = description["parameters"]
    if parameters["keys"]:
        title = f"Parameters (scopes: {_list(parameters['scopes'])})"
        print_table(printable(title), ("key",), [(key,) for key in parameters["keys"]])
    if description["imports"]:
        imports = [(imported["name"], "no" if imported["optional"] else "yes") for imported in description["imports"]]
        print_table("Imports", ("name", "required"), imports)
    other = [segment for segment in description["rodata"] if segment["kind"] != "executable"]
    click.echo(f"{len(other)} segments of other read-only data, {sum(segment['bytes'] for segment in other)} bytes")


def _dependency(dependency: dict[str, Any]) -> str:
    optional = " (optional)" if dependency["optional"] else ""
    return f"{dependency['name']} >= {dependency['minimum_version']}{optional}"


def _exports(names: Sequence[str] | None) -> str:
    return "unknown" if names is None else _list(names)


def _list(items: Sequence[str]) -> str:
    return ", ".join(items) or "none"


def _line(text: str) -> None:
    click.echo(f"  {printable(text)}")
