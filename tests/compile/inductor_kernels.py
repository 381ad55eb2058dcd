"""Small functions, each made to give one kind of Inductor kernel; a row is a module and its example inputs.

Families: pointwise in every element type and over every kind of function, reductions (persistent, looped, outer, split,
Welford, arg), scans, sorts, indexing, atomics, layout changes, and the templates for products, convolutions, attention.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from small_models import Lambda, Row
from torch import nn
from torch.nn import functional

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def _row(function: Callable[..., Any], *inputs: torch.Tensor) -> Row:
    return Lambda(function), inputs


def _rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def _pointwise(dtype: torch.dtype) -> Row:
    if dtype.is_floating_point:
        return _row(lambda x, y: torch.where(x > y, x * 2 + y, y - x), _rand(37, dtype=dtype), _rand(37, dtype=dtype))
    low = 0 if dtype == torch.uint8 else -50
    x, y = (torch.randint(low, 50, (37,), dtype=dtype) for _ in range(2))
    return _row(lambda x, y: (torch.where(x > y, x * 2 + y, y - x), x & 12, x | y, x ^ y, x // (y % 5 + 1)), x, y)


def _attend(
    dtype: torch.dtype, head_dim: int, heads: int = 2, kv_heads: int = 2, length: int = 40, **options: Any
) -> Row:
    query = _rand(1, heads, length, head_dim, dtype=dtype)
    key, value = (_rand(1, kv_heads, length, head_dim, dtype=dtype) for _ in range(2))
    return _row(partial(functional.scaled_dot_product_attention, **options), query, key, value)


def _transcendental(dtype: torch.dtype) -> Row:
    return _row(
        lambda x: torch.stack(
            [x.exp(), x.sin(), x.cos(), x.sigmoid(), torch.erf(x), x.abs().log1p(), (x * x + 1).rsqrt()]
        ),
        _rand(3, 100, dtype=dtype),
    )


def _specials() -> Row:
    values = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -1.0])
    return _row(
        lambda x: (torch.isnan(x), torch.isinf(x), torch.nan_to_num(x), torch.copysign(torch.ones_like(x), x)), values
    )


def _extremes(x: torch.Tensor) -> Row:
    return _row(lambda x: (x.argmax(-1), x.argmin(-1), x.amax(-1), x.amin(-1), (x > 2).any(-1), (x > -5).all(-1)), x)


def _long(*shape: int) -> torch.Tensor:
    return torch.randint(0, 10, shape)


_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs() + 0.1),
    "sin_cos": lambda x: torch.sin(x) + torch.cos(3 * x),
    "tan_atan": lambda x: torch.tan(x.clamp(-1, 1)) + torch.atan(x),
    "erf_gelu": lambda x: torch.erf(x) + functional.gelu(x),
    "tanh_sigmoid": lambda x: torch.tanh(x) * torch.sigmoid(x),
    "sqrt_rsqrt": lambda x: torch.sqrt(x.abs()) + torch.rsqrt(x.abs() + 1),
    "rounding": lambda x: torch.floor(x) + 2 * torch.ceil(x) + 4 * torch.trunc(x) + 8 * torch.round(x),
    "power": lambda x: (x.abs() + 0.5) ** 1.7 + x**3,
    "silu_softplus": lambda x: functional.silu(x) + functional.softplus(x),
    "sign_abs_clamp": lambda x: torch.sign(x) + x.abs().clamp(0.2, 0.9),
    "expm1_log1p": lambda x: torch.expm1(x) + torch.log1p(x.abs()),
}

KERNELS: dict[str, Callable[[], Row]] = {
    **{f"pointwise_{str(t).removeprefix('torch.')}": partial(_pointwise, t) for t in (*_FLOATS, *_INTEGERS)},
    **{f"unary_{name}": partial(lambda f: _row(f, _rand(65)), f) for name, f in _UNARY.items()},
    "transcendental_fp16": partial(_transcendental, torch.float16),
    "transcendental_fp64": partial(_transcendental, torch.float64),
    "special_values": _specials,
    "boolean_operands": lambda: _row(
        lambda x, y: (x & y, x ^ y, ~x, torch.where(x, 2, 3)), _rand(90) > 0, _rand(90) > 0
    ),
    "booleans": lambda: _row(
        lambda x, y: ((x > 0) & (y > 0), ~(x > y), (x > 0).any(), (y < 9).all()), _rand(9), _rand(9)
    ),
    "shifts": lambda: _row(lambda x: (x << 3, x >> 1), torch.arange(-20, 20, dtype=torch.int32)),
    "binary": lambda: _row(
        lambda x, y: (torch.atan2(x, y), torch.fmod(x, y), torch.remainder(x, y), torch.hypot(x, y)),
        _rand(40),
        _rand(40),
    ),
    "casts": lambda: _row(
        lambda x: (x.half(), x.bfloat16(), x.int(), x.bool(), x.to(torch.uint8)), _rand(50).abs() * 9
    ),
    "broadcast": lambda: _row(lambda x, y: x[:, None] * y[None] + 1, _rand(13), _rand(21)),
    # reductions
    "sum_persistent": lambda: _row(lambda x: x.sum(-1), _rand(5, 100)),
    "sum_looped": lambda: _row(lambda x: x.sum(-1), _rand(3, 5000)),
    "sum_outer": lambda: _row(lambda x: x.sum(0), _rand(300, 33)),
    "sum_half": lambda: _row(lambda x: x.sum(-1), _rand(5, 300, dtype=torch.float16)),
    "mean_two_axes": lambda: _row(lambda x: x.mean((1, 3)), _rand(3, 7, 5, 11)),
    "max_min": lambda: _row(lambda x: (x.amax(-1), x.amin(0)), _rand(17, 90)),
    "argmax_argmin": lambda: _row(lambda x: (x.argmax(-1), x.argmin(0)), _rand(17, 90)),
    "extremes_looped": lambda: _extremes(_rand(3, 6000)),
    "extremes_of_integers": lambda: _extremes(torch.randint(-100, 100, (9, 300))),
    "sum_looped_half": lambda: _row(lambda x: x.float().sum(-1), _rand(4, 9000, dtype=torch.float16)),
    "logsumexp_bf16": lambda: _row(lambda x: torch.logsumexp(x.float(), -1), _rand(9, 400, dtype=torch.bfloat16)),
    "layer_norm_bf16": lambda: (nn.LayerNorm(768, dtype=torch.bfloat16), (_rand(5, 768, dtype=torch.bfloat16),)),
    "max_with_index": lambda: _row(lambda x: x.max(-1), _rand(4, 2500)),
    "product": lambda: _row(lambda x: (1 + x / 30).prod(-1), _rand(4, 60)),
    "integer_sum": lambda: _row(lambda x: (x.sum(-1), x.amax()), _long(6, 200)),
    "welford": lambda: _row(lambda x: torch.var_mean(x, -1), _rand(4, 200)),
    "welford_looped": lambda: _row(lambda x: torch.var_mean(x, -1), _rand(2, 5000)),
    "softmax_looped": lambda: _row(lambda x: torch.softmax(x, -1), _rand(2, 5000)),
    "log_softmax": lambda: _row(lambda x: torch.log_softmax(x, -1), _rand(6, 70)),
    "norm": lambda: _row(lambda x: x / x.norm(dim=-1, keepdim=True), _rand(6, 130)),
    "group_norm": lambda: (nn.GroupNorm(4, 16), (_rand(2, 16, 6, 6),)),
    "cross_entropy": lambda: _row(lambda x, t: functional.cross_entropy(x, t), _rand(8, 10), _long(8)),
    # scans and sorts
    "cumprod": lambda: _row(lambda x: (1 + x / 20).cumprod(-1), _rand(3, 90)),
    "cumsum_integers": lambda: _row(lambda x: x.cumsum(0), _long(80, 3)),
    "cumsum_looped": lambda: _row(lambda x: x.cumsum(-1), _rand(2, 4096, dtype=torch.float64)),
    "cummax": lambda: _row(lambda x: torch.cummax(x, -1)[0], _rand(3, 100)),
    "bucketize": lambda: _row(lambda x: torch.bucketize(x, torch.linspace(-2, 2, 33)), _rand(300)),
    "sort": lambda: _row(lambda x: torch.sort(x, -1), _rand(3, 100)),
    "sort_descending": lambda: _row(lambda x: torch.sort(x, dim=-1, descending=True), _rand(2, 64)),
    # indexing and atomics
    "embedding": lambda: (nn.Embedding(10, 24), (_long(3, 5),)),
    "index_select": lambda: _row(lambda x, i: x.index_select(1, i), _rand(4, 10), _long(7)),
    "gather_elements": lambda: _row(lambda x, i: x.gather(1, i), _rand(4, 10), _long(4, 6)),
    "index_put": lambda: _row(lambda x, i, v: x.index_put((i,), v), _rand(10, 4), torch.tensor([2, 7, 5]), _rand(3, 4)),
    "index_put_accumulate": lambda: _row(
        lambda x, i, v: x.index_put((i,), v, accumulate=True), _rand(10, 4), torch.tensor([2, 7, 2, 2]), _rand(4, 4)
    ),
    "scatter": lambda: _row(
        lambda x, i, v: x.scatter(1, i, v), _rand(3, 8), torch.tensor([[1], [5], [7]]), _rand(3, 1)
    ),
    "histogram": lambda: _row(lambda i, v: torch.zeros(10, dtype=v.dtype).index_add(0, i, v), _long(500), _rand(500)),
    # layout
    "concatenate": lambda: _row(lambda x, y: torch.cat([x, y * 2, x], 1), _rand(3, 5), _rand(3, 4)),
    "transpose": lambda: _row(lambda x: (x.transpose(0, 1) + 1).contiguous(), _rand(70, 45)),
    "pad_flip_roll": lambda: _row(lambda x: functional.pad(x.flip(0), (1, 2)) + x.roll(2, 1).sum(), _rand(5, 9)),
    "triangle": lambda: _row(lambda x: x.tril(1) + x.triu(2).T, _rand(20, 20)),
    "one_hot": lambda: _row(lambda i: functional.one_hot(i, 10).float(), _long(7)),
    "nearest": lambda: _row(lambda x: functional.interpolate(x, scale_factor=2.0), _rand(1, 3, 5, 5)),
    "pooling": lambda: _row(lambda x: functional.avg_pool2d(x, 2) + functional.max_pool2d(x, 2), _rand(1, 3, 8, 8)),
    # templates
    "linear_fp16": lambda: (nn.Linear(96, 80).half(), (_rand(20, 96, dtype=torch.float16),)),
    "linear_several_tiles": lambda: (nn.Linear(128, 96).half(), (_rand(70, 128, dtype=torch.float16),)),
    "linear_fp32_relu": lambda: (nn.Sequential(nn.Linear(96, 80), nn.ReLU()), (_rand(20, 96),)),
    "matmul_odd_sizes": lambda: _row(operator.matmul, _rand(19, 37), _rand(37, 23)),
    "matmul_transposed": lambda: _row(lambda x, y: x.T @ y.T, _rand(40, 32), _rand(48, 40)),
    "batched_bf16": lambda: _row(torch.bmm, *(_rand(2, 32, 32, dtype=torch.bfloat16) for _ in range(2))),
    "convolution_1x1": lambda: (nn.Conv2d(16, 24, 1), (_rand(1, 16, 9, 9),)),
    "convolution_strided": lambda: (nn.Conv2d(8, 16, 3, stride=2, padding=1).half(), (_rand(1, 8, 12, 12).half(),)),
    "convolution_1d": lambda: (nn.Conv1d(8, 16, 3), (_rand(1, 8, 20),)),
    "attention_causal": lambda: _attend(torch.float16, 32, is_causal=True),
    "attention_several_tiles": lambda: _attend(torch.float16, 64, length=130, is_causal=True),
    "attention_padded_depth": lambda: _attend(torch.bfloat16, 80, is_causal=True),
    "attention_fp32": lambda: _attend(torch.float32, 16),
    "attention_bf16_scale": lambda: _attend(torch.bfloat16, 32, scale=0.5),
    "attention_grouped_queries": lambda: _attend(torch.float16, 32, heads=4, kv_heads=2, enable_gqa=True),
}
