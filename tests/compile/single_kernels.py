# ruff: noqa: N803 (constants of Triton kernels are written in capitals)
"""Kernels that the tests name as `single_kernels.py:function`, as a user would."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def affine(x, out, BLOCK: tl.constexpr, n, scale, bias, step, NEGATE: tl.constexpr, shift):
    """Run-time arguments stand before, between and behind constants, None and 1 among them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) * step
    value = tl.load(x + at, mask=at < n) * scale + shift
    if bias is not None:
        value += tl.load(bias + at, mask=at < n)
    if NEGATE:
        value = -value
    tl.store(out + at, value, mask=at < n)


@triton.jit
def widths(out, small, half, brain, single, double, factor=2.0, KIND: tl.constexpr = "sum"):
    total = half.to(tl.float64) + brain.to(tl.float64) + single.to(tl.float64) + double
    tl.store(out, total * factor + small if KIND == "sum" else total)


@triton.autotune(
    configs=[
        triton.Config({"BM": 128, "BN": 128, "BK": 128}, num_stages=4, num_warps=4),  # 192 KiB: fits nowhere
        triton.Config({"BM": 16, "BN": 16, "BK": 16}, num_stages=2, num_warps=2),
        triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_stages=2, num_warps=4),
    ],
    key=["m", "n", "k"],
)
@triton.heuristics({"EVEN": lambda arguments: arguments["k"] % arguments["BK"] == 0})
@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left, right = (rows[:, None] < m), (columns[None, :] < n)
        if not EVEN:
            left, right = left & (inner[None, :] < k), right & (inner[:, None] < k)
        first = tl.load(a + rows[:, None] * k + inner[None, :], mask=left, other=0.0)
        second = tl.load(b + inner[:, None] * n + columns[None, :], mask=right, other=0.0)
        sums = tl.dot(first, second, sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.autotune(configs=[triton.Config({"BM": 128, "BN": 128, "BK": 256}, num_stages=4)], key=[])
@triton.jit
def too_large(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        first = tl.load(a + rows[:, None] * k + start + inner[None, :])
        second = tl.load(b + (start + inner[:, None]) * BN + columns[None, :])
        sums = tl.dot(first, second, sums)
    tl.store(c + rows[:, None] * BN + columns[None, :], sums)


def not_a_kernel():
    return None
