"""Compiles a model with more than 4 GiB of weights, and measures the memory that all processes together take for it.

    python tests/bench/large_weights.py FOLDER [--gib 4.5] [--targets sm_80,sm_90] [--from pt2|callable] [--json FILE]
                                        [--device cuda:0]

Counted is anonymous memory, which is what a copy of the weights would take: pages that are mapped from a file are the
file's, and go when others need the room. Fails where more than one copy was held at any time, or the package's weights
are not the model's. The files are removed at the end.

With `--device`, the package is opened there and called: its result is compared with float64, and the anonymous memory
that opening takes is measured, which is small where weights stream from the file to the device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

GIB = 1 << 30
MOST_COPIES = 1.5  # of the weights in anonymous memory: one, and what Python and torch take in each process
WIDTH = 8192  # of a layer: 256 MiB of float32
MODEL = textwrap.dedent(
    """
    import torch

    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            generator = torch.Generator().manual_seed(0)
            self.layers = torch.nn.ParameterList(
                torch.nn.Parameter(torch.empty({width}, {width}).uniform_(-0.01, 0.01, generator=generator))
                for _ in range({layers})
            )

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(x @ layer)
            return x

    def make():
        return Layers(), (torch.zeros(16, {width}),)
    """
)


class Watch:
    """The most anonymous memory that this process and all below it had at a time, sampled."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, sum(map(anonymous_bytes, family(os.getpid()))))


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        children = [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(descendant for child in children for descendant in family(child))]


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def weights(layers: int) -> Iterator[np.ndarray]:
    """The weight of each layer, made again one at a time."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for _ in range(layers):
        yield torch.empty(WIDTH, WIDTH).uniform_(-0.01, 0.01, generator=generator).numpy()


def check_weights(package: Path, layers: int) -> None:
    """Compares each weight of the package with the model's."""
    from coilpack.runtime.package import Package

    with Package.open(package) as opened:
        for number, expected in enumerate(weights(layers)):
            stored = np.frombuffer(opened.storage(f"layers.{number}"), np.float32).reshape(WIDTH, WIDTH)
            if not np.array_equal(stored, expected):
                raise SystemExit(f"layers.{number} differs from the model's")


def run(package: Path, layers: int, device: str) -> dict[str, object]:
    """Opens and calls the package; what that took, and how far the result is from float64."""
    from coilpack import runtime

    x = np.random.default_rng().standard_normal((16, WIDTH), np.float32)
    runtime.to_device(x, device)  # the device's own start is not counted
    before, start = anonymous_bytes(os.getpid()), time.perf_counter()
    with Watch() as watch, runtime.open(package, device=device) as program:
        seconds = time.perf_counter() - start
        got = program(x).numpy()
    expected = x.astype(np.float64)
    for weight in weights(layers):
        expected = np.maximum(expected @ weight.astype(np.float64), 0)
    return {
        "device": program.device.description,
        "open_seconds": round(seconds, 2),
        "open_anonymous_bytes": watch.peak - before,
        "relative_error": float(np.linalg.norm(got - expected) / np.linalg.norm(expected)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=4.5, help="weights, in GiB")
    parser.add_argument("--targets", default="sm_80,sm_90")
    parser.add_argument("--from", dest="source", choices=("pt2", "callable"), default="callable")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", help="open and run the package there, too")
    options = parser.parse_args()

    from coilpack.compiler.driver import CompileOptions, compile_package

    options.folder.mkdir(parents=True, exist_ok=True)
    layers = max(1, round(options.gib * GIB / (WIDTH * WIDTH * 4)))
    nbytes = layers * WIDTH * WIDTH * 4
    model, exported, package = (options.folder / name for name in ("large.py", "large.pt2", "large.coil"))
    model.write_text(MODEL.format(width=WIDTH, layers=layers))
    source = f"{model}:make"
    compile_options = CompileOptions(targets=options.targets.split(","), image="ptx")
    os.environ["TMPDIR"] = str(options.folder)
    try:
        if options.source == "pt2":
            import subprocess

            code = (
                "import sys; from pathlib import Path; from coilpack.compiler.frontends import export_callable as e; "
            )
            arguments = [str(model), str(exported)]
            subprocess.run(
                [sys.executable, "-c", f"{code}e(Path(sys.argv[1]), 'make', Path(sys.argv[2]))", *arguments], check=True
            )
            source = str(exported)
        start = time.perf_counter()
        with Watch() as watch:
            compile_package({"main": source}, package, compile_options)
        seconds = time.perf_counter() - start
        result = {
            "weights_bytes": nbytes,
            "targets": compile_options.targets,
            "source": options.source,
            "seconds": round(seconds, 1),
            "package_bytes": package.stat().st_size,
            "peak_anonymous_bytes": watch.peak,
            "peak_over_weights": round(watch.peak / nbytes, 3),
        }
        check_weights(package, layers)
        if options.device:
            result.update(run(package, layers, options.device))
    finally:
        for path in (model, exported, package):
            path.unlink(missing_ok=True)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if watch.peak >= MOST_COPIES * nbytes:
        sys.exit("more than one copy of the weights was held")
    if options.device and not (result["relative_error"] < 1e-5 and result["open_anonymous_bytes"] < nbytes / 4):
        sys.exit("the package is wrong on the device, or its weights were copied in memory")


if __name__ == "__main__":
    main()
