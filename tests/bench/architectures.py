"""Whole architectures: compiled here, checked on a device against torch in float64, without torch there.

    python tests/bench/architectures.py build FOLDER [--size small] [--target sm_90] [--only vit,bert]
    python tests/bench/architectures.py check FOLDER [--device cuda:0]

`build` writes a package for each architecture, and calls with their results beside it (`.npz`); `check` makes the calls
and, for decoders, generates tokens greedily.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from coilpack import runtime

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "samples" / "decoder"))
from generate import Generator  # noqa: E402


def say(line: str) -> None:
    """Prints a line at once: builds and checks take long."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def build(folder: Path, size: str, target: str, only: list[str]) -> None:
    """Compiles the architectures, each into a package of its own, and stores calls and results."""
    sys.path.insert(0, str(ROOT / "tests" / "compile"))
    from architectures import ARCHITECTURES
    from architectures import build as build_architecture

    folder.mkdir(parents=True, exist_ok=True)
    for name in only or ARCHITECTURES:
        begin = time.perf_counter()
        architecture = build_architecture(name, size)
        package = folder / f"{name}.coil"
        kernels = _compile(architecture.functions, package, target)
        np.savez_compressed(folder / f"{name}.npz", **_arrays(architecture))
        seconds = time.perf_counter() - begin
        say(f"{name}: {kernels} kernels, {package.stat().st_size / 1e6:.1f} MB, {seconds:.0f} s")


def _compile(functions: Any, package: Path, target: str) -> int:
    import torch

    from coilpack.compiler.driver import CompileOptions, compile_package

    with tempfile.TemporaryDirectory() as scratch:
        sources = {}
        for name, (module, inputs) in functions.items():
            sources[name] = Path(scratch, f"{name}.pt2")
            with torch.no_grad():
                torch.export.save(torch.export.export(module.eval(), inputs), sources[name])
        report = compile_package(sources, package, CompileOptions.cached(targets=[target]))
    return len(report.program.targets[0].kernels)


def _arrays(architecture: Any) -> dict[str, np.ndarray]:
    """All that `check` needs, by name: a table of calls in `calls`, arrays as `in_<call>_<n>` and `out_<call>_<n>`."""
    arrays: dict[str, np.ndarray] = {"tolerance": np.array(architecture.tolerance)}
    arrays["calls"] = np.array(json.dumps([(c.function, len(c.inputs), len(c.expected)) for c in architecture.calls]))
    for number, call in enumerate(architecture.calls):
        arrays |= {f"in_{number}_{n}": array for n, array in enumerate(call.inputs)}
        arrays |= {f"out_{number}_{n}": array for n, array in enumerate(call.expected)}
    if architecture.tokens is not None:
        arrays |= {"prompts": architecture.prompts, "tokens": architecture.tokens}
    return arrays


def check(folder: Path, device: str) -> int:
    """Checks every package in a folder; the number of those that are wrong."""
    wrong = 0
    packages = sorted(folder.glob("*.coil"))
    assert packages, f"{folder} holds no package"
    for package in packages:
        begin = time.perf_counter()
        try:
            result = check_package(package, device)
        except (AssertionError, runtime.CoilpackError) as error:
            wrong += 1
            result = f"WRONG: {error}"
        say(f"{package.stem}: {result}, {time.perf_counter() - begin:.1f} s")
    say(f"{len(packages) - wrong} of {len(packages)} are right on {device}")
    return wrong


def check_package(package: Path, device: str) -> str:
    """Makes the stored calls, and generates where there are tokens; what was found, in words."""
    with np.load(package.with_suffix(".npz")) as arrays, runtime.open(package, device=device) as program:
        found = ""
        if "tokens" in arrays:
            expected = arrays["tokens"]
            tokens = Generator(program).generate(arrays["prompts"].tolist(), expected.shape[1])
            assert (tokens == expected).all(), f"{int((tokens != expected).sum())} of {expected.size} tokens differ"
            found = f"{expected.size} tokens equal, "
        error = largest_error(program, arrays)
        assert error <= arrays["tolerance"], f"relative error {error:.2e}, more than {arrays['tolerance']}"
        return f"{found}{len(json.loads(str(arrays['calls'])))} calls, relative error {error:.2e}"


def largest_error(program: runtime.Program, arrays: Any) -> float:
    """The largest error of any result of the stored calls, made in order, relative to the result's norm."""
    errors = []
    for number, (function, inputs, outputs) in enumerate(json.loads(str(arrays["calls"]))):
        results = program(*(arrays[f"in_{number}_{n}"] for n in range(inputs)), function=function)
        results = results if isinstance(results, tuple) else (results,)
        assert len(results) == outputs
        for n, result in enumerate(results):
            expected = arrays[f"out_{number}_{n}"]
            got = result.numpy().astype(np.float64)
            assert got.shape == expected.shape, f"{function}: {got.shape} for {expected.shape}"
            assert np.isfinite(got).all(), f"{function}: call {number} gives values that are not finite"
            errors.append(float(np.linalg.norm(got - expected) / np.linalg.norm(expected)))
    return max(errors)


def main() -> int:
    """Builds or checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("folder", type=Path)
    building.add_argument("--size", choices=("tiny", "small"), default="small")
    building.add_argument("--target", default="sm_90")
    building.add_argument("--only", type=lambda text: text.split(","), default=[])
    checking = commands.add_parser("check")
    checking.add_argument("folder", type=Path)
    checking.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()
    if arguments.command == "build":
        build(arguments.folder, arguments.size, arguments.target, arguments.only)
        return 0
    return min(check(arguments.folder, arguments.device), 1)


if __name__ == "__main__":
    sys.exit(main())
