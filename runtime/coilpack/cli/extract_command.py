"""`coilpack extract`: the executables in a file and the code in them, as files of their own."""

from __future__ import annotations

from pathlib import Path

import click

from coilpack.cli.terminal import printable
from coilpack.runtime.extract import extract, write_parts


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-o", "--output", "folder", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to fill."
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
def command(file: Path, folder: Path, force: bool) -> None:
    """Write the executables in FILE, and the PTX or machine code in them, as files.

    FILE is a package (.coil), an executable (.cda1) or an IREE module (.vmfb). Each executable becomes a .cda1 file
    that today's readers take, each image in it a .ptx or .cubin file. A package also gives its program as text, and a
    list of its weights. Nothing is written if a file with other content is there.
    """
    parts = extract(file)
    for path, part in zip(write_parts(parts, folder, force=force), parts, strict=True):
        note = f"; {part.note}" if part.note else ""
        click.echo(f"{printable(str(path))}: {len(part.content)} bytes{note}")
