"""Time of a call of the same models in this project's runtime and in IREE's, in the same run.

    python tests/compile/iree_prepared.py DIR                  # where the compilers are
    python tests/bench/both_runtimes.py DIR [--json out.json]  # on a machine with a GPU

A call is measured whole, until the device is done, with its inputs on the device: ours from Python, step by step and as
CUDA graphs; IREE's by `iree-benchmark-module` of each release in DIR. Kernels are the same, PTX for sm_80.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "bench"), str(TESTS / "compile")]
from graphs import median_us  # noqa: E402
from iree_models import CASES, Case  # noqa: E402
from iree_prepared import Prepared, write_inputs  # noqa: E402
from iree_releases import Release  # noqa: E402

from coilpack import runtime  # noqa: E402

MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def ours(package: Path, case: Case, size: int, device: str, graphs: bool) -> float:
    """Median time of a call, in microseconds."""
    with runtime.open(package, device=device, graphs=graphs) as program:
        inputs = [runtime.to_device(tensor, program.device) for tensor in case.inputs(size)]
        return median_us(program.device, lambda: program(*inputs))


def irees(prepared: Prepared, release: Release, model: str, size: int) -> float:
    """Median of five repetitions of IREE's own measurement, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        inputs, output = write_inputs(CASES[model].inputs(size), Path(folder)), Path(folder, "out.json")
        release.checked(
            "iree-benchmark-module",
            "--device=cuda",
            *prepared.call(model, "main", release, inputs),
            "--benchmark_repetitions=5",
            "--benchmark_report_aggregates_only=true",
            "--benchmark_out_format=json",
            f"--benchmark_out={output}",
        )
        found = json.loads(output.read_text())["benchmarks"]
    (median,) = [row for row in found if row["aggregate_name"] == "median"]
    return float(median["real_time"]) * MICROSECONDS[median["time_unit"]]


def measure(prepared: Prepared, model: str, size: int, device: str) -> dict[str, float]:
    """Microseconds a call, by what runs it."""
    package, case = prepared.package(model), CASES[model]
    times = {
        "coilpack, steps": ours(package, case, size, device, graphs=False),
        "coilpack, graph": ours(package, case, size, device, graphs=True),
    }
    for release in prepared.releases:
        times[f"IREE {release.version}"] = irees(prepared, release, model, size)
    return times


def main() -> None:
    """Measures all models and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report: dict[str, dict[str, float]] = {}
    for model, case in CASES.items():
        for size in case.sizes:
            name = f"{model}, {size} rows" if len(case.sizes) > 1 else model
            report[name] = measure(Prepared(arguments.folder), model, size, arguments.device)
            times = "; ".join(f"{what} {time:.1f} µs" for what, time in report[name].items())
            sys.stdout.write(f"{name}: {times}\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
