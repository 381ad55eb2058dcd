# ruff: noqa: N803 (constants of Triton kernels are written in capitals)
"""Random numbers: Triton's Philox generator, compiled and executed, against the algorithm in numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
pytest.importorskip("triton")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.compiler.kernels.lower import lower_many  # noqa: E402
from coilpack.compiler.kernels.source import KernelSource  # noqa: E402
from coilpack.compiler.targets import TARGETS  # noqa: E402
from coilpack.runtime.executable import BindingFlags, Executable, Export, write_executable  # noqa: E402

SIZE, BLOCK, SEED = 1000, 256, 0x1234_5678


@triton.jit
def random_kernel(uniform, bits, seed, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(uniform + at, tl.rand(seed, at), mask=at < n)
    tl.store(bits + at, tl.randint(seed, at), mask=at < n)


def philox(seed: int, counter: np.ndarray) -> np.ndarray:
    """The first word of Philox-4x32-10 (Salmon et al., SC 2011) for each counter, uint32."""
    mask = np.uint64(0xFFFFFFFF)
    words = [counter.astype(np.uint64), *(np.zeros_like(counter, np.uint64) for _ in range(3))]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        high_b, high_a = words[2] * np.uint64(0xCD9E8D57), words[0] * np.uint64(0xD2511F53)
        words = [
            (high_b >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0]),
            high_b & mask,
            (high_a >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1]),
            high_a & mask,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[0].astype(np.uint32)


def test_random_numbers_are_philox(device, tmp_path) -> None:
    signature = {"uniform": "*fp32", "bits": "*i32", "seed": "i32", "n": "i32", "BLOCK": "constexpr"}
    source = KernelSource(random_kernel, "random_kernel", signature, {"BLOCK": BLOCK})
    (lowered,) = lower_many([source], TARGETS["sm_80"], cubin=False, jobs=1)
    flags = (BindingFlags(0), BindingFlags(0))
    export = Export(0, lowered.kernel_name, "random", lowered.block_dims, constant_count=2, binding_flags=flags)
    path = tmp_path / "random.cda1"
    path.write_bytes(write_executable(Executable((lowered.ptx.encode(),), (export,))))
    kernel = runtime.load_executable(path, device).lookup("random")
    uniform, bits = (runtime.empty((SIZE,), dtype, device) for dtype in ("f32", "i32"))
    kernel.launch(-(-SIZE // BLOCK), [uniform, bits], [SEED, SIZE])
    expected = philox(SEED, np.arange(SIZE))
    np.testing.assert_array_equal(bits.numpy().view(np.uint32), expected)
    signed = expected.view(np.int32)
    magnitude = np.where(signed < 0, -signed - 1, signed).astype(np.float32)
    np.testing.assert_array_equal(uniform.numpy(), magnitude * np.float32(4.6566127342e-10))
