# ruff: noqa: N803 (constants of Triton kernels are written in capitals)
"""Small kernels with known traits, lowered by the tests. `SOURCES` has one `KernelSource` of each."""

import triton
import triton.language as tl

from coilpack.compiler.kernels.source import KernelSource

DIVISIBLE = [["tt.divisibility", 16]]


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    raised = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, raised / tl.sum(raised, 0), mask=at < columns)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + inner[None, :], mask=inner[None, :] < k, other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :], mask=inner[:, None] < k, other=0.0)
        sums = tl.dot(left, right, sums)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], sums.to(tl.float16), mask=inside)


@triton.jit
def scalars_kernel(out, small, BLOCK: tl.constexpr, large, scale, half, bias, flag):
    at = small + tl.arange(0, BLOCK)
    value = at.to(tl.float32) * scale + half + large
    if bias is not None:
        value += tl.load(bias + at)
    if flag:
        value = -value
    tl.store(out + at, value)


@triton.jit(repr=lambda _: "not_the_python_name")
def row_max_kernel(x, out, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out + row, tl.max(tl.load(x + row * stride + tl.arange(0, BLOCK)), 0))


@triton.jit
def descriptor_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    described = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    tile = described.load([tl.program_id(0) * BLOCK, 0])
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None, :], tile)


def matmul_source(kernel_name="matmul", block=(64, 64, 32), num_stages=3, num_warps=4):
    names = ("BM", "BN", "BK")
    return KernelSource(
        matmul_kernel,
        kernel_name,
        {"a": "*fp16", "b": "*fp16", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32"}
        | dict.fromkeys(names, "constexpr"),
        dict(zip(names, block, strict=True)),
        {(i,): DIVISIBLE for i in (0, 1, 2, 4, 5)},
        {"num_warps": num_warps, "num_stages": num_stages},
    )


SOURCES = {
    "add": KernelSource(
        add_kernel,
        "add",
        {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 256},
        {(0,): DIVISIBLE, (1,): DIVISIBLE, (2,): DIVISIBLE},
        {"num_warps": 2},
    ),
    "softmax": KernelSource(
        softmax_kernel,
        "softmax_dispatch_0",
        {"x": "*bf16", "out": "*bf16", "columns": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 1024},
        {(0,): DIVISIBLE, (1,): DIVISIBLE},
    ),
    "matmul": matmul_source(),
    "scalars": KernelSource(
        scalars_kernel,
        "scalars",
        {
            "out": "*fp32",
            "small": "i32",
            "BLOCK": "constexpr",
            "large": "i64",
            "scale": "fp32",
            "half": "fp16",
            "bias": "constexpr",
            "flag": "i1",
        },
        {"BLOCK": 128, "bias": None},
        {(0,): DIVISIBLE},
    ),
    "row_max": KernelSource(
        row_max_kernel,
        "row_max",
        {"x": "*fp32", "out": "*fp32", "stride": "constexpr", "BLOCK": "constexpr"},
        {"stride": 1, "BLOCK": 128},
        {(0,): DIVISIBLE, (1,): DIVISIBLE},
    ),
}


@triton.jit
def powers_kernel(x, out, BLOCK: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tile = tl.load(x + at[:, None] * BLOCK + at[None, :])
    for _ in range(N):
        tile = tl.dot(tile, tile).to(tl.float16)
    tl.store(out + at[:, None] * BLOCK + at[None, :], tile)


def powers_source(**options):
    """Keeps a tile of 128 x 128 in registers, as many of each thread as `maxnreg` allows."""
    return KernelSource(
        powers_kernel,
        "powers",
        {"x": "*fp16", "out": "*fp16", "BLOCK": "constexpr", "N": "constexpr"},
        {"BLOCK": 128, "N": 3},
        {(0,): DIVISIBLE, (1,): DIVISIBLE},
        options,
    )


# Describes a tensor on the device, for which Triton takes global scratch memory on sm_90 and later.
NEEDS_SCRATCH = KernelSource(
    descriptor_kernel,
    "descriptor",
    {"x": "*fp16", "out": "*fp16", "rows": "i32", "columns": "i32", "BLOCK": "constexpr"},
    {"BLOCK": 64},
    {(0,): DIVISIBLE, (1,): DIVISIBLE, (3,): DIVISIBLE},
)


@triton.jit
def undefined_name_kernel(out):
    tl.store(out, not_defined_anywhere)  # noqa: F821 (the point of it)


@triton.jit
def bad_assembly_kernel(out):
    value = tl.inline_asm_elementwise("nonsense $0, $1;", "=r,r", [tl.program_id(0)], tl.int32, is_pure=False, pack=1)
    tl.store(out, value)


@triton.jit
def deadly_kernel(out):
    # LLVM ends the process where an assembly constraint does not exist.
    value = tl.inline_asm_elementwise("mov $0, $1;", "=Z,r", [tl.program_id(0)], tl.int32, is_pure=False, pack=1)
    tl.store(out, value)


def not_a_triton_function(x):
    return x


@triton.jit
def calls_python_kernel(out):
    tl.store(out, not_a_triton_function(1))
