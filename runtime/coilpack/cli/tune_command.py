"""`coilpack tune`: measures the candidate kernels of a package on a device, and writes the package with the winners."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from coilpack import runtime
from coilpack.cli.run_command import parse_inputs
from coilpack.cli.terminal import orderly_end, print_table, progress_printer
from coilpack.runtime.tuning.report import KernelChoice, TuningReport

_SIZE = re.compile(r"\s*([^=,]+?)\s*=\s*(-?\d+)\s*")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="What to write.")
@click.option("--device", default="auto", show_default=True, metavar="auto|cuda:N|emulator", help="Where to measure.")
@click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="NAME",
    help="A function to measure; may be repeated (default: all that have candidates).",
)
@click.option("--input", "inputs", multiple=True, metavar="VALUE", help="An input of the one function, in order.")
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N[,NAME=N...]",
    help="Dynamic sizes to measure at, those of a function together; repeat it for several combinations.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write what was measured, as JSON (default: OUTPUT.tuning.json).",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long measuring candidates may take, without loading and checking them.",
)
@click.option("--restart", is_flag=True, help="Ignore what an interrupted run has measured.")
def command(
    file: Path,
    output: Path,
    device: str,
    functions: Sequence[str],
    inputs: Sequence[str],
    sizes: Sequence[str],
    report: Path | None,
    budget: float,
    restart: bool,
) -> None:
    """Measure the candidates of the package FILE, and write it with the fastest ones alone.

    FILE was compiled with --candidates. Each function is called at the sizes given, over inputs that are made up:
    random numbers, and zeros where it takes integers. For one function, --input gives them instead, as in coilpack run.

    A run that was interrupted goes on where it was when the same command is given again.
    """
    if inputs and (sizes or len(functions) > 1):
        raise click.UsageError("--input gives the inputs of one function, and their sizes with them")
    combinations = [_parse_size(text) for text in sizes]
    values = {_only(file, functions): parse_inputs(inputs)} if inputs else {}
    with orderly_end(), progress_printer() as progress, _told_to_resume(output, restart):
        found = runtime.tune(
            file,
            output,
            device,
            functions=list(values) or list(functions) or None,
            inputs=values,
            sizes=combinations,
            report=report,
            budget=budget,
            restart=restart,
            progress=progress,
        )
    _print(output, found)


def _only(file: Path, functions: Sequence[str]) -> str:
    """The function that inputs are for: the one that is named, or `main`, or the only one there is."""
    if functions:
        return functions[0]
    from coilpack.runtime.package import Package

    with contextlib.closing(Package.open(file)) as package:
        names = [signature.name for signature in package.program.signatures]
    if len(names) == 1 or "main" in names:
        return names[0] if len(names) == 1 else "main"
    raise click.UsageError(f"--input: say by --function which one the inputs are for, of {', '.join(names)}")


def _parse_size(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in text.split(","):
        match = _SIZE.fullmatch(item)
        if match is None:
            raise click.UsageError(f"--size {text}: {item.strip()!r} is not of the form NAME=N")
        if match[1] in found:
            raise click.UsageError(f"--size {text}: {match[1]} is there twice; repeat --size for another combination")
        found[match[1]] = int(match[2])
    return found


@contextlib.contextmanager
def _told_to_resume(output: Path, restart: bool) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        again = "the same command without --restart" if restart else "the same command"
        click.echo(f"interrupted: {output} is not written; {again} goes on from here", err=True)
        raise


def _print(output: Path, report: TuningReport) -> None:
    rows = [
        (
            choice.kernel,
            len(choice.candidates),
            f"{choice.candidates[0].time or 0:.5g} -> {choice.winner.time or 0:.5g}",
            _gain(choice.candidates[0].time, choice.winner.time),
            choice.winner.configuration or choice.winner.kernel,
            _out(choice),
        )
        for choice in report.kernels
    ]
    columns = ("kernel", "candidates", report.unit, "gain", "choice", "out of the question")
    shown = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
    print_table(f"Kernels of {report.target} on {report.description}", columns[:shown], [row[:shown] for row in rows])
    calls = [
        (
            item.function,
            ", ".join(f"{name}={size}" for name, size in item.sizes.items()),
            f"{item.before:.5g} -> {item.after:.5g}",
            _gain(item.before, item.after),
        )
        for item in report.functions
    ]
    print_table("Calls", ("function", "sizes", report.unit, "gain"), calls)
    changed = sum(choice.choice != 0 for choice in report.kernels)
    click.echo(f"{output}: {changed} of {len(rows)} kernels replaced by a faster candidate")


def _gain(before: float | None, after: float | None) -> str:
    return f"{(before / after - 1) * 100:+.1f} %" if before and after else ""


def _out(choice: KernelChoice) -> str:
    """How many candidates were refused or wrong; the report says why."""
    wrong = sum(bool(candidate.error) for candidate in choice.candidates)
    return f"{wrong} (see the report)" if wrong else ""
