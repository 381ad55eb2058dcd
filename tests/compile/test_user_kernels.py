# ruff: noqa: N803 (constants of Triton kernels are written in capitals)
"""Kernels that a model's author wrote: arguments are bound by name and have the widths that the PTX says."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import kernels_under_test as kernels  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from in_process import compile_in_process, export, write  # noqa: E402
from small_models import Lambda  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.compiler.kernels.lower import lower_many  # noqa: E402
from coilpack.compiler.targets import TARGETS  # noqa: E402
from coilpack.runtime.dtypes import DType  # noqa: E402
from coilpack.runtime.errors import UnsupportedError  # noqa: E402
from coilpack.runtime.executable import read_executable  # noqa: E402
from coilpack.runtime.images import describe_image  # noqa: E402
from coilpack.runtime.plan import build_plan, encode_scalar  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402
from coilpack.runtime.steps import LaunchStep  # noqa: E402

SIZE, BLOCK = 300, 128


@triton.jit
def affine(x, out, BLOCK: tl.constexpr, n, scale, bias, step, NEGATE: tl.constexpr, shift):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) * step
    value = tl.load(x + at, mask=at < n) * scale + shift
    if bias is not None:
        value += tl.load(bias + at, mask=at < n)
    if NEGATE:
        value = -value
    tl.store(out + at, value, mask=at < n)


@triton_op("coilpack_test::affine", mutates_args={})
def affine_op(x: torch.Tensor, bias: torch.Tensor | None, scale: float) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    wrap_triton(affine)[grid](x, out, BLOCK, x.numel(), scale, bias, 1, NEGATE=True, shift=7)
    return out


class WithoutBias(torch.nn.Module):
    """`bias` is None and `step` is 1: run-time arguments stand before, between and behind constants."""

    def forward(self, x):
        return affine_op(x, None, 0.1) + 1


class WithBias(torch.nn.Module):
    def forward(self, x, bias):
        return affine_op(x, bias, 0.1) + 1


def _compile(module: torch.nn.Module, inputs: int):
    return compile_in_process({"main": export(module, tuple(torch.randn(SIZE) for _ in range(inputs)))})


def _first_launch(bundle) -> tuple[ir.Dispatch, LaunchStep]:
    function = bundle.program.targets[0].function("main")
    dispatch = next(op for op in function.operations if isinstance(op, ir.Dispatch))
    step = next(s for s in build_plan(function, {}, {}).steps if isinstance(s, LaunchStep))
    return dispatch, step


@pytest.mark.parametrize(("module", "names"), [(WithoutBias(), "x out"), (WithBias(), "x out bias")])
def test_run_time_arguments_are_those_that_are_no_constants(module, names: str) -> None:
    bundle = _compile(module, 2 if "bias" in names else 1)
    dispatch, step = _first_launch(bundle)
    assert dispatch.kernel.export_name == "main_dispatch_0_affine_0"
    assert dispatch.grid == (3, 1, 1)
    pointers = [p for p in dispatch.kernel.parameters if isinstance(p, ir.PointerParameter)]
    assert len(pointers) == len(names.split())
    scalars = [o for o in dispatch.operands if not isinstance(o, ir.Value)]
    assert scalars == [SIZE, 0.1, 7]

    (data,) = bundle.executables.values()
    executable = read_executable(data)
    export_ = executable.lookup(dispatch.kernel.export_name)
    entry = executable.images[export_.module_ordinal].entries[export_.symbol]
    assert [p.size for p in entry] == [8 if not isinstance(p, bytes) else len(p) for p in step.parameters]


@pytest.mark.parametrize(("module", "inputs"), [(WithoutBias(), 1), (WithBias(), 2)])
def test_the_compiled_kernel_computes_what_its_author_meant(module, inputs: int, device, tmp_path) -> None:
    path = write(_compile(module, inputs), tmp_path / "affine.coil")
    values = [np.random.default_rng(n).standard_normal(SIZE).astype(np.float32) for n in range(inputs)]
    expected = 1 - (values[0] * 0.1 + 7 + (values[1] if inputs == 2 else 0))
    with runtime.open(path, device=device.name) as program:
        np.testing.assert_allclose(program(*values).numpy(), expected, rtol=1e-5, atol=1e-5)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned(x, out, n, power, BLOCK: tl.constexpr, offset=3, SQUARE: tl.constexpr = True):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if SQUARE:
        value = value * value
    tl.store(out + at, value * power + offset, mask=at < n)


def _tuned(**given: object):
    @triton_op(f"coilpack_test::tuned_{len(given)}", mutates_args={})
    def operator(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        wrap_triton(tuned)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 2.5, **given)
        return out

    return operator


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, lambda x: x * x * 2.5 + 3),
        ({"SQUARE": False}, lambda x: x * 2.5 + 3),
        ({"SQUARE": False, "offset": 1}, lambda x: x * 2.5 + 1),
    ],
    ids=["defaults", "constant given", "argument of 1 given"],
)
def test_an_autotuned_kernel_takes_its_first_configuration_and_its_defaults(given, expected, device, tmp_path) -> None:
    operator = _tuned(**given)
    module = Lambda(lambda x: operator(x) + 1)
    bundle = compile_in_process({"main": export(module, (torch.randn(SIZE),))})
    dispatch, _ = _first_launch(bundle)
    assert dispatch.grid == (-(-SIZE // 64), 1, 1)
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    with runtime.open(write(bundle, tmp_path / "tuned.coil"), device=device.name) as program:
        np.testing.assert_allclose(program(x).numpy(), expected(x) + 1, rtol=1e-5, atol=1e-5)


def test_a_kernel_gets_views_where_they_begin_and_scalars_of_the_width_it_was_compiled_for(device, tmp_path) -> None:
    module = Lambda(lambda x: affine_op(x[4:], x[:-4], 0.1))
    bundle = compile_in_process({"main": export(module, (torch.randn(SIZE),))})
    dispatch, step = _first_launch(bundle)
    (scale,) = (n for n, operand in enumerate(dispatch.operands) if operand == 0.1)
    assert dispatch.kernel.parameters[scale] == ir.ScalarParameter(DType.f64)
    assert step.parameters[scale] == np.float64(0.1).tobytes()
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    with runtime.open(write(bundle, tmp_path / "views.coil"), device=device.name) as program:
        np.testing.assert_allclose(program(x).numpy(), -(x[4:] * 0.1 + 7 + x[:-4]), rtol=1e-5, atol=1e-5)


@triton.jit
def in_double(x, out, scale, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * scale.to(tl.float64), mask=at < n)


@triton_op("coilpack_test::in_double", mutates_args={})
def in_double_op(x: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(in_double)[(triton.cdiv(x.numel(), BLOCK),)](x, out, scale, x.numel(), BLOCK)
    return out


def test_a_float_is_a_double_as_inductor_compiles_it(device, tmp_path) -> None:
    bundle = compile_in_process({"main": export(Lambda(lambda x: in_double_op(x, 0.1)), (torch.randn(SIZE).double(),))})
    x = np.random.default_rng(0).standard_normal(SIZE)
    with runtime.open(write(bundle, tmp_path / "double.coil"), device=device.name) as program:
        np.testing.assert_allclose(program(x).numpy(), x * 0.1, rtol=1e-15)


@triton.jit
def widths(out, small, half, brain, single, double, flag, large):
    tl.store(out, small + half + brain + single + double + flag + large)


VALUES = {
    "small": ("i32", DType.i32, -2, "fe ff ff ff"),
    "half": ("fp16", DType.f16, 1.5, "00 3e"),
    "brain": ("bf16", DType.bf16, 1.5, "c0 3f"),
    "single": ("fp32", DType.f32, 0.1, "cd cc cc 3d"),
    "double": ("fp64", DType.f64, 0.1, "9a 99 99 99 99 99 b9 3f"),
    "flag": ("i1", DType.i1, 1, "01"),
    "large": ("i64", DType.i64, 2**40, "00 00 00 00 00 01 00 00"),
}


def test_scalars_have_the_width_of_the_ptx_and_a_float_is_no_double() -> None:
    signature = {"out": "*fp32"} | {name: type_ for name, (type_, *_) in VALUES.items()}
    (made,) = lower_many([kernels.KernelSource(widths, "widths", signature)], TARGETS["sm_80"], cubin=False)
    declared = describe_image(made.ptx.encode()).entries["widths"][1:]
    assert [p.dtype for p in made.parameters[1:]] == [dtype for _, dtype, *_ in VALUES.values()]
    for parameter, (_, dtype, value, encoded) in zip(declared, VALUES.values(), strict=True):
        assert encode_scalar(dtype, value) == bytes.fromhex(encoded)
        assert parameter.size == len(bytes.fromhex(encoded))


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_K": 256}, num_stages=4, num_warps=4),  # 384 KiB of shared memory: fits nowhere
        triton.Config({"BLOCK_K": 32}, num_stages=2, num_warps=4),
    ],
    key=[],
)
@triton.jit
def product(a, b, c, k, SIZE: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, inner = tl.arange(0, SIZE), tl.arange(0, BLOCK_K)
    sums = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(0, k, BLOCK_K):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        sums = tl.dot(left, tl.load(b + (start + inner[:, None]) * SIZE + rows[None, :]), sums)
    tl.store(c + rows[:, None] * SIZE + rows[None, :], sums)


@triton_op("coilpack_test::product", mutates_args={})
def product_op(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(128, 128, device=a.device)
    wrap_triton(product)[(1,)](a, b, c, a.shape[1], SIZE=128)
    return c


class Product(torch.nn.Module):
    def forward(self, a, b):
        return product_op(a, b) + 1


@pytest.mark.parametrize("candidates", [1, 3])
def test_the_next_configuration_of_a_tuned_kernel_is_tried(candidates: int, device, tmp_path, capsys) -> None:
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randn(shape, generator=generator).half() for shape in ((128, 256), (256, 128)))
    bundle = compile_in_process({"main": export(Product(), (a, b))}, candidates=candidates)
    (refused,) = [line for line in capsys.readouterr().out.splitlines() if "shared memory" in line]
    assert "'main_dispatch_0_product_0' needs" in refused
    assert refused.endswith("trying its next configuration")
    with runtime.open(write(bundle, tmp_path / "product.coil"), device=device.name) as program:
        result = program(a.numpy(), b.numpy()).numpy()
    np.testing.assert_allclose(result, (a.double() @ b.double() + 1).numpy(), rtol=1e-4, atol=1e-3)


@triton.jit
def double_tile(x, out, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    out.store([start, 0], x.load([start, 0]) * 2)


@triton_op("coilpack_test::double_tiles", mutates_args={})
def double_tiles_op(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    described = [TensorDescriptor.from_tensor(tensor, [16, 16]) for tensor in (x, out)]
    wrap_triton(double_tile)[(x.shape[0] // 16,)](*described, BLOCK=16)
    return out


@triton.jit
def add_pair(pair, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(pair[0] + at) + tl.load(pair[1] + at))


@triton_op("coilpack_test::add_pair", mutates_args={})
def add_pair_op(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_pair)[(1,)]((x, x), out, SIZE=512)
    return out


@pytest.mark.parametrize(
    ("operator", "refused"),
    [
        (double_tiles_op, r"'double_tile' at \S+\.py:\d+ gets a TensorDescriptor as 'x'"),
        (add_pair_op, r"'add_pair' at \S+\.py:\d+ gets a tuple as 'pair'"),
    ],
    ids=["tensor descriptor", "tuple of tensors"],
)
def test_a_tensor_that_torch_takes_for_a_constant_is_refused(operator, refused) -> None:
    program = export(Lambda(lambda x: operator(x) + 1), (torch.randn(32, 16),))
    with pytest.raises(UnsupportedError, match=f"the Triton kernel {refused}, which a package cannot pass"):
        compile_in_process({"main": program})
