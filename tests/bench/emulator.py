"""How fast the emulator executes: the sentence encoder, and a pointwise kernel over a million elements.

    python tests/bench/emulator.py --package minilm.coil [--function length_16]

The package takes token numbers and a mask of [1, 16], as those of `tests/bench/minilm.py`. Needs torch for the kernel.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coilpack import runtime
from coilpack.compiler.driver import CompileOptions, compile_package
from coilpack.runtime.devices.emulator.device import emulator

MODEL = """
import torch

class Pointwise(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.gelu(x) * y + x

def make():
    return Pointwise(), (torch.zeros(1 << 20), torch.zeros(1 << 20))
"""


def report(what: str, call: Callable[[], object]) -> None:
    """Prints the time of the second call, and instructions a second (each issued once for all threads of a chunk)."""
    call()
    before, begin = emulator().instructions, time.perf_counter()
    call()
    seconds = time.perf_counter() - begin
    count = emulator().instructions - before
    sys.stdout.write(f"{what}: {seconds:.2f} s, {count} instructions, {count / seconds:,.0f} a second\n")


def main() -> None:
    """Runs both and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, help="a sentence encoder for [1, 16] tokens")
    parser.add_argument("--function", help="which of its functions")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        source, package = Path(folder, "model.py"), Path(folder, "model.coil")
        source.write_text(MODEL)
        compile_package({"main": f"{source}:make"}, package, CompileOptions.cached(image="ptx"))
        x, y = rng.standard_normal((2, 1 << 20), np.float32)
        with runtime.open(package, device="emulator") as program:
            report("gelu(x) * y + x over 1,048,576 elements", lambda: program(x, y).numpy())
    if arguments.package:
        ids, mask = rng.integers(1000, 20000, (1, 16)), np.ones((1, 16), np.int64)
        with runtime.open(arguments.package, device="emulator") as program:
            report(arguments.package.name, lambda: program(ids, mask, function=arguments.function).numpy())


if __name__ == "__main__":
    main()
