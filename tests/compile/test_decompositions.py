"""Replacements by themselves, on the CPU, against torch's own operators: many shapes, types and special values.

`core_operations.py` has models that are compiled with them; here nothing is compiled, so there can be many more cases.
"""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from coilpack.compiler.capture import decompositions  # noqa: E402
from coilpack.compiler.capture.decompositions import sorting  # noqa: E402

aten = torch.ops.aten
TABLE = decompositions.TABLE


def _check(operator, *args, **kwargs) -> None:
    """What stands for `operator` gives what it gives: bits for integers, six digits for floats."""
    torch.testing.assert_close(
        TABLE[operator](*args, **kwargs), operator(*args, **kwargs), rtol=1e-5, atol=1e-6, equal_nan=True
    )


def _tied(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Few distinct values, so that there are ties, with all special values among them."""
    x = torch.randint(-4, 5, shape)
    if not dtype.is_floating_point:
        return (x + 4).to(dtype)
    specials = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-40, -math.nan])
    return torch.where(torch.rand(shape) < 0.2, specials[torch.randint(0, len(specials), shape)], x / 2).to(dtype)


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_every_type_sorts_stably_with_nan_as_the_greatest(dtype, descending) -> None:
    torch.manual_seed(0)
    x = _tied(dtype, 3, 200)
    indices = sorting.order(sorting.ordering_key(x, descending))
    want = torch.sort(x, stable=True, dim=-1, descending=descending)
    torch.testing.assert_close(x.gather(-1, indices), want.values, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(indices, want.indices)


@pytest.mark.parametrize("length", [0, 1, 2, 511, 512, 513, 1024, 1025, 3001])
def test_rows_of_every_length_sort_in_runs(length) -> None:
    torch.manual_seed(length)
    x = torch.randint(0, 50, (2, length))
    assert torch.equal(sorting.order(x), torch.sort(x, stable=True).indices)


@pytest.mark.parametrize(("length", "count"), [(7, 7), (600, 1), (2000, 60), (5000, 256), (700, 300), (4097, 100)])
def test_the_smallest_are_those_that_a_stable_sort_puts_first(length, count) -> None:
    torch.manual_seed(length)
    x = torch.randint(0, 90, (2, length), dtype=torch.int32)
    assert torch.equal(sorting.smallest(x, count), torch.sort(x, stable=True).indices[:, :count])


@pytest.mark.parametrize("shape", [(5,), (4, 9), (2, 3, 4)])
def test_order_statistics(shape) -> None:
    torch.manual_seed(0)
    x = torch.randperm(math.prod(shape)).reshape(shape) / 7
    for dim in range(-1, len(shape)):
        for keepdim in (False, True):
            _check(aten.kthvalue.default, x, 2, dim, keepdim)
            _check(aten.median.dim, x, dim, keepdim)
            _check(aten.nanmedian.dim, torch.where(x > 0.2, x, math.nan), dim, keepdim)
            for interpolation in ("linear", "lower", "higher", "midpoint", "nearest"):
                for q in (0.0, 0.37, torch.tensor([0.5, 1.0])):
                    got = sorting._quantile(x, q, dim, keepdim, interpolation=interpolation)
                    torch.testing.assert_close(got, torch.quantile(x, q, dim, keepdim, interpolation=interpolation))
    _check(aten.median.default, x)
    q = torch.tensor([0.1])
    torch.testing.assert_close(sorting._quantile(x, q, None, True), torch.quantile(x, q, None, True))


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic", "trilinear"])
@pytest.mark.parametrize("corners", [False, True])
def test_resizing_up_and_down(mode, corners) -> None:
    torch.manual_seed(0)
    dims = {"linear": 1, "trilinear": 3}.get(mode, 2)
    operator = getattr(aten, f"upsample_{mode}{dims}d").default
    for size, target in ((5, 9), (9, 4), (6, 1), (1, 3)):
        _check(operator, torch.randn(1, 2, *[size] * dims), [target] * dims, corners)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_smoothed_resizing(mode) -> None:
    torch.manual_seed(0)
    operator = getattr(aten, f"_upsample_{mode}2d_aa").default
    for shape, target in (((9, 12), (4, 5)), ((5, 7), (11, 3)), ((8, 8), (8, 8)), ((31, 3), (2, 2))):
        for corners in (False, True):
            _check(operator, torch.randn(1, 2, *shape), target, corners)
        if shape != target:  # torch's CPU kernel copies, whatever the scale
            scales = [t / s * 1.01 for s, t in zip(shape, target, strict=True)]
            _check(operator, torch.randn(1, 2, *shape), target, False, *scales)


@pytest.mark.parametrize("dims", [2, 3])
def test_adaptive_pools(dims) -> None:
    torch.manual_seed(0)
    for sizes, counts in (((5, 7, 4), (3, 2, 4)), ((9, 4, 6), (2, 7, 1)), ((3, 3, 3), (3, 3, 3))):
        x = torch.randn(2, 3, *sizes[:dims])
        _check(getattr(aten, f"_adaptive_avg_pool{dims}d").default, x, counts[:dims])
        _check(getattr(aten, f"adaptive_max_pool{dims}d").default, x, counts[:dims])
        _check(getattr(aten, f"_adaptive_avg_pool{dims}d_backward").default, torch.randn(2, 3, *counts[:dims]), x)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_every_kind(dims, transposed, groups) -> None:
    torch.manual_seed(0)
    for stride, padding, dilation, extra in ((1, 0, 2, 0), (2, 1, 1, 1), (3, 2, 2, 1), (1, 3, 1, 0), (2, 0, 3, 0)):
        x = torch.randn(2, 4, *(9, 8, 7)[:dims], dtype=torch.float64)
        channels = (4, 3) if transposed else (6, 4 // groups)
        weight = torch.randn(*channels, *(3, 2, 3)[:dims], dtype=torch.float64)
        bias = torch.randn(3 * groups if transposed else 6, dtype=torch.float64)
        options = (
            [stride] * dims,
            [padding] * dims,
            [dilation] * dims,
            transposed,
            [extra * transposed] * dims,
            groups,
        )
        _check(aten.convolution.default, x, weight, bias, *options)


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
def test_bags_of_embeddings(mode) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(10, 6), torch.randint(0, 10, (12,))
    each = torch.randn(12) if mode == 0 else None
    for offsets, last, padding in (([0, 4, 4, 9], False, -1), ([0, 3, 12], True, -1), ([0, 5], False, 3)):
        arguments = (weight, indices, torch.tensor(offsets), False, mode, False, each, last, padding)
        got = TABLE[aten._embedding_bag.default](*arguments)[0]
        torch.testing.assert_close(got, aten._embedding_bag.default(*arguments)[0])


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scattered_reductions(reduce, include_self) -> None:
    torch.manual_seed(0)
    for dim in (0, 1, -1):
        x, source = torch.randn(4, 5, 6), torch.randn(4, 5, 6)
        index = torch.randint(0, 4, (3, 4, 5))
        _check(aten.scatter_reduce.two, x, dim, index, source, reduce, include_self=include_self)


def test_scatters_of_integers_and_booleans() -> None:
    torch.manual_seed(0)
    index = torch.stack([torch.randperm(6)[:3] for _ in range(4)])
    for dtype in (torch.int64, torch.bool):
        x, source = (torch.randint(0, 2, (5, 6)).to(dtype) for _ in range(2))
        _check(aten.scatter.src, x, 1, index, source)
        _check(aten.scatter.src, x, -1, index, source)


def test_histograms_and_places_of_what_is_not_zero() -> None:
    torch.manual_seed(0)
    x = torch.randn(500)
    for bins, low, high in ((10, -1, 1), (7, 0, 0), (4, 2, 2), (3, -0.5, 9)):
        _check(aten.histc.default, x, bins, low, high)
    flags = torch.rand(3, 4, 5) > 0.6
    for size in (1, 10, 70):
        _check(aten.nonzero_static.default, flags, size=size, fill_value=-7)


def test_distances() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    for p in (0.0, 1.0, 1.5, 2.0, 4.0, math.inf):
        _check(aten._cdist_forward.default, x, y, p, None)
        _check(aten._pdist_forward.default, x[0], p)


def test_digamma_between_and_at_its_poles() -> None:
    x = torch.cat([torch.linspace(-8.3, 30, 500), torch.tensor([0.0, -0.0, -1.0, -5.0, 1e-3, 1e6, math.inf, math.nan])])
    _check(aten.digamma.default, x.double())


def test_draws_without_replacement_are_distinct_and_never_of_weight_0() -> None:
    torch.manual_seed(0)
    weights = torch.tensor([1.0, 0.0, 3.0, 2.0, 0.0, 4.0])
    drawn = TABLE[aten.multinomial.default](weights.expand(4000, -1), 4)
    assert all(sorted(row) == [0, 2, 3, 5] for row in drawn.tolist())
    for first in (drawn[:, 0], TABLE[aten.multinomial.default](weights, 4000, True)):
        shares = torch.bincount(first, minlength=6) / 4000
        torch.testing.assert_close(shares, weights / weights.sum(), rtol=0, atol=0.04)


def test_permutations_hold_each_index_once() -> None:
    for n in (0, 1, 2, 700):
        assert torch.equal(TABLE[aten.randperm.default](n, device="cpu").sort()[0], torch.arange(n))
