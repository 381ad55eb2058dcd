"""Calls step by step and as graphs: time of a call, time to build a graph, device memory of one.

    python tests/bench/graphs.py [--package model.coil] [--device cuda:0] [--json out.json]

Measures chains of small kernels, and each function of a package where one is given, over arrays of zeros. Needs a GPU
to mean anything; memory is what the driver reports as free, so nothing else may use the device meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from coilpack import runtime
from coilpack.runtime.context import Context
from coilpack.runtime.dependencies import step_dependencies
from coilpack.runtime.devices.base import Device
from coilpack.runtime.devices.cuda_driver import call as driver_call
from coilpack.runtime.executable import read_executable
from coilpack.runtime.executor import Executor, Memory
from coilpack.runtime.loading import load_kernels
from coilpack.runtime.plan import Plan, build_plan
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import evaluate

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "unit"))
from runtime_samples import ADD, F4, SCALE, executable  # noqa: E402

S = 1  # the default stream
GRAPHS = 2  # that are alive at once when their memory is measured
LIMIT_MB = 8  # of device memory for a graph of 60 to 100 kernels


def median_us(device: Device, call: Callable[[], object], repeats: int = 300) -> float:
    """Median time of a call until the device is done, in microseconds, after a warm-up."""
    taken = []
    for turn in range(repeats + 20):
        begin = time.perf_counter()
        call()
        device.synchronize(S)
        if turn >= 20:
            taken.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(taken)


def used_bytes(device: Device) -> int:
    """Device memory in use, but for what the pool keeps for reuse; 0 where there is no driver to ask."""
    if device.name == "emulator":
        return 0
    device.synchronize(S)
    device.trim()
    with device.activate():
        free, total = driver_call("cuMemGetInfo", "measuring memory")
    return int(total) - int(free)


# --- chains of small kernels ---


def chain(launches: int, width: int) -> ir.Function:
    """Additions over the arena, in `width` chains side by side, with an input and an output."""
    x, y = ir.Value("x", F4), ir.Value("y", F4)
    places = [ir.Value(f"p{i}", F4) for i in range(width)]
    operations: list[ir.Operation] = [ir.Alloc(p, ir.AllocSpace.ARENA, 16, 256 * i) for i, p in enumerate(places)]
    operations += [ir.Alloc(y, ir.AllocSpace.OUTPUT, 16)]
    operations += [ir.Dispatch(SCALE, (1, 1, 1), (x, p, 1.0, 4)) for p in places]
    operations += [
        ir.Dispatch(SCALE, (1, 1, 1), (places[i % width], places[i % width], 1.0, 4))
        for i in range(launches - width - 1)
    ]
    operations += [ir.Dispatch(ADD, (1, 1, 1), (places[0], places[-1], y)), ir.Return((y,))]
    signature = ir.Signature("chain", (ir.Argument("x", F4),), (ir.Argument("", F4),))
    return ir.Function(signature, (x,), tuple(operations), 256 * width)


def measure_plan(device: Device, make: Callable[[bool], Executor], arguments: list[int], outputs: list[int]) -> dict:
    """Times and memory of executors of one plan: `make` gives one with or without graphs."""
    direct = make(False)
    report = {"steps": len(direct.plan.steps)}
    report["direct_us"] = median_us(device, lambda: direct.run(arguments, outputs, S))
    executors = [make(True) for _ in range(GRAPHS + 1)]
    for executor in executors:
        executor.run(arguments, outputs, S)
    executors[0].run(arguments, outputs, S)  # what the first graph of all costs is no graph's own
    before, begin = used_bytes(device), time.perf_counter()
    for executor in executors[1:]:
        executor.run(arguments, outputs, S)
    device.synchronize(S)
    report["build_ms"] = (time.perf_counter() - begin) * 1e3 / GRAPHS
    report["mb_per_graph"] = (used_bytes(device) - before) / GRAPHS / 2**20
    graph = executors[0]
    report["graph_us"] = median_us(device, lambda: graph.run(arguments, outputs, S))
    begin = time.perf_counter()
    edges = sum(map(len, step_dependencies(direct.plan.steps)))
    report["edges"], report["edges_ms"] = edges, (time.perf_counter() - begin) * 1e3
    for executor in [direct, *executors]:
        executor.close()
    report["mb_left"] = (used_bytes(device) - before) / 2**20
    return report


def chains(device: Device) -> Iterator[tuple[str, dict]]:
    """Chains of several lengths and widths."""
    modules, kernels = load_kernels(device, read_executable(executable("sm_75", "8.0")), (SCALE, ADD))
    x, y = device.allocate(16, S), device.allocate(16, S)
    device.fill(x.address, bytes(1), 16, S)
    for launches, width in ((10, 1), (100, 1), (100, 4), (100, 50), (400, 1)):
        plan = build_plan(chain(launches, width), {}, {})
        arena = device.allocate(plan.arena_nbytes, S)
        memory = Memory(arena.address)

        def make(graphs: bool, plan: Plan = plan, memory: Memory = memory) -> Executor:
            return Executor(device, plan, kernels, memory, graphs)

        yield f"{launches} launches, {width} at once", measure_plan(device, make, [x.address], [y.address])
        arena.close()
    modules.close()


# --- a package ---


def zeros(signature: ir.Signature, device: Device) -> list[object]:
    """Arguments of a function, each symbol at its least value."""
    sizes = {symbol.name: max(symbol.minimum, 1) for symbol in signature.symbols}
    return [
        runtime.to_device(np.zeros([evaluate(e, sizes) for e in a.type.shape], a.type.dtype.numpy), device)
        if a.value is None
        else evaluate(a.value, sizes)
        for a in signature.inputs
    ]


def package(path: Path, device: Device) -> Iterator[tuple[str, dict]]:
    """Each function of a package, called through a context with graphs and one without."""
    with runtime.open(path, device) as program:
        for name in program.functions:
            yield name, measure_function(program, name, device)


def measure_function(program: runtime.Program, name: str, device: Device) -> dict:
    """Times of its calls, and the memory that the second call (which builds the graph) adds to that of the first."""
    arguments = zeros(program.signature(name), device)
    options = {"seed": 0} if program.signature(name).random else {}
    report = {}
    for graphs, kind in ((False, "direct"), (True, "graph")):
        before = used_bytes(device)
        with program.new_context(graphs=graphs) as context:

            def call(context: Context = context) -> object:
                return context(*arguments, function=name, **options)

            first = call()
            after_first = used_bytes(device)
            second = call()
            report[f"{kind}_mb"] = (used_bytes(device) - after_first) / 2**20
            del first, second
            report[f"{kind}_us"] = median_us(device, call)
        report[f"{kind}_left_mb"] = (used_bytes(device) - before) / 2**20
    return report


def main() -> None:
    """Measures and prints a line for each plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, help="measure its functions, too")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = runtime.resolve_device(arguments.device)
    report = dict(chains(device))
    if arguments.package:
        report |= dict(package(arguments.package, device))
    for name, found in report.items():
        figures = ", ".join(f"{what} {value:.3f}".rstrip("0").rstrip(".") for what, value in found.items())
        sys.stdout.write(f"{name}: {figures}\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    large = [name for name, found in report.items() if max(found.get("mb_per_graph", 0), 0) > LIMIT_MB]
    if large:
        sys.exit(f"a graph takes more than {LIMIT_MB} MB of device memory: {', '.join(large)}")


if __name__ == "__main__":
    main()
