"""`coilpack freeze`: compiles and tunes a model with Inductor on this machine's GPU, into a package of what won."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coilpack.cli.sources import function_sources, require_compiler
from coilpack.cli.terminal import orderly_end, progress_printer

if TYPE_CHECKING:
    from coilpack.compiler.emit import ImageChoice
    from coilpack.compiler.freezing.freeze import FreezeReport
    from coilpack.compiler.freezing.settings import Mode

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("source", metavar="[IN]", required=False)
@click.option("--function", "functions", multiple=True, metavar="NAME=IN", help="A function; may be repeated.")
@click.option("-o", "--output", required=True, type=_FILE, help="The package to write.")
@click.option(
    "--mode",
    type=click.Choice(["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]),
    default="max-autotune",
    show_default=True,
    help="How much Inductor tunes, as torch.compile names it.",
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="A setting of torch._inductor.config.")
@click.option("--device", default="cuda:0", show_default=True, metavar="cuda:0", help="Where to compile and measure.")
@click.option(
    "--image",
    type=click.Choice(["ptx", "cubin", "both"]),
    default="both",
    show_default=True,
    help="Kernels as PTX, machine code, or both.",
)
@click.option("--tf32", is_flag=True, help="Multiply float32 matrices in TF32 instead of IEEE float32.")
@click.option("--cache-artifact", type=_FILE, help="Take graphs and choices from this file of torch's; see below.")
@click.option("--save-cache-artifact", type=_FILE, help="Write such a file of this run.")
@click.option(
    "--save-bundle",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write generated modules and kernel bundles into this folder.",
)
def command(
    source: str | None,
    functions: Sequence[str],
    output: Path,
    mode: Mode,
    options: Sequence[str],
    device: str,
    image: ImageChoice,
    tf32: bool,
    cache_artifact: Path | None,
    save_cache_artifact: Path | None,
    save_bundle: Path | None,
) -> None:
    """Tune IN with Inductor on this machine's GPU, and write what won as a package.

    IN is a .pt2 file that torch.export.save wrote, or module.py:callable, as for coilpack compile. Kernels are tuned
    for the example inputs of the export.

    What Inductor has compiled before comes from its cache. --cache-artifact takes a file that --save-cache-artifact, or
    torch.compiler.save_cache_artifacts, wrote on a machine with the same GPU and torch. Torch unpickles it: use only
    files that you trust.
    """
    sources = function_sources(source, functions)
    settings = dict(_parse_option(text) for text in options)
    require_compiler()
    from coilpack.compiler.freezing.freeze import freeze

    with orderly_end(), progress_printer() as progress:
        report = freeze(
            sources,
            mode=mode,
            output=output,
            options=settings,
            device=device,
            image=image,
            float32_matmul_precision="high" if tf32 else "highest",
            cache_artifact=cache_artifact,
            save_cache_artifact=save_cache_artifact,
            save_bundle=save_bundle,
            progress=progress,
        )
    _print(report)


def _parse_option(text: str) -> tuple[str, object]:
    """A setting; what is no literal of Python is a string."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise click.UsageError(f"--option {text}: it is not of the form NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _print(report: FreezeReport) -> None:
    targets = ", ".join(target.name for target in report.program.targets)
    kernels = sum(len(target.kernels) for target in report.program.targets)
    click.echo(f"{report.output}: {report.nbytes} bytes, {kernels} kernels for {targets}")
    click.echo(f"  {report.bound} kernels of generated modules bound, {len(report.ignored)} entries ignored")
    if report.cached:
        click.echo(f"  from Inductor's cache: {', '.join(report.cached)}")
    for name in report.reassembled:
        click.echo(f"  assembled otherwise than it was measured: {name}")
