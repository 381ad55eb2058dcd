"""`coilpack run`: calls a function of a package with inputs from the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from coilpack import runtime
from coilpack.runtime.devices.base import Device
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.values import Array, format_type, format_value, parse_value

_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0|[1-9]\d*)")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--function", "name", metavar="NAME", help="The function to call; not needed where there is only one.")
@click.option("--device", default="auto", show_default=True, metavar="auto|cuda:N|emulator", help="Where to run.")
@click.option("--input", "inputs", multiple=True, metavar="VALUE", help="An input, in order; may be repeated.")
@click.option("--seed", type=int, metavar="N", help="The seed of a function that draws random numbers.")
@click.option("--output", "outputs", multiple=True, metavar="PATH", help="Where to write a result, in order.")
@click.option(
    "--check", "checks", multiple=True, type=click.Choice(["races"]), help="What the emulator checks besides the usual."
)
def command(
    file: Path,
    name: str | None,
    device: str,
    inputs: Sequence[str],
    seed: int | None,
    outputs: Sequence[str],
    checks: Sequence[str],
) -> None:
    """Run a function of the package FILE and print its results.

    An input is `4xf32=1,2,3,4`, `2x2xi32=[1 2][3 4]`, `f32=1`, one element for all (`4xf32=0`), a numpy file `@x.npy`,
    or raw bytes `4xf32=@x.bin`; where the function takes an integer, it is a plain number, `5`. Results are printed in
    the same notation; an output path ending in .npy is written as a numpy file, any other as raw bytes.
    """
    values = parse_inputs(inputs)
    with runtime.open(file, device=_device(device, checks)) as program:
        signature = program.signature(name)
        if len(outputs) > len(signature.outputs):
            raise InputError(
                f"there are {len(outputs)} --output paths, but {signature.name} has {len(signature.outputs)} results"
            )
        returned = program(*values, function=signature.name, seed=seed)
        results = [
            np.int64(result) if isinstance(result, int) else result.numpy()
            for result in (returned if isinstance(returned, tuple) else (returned,))
        ]
    click.echo(f"EXEC @{signature.name}")
    for index, result in enumerate(results):
        if index < len(outputs):
            shown = _write(Path(outputs[index].removeprefix("@")), np.asarray(result))
        else:
            kind = "hal.buffer_view\n" if isinstance(result, np.ndarray) else ""
            shown = f"{kind}{format_value(np.asarray(result))}"
        click.echo(f"result[{index}]: {shown}")


def _device(name: str, checks: Sequence[str]) -> Device:
    device = runtime.resolve_device(name)
    if not checks:
        return device
    if device.name != "emulator":
        raise InputError(f"--check {checks[0]}: only the emulator checks that; add --device emulator")
    from coilpack.runtime.devices.emulator.device import Emulator  # its PTX parser waits until it is needed
    from coilpack.runtime.devices.emulator.frame import Checks

    return Emulator(checks=Checks(races="races" in checks))


def parse_inputs(texts: Sequence[str]) -> list[Array | int]:
    """The values of `--input` options, in order.

    Raises:
        InputError: one is not in the notation, or its file cannot be read or does not fit.
    """
    return [_parse_input(index, text) for index, text in enumerate(texts)]


def _parse_input(index: int, text: str) -> Array | int:
    if _INTEGER.fullmatch(text.strip()):  # IREE's notation for a scalar that is no array
        return int(text, 0)
    try:
        return parse_value(text)
    except InputError as error:
        raise InputError(f"--input {index}: {error}") from error
    except OSError as error:
        raise InputError(f"--input {index}: {error.filename}: {error.strerror}") from error


def _write(path: Path, result: Array) -> str:
    """Writes a result; returns what was written where."""
    if path.suffix == ".npy":
        np.save(path, result)
    else:
        path.write_bytes(result.tobytes())
    return f"{format_type(DType.from_numpy(result.dtype), result.shape)} written to {path}"
