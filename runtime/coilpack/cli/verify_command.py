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
    kernels = ", ".join(f"{count} for {target}" for target, count in _kernel_counts(description).items())
    click.echo(f"{file}: valid {description['kind']}; kernels: {kernels or 'none'}")


def _kernel_counts(description: Description) -> dict[str, int]:
    """How many kernels each target has; one that is there as PTX and as cubin counts once."""
    by_image: Counter[tuple[str, str]] = Counter()
    for executable in description["executables"]:
        by_image[executable["target"], executable["image"]] += len(executable["exports"])
    counts: dict[str, int] = {}
    for (target, _), count in by_image.items():
        counts[target] = max(count, counts.get(target, 0))
    return counts
