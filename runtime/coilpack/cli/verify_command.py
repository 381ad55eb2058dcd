"""`coilpack verify`: reads every part of a file and says whether it is sound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from coilpack.cli.describe import Description, describe


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def command(file: Path) -> None:
    """Check every part of FILE: a package (.coil), an executable (.cda1) or an IREE module (.vmfb).

    Exits with 0 and one line if it is sound, else with 1 and what is wrong.
    """
    description = describe(file, weights=True)
    counts = _kernel_counts(description)
    candidates = _kernel_counts(description, candidates=True)
    kernels = ", ".join(
        f"{count} for {target}" + (f" (and {candidates[target]} candidates)" if candidates[target] else "")
        for target, count in counts.items()
    )
    click.echo(f"{file}: valid {description['kind']}; kernels: {kernels or 'none'}")


def _kernel_counts(description: Description, *, candidates: bool = False) -> dict[str, int]:
    """How many kernels, or candidates in their place, each target has; PTX and cubin of one count once."""
    by_image: Counter[tuple[str, str]] = Counter()
    for executable in description["executables"]:
        counted = [bool(export.get("candidate_for")) is candidates for export in executable["exports"]]
        by_image[executable["target"], executable["image"]] += sum(counted)
    counts: dict[str, int] = {}
    for (target, _), count in by_image.items():
        counts[target] = max(count, counts.get(target, 0))
    return counts
