"""Small models over the ATen core set and what stands around it, with those that are refused and how.

A row checks several related operations where that is cheaper than a row for each; each of its results is compared.
`test_models.py` runs them, `test_coverage.py` holds the refusals, and `coverage_page.py` writes `docs/coverage.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from small_models import Lambda, Row
from torch import nn
from torch.nn import functional

aten = torch.ops.aten
_F64, _F16, _BF16 = torch.float64, torch.float16, torch.bfloat16


def _row(function: Callable[..., Any], *inputs: torch.Tensor) -> Row:
    return Lambda(function), inputs


def _rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def _unit(*shape: int) -> torch.Tensor:
    """Floats between 0.1 and 0.9; `test_models.py` draws others for the second call, so use them through `_within`."""
    return torch.rand(*shape) * 0.8 + 0.1


def _long(*shape: int, low: int = 0, high: int = 10) -> torch.Tensor:
    return torch.randint(low, high, shape)


def _within(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Any float moved into an open interval."""
    return low + (high - low) * torch.sigmoid(x)


def _resize(mode: str, *shape: int, **options: Any) -> Row:
    return _row(lambda x: functional.interpolate(x, mode=mode, **options), _rand(*shape))


def _scatter_reduce(reduce: str, include_self: bool = True, dtype: torch.dtype = torch.float32) -> Row:
    return _row(
        lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include_self),
        _rand(3, 8).mul(8).to(dtype),
        _long(3, 20, high=8),
        _rand(3, 20).mul(8).to(dtype),
    )


def _grid_sample(*shape: int, **options: Any) -> Row:
    dims = len(shape) - 2
    sampled = (shape[0], *(size - 1 for size in shape[2:]), dims)
    return _row(lambda x, g: functional.grid_sample(x, torch.tanh(g) * 1.2, **options), _rand(*shape), _rand(*sampled))


def _layer(module: nn.Module, *inputs: torch.Tensor) -> Row:
    return module, inputs


