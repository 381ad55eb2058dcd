"""Kernels that Inductor writes for sm_80, run by the emulator, against torch in higher precision."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write  # noqa: E402
from small_models import Lambda  # noqa: E402
from torch.nn import functional  # noqa: E402

from coilpack import runtime  # noqa: E402

# Relative to the reference's norm, by the coarsest element type that takes part.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def floats(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def integers(*shape: int, low: int = -100, high: int = 100, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.randint(low, high, shape).to(dtype)


def arithmetic(x, y):
    return (x * y - x) / (y.abs() + 1) + torch.maximum(x, y)


def mixed_integers(x, y):
    return (x * 3 + y) ^ (x & y), x.clamp(-20, 20), (x > y).to(x.dtype), torch.minimum(x, y)


def transcendental(x):
    return torch.stack([x.exp(), x.sin(), x.cos(), x.sigmoid(), torch.erf(x), x.abs().log1p(), (x * x + 1).rsqrt()])


def rounding(x):
    return torch.stack([x.floor(), x.ceil(), x.round(), x.trunc(), torch.fmod(x, 0.7), torch.remainder(x, 0.7)])


def between_types(x):
    return x.half(), x.bfloat16(), x.double(), x.to(torch.int32), x.to(torch.int64), x.to(torch.int8), x > 0


def specials(x):
    return torch.isnan(x), torch.isinf(x), torch.nan_to_num(x), torch.copysign(torch.ones_like(x), x)


def special_values() -> torch.Tensor:
    return torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -1.0])


def welford(x):
    return torch.var_mean(x, dim=-1)


def extremes(x):
    return x.argmax(-1), x.argmin(-1), x.amax(-1), x.amin(-1), (x > 2).any(-1), (x > -5).all(-1)


def scatter(x, i):
    return torch.zeros(7, 16, dtype=x.dtype).index_add(0, i, x)


def put(x, i, v):
    return x.index_put((i,), v, accumulate=True)


def attention(dtype: torch.dtype, length: int, causal: bool, depth: int = 64):
    parts = tuple(floats(1, 2, length, depth, dtype=dtype) for _ in range(3))
    return Lambda(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)), parts


def linear(dtype: torch.dtype, rows: int, inner: int, columns: int):
    return torch.nn.Linear(inner, columns, dtype=dtype), (floats(rows, inner, dtype=dtype),)


def bucketed(x):
    return torch.bucketize(x, torch.linspace(-2, 2, 33))


MODELS = {
    **{
        f"pointwise_{str(t)[6:]}": (
            lambda t=t: (Lambda(arithmetic), (floats(37, 11, dtype=t), floats(37, 11, dtype=t)))
        )
        for t in (F16, BF16, F32, F64)
    },
    **{
        f"pointwise_{str(t)[6:]}": (
            lambda t=t: (Lambda(mixed_integers), (integers(400, dtype=t), integers(400, dtype=t)))
        )
        for t in (torch.int8, torch.int16, torch.int32, torch.int64)
    },
    "pointwise_uint8": lambda: (
        Lambda(lambda x, y: (x + y, x // 3, x > y)),
        tuple(integers(300, low=0, high=255, dtype=torch.uint8) for _ in range(2)),
    ),
    "pointwise_bool": lambda: (
        Lambda(lambda x, y: (x & y, x ^ y, ~x, torch.where(x, 2, 3))),
        (floats(90) > 0, floats(90) > 0),
    ),
    "transcendental_f32": lambda: (Lambda(transcendental), (floats(3, 500),)),
    "transcendental_f64": lambda: (Lambda(transcendental), (floats(3, 100, dtype=F64),)),
    "transcendental_f16": lambda: (Lambda(transcendental), (floats(3, 100, dtype=F16),)),
    "rounding": lambda: (Lambda(rounding), (floats(3, 100) * 10,)),
    "between_types": lambda: (Lambda(between_types), (floats(3, 100) * 50,)),
    "specials": lambda: (Lambda(specials), (special_values(),)),
    "power_and_log": lambda: (Lambda(lambda x: (x.abs() + 0.1) ** 1.7 + torch.log2(x.abs() + 1)), (floats(300),)),
    "gelu_broadcast_bf16": lambda: (
        Lambda(lambda x, b: functional.gelu(x + b)),
        (floats(33, 65, dtype=BF16), floats(65, dtype=BF16)),
    ),
    "transposed_copy": lambda: (Lambda(lambda x: (x.transpose(0, 1) * 2).contiguous()), (floats(70, 90),)),
    "welford_persistent": lambda: (Lambda(welford), (floats(9, 300),)),
    "welford_looped": lambda: (Lambda(welford), (floats(3, 5000),)),
    "layer_norm_bf16": lambda: (torch.nn.LayerNorm(768, dtype=BF16), (floats(5, 768, dtype=BF16),)),
    "batch_norm": lambda: (torch.nn.BatchNorm2d(8), (floats(2, 8, 6, 6),)),
    "reduction_outer": lambda: (Lambda(lambda x: (x.sum(0), x.mean(0), x.prod(1))), (floats(200, 40) * 0.5 + 1,)),
    "reduction_looped_f16": lambda: (Lambda(lambda x: x.float().sum(-1)), (floats(4, 9000, dtype=F16),)),
    "extremes_persistent": lambda: (Lambda(extremes), (floats(9, 200),)),
    "extremes_looped": lambda: (Lambda(extremes), (floats(3, 6000),)),
    "extremes_of_integers": lambda: (Lambda(extremes), (integers(9, 300, dtype=torch.int64),)),
    "softmax_looped": lambda: (torch.nn.LogSoftmax(-1), (floats(3, 4096),)),
    "logsumexp_bf16": lambda: (Lambda(lambda x: torch.logsumexp(x.float(), -1)), (floats(9, 400, dtype=BF16),)),
    "split_sum": lambda: (Lambda(lambda x: x.sum()), (floats(300_000),)),
    "scan_persistent": lambda: (Lambda(lambda x: x.cumsum(-1)), (floats(5, 200),)),
    "scan_looped": lambda: (Lambda(lambda x: x.cumsum(-1)), (floats(2, 4096, dtype=F64),)),
    "scan_product": lambda: (Lambda(lambda x: (x * 0.1 + 1).cumprod(-1)), (floats(3, 100),)),
    "scan_maximum": lambda: (Lambda(lambda x: torch.cummax(x, -1)[0]), (floats(3, 100),)),
    "sort": lambda: (Lambda(lambda x: torch.sort(x, dim=-1, stable=True)), (floats(4, 128),)),
    "sort_integers": lambda: (
        Lambda(lambda x: torch.sort(x, dim=-1, descending=True, stable=True)),
        (integers(4, 64),),
    ),
    "gather": lambda: (
        Lambda(lambda x, i: x.gather(1, i)),
        (floats(6, 40), integers(6, 9, low=0, high=40, dtype=torch.int64)),
    ),
    "embedding_f16": lambda: (
        torch.nn.Embedding(100, 48, dtype=F16),
        (integers(3, 7, low=0, high=100, dtype=torch.int64),),
    ),
    "index_add": lambda: (Lambda(scatter), (floats(60, 16), integers(60, low=0, high=7, dtype=torch.int64))),
    "index_put": lambda: (Lambda(put), (floats(9, 5), integers(30, low=0, high=9, dtype=torch.int64), floats(30, 5))),
    "bucketize": lambda: (Lambda(bucketed), (floats(300),)),
    "roll_and_flip": lambda: (Lambda(lambda x: torch.roll(x, 3, -1) + x.flip(0)), (floats(9, 33),)),
    "padding": lambda: (Lambda(lambda x: functional.pad(x, (2, 3, 1, 0), value=1.5)), (floats(4, 9),)),
    "concatenation": lambda: (Lambda(lambda x, y: torch.cat([x, y * 2], 1)), (floats(4, 9), floats(4, 20))),
    "max_pool": lambda: (torch.nn.MaxPool2d(3, 2, 1), (floats(2, 3, 17, 17),)),
    "average_pool": lambda: (torch.nn.AvgPool2d(2), (floats(2, 3, 16, 16),)),
    "upsample": lambda: (torch.nn.Upsample(scale_factor=2, mode="nearest"), (floats(1, 2, 9, 9),)),
    "linear_f32": lambda: linear(F32, 20, 48, 33),
    "linear_f16": lambda: linear(F16, 70, 128, 96),
    "linear_bf16": lambda: linear(BF16, 16, 64, 40),
    "convolution_f32": lambda: (
        torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Flatten()),
        (floats(1, 3, 10, 10),),
    ),
    "convolution_f16": lambda: (
        torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, stride=2, dtype=F16), torch.nn.Flatten()),
        (floats(1, 16, 13, 13, dtype=F16),),
    ),
    "attention_f32": lambda: attention(F32, 40, causal=False, depth=32),
    "attention_causal_f16": lambda: attention(F16, 130, causal=True),
    "attention_causal_bf16": lambda: attention(BF16, 64, causal=True, depth=80),
}


def doubled(value):
    return value.double() if torch.is_floating_point(value) else value


def reference(module, inputs, exact: bool) -> list[torch.Tensor]:
    with torch.no_grad():
        module = module.eval() if exact else copy.deepcopy(module).double().eval()
        results = module(*(inputs if exact else map(doubled, inputs)))
    return list(results) if isinstance(results, (tuple, list)) else [results]


@pytest.mark.parametrize("name", MODELS)
def test_the_emulator_computes_what_torch_computes(name, tmp_path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, inputs = MODELS[name]()
        programs = {"main": export(module, inputs)}
    path = write(compile_in_process(programs), tmp_path / "model.coil")
    with runtime.open(path, device="emulator") as program:
        outputs = program(*[x.contiguous() if x.dtype == BF16 else x.contiguous().numpy() for x in inputs])
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    plain, high = reference(module, inputs, exact=True), None
    assert len(outputs) == len(plain)
    dtype = next((x.dtype for x in inputs if torch.is_floating_point(x)), F32)
    for at, (got, want) in enumerate(zip(outputs, plain, strict=True)):
        if not torch.is_floating_point(want):
            np.testing.assert_array_equal(got.numpy(), want.numpy())
            continue
        if want.dtype == dtype:
            high = high or reference(module, inputs, exact=False)
            want = high[at]
        expected = want.double().numpy()
        actual = got.numpy().astype(np.float64)
        assert actual.shape == expected.shape
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        finite = np.isfinite(expected) & (np.abs(expected) < 1e38)
        huge = ~finite & ~np.isnan(expected)
        np.testing.assert_array_equal(actual[huge] > 0, expected[huge] > 0)
        scale = np.linalg.norm(expected[finite]) or 1.0
        coarsest = max(TOLERANCE[dtype], TOLERANCE.get(want.dtype, 0))
        assert np.linalg.norm((actual - expected)[finite]) / scale <= coarsest
