"""`coilpack verify`: reads every part of a file and says whether it is sound."""

from __future__ import annotations

from pathlib import Path

import click

from coilpack.cli.inspect_command import describe


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def command(file: Path) -> None:
    """Check every part of FILE: a package (.coil), an executable (.cda1) or an IREE module (.vmfb).

    Exits with 0 and one line if it is sound, else with 1 and what is wrong.
    """
    description = describe(file)
    executables = description["executables"]
    kernels = sum(len(executable["exports"]) for executable in executables)
    targets = ", ".join(dict.fromkeys(executable["target"] for executable in executables)) or "none"
    functions = len(description["functions"])
    click.echo(f"{file}: valid {description['kind']}: {kernels} kernels ({targets}), {functions} functions")
