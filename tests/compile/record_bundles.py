"""Records the kernel bundles of small models on a GPU; see `frozen_models.py`.

    python tests/compile/record_bundles.py --output tests/compile/data/bundles [MODEL ...]

Each folder holds the module that Inductor generated, what it compiled, and what its autotuner chose. Of kernels that
lost only the configurations are kept; of candidates that the module never names, the first image.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._guards
import triton
from frozen_models import MODELS, FrozenModel
from torch._inductor import config, list_mode_options
from torch._inductor.async_compile import AsyncCompile

from coilpack.compiler import register
from coilpack.compiler.capture.functionalise import tensors
from coilpack.compiler.capture.inductor_run import compile_graph
from coilpack.compiler.freezing.from_inductor import bundle_of, live_autotuners, unsettled
from coilpack.compiler.freezing.kernel_bundle import KernelBundle
from coilpack.compiler.freezing.recorded_bundle import read_bundle, write_bundle
from coilpack.compiler.function_source import function_sources
from coilpack.compiler.weights import Weights
from coilpack.runtime.errors import CoilpackError

_SOURCES = f"{Path(__file__).parents[2]}/"  # begins the paths in comments above users' kernels

SETTINGS: dict[str, Any] = {
    "graph_partition": False,
    "triton.cudagraphs": False,
    "fx_graph_cache": True,
    "bundle_triton_into_fx_graph_cache": True,
    "static_launch_user_defined_triton_kernels": True,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
    "autotune_fallback_to_aten": False,
    "allow_buffer_reuse": False,
    "size_asserts": False,
    "nan_asserts": False,
    "alignment_asserts": False,
    "scalar_asserts": False,
    "shape_padding": False,
    "joint_graph_constant_folding": False,
    "assert_indirect_indexing": False,
}


def record(model: FrozenModel) -> tuple[str, KernelBundle]:
    """Compiles a model and runs it once, which is when Inductor tunes; its module and bundle."""
    program = model.export()
    traced = function_sources({"main": program}, Weights(frozenset()))["main"].trace(fuse_attention=True)
    named, given = tensors(program), iter(model.inputs())
    arguments = [
        (named[spec.target] if spec.target in named else next(given)).cuda()
        for spec in traced.functional.graph_signature.input_specs
    ]
    settings = {**list_mode_options(model.mode), **SETTINGS, **model.options}
    with torch._guards.tracing(torch._guards.TracingContext(traced.retraced.fake_mode)):
        compiled = compile_graph(traced.retraced, settings)
    static = compiled._triton_bundle
    say(f"  {len(static.static_autotuners)} entries, {len(static.kernel_artifacts)} kernels compiled")
    with config.patch(**settings), torch.no_grad():
        got = compiled(arguments)
        expected = model.module().cuda()(*(value.cuda() for value in model.inputs()))
    live = live_autotuners(compiled)
    assert not unsettled(live), unsettled(live)
    for one, other in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
    return compiled.source_code.replace(_SOURCES, ""), bundle_of(static, live)


def slim(bundle: KernelBundle) -> KernelBundle:
    """The same without the images of losers: of each entry the winner's, or the first."""
    kept = {entry.winner or entry.results[0].kernel_hash for entry in bundle.autotuners if entry.results}
    return replace(bundle, artifacts={name: bundle.artifacts[name] for name in sorted(kept & bundle.artifacts.keys())})


def provenance() -> dict[str, str]:
    """Where the recordings come from."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    return {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "device": torch.cuda.get_device_name(0),
        "driver": driver,
        "command": shlex.join(["python", "tests/compile/record_bundles.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the folder in which one is made for each model")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all by default")
    args = parser.parse_args()
    where = provenance()
    args.output.mkdir(parents=True, exist_ok=True)
    AsyncCompile.warm_pool()  # without its processes, fusions are measured where no bundle sees what was compiled
    AsyncCompile.wait_pool_ready()
    failed = 0
    for name in args.models or MODELS:
        say(name)
        source, bundle = record(MODELS[name])
        for entry in bundle.autotuners:
            chosen = [result for result in entry.results if result.kernel_hash == entry.winner]
            say(f"  {entry.kernel_name}: {len(entry.results)} results, winner {chosen}")
        kept = slim(bundle)
        write_bundle(args.output / name, source, kept, where)
        assert read_bundle(args.output / name) == (source, kept)
        size = sum(path.stat().st_size for path in (args.output / name).iterdir())
        try:
            whole = register(source, bundle)
            assert register(source, kept) == whole
            say(f"  {len(whole.bound)} bound, {len(whole.ignored)} ignored, {size} bytes")
        except CoilpackError as error:
            say(f"  REFUSED: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
