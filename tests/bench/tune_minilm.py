"""Tunes a package, and compares calls of it untuned, tuned, and frozen from Inductor's own tuning, in one run.

    python tests/bench/tune_minilm.py --package minilm.coil [--frozen frozen.coil] [--size s0=16] [--json out.json]

`minilm.coil` is `samples/minilm` compiled with `--candidates 8`; the frozen package has functions of the same names.
Needs a GPU to mean anything. Ends with an error where tuning takes longer, or its result is slower, than it must.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from coilpack import runtime
from coilpack.runtime.devices.base import Device
from coilpack.runtime.program.expr import evaluate

S = 1  # the default stream
SECONDS = 120  # that tuning may take
SLOWER = 1.01  # than untuned: what a median of one run may be off
BEHIND = 1.05  # the frozen package
ROUNDS, WARM_UP = 300, 20


def arguments_of(program: runtime.Program, function: str, sizes: Mapping[str, int], device: Device) -> list[object]:
    """Zeros, which any model takes, and the sizes where it takes integers."""
    return [
        runtime.to_device(np.zeros([evaluate(e, sizes) for e in a.type.shape], a.type.dtype.numpy), device)
        if a.value is None
        else evaluate(a.value, sizes)
        for a in program.signature(function).inputs
    ]


def compare(device: Device, calls: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Median microseconds of each call, in turn: until the host has waited for it, and on the device alone."""
    watch = device.stopwatch(S)
    host: dict[str, list[float]] = {name: [] for name in calls}
    alone: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + WARM_UP):
        for name, call in calls.items():
            device.synchronize(S)
            begin = time.perf_counter()
            call()
            device.synchronize(S)
            taken = (time.perf_counter() - begin) * 1e6
            with device.activate():
                watch.flush()  # keeps the device busy while the next two calls are queued
                call()
                watch.start()
                call()
                watch.stop()
            (on_device,) = watch.read()
            if turn >= WARM_UP:
                host[name].append(taken)
                alone[name].append(on_device)
    watch.close()
    return {name: {"call": statistics.median(host[name]), watch.unit: statistics.median(alone[name])} for name in calls}


def measure(
    device: Device, packages: Mapping[str, Path], function: str, sizes: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Compares one function of packages that are open at once."""
    opened = {name: runtime.open(path, device) for name, path in packages.items()}
    calls: dict[str, Callable[[], object]] = {}
    for name, program in opened.items():
        if function in program.functions:
            given = arguments_of(program, function, sizes, device)
            seed = {"seed": 0} if program.signature(function).random else {}
            calls[name] = lambda program=program, given=given, seed=seed: program(*given, function=function, **seed)
    found = compare(device, calls)
    for program in opened.values():
        program.close()
    return found


def failures(seconds: float, found: Mapping[str, Mapping[str, Mapping[str, float]]], unit: str) -> list[str]:
    """What is not as it must be."""
    wrong = [f"tuning took {seconds:.0f} s, more than {SECONDS} s"] if seconds > SECONDS else []
    for call, by_package in found.items():
        times = {name: figures[unit] for name, figures in by_package.items()}
        if times["tuned"] > SLOWER * times["untuned"]:
            wrong.append(f"{call}: tuned takes {times['tuned']:.1f} {unit}, untuned {times['untuned']:.1f}")
        if "frozen" in times and times["tuned"] > BEHIND * times["frozen"]:
            wrong.append(f"{call}: tuned takes {times['tuned']:.1f} {unit}, frozen {times['frozen']:.1f}")
    return wrong


def main() -> None:
    """Tunes, compares, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, required=True, help="with candidates")
    parser.add_argument("--frozen", type=Path, help="of the same functions")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N[,NAME=N...]")
    parser.add_argument("--output", type=Path, help="where to keep the tuned package and its report")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = [
        {name: int(size) for name, size in (item.split("=") for item in text.split(","))} for text in arguments.size
    ]
    device = runtime.resolve_device(arguments.device)
    with tempfile.TemporaryDirectory() as folder:
        output = arguments.output or Path(folder, "tuned.coil")
        begin = time.perf_counter()
        report = runtime.tune(arguments.package, output, device, sizes=sizes, restart=True)
        seconds = time.perf_counter() - begin
        packages = {"untuned": arguments.package, "tuned": output}
        packages |= {"frozen": arguments.frozen} if arguments.frozen else {}
        found = {
            " ".join([item.function, *(f"{k}={v}" for k, v in item.sizes.items())]): measure(
                device, packages, item.function, item.sizes
            )
            for item in report.functions
        }
    candidates = sum(len(choice.candidates) for choice in report.kernels)
    changed = sum(choice.choice != 0 for choice in report.kernels)
    sys.stdout.write(
        f"{report.description}: {len(report.kernels)} kernels, {candidates} candidates, {seconds:.1f} s; "
        f"{changed} kernels replaced\n"
    )
    for call, by_package in found.items():
        for name, figures in by_package.items():
            line = ", ".join(f"{what} {value:.1f}" for what, value in figures.items())
            sys.stdout.write(f"{call}: {name}: {line}\n")
    if arguments.json:
        document = {"seconds": seconds, "report": json.loads(report.to_json()), "calls": found}
        arguments.json.write_text(json.dumps(document, indent=1))
    if wrong := failures(seconds, found, report.unit):
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
