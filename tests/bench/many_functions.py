"""One package of 108 functions, a decoder at many batch sizes and lengths: opened, run, measured; without torch there.

    python tests/bench/many_functions.py build FOLDER [--target sm_90] [--batches 1,2] [--lengths 16,32]
    python tests/bench/many_functions.py check FOLDER [--device cuda:0] [--calls 10000] [--json out.json]

`build` writes `many.coil` and `many.npz`: for each bucket of batch size and length a prompt, then one more token, with
the scores by torch in float64. All functions share one cache of keys and values, of the largest batch and length.

`check` opens the package, calls every function three times (directly, then as a graph), compares each result, and
measures time and memory.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from coilpack import runtime

ROOT = Path(__file__).resolve().parents[2]
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
LENGTHS = (16, 32, 48, 64, 96, 128)
TOLERANCE = 2e-5  # of float32 scores, relative to their norm
MOST_BYTES_PER_FUNCTION = 8 << 20
MOST_SECONDS_TO_OPEN = 10.0

Bucket = tuple[int, int]


def say(line: str) -> None:
    """Prints a line at once: builds and checks take long."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# --- build ---


def build(folder: Path, target: str, buckets: list[Bucket]) -> None:
    """Compiles two functions for each bucket into one package, and stores calls and results."""
    import torch

    sys.path.insert(0, str(ROOT / "samples" / "decoder"))
    from decoder import CachedDecoder
    from transformers import LlamaConfig, LlamaForCausalLM

    from coilpack.compiler.driver import CompileOptions, compile_package

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    slots, capacity = max(b for b, _ in buckets), max(length for _, length in buckets)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=capacity,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config).eval()
    arrays: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as scratch:
        sources = {}
        begin = time.perf_counter()
        for bucket in buckets:
            batch, length = bucket
            calls = _calls(model, bucket)
            arrays |= {f"{function}.{key}": value for function, call in calls.items() for key, value in call.items()}
            module = CachedDecoder(model, slots, capacity, span=length).eval()
            for function, call in calls.items():
                inputs = tuple(torch.from_numpy(call[key]) for key in ("tokens", "positions", "last") if key in call)
                sources[function] = Path(scratch, f"{function}.pt2")
                with torch.no_grad():
                    torch.export.save(torch.export.export(module, inputs), sources[function])
            say(f"exported batch {batch}, length {length}, {time.perf_counter() - begin:.0f} s")
        package = folder / "many.coil"
        begin = time.perf_counter()
        report = compile_package(sources, package, CompileOptions.cached(targets=[target]), say)
    np.savez_compressed(folder / "many.npz", **arrays)
    kernels, seconds = len(report.program.targets[0].kernels), time.perf_counter() - begin
    say(
        f"{len(sources)} functions, {kernels} kernels, {report.nbytes / 1e6:.1f} MB, compiled in {seconds:.0f} s, "
        f"{seconds / len(sources):.1f} s for each function"
    )


def _calls(model: Any, bucket: Bucket) -> dict[str, dict[str, np.ndarray]]:
    """Inputs and results for a bucket: a prompt shorter than it in each row, then one token."""
    import torch

    batch, length = bucket
    tokens = torch.randint(0, model.config.vocab_size, (batch, length))
    lengths = length - 1 - torch.arange(batch) % 4
    with torch.no_grad():
        scores = copy.deepcopy(model).double()(tokens, use_cache=False).logits
    rows = torch.arange(batch)
    prefill = {
        "tokens": tokens,
        "positions": torch.arange(length).repeat(batch, 1),
        "last": lengths - 1,
        "expected": scores[rows, lengths - 1],
    }
    decode = {
        "tokens": tokens[rows, lengths][:, None],
        "positions": lengths[:, None],
        "expected": scores[rows, lengths],
    }
    return {
        f"{name}_b{batch}_l{length}": {key: value.numpy() for key, value in call.items()}
        for name, call in (("prefill", prefill), ("decode", decode))
    }


# --- check ---