class Unrolled(nn.Module):
    """A recurrent layer with its results side by side."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        out, state = self.layer(x)
        return (out, *state) if isinstance(state, tuple) else (out, state)


_POINTWISE: dict[str, Callable[[], Row]] = {
    "inverse_trigonometric": lambda: _row(
        lambda x: (x.acos(), x.asin(), x.atan(), x.atanh(), (x.abs() + 1.5).acosh(), x.asinh()), _unit(50)
    ),
    "hyperbolic": lambda: _row(lambda x: (x.cosh(), x.sinh(), x.tanh(), x.tan()), _unit(50)),
    "logarithms": lambda: _row(
        lambda x: tuple(
            f(x.abs() + 0.1) for f in (torch.log10, torch.log2, torch.log, torch.exp2, torch.reciprocal, torch.square)
        ),
        _rand(50),
    ),
    "gamma_functions": lambda: _row(
        lambda x: (x.abs().add(0.1).lgamma(), x.digamma(), torch.erfinv(_within(x, -0.9, 0.9)), torch.erfc(x)),
        _rand(70),
    ),
    "special_functions": lambda: _row(
        lambda x: (
            torch.special.i0(x),
            torch.special.i1(x),
            torch.special.ndtr(x),
            torch.special.entr(x.abs()),
            torch.sinc(x),
            torch.logit(_within(x, 0.1, 0.9)),
            torch.xlogy(x, x.abs() + 1),
        ),
        _rand(50),
    ),
    "activations": lambda: _row(
        lambda x: (
            functional.elu(x),
            functional.selu(x),
            functional.celu(x),
            functional.leaky_relu(x),
            functional.relu6(x),
            functional.hardtanh(x),
            functional.hardswish(x),
            functional.hardsigmoid(x),
            functional.mish(x),
        ),
        _rand(60),
    ),
    "shrinking_activations": lambda: _row(
        lambda x: (
            functional.softsign(x),
            functional.tanhshrink(x),
            functional.softshrink(x),
            functional.hardshrink(x),
            functional.threshold(x, 0.1, 0.2),
            functional.logsigmoid(x),
            functional.rrelu(x),
            functional.gelu(x, approximate="tanh"),
            functional.glu(x, 0),
        ),
        _rand(6, 10),
    ),
    "prelu": lambda: _layer(nn.PReLU(4), _rand(2, 4, 3)),
    "two_operands": lambda: _row(
        lambda x, y: (
            torch.maximum(x, y),
            torch.minimum(x, y),
            torch.fmax(x, y),
            torch.fmin(x, y),
            torch.lerp(x, y, 0.3),
            torch.addcmul(x, x, y, value=0.5),
            torch.addcdiv(x, x, y.abs() + 1),
            torch.heaviside(x, y),
            torch.logaddexp(x, y),
            torch.rsub(x, y, alpha=2),
        ),
        _rand(40),
        _rand(40),
    ),
    "powers": lambda: _row(
        lambda x, y: (
            torch.pow(x.abs(), y),
            torch.pow(x, 2),
            torch.pow(2, x),
            torch.sqrt(x.abs()),
            x.rsqrt().nan_to_num(1),
        ),
        _rand(40),
        _rand(40),
    ),
    "nextafter": lambda: _row(lambda x, y: torch.nextafter(x, y), _rand(40, dtype=_F64), _rand(40, dtype=_F64)),
    "integer_division": lambda: _row(
        lambda x, y: (torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x / y, x.fmod(y)),
        _long(40, low=-20, high=20),
        _long(40, low=1, high=5),
    ),
    "exponents": lambda: _row(
        lambda x: (torch.ldexp(x, torch.tensor(3)), torch.signbit(x), torch.sgn(x), torch.sign(x), x.frac()), _rand(40)
    ),
    "comparisons": lambda: _row(
        lambda x, y: (x.eq(y), x.ne(y), x.ge(y), x.le(y), x.gt(y), x.lt(y), torch.isclose(x * 1.0, y * 1.0)),
        _long(20, high=3),
        _long(20, high=3),
    ),
    "logic": lambda: _row(
        lambda x, y: (x.logical_and(y), x.logical_or(y), x.logical_xor(y), x.logical_not(), ~x, x & y, x | y, x ^ y),
        _long(20, high=3),
        _long(20, high=3),
    ),
    "core_bits": lambda: _row(
        lambda x, y: (
            aten.bitwise_and.Tensor(x, y),
            aten.bitwise_or.Tensor(x, y),
            aten.bitwise_xor.Tensor(x, y),
            aten.bitwise_not.default(x),
        ),
        _long(20),
        _long(20),
    ),
    "bit_shifts": lambda: _row(
        lambda x, y: (torch.bitwise_left_shift(x, y), torch.bitwise_right_shift(x, y)), _long(20), _long(20, high=5)
    ),
    "rounding": lambda: _row(
        lambda x: (x.round(decimals=2), x.trunc(), x.floor(), x.ceil(), x.neg(), x.isfinite(), x.isposinf(), x.isnan()),
        _rand(20),
    ),
    "scalar_operands": lambda: _row(
        lambda x: (
            x.clamp_min(0),
            x.clip(-1, 1),
            x.sub(2, alpha=3),
            2 / x,
            x.remainder(0.7),
            x.eq(0),
            x.masked_fill(x > 0, 9.0),
            torch.where(x > 0, x, 0.0),
        ),
        _rand(20),
    ),
    "float8": lambda: _row(lambda x: x.to(torch.float8_e5m2).float(), _rand(20)),
    "unsigned_integers": lambda: _row(
        lambda x: (x.to(torch.uint16).to(torch.int32), x.to(torch.uint32).to(torch.int64)), _long(20)
    ),
    "fake_quantization": lambda: _row(
        lambda x: (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
            torch.fake_quantize_per_channel_affine(
                x, torch.tensor([0.1, 0.2]), torch.tensor([0, 5], dtype=torch.int32), 0, -20, 20
            ),
        ),
        _rand(2, 20),
    ),
}

_FACTORIES: dict[str, Callable[[], Row]] = {
    "factories": lambda: _row(
        lambda x: (
            torch.full_like(x, 3),
            torch.ones_like(x),
            torch.full((3,), 2.5) + x,
            torch.arange(0, 3, 1.0) + x,
            torch.linspace(0, 1, 3) + x,
            torch.eye(3) * x,
            torch.empty_like(x).fill_(2),
            torch.scalar_tensor(2.0) * x,
            x.new_zeros(2),
        ),
        _rand(3),
    ),
    "core_factories": lambda: _row(
        lambda x: (
            aten.fill.Scalar(aten.empty.memory_format([3], device="cpu"), 1.5),
            aten.fill.Scalar(aten.empty_strided.default([3], [1], device="cpu"), 2.5),
            aten.copy.default(x, x * 2),
            aten._to_copy.default(x, dtype=_F16),
            aten.alias.default(x) + 1,
            aten.clone.default(x),
        ),
        _rand(3),
    ),
    "windows": lambda: _row(
        lambda x: (
            torch.hann_window(16) * x,
            torch.hamming_window(16, periodic=False) * x,
            torch.hamming_window(16, True, 0.5, 0.4) * x,
            torch.blackman_window(16) * x,
        ),
        _rand(16),
    ),
    "triangle_indices": lambda: _row(
        lambda x: (x[torch.tril_indices(4, 4)[0]], x[torch.triu_indices(4, 4)[1]]), _rand(4)
    ),
}

_REDUCTIONS: dict[str, Callable[[], Row]] = {
    "spread": lambda: _row(
        lambda x: (x.std(-1), x.var(0, correction=0), *torch.std_mean(x, 1), *torch.aminmax(x, dim=0)), _rand(5, 9)
    ),
    "whole_reductions": lambda: _row(
        lambda x: (x.prod(), x.logsumexp((0, 1)), x.all(), x.argmax(), x.max(), x.min(0)[0], x.mean(), x.amax()),
        _rand(5, 9),
    ),
    "counts": lambda: _row(lambda x: (torch.count_nonzero(x, 1), torch.nansum(x), torch.nanmean(x, 1)), _rand(9, 4)),
    "norms": lambda: _row(
        lambda x: (
            x.norm(),
            x.norm(1, -1),
            x.norm(math.inf, 0),
            torch.linalg.vector_norm(x, 3, -1),
            torch.linalg.matrix_norm(x),
            x.renorm(2, 0, 1.0),
            torch.dist(x, x.flip(0)),
        ),
        _rand(5, 7),
    ),
    "trace_and_integral": lambda: _row(
        lambda x: (torch.trace(x), torch.trapezoid(x, dim=-1), torch.diff(x)), _rand(4, 4)
    ),
    "similarities": lambda: _row(
        lambda x, y: (functional.cosine_similarity(x, y), functional.pairwise_distance(x, y)), _rand(5, 3), _rand(5, 3)
    ),
    "distances": lambda: _row(
        lambda x, y: tuple(torch.cdist(x, y, p=p) for p in (0.0, 1.0, 2.0, 3.0, math.inf)), _rand(5, 3), _rand(6, 3)
    ),
    "core_distances": lambda: _row(
        lambda x: (aten._pdist_forward.default(x, 2.0), aten._cdist_forward.default(x, x + 1, 2.0, None)), _rand(5, 3)
    ),
    "histogram_intervals": lambda: _row(lambda x: torch.histc(x, 8, -2, 2), _rand(300)),
    "histogram_of_extremes": lambda: _row(lambda x: torch.histc(x, 5), torch.arange(40.0)),
    "losses": lambda: _row(
        lambda x, y: (
            functional.mse_loss(x, y),
            functional.l1_loss(x, y),
            functional.smooth_l1_loss(x, y),
            functional.huber_loss(x, y),
            functional.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
            functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
            functional.poisson_nll_loss(x, y),
        ),
        _rand(4, 5),
        _rand(4, 5),
    ),
    "class_losses": lambda: _row(
        lambda x, t: (
            functional.nll_loss(x.log_softmax(-1), t),
            functional.cross_entropy(x, t, label_smoothing=0.1),
            functional.multi_margin_loss(x, t),
        ),
        _rand(4, 5),
        _long(4, high=5),
    ),
    "core_softmax": lambda: _row(
        lambda x: (aten._softmax.default(x, -1, False), aten._log_softmax.default(x, 0, False)), _rand(4, 9)
    ),
}

_SORTS: dict[str, Callable[[], Row]] = {
    "topk": lambda: _row(lambda x: torch.topk(x, 3), _rand(4, 50)),
    "topk_smallest_of_columns": lambda: _row(lambda x: torch.topk(x, 5, dim=0, largest=False), _rand(40, 6)),
    "topk_long": lambda: _row(lambda x: torch.topk(x, 7), _rand(2, 1500)),
    "topk_bf16": lambda: _row(lambda x: torch.topk(x, 2)[0], _rand(5, 16, dtype=_BF16)),
    "sort_long": lambda: _row(lambda x: torch.sort(x, stable=True), _rand(2, 700)),
    "sort_descending_columns": lambda: _row(
        lambda x: torch.sort(x, dim=0, descending=True, stable=True), _rand(150, 2, dtype=_F16)
    ),
    "sort_integers": lambda: _row(lambda x: torch.sort(x, dim=-1, stable=True), _long(3, 140)),
    "sort_double": lambda: _row(lambda x: torch.sort(x, dim=-1), _rand(2, 130, dtype=_F64)),
    "sort_specials": lambda: _row(
        lambda x: torch.sort(x, dim=-1, stable=True),
        torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-40, -1.0]).repeat(20),
    ),
    "argsort": lambda: _row(lambda x: torch.argsort(x, -1), _rand(3, 40)),
    "medians": lambda: _row(
        lambda x: (*torch.median(x, -1), *torch.nanmedian(x, 0), torch.median(x), *torch.kthvalue(x, 3, -1)),
        _rand(4, 21),
    ),
    "mode": lambda: _row(lambda x: torch.mode(x, -1)[0], _long(4, 21)),
    "quantile": lambda: _row(lambda x: torch.quantile(x, 0.3, -1), _rand(4, 20)),
    "quantiles": lambda: _row(
        lambda x: torch.quantile(x, torch.tensor([0.25, 0.6], dtype=x.dtype), 0, keepdim=True, interpolation="higher"),
        _rand(20, 3),
    ),
    "searchsorted": lambda: _row(lambda s, x: torch.searchsorted(s.cumsum(-1), x), _unit(3, 20), _rand(3, 9)),
    "running_extremes": lambda: _row(lambda x: (*torch.cummax(x, -1), *torch.cummin(x, 0)), _rand(20, 30)),
    "logcumsumexp": lambda: _row(lambda x: x.logcumsumexp(-1), _rand(3, 60)),
}

_INDEXING: dict[str, Callable[[], Row]] = {
    **{f"scatter_{r}": partial(_scatter_reduce, r) for r in ("sum", "prod", "mean", "amax", "amin")},
    "scatter_amax_excluding": partial(_scatter_reduce, "amax", include_self=False),
    "scatter_mean_excluding": partial(_scatter_reduce, "mean", include_self=False),
    "scatter_amin_integers": partial(_scatter_reduce, "amin", dtype=torch.int64),
    "scatter_amax_half": partial(_scatter_reduce, "amax", dtype=_F16),
    "scatter_integers": lambda: _row(
        lambda x, i, s: (x.scatter(1, i, s), x.scatter(1, i, 3)),
        _long(3, 8),
        torch.tensor([[1, 3], [5, 0], [7, 2]]),
        _long(3, 2),
    ),
    "scatter_add_integers": lambda: _row(
        lambda x, i, s: x.scatter_add(0, i, s), _long(8, 3), _long(9, 2, high=8), _long(9, 2)
    ),
    "scatter_add_bf16": lambda: _row(
        lambda x, i, s: x.scatter_add(0, i, s), _rand(8, dtype=_BF16), _long(20, high=8), _rand(20, dtype=_BF16)
    ),
    "index_add": lambda: _row(
        lambda x, i, s: x.index_add(0, i, s, alpha=2), _rand(8, 3), _long(20, high=8), _rand(20, 3)
    ),
    "index_reduce": lambda: _row(
        lambda x, i, s: x.index_reduce(0, i, s, "amax"), _rand(8, 3), _long(20, high=8), _rand(20, 3)
    ),
    "index_copy_and_fill": lambda: _row(
        lambda x, i, s: (x.index_copy(0, i, s), x.index_fill(0, i, 3.0)), _rand(8, 3), torch.tensor([1, 4]), _rand(2, 3)
    ),
    "index_put_half": lambda: _row(
        lambda x, i, v: x.index_put((i,), v, accumulate=True), _rand(9, 4).half(), _long(5, high=9), _rand(5, 4).half()
    ),
    "index_put_integers": lambda: _row(
        lambda x, i, j: x.index_put((i, j), x[0, 0], accumulate=True),
        _long(9, 4),
        _long(5, low=-9, high=9),
        _long(5, high=4),
    ),
    "index_put_mask": lambda: _row(lambda x: x.index_put((x > 0,), torch.tensor(0.0, dtype=x.dtype)), _rand(10, 4)),
    "masked_scatter": lambda: _row(lambda x, s: x.masked_scatter(x > 0, s), _rand(3, 8), _rand(24)),
    "nonzero_static": lambda: _row(lambda x: torch.nonzero_static(x > 0, size=7), _rand(4, 5)),
    "take": lambda: _row(
        lambda x, i: (torch.take(x, i), torch.take_along_dim(x, x.argsort(1), 1)), _rand(3, 8), _long(4)
    ),
    "isin": lambda: _row(lambda x: torch.isin(x, torch.tensor([1, 4, 5])), _long(20)),
    "repeat_interleave": lambda: _row(
        lambda x: (x.repeat_interleave(3, 1), x.repeat_interleave(torch.tensor([1, 2, 3]), 0, output_size=6)),
        _rand(3, 4),
    ),
    "embedding_bag": lambda: _layer(nn.EmbeddingBag(10, 6, mode="sum"), _long(3, 4)),
    "embedding_bag_mean": lambda: _layer(nn.EmbeddingBag(10, 6, mode="mean", padding_idx=0), _long(3, 4)),
    "embedding_bag_offsets": lambda: _layer(nn.EmbeddingBag(10, 6, mode="max"), _long(9), torch.tensor([0, 4, 4])),
    "core_embedding_bag": lambda: _row(
        lambda w, i, o: aten._embedding_bag.default(w, i, o)[0], _rand(10, 6), _long(9), torch.tensor([0, 4, 7])
    ),
    "embedding_gradient": lambda: _row(
        lambda g, i: aten.embedding_dense_backward(g, i, 10, -1, False), _rand(3, 4), _long(3)
    ),
}

_RESAMPLING: dict[str, Callable[[], Row]] = {
    "nearest_1d_3d": lambda: _row(
        lambda x, y: (
            functional.interpolate(x, size=11),
            functional.interpolate(x, size=5, mode="nearest-exact"),
            functional.interpolate(y, size=(4, 5, 9)),
        ),
        _rand(1, 2, 7),
        _rand(1, 2, 3, 4, 5),
    ),
    "linear": partial(_resize, "linear", 1, 2, 7, size=11),
    "bilinear": partial(_resize, "bilinear", 1, 2, 5, 7, size=(8, 11)),
    "bilinear_corners": partial(_resize, "bilinear", 1, 2, 5, 7, size=(8, 11), align_corners=True),
    "bilinear_scale": partial(_resize, "bilinear", 1, 2, 5, 7, scale_factor=1.7),
    "bilinear_smoothed": partial(_resize, "bilinear", 1, 2, 9, 12, size=(4, 5), antialias=True),
    "bicubic": partial(_resize, "bicubic", 1, 2, 5, 7, size=(8, 11)),
    "bicubic_smoothed": partial(_resize, "bicubic", 1, 2, 9, 12, size=(4, 15), antialias=True),
    "trilinear": partial(_resize, "trilinear", 1, 2, 3, 4, 5, size=(4, 5, 9)),
    "core_upsampling": lambda: _row(
        lambda x: (
            aten.upsample_nearest2d.default(x, [8, 11]),
            aten.upsample_bilinear2d.default(x, [8, 11], False),
            aten._adaptive_avg_pool2d.default(x, [3, 2]),
            aten._adaptive_avg_pool3d.default(x[None], [1, 3, 2]),
        ),
        _rand(1, 2, 5, 7),
    ),
    "grid_sample": partial(_grid_sample, 1, 2, 5, 6, align_corners=False),
    "grid_sample_nearest": partial(_grid_sample, 1, 2, 5, 6, mode="nearest", padding_mode="border", align_corners=True),
    "core_grid_sampler": lambda: _row(
        lambda x, g: aten.grid_sampler_2d.default(x, torch.tanh(g), 0, 2, False), _rand(1, 2, 5, 6), _rand(1, 3, 2, 2)
    ),
    "adaptive_average": lambda: _row(
        lambda x, y: (functional.adaptive_avg_pool2d(x, (3, 4)), functional.adaptive_avg_pool1d(y, 3)),
        _rand(1, 2, 10, 11),
        _rand(1, 2, 10),
    ),
    "adaptive_average_large": lambda: _row(lambda x: functional.adaptive_avg_pool2d(x, (3, 2)), _rand(1, 2, 40, 41)),
    "adaptive_average_3d": lambda: _row(lambda x: functional.adaptive_avg_pool3d(x, (2, 3, 2)), _rand(1, 2, 5, 6, 7)),
    "adaptive_average_gradient": lambda: _row(
        lambda g, x: aten._adaptive_avg_pool2d_backward.default(g, x), _rand(1, 2, 3, 3), _rand(1, 2, 7, 6)
    ),
    "adaptive_maximum": lambda: _row(
        lambda x: functional.adaptive_max_pool2d(x, (3, 4), return_indices=True), _rand(1, 2, 10, 11)
    ),
    "adaptive_maximum_3d": lambda: _row(
        lambda x: functional.adaptive_max_pool3d(x, (2, 3, 2), return_indices=True), _rand(1, 2, 5, 6, 7)
    ),
    "max_pool_indices": lambda: _row(
        lambda x, y: (
            *functional.max_pool2d(x, 3, 2, 1, return_indices=True),
            *functional.max_pool3d(y, 2, return_indices=True),
        ),
        _rand(1, 2, 10, 11),
        _rand(1, 2, 6, 6, 6),
    ),
    "max_pool_large_window": lambda: _row(lambda x: functional.max_pool2d(x, 13, 1, 6), _rand(1, 2, 20, 20)),
    "max_unpool": lambda: _row(
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2), _rand(1, 2, 6, 6)
    ),
    "average_pools": lambda: _row(
        lambda x, y, z: (functional.avg_pool1d(x, 3, 2, 1), functional.avg_pool2d(y, 9), functional.avg_pool3d(z, 2)),
        _rand(1, 2, 10),
        _rand(1, 2, 20, 20),
        _rand(1, 2, 6, 6, 6),
    ),
    "pool_gradients": lambda: _row(
        lambda g, x: (
            aten.avg_pool2d_backward.default(g, x, [2, 2], [2, 2], [0, 0], False, True, None),
            aten.max_pool2d_with_indices_backward.default(
                g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, aten.max_pool2d_with_indices.default(x, [2, 2], [2, 2])[1]
            ),
        ),
        _rand(1, 2, 3, 3),
        _rand(1, 2, 6, 6),
    ),
    "columns": lambda: _row(lambda x: functional.unfold(x, 3, padding=1, stride=2), _rand(1, 2, 6, 7)),
    "core_columns": lambda: _row(
        lambda x: aten.col2im.default(x, [6, 7], [3, 3], [1, 1], [1, 1], [2, 2]), _rand(1, 18, 12)
    ),
    "pixel_shuffle": lambda: _row(
        lambda x: (functional.pixel_shuffle(x, 2), functional.pixel_unshuffle(x, 2), functional.channel_shuffle(x, 2)),
        _rand(1, 4, 4, 4),
    ),
}

_LAYOUT: dict[str, Callable[[], Row]] = {
    "pads_1d": lambda: _row(
        lambda x: tuple(functional.pad(x, (1, 2), m) for m in ("constant", "reflect", "replicate", "circular")),
        _rand(1, 2, 6),
    ),
    "pads_2d": lambda: _row(
        lambda x: tuple(functional.pad(x, (1, 2, 2, 1), m) for m in ("constant", "reflect", "replicate")),
        _rand(1, 2, 6, 5),
    ),
    "core_pads": lambda: _row(
        lambda x, y: (
            aten.constant_pad_nd.default(y, [1, 1], 2.0),
            aten.reflection_pad1d.default(y, [2, 1]),
            aten.reflection_pad2d.default(x[0], [1, 0, 2, 1]),
            aten.reflection_pad3d.default(x, [1, 1, 2, 1, 1, 0]),
            aten.replication_pad2d.default(x[0], [1, 0, 2, 1]),
            aten.replication_pad3d.default(x, [1, 1, 2, 1, 1, 0]),
        ),
        _rand(1, 2, 4, 4, 5),
        _rand(2, 5),
    ),
    "diagonals": lambda: _row(
        lambda x, y: (
            torch.diag_embed(x, 1),
            torch.diag(y),
            torch.diagonal(y, 1),
            torch.block_diag(x, y),
            torch.diagonal_scatter(y, x[:4, 0]),
        ),
        _rand(4, 4),
        _rand(4, 4),
    ),
    "slice_scatter": lambda: _row(
        lambda x, y: (
            x.select_scatter(y[0], 0, 1),
            x.slice_scatter(y, 0, 1, 3),
            torch.as_strided_scatter(x, y, (2, 3), (3, 1), 0),
        ),
        _rand(4, 3),
        _rand(2, 3),
    ),
    "strided": lambda: _row(lambda x: (x.as_strided((2, 2), (1, 2), 1) + 1, x.unfold(0, 3, 2)), _rand(9)),
    "splits": lambda: _row(
        lambda x: (x.narrow(0, 1, 2) + 0, *x.split([1, 3]), *x.chunk(2, 1), *x.unbind(1)), _rand(4, 3)
    ),
    "repeats": lambda: _row(
        lambda x: (
            x.tile(2, 3),
            x.repeat(1, 2, 1),
            x.expand(3, 4, 3) + 1,
            torch.rot90(x),
            x.movedim(0, 1) + 0,
            x.roll(1),
        ),
        _rand(4, 3),
    ),
    "views": lambda: _row(
        lambda x: (
            aten.view.default(x, [3, 4]) + 1,
            aten.permute.default(x, [1, 0]) * 2,
            aten.squeeze.dims(x.unsqueeze(0), [0]) + 3,
            aten.select.int(x, 0, 1) + 4,
            aten.flip.default(x, [0]),
        ),
        _rand(4, 3),
    ),
    "stacks": lambda: _row(
        lambda x, y: (torch.stack([x, y], 1), torch.hstack([x, y]), torch.dstack([x, y]), torch.cartesian_prod(x, y)),
        _rand(3),
        _rand(3),
    ),
    "grids": lambda: _row(lambda x, y: (*torch.meshgrid(x, y, indexing="ij"), torch.vander(x, 4)), _rand(4), _rand(3)),
}

_PRODUCTS: dict[str, Callable[[], Row]] = {
    "product_double": lambda: _row(lambda x, y: x @ y, _rand(9, 17, dtype=_F64), _rand(17, 5, dtype=_F64)),
    "batched_product_double": lambda: _row(
        lambda x, y: x @ y, _rand(3, 9, 17, dtype=_F64), _rand(3, 17, 5, dtype=_F64)
    ),
    "added_product_double": lambda: _row(
        lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2),
        *(_rand(*s, dtype=_F64) for s in ((5,), (9, 17), (17, 5))),
    ),
    "product_integers": lambda: _row(lambda x, y: (x @ y, x.int() @ y.int()), _long(9, 17), _long(17, 5)),
    "product_empty": lambda: _row(lambda x, y: x @ y, _rand(2, 0), _rand(0, 2)),
    "product_tiny": lambda: _row(lambda x, y: (aten.mm.default(x, y), y @ x), _rand(1, 3), _rand(3, 1)),
    "added_products": lambda: _row(
        lambda b, x, y: (torch.baddbmm(b, x, y, beta=0.5, alpha=2), torch.addmm(b[0], x[0], y[0])),
        _rand(2, 3, 5),
        _rand(2, 3, 4),
        _rand(2, 4, 5),
    ),
    "vector_products": lambda: _row(
        lambda x, y: (torch.dot(x, y), torch.outer(x, y), torch.inner(x, y), torch.linalg.cross(x[:3], y[:3])),
        _rand(40),
        _rand(40),
    ),
    "added_vectors": lambda: _row(
        lambda b, x, y: (torch.addmv(b, x, y), torch.addr(x, b, y)), _rand(4), _rand(4, 5), _rand(5)
    ),
    "einsum": lambda: _row(lambda x, y: torch.einsum("bij,bjk->ik", x, y), _rand(2, 3, 4), _rand(2, 4, 5)),
    "bilinear_form": lambda: _row(
        lambda x, y, w: functional.bilinear(x, y, w), _rand(3, 4), _rand(3, 5), _rand(6, 4, 5)
    ),
    "matrix_chain": lambda: _row(
        lambda x, y: (torch.linalg.multi_dot([x, y, x]), torch.linalg.matrix_power(x @ y, 3)), _rand(3, 4), _rand(4, 3)
    ),
    "kronecker": lambda: _row(lambda x, y: (torch.kron(x, y), torch.tensordot(x, y, 1)), _rand(2, 3), _rand(3, 2)),
}

_LAYERS: dict[str, Callable[[], Row]] = {
    "convolution_grouped": lambda: _layer(nn.Conv2d(8, 16, 3, groups=2, padding=1), _rand(1, 8, 9, 9)),
    "convolution_depthwise": lambda: _layer(nn.Conv2d(8, 8, 3, groups=8, padding=1), _rand(1, 8, 9, 9)),
    "convolution_depthwise_1d": lambda: _layer(nn.Conv1d(8, 8, 3, groups=8, padding=1), _rand(1, 8, 20)),
    "convolution_dilated": lambda: _layer(nn.Conv2d(8, 16, 3, dilation=2, groups=2), _rand(1, 8, 9, 9)),
    "convolution_double": lambda: _layer(nn.Conv2d(4, 5, 3, stride=2).double(), _rand(1, 4, 8, 8, dtype=_F64)),
    "convolution_unbatched": lambda: _layer(nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), _rand(3, 8, 8)),
    "convolution_3d": lambda: _layer(nn.Conv3d(3, 4, 3), _rand(1, 3, 5, 5, 5)),
    "transposed_convolution_1d": lambda: _layer(nn.ConvTranspose1d(4, 5, 3, stride=2), _rand(1, 4, 6)),
    "transposed_convolution": lambda: _layer(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), _rand(1, 4, 6, 5)
    ),
    "transposed_convolution_dilated": lambda: _layer(
        nn.ConvTranspose2d(4, 5, 3, padding=3, dilation=2), _rand(1, 4, 6, 5)
    ),
    "transposed_convolution_3d": lambda: _layer(nn.ConvTranspose3d(4, 5, 2, stride=2), _rand(1, 4, 3, 3, 3)),
    "core_convolution": lambda: _row(
        lambda x, w: aten.convolution.default(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        _rand(1, 4, 6, 6),
        _rand(5, 4, 3, 3),
    ),
    "lstm": lambda: _layer(Unrolled(nn.LSTM(6, 8, batch_first=True)), _rand(2, 2, 6)),
    "gru": lambda: _layer(Unrolled(nn.GRU(6, 8)), _rand(3, 2, 6)),
    "rnn": lambda: _layer(Unrolled(nn.RNN(6, 8, bidirectional=True)), _rand(2, 2, 6)),
    "lstm_cell": lambda: _layer(nn.LSTMCell(6, 8), _rand(2, 6)),
    "gru_cell": lambda: _layer(nn.GRUCell(6, 8), _rand(2, 6)),
    "batch_norms": lambda: _layer(nn.Sequential(nn.BatchNorm1d(4), nn.InstanceNorm1d(4, affine=True)), _rand(3, 4, 6)),
    "core_norms": lambda: _row(
        lambda x, w, b: (
            *aten.native_layer_norm.default(x, [6], w, b, 1e-5),
            *aten.native_group_norm.default(x, w[:4].clone(), b[:4].clone(), 2, 4, 6, 2, 1e-5),
        ),
        _rand(2, 4, 6),
        _rand(6),
        _rand(6),
    ),
    "core_batch_norms": lambda: _row(
        lambda x, w, b, v: (
            aten._native_batch_norm_legit_no_training.default(x, w, b, w, v.abs() + 1, 0.1, 1e-5)[0],
            aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)[0],
        ),
        _rand(2, 4, 6),
        *(_rand(4) for _ in range(3)),
    ),
    "norm_gradients": lambda: _row(
        lambda g, x, w: aten.native_layer_norm_backward.default(
            g, x, [6], *aten.native_layer_norm.default(x, [6], w, w, 1e-5)[1:], w, w, [True, True, True]
        ),
        _rand(3, 6),
        _rand(3, 6),
        _rand(6),
    ),
    "group_norm_gradient": lambda: _row(
        lambda g, x, w: aten.native_group_norm_backward.default(
            g, x, *aten.native_group_norm.default(x, w, w, 2, 4, 6, 2, 1e-5)[1:], w, 2, 4, 6, 2, [True, True, True]
        ),
        _rand(2, 4, 6),
        _rand(2, 4, 6),
        _rand(4),
    ),
    "rms_norm": lambda: _layer(nn.RMSNorm(16), _rand(3, 16)),
    "local_response_norm": lambda: _layer(nn.LocalResponseNorm(2), _rand(1, 4, 5, 5)),
    "dropout_in_eval_mode": lambda: _layer(nn.Sequential(nn.Dropout(0.1), nn.AlphaDropout(0.1)), _rand(5)),
    "core_dropout": lambda: _row(lambda x: aten.native_dropout.default(x, 0.5, False)[0] + 1, _rand(5)),
    "multihead_attention": lambda: _row(
        lambda q, w, b, o: functional.multi_head_attention_forward(
            q, q, q, 16, 2, w, b, None, None, False, 0.0, o, b[:16], training=False
        )[0],
        _rand(5, 2, 16),
        _rand(48, 16),
        _rand(48),
        _rand(16, 16),
    ),
}


def _complex(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.complex(x, y), torch.complex(y, x + 1)


def _spectrum(x: torch.Tensor) -> Any:
    window = torch.hann_window(16, dtype=x.dtype)
    spectrum = torch.stft(x, 16, hop_length=4, window=window, return_complex=True)
    return spectrum.abs(), torch.istft(spectrum, 16, hop_length=4, window=window)


_COMPLEX: dict[str, Callable[[], Row]] = {
    "complex_arithmetic": lambda: _row(
        lambda x, y: (
            lambda a, b: tuple(
                torch.view_as_real(v)
                for v in (a + b, a - 2 * b, a / b, a * x, a.conj() * b, torch.exp(a), a**2, a.log())
            )
        )(*_complex(x, y)),
        _rand(3, 4),
        _rand(3, 4),
    ),
    "complex_shapes": lambda: _row(
        lambda x, y: (
            lambda a, b: tuple(
                torch.view_as_real(v)
                for v in (a.sum(-1), a.mean(0), torch.cat([a, b]), a.T.reshape(2, 6), a[1:], torch.stack([a, b]), -a)
            )
        )(*_complex(x, y)),
        _rand(3, 4),
        _rand(3, 4),
    ),
    "complex_product": lambda: _row(
        lambda x, y: (lambda a, b: torch.view_as_real(a @ b.mT))(*_complex(x, y)), _rand(3, 4), _rand(3, 4)
    ),
    "complex_parts": lambda: _row(
        lambda x, y: (lambda a, _: (a.abs(), a.angle(), a.real + 1, a.conj().imag + 0))(*_complex(x, y)),
        _rand(3, 4),
        _rand(3, 4),
    ),
    "rotary_embedding": lambda: _row(
        lambda x, f: torch.view_as_real(
            torch.view_as_complex(x.reshape(2, 5, 4, 2)) * torch.polar(torch.ones_like(f), f)[None]
        ).flatten(2),
        _rand(2, 5, 8),
        _rand(5, 4),
    ),
    "fourier": lambda: _row(
        lambda x: (
            torch.view_as_real(torch.fft.fft(x, norm="ortho")),
            torch.view_as_real(torch.fft.ifft(torch.fft.fft(x))),
        ),
        _rand(3, 7),
    ),
    "fourier_real": lambda: _row(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=7), _rand(3, 7)),
    "fourier_2d": lambda: _row(lambda x: torch.fft.irfft2(torch.fft.rfft2(x) + 1), _rand(2, 4, 6)),
    "core_fourier": lambda: _row(
        lambda x: aten._fft_c2r.default(aten._fft_r2c.default(x, [1], 0, True), [1], 2, 6), _rand(4, 6)
    ),
    "spectrum": lambda: _row(_spectrum, _rand(64)),
}

# Results that do not depend on what is drawn; what is drawn, `test_random_models.py` checks.
_RANDOM: dict[str, Callable[[], Row]] = {
    "permutation": lambda: _row(lambda x: torch.sort(x[torch.randperm(9)])[0], _rand(9)),
    "multinomial": lambda: _row(
        lambda w: (
            torch.sort(torch.multinomial(w.float(), 3))[0],
            torch.take(w, torch.multinomial(w.float(), 20, replacement=True)) > 0,
        ),
        torch.tensor([3, 0, 1, 2, 0, 0]),
    ),
    "uniform_and_normal": lambda: _row(
        lambda x: (
            (torch.rand_like(x) < 1) & (torch.rand(9) >= 0),
            torch.randn(9).abs() < 20,
            torch.bernoulli(x * 0 + 1),
        ),
        _rand(9),
    ),
}

OPERATIONS: dict[str, Callable[[], Row]] = {
    **_POINTWISE,
    **_FACTORIES,
    **_REDUCTIONS,
    **_SORTS,
    **_INDEXING,
    **_RESAMPLING,
    **_LAYOUT,
    **_PRODUCTS,
    **_LAYERS,
    **_COMPLEX,
    **_RANDOM,
}


@dataclass(frozen=True)
class Refused:
    """A model that cannot be compiled, and the whole message, with `{where}` for the source line."""

    row: Callable[[], Row]
    message: str


_LIBRARY = (
    "{op} at {where} has no Triton kernel: Inductor would call a library for it. "
    "Express it with operations that Inductor fuses, or keep it outside the exported model"
)
_SIZE = "{op} at {where} gives a result whose size depends on the values of its input; {fix}"


def _library(op: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Refused:
    return Refused(lambda: _row(function, *(_rand(*s) for s in shapes)), _LIBRARY.replace("{op}", f"aten.{op}"))


def _data_dependent(op: str, fix: str, function: Callable[..., Any]) -> Refused:
    return Refused(lambda: _row(function, _rand(10, 4)), _SIZE.replace("{op}", f"aten.{op}").replace("{fix}", fix))


# Rows that earlier releases of torch cannot export, or export with wrong shapes (the state of an LSTM).
EXPORTED_SINCE: dict[str, str] = {"lstm": "2.12", "quantile": "2.12", "quantiles": "2.12"}

_BY_SHAPES = "give the result a size that depends on shapes alone"

REFUSED: dict[str, Refused] = {
    "nonzero": _data_dependent("nonzero.default", "use torch.nonzero_static, which takes the size", torch.nonzero),
    "boolean_index": _data_dependent(
        "index.Tensor", "use torch.where, or index with a number of indices that is known", lambda x: x[x > 0]
    ),
    "masked_select": _data_dependent(
        "masked_select.default", "use torch.where, which keeps the shape", lambda x: x.masked_select(x > 0)
    ),
    "bincount": _data_dependent(
        "bincount.default",
        "add ones up with scatter_add, into as many places as there can be",
        lambda x: torch.bincount(x.long().abs().flatten()),
    ),
    "unique": _data_dependent("_unique2.default", _BY_SHAPES, torch.unique),
    "item": Refused(
        lambda: _row(lambda x: x * x.sum().item(), _rand(4)),
        "aten.item.default at {where} takes a number out of a tensor while the program runs; keep it a tensor",
    ),
    "inverse": _library("linalg_inv_ex.default", torch.linalg.inv, (4, 4)),
    "determinant": _library("_linalg_det.default", torch.linalg.det, (4, 4)),
    "solve": _library("_linalg_solve_ex.default", torch.linalg.solve, (4, 4), (4, 2)),
    "cholesky": _library("linalg_cholesky_ex.default", lambda x: torch.linalg.cholesky(x @ x.T), (4, 4)),
    "qr": _library("linalg_qr.default", torch.linalg.qr, (4, 4)),
    "singular_values": _library("_linalg_svd.default", torch.linalg.svdvals, (4, 4)),
    "eigenvalues": _library("_linalg_eigh.default", torch.linalg.eigvalsh, (4, 4)),
    "matrix_exponential": _library("linalg_matrix_exp.default", torch.linalg.matrix_exp, (4, 4)),
    "convolution_gradient": _library(
        "convolution_backward.default",
        lambda g, x, w: aten.convolution_backward.default(
            g, x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        (1, 4, 4, 4),
        (1, 3, 6, 6),
        (4, 3, 3, 3),
    ),
    "greatest_common_divisor": Refused(
        lambda: _row(torch.gcd, _long(9), _long(9)), _LIBRARY.replace("{op}", "aten.gcd.default")
    ),
    "zeta": _library("special_zeta.default", torch.special.zeta, (9,), (9,)),
}
