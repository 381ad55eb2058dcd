"""Times of kernels in a frozen package and in the compiled model that it was frozen from, in one run on the GPU.

    python tests/bench/frozen_kernels.py [--layers 2] [--width 512] [--length 128] [--batch 2] [--limit 0.03]
        [--output m.coil] [--mode max-autotune] [--option NAME=VALUE]

A transformer (bf16) is frozen; then what Inductor compiled and the package run in turn on the same inputs, and CUPTI
says how long each kernel took. Kernels are matched by their place in the call, which is the same in both. With
`--limit`, a kernel whose medians differ by more than that part, and by more than two ticks of the clock that CUPTI
reads, ends the run with an error.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from torch.profiler import ProfilerActivity, profile

from coilpack import runtime
from coilpack.compiler.emit import emit_package
from coilpack.compiler.freezing.freeze import Function, compile_products, freeze_products
from coilpack.compiler.freezing.inductor_product import cuda_target
from coilpack.compiler.freezing.settings import inductor_settings
from coilpack.compiler.weights import Weights

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compile"))
from frozen_models import Layer

REPEATS = 60
_TICK = 0.032  # microseconds
_HEAD_START = 4_000_000  # cycles, some 2 ms
_NOT_KERNELS = ("Memcpy", "Memset", "spin_kernel", "at::cuda")


def kernel_times(call: Any, label: str) -> list[tuple[str, float]]:
    """Name and duration in microseconds of each kernel that a call ran, in order."""
    call()  # each side finds in the caches what it left there itself
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        torch.cuda._sleep(_HEAD_START)  # kernels then follow one another at once, however long the host takes for each
        call()
        torch.cuda.synchronize()
    events = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    events = [e for e in events if not any(part in e.name for part in _NOT_KERNELS)]
    assert events, f"{label}: the profiler has seen no kernel"
    return [(e.name, e.device_time) for e in sorted(events, key=lambda e: e.time_range.start)]


def compare(compiled: Any, frozen: Any) -> list[tuple[str, str, float, float]]:
    """For each place in a call: the kernel's name in either, and the medians in microseconds."""
    samples: list[list[list[float]]] = [[], []]
    names: list[list[str]] = [[], []]
    for _ in range(REPEATS):
        for side, call in enumerate((compiled, frozen)):
            found = kernel_times(call, ("compiled", "frozen")[side])
            names[side] = [name for name, _ in found]
            samples[side].append([time for _, time in found])
    sizes = {len(row) for side in samples for row in side}
    assert len(sizes) == 1, f"calls run different numbers of kernels: {sizes}"
    medians = [[statistics.median(column) for column in zip(*side, strict=True)] for side in samples]
    return list(zip(*names, *medians, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 2), ("width", 512), ("length", 128), ("batch", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--output", type=Path, default=Path("frozen.coil"))
    parser.add_argument("--mode", default="max-autotune")
    parser.add_argument("--option", action="append", default=[])
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    layers = [Layer(options.width, options.width // 64, 4 * options.width) for _ in range(options.layers)]
    model = torch.nn.Sequential(*layers).bfloat16().eval()
    x = torch.randn(options.batch, options.length, options.width, dtype=torch.bfloat16)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
    chosen = {name: ast.literal_eval(value) for name, _, value in (item.partition("=") for item in options.option)}
    weights = Weights(frozenset())
    functions = {"main": Function(program, [x])}
    products = compile_products(functions, weights, inductor_settings(options.mode, chosen), click.echo)
    frozen = freeze_products(products, cuda_target("cuda:0"), weights)
    emit_package([], [frozen.bundle], frozen.bundle.program, options.output)
    product = products["main"]
    with runtime.open(options.output, "cuda:0", graphs=False) as opened, torch.no_grad():
        on_device = x.cuda()
        arguments_ = list(product.arguments)
        rows = compare(lambda: product.compiled(list(arguments_)), lambda: opened(on_device))
    totals = sum(row[2] for row in rows), sum(row[3] for row in rows)
    clear = [row for row in rows if abs(row[3] - row[2]) > 2.01 * _TICK] or rows[:1]
    worst = max(clear, key=lambda row: abs(row[3] / row[2] - 1))
    click.echo(f"{'compiled us':>12} {'frozen us':>10} {'ratio':>7}  kernel")
    for own, name, before, after in [*rows, ("all", "all", *totals)]:
        shown = name if own in name else f"{name} ({own})"
        click.echo(f"{before:12.2f} {after:10.2f} {after / before:7.3f}  {shown}")
    click.echo(f"largest difference: {worst[3] / worst[2] - 1:+.1%} of {worst[1]}")
    click.echo(f"kernels assembled otherwise than measured: {len(frozen.reassembled)} {' '.join(frozen.reassembled)}")
    if options.limit is not None and abs(worst[3] / worst[2] - 1) > options.limit:
        raise SystemExit(f"the limit is {options.limit:.1%}")


if __name__ == "__main__":
    main()