class Meter:
    """Memory in use: of the device as its driver says (0 in the emulator), of this process on the host; bytes."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._cuda = device.name.startswith("cuda")

    def device_bytes(self) -> int:
        """All that is in use on the device once its work is done and its pool has given back what it can."""
        if not self._cuda:
            return 0
        from coilpack.runtime.devices.cuda_driver import call

        with self._device.activate():
            call("cuCtxSynchronize", "measure")
            self._device.trim()
            free, total = call("cuMemGetInfo", "measure")
        return int(total) - int(free)

    def host_bytes(self) -> int:
        """Resident memory of this process."""
        fields = Path("/proc/self/statm").read_text().split()
        return int(fields[1]) * 4096


def check(folder: Path, device_name: str, calls: int) -> dict[str, Any]:
    """Opens the package, calls every function and measures; what was found, with `problems` where it is not right."""
    with np.load(folder / "many.npz") as loaded:
        arrays = dict(loaded)
    functions = sorted({key.rpartition(".")[0] for key in arrays}, key=_order)
    device = runtime.resolve_device(device_name)
    meter = Meter(device)
    before = meter.device_bytes()
    begin = time.perf_counter()
    with runtime.open(folder / "many.coil", device=device) as program:
        report: dict[str, Any] = {"functions": len(program.functions), "open_s": time.perf_counter() - begin}
        opened = meter.device_bytes()
        problems = []
        if sorted(program.functions) != sorted(functions):
            problems.append("its functions are not those that were built")
        for turn in ("direct", "graph", "replay"):
            begin = time.perf_counter()
            errors = {function: _error(program, arrays, function) for function in functions}
            worst = max(errors, key=errors.__getitem__)
            report[turn] = {
                "largest_error": errors[worst],
                "seconds": time.perf_counter() - begin,
                "device_bytes": meter.device_bytes() - before,
            }
            problems += [f"{turn}: {f}: relative error {e:.2e}" for f, e in errors.items() if not e <= TOLERANCE]
        grown = report["replay"]["device_bytes"]
        report |= {"device_bytes_open": opened - before, "device_bytes_per_function": grown / len(functions)}
        if report["device_bytes_per_function"] > MOST_BYTES_PER_FUNCTION:
            problems.append(f"{grown} bytes of device memory for {len(functions)} functions")
        report["soak"] = soak(program, arrays, functions, calls, meter)
    report["device_bytes_closed"] = meter.device_bytes() - before
    if device.name.startswith("cuda") and report["open_s"] > MOST_SECONDS_TO_OPEN:
        problems.append(f"opened in {report['open_s']:.1f} s")
    return {**report, "problems": problems + report["soak"].pop("problems")}


def _order(function: str) -> tuple[int, int, bool]:
    """By bucket; in each, `prefill` first, which leaves in the cache what `decode` reads."""
    name, batch, length = function.split("_")
    return int(batch[1:]), int(length[1:]), name == "decode"


def _inputs(arrays: dict[str, np.ndarray], function: str) -> list[np.ndarray]:
    return [arrays[f"{function}.{key}"] for key in ("tokens", "positions", "last") if f"{function}.{key}" in arrays]


def _error(program: runtime.Program, arrays: dict[str, np.ndarray], function: str) -> float:
    """The error of a function's result relative to the norm; infinite where shape or values make no sense."""
    got = program(*_inputs(arrays, function), function=function).numpy().astype(np.float64)
    expected = arrays[f"{function}.expected"]
    if got.shape != expected.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def soak(
    program: runtime.Program, arrays: dict[str, np.ndarray], functions: list[str], calls: int, meter: Meter
) -> dict[str, Any]:
    """Calls functions round and round; memory after a tenth of the calls and at the end must be the same."""
    inputs = [(function, _inputs(arrays, function)) for function in functions]

    def run(count: int) -> None:
        for number in range(count):
            function, values = inputs[number % len(inputs)]
            program(*values, function=function).numpy()

    run(calls // 10)
    device, host = meter.device_bytes(), meter.host_bytes()
    begin = time.perf_counter()
    run(calls - calls // 10)
    seconds = time.perf_counter() - begin
    found: dict[str, Any] = {
        "calls": calls,
        "us_per_call": seconds / max(calls - calls // 10, 1) * 1e6,
        "device_bytes_grown": meter.device_bytes() - device,
        "host_bytes_grown": meter.host_bytes() - host,
    }
    found["problems"] = [
        f"{calls} calls: {what} memory grew by {found[f'{what}_bytes_grown']} bytes"
        for what, most in (("device", 0), ("host", 2 << 20))  # the host's allocator may keep a few pages
        if found[f"{what}_bytes_grown"] > most
    ]
    return found


def main() -> int:
    """Builds or checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("folder", type=Path)
    building.add_argument("--target", default="sm_90")
    for option, default in (("--batches", BATCHES), ("--lengths", LENGTHS)):
        building.add_argument(option, type=lambda text: tuple(map(int, text.split(","))), default=default)
    checking = commands.add_parser("check")
    checking.add_argument("folder", type=Path)
    checking.add_argument("--device", default="cuda:0")
    checking.add_argument("--calls", type=int, default=10_000)
    checking.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "build":
        build(arguments.folder, arguments.target, [(b, n) for b in arguments.batches for n in arguments.lengths])
        return 0
    report = check(arguments.folder, arguments.device, arguments.calls)
    say(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    return bool(report["problems"])


if __name__ == "__main__":
    sys.exit(main())
