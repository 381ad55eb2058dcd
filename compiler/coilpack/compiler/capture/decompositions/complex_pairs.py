"""Complex numbers inside a model as pairs of real tensors, since kernels have no complex element type.

A traced graph that makes complex values (from pairs, angles or Fourier transforms) and takes them apart again is traced
once more with each of them a `Pair`. Complex inputs and weights are not split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten


@dataclass(frozen=True)
class Pair:
    """A complex tensor: two real ones of its shape."""

    real: torch.Tensor
    imaginary: torch.Tensor


def has_complex_values(graph: torch.fx.Graph) -> bool:
    """Whether an operation of the graph gives or takes complex tensors."""
    return any(
        isinstance(value, torch.Tensor) and value.is_complex()
        for node in graph.nodes
        for value in tree_leaves(node.meta.get("val"))
    )


def call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operation on pairs; `NotImplemented` where none is among its arguments and it makes none.

    Raises:
        TypeError: it has no counterpart on pairs.
    """
    target = _IN_PLACE.get(target, target)
    maker = _MAKERS.get(target)
    if maker is not None:
        return maker(*args, **kwargs)
    if not any(isinstance(leaf, Pair) for leaf in tree_leaves((args, kwargs))):
        return NotImplemented
    if target in _ON_EACH:
        return _on_each(target, args, kwargs)
    handler = _OPERATIONS.get(target)
    if handler is None:
        raise TypeError("it has no counterpart on pairs of real and imaginary parts")
    return handler(*args, **kwargs)


def _on_each(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A linear operation, on the real parts and on the imaginary ones."""
    real = target(*tree_map(_real, args), **tree_map(_real, kwargs))
    imaginary = target(*tree_map(_imaginary, args), **tree_map(_imaginary, kwargs))
    if isinstance(real, list | tuple):
        return [Pair(*both) for both in zip(real, imaginary, strict=True)]
    return Pair(real, imaginary)


def _real(value: Any) -> Any:
    return value.real if isinstance(value, Pair) else _neutral(value)


def _imaginary(value: Any) -> Any:
    return value.imaginary if isinstance(value, Pair) else _neutral(value)


def _neutral(value: Any) -> Any:
    """What is no pair is the same for both parts (a shape, an index), and a complex type is that of the parts."""
    return value.to_real() if isinstance(value, torch.dtype) and value.is_complex else value


def _parts(value: Any) -> tuple[Any, Any]:
    """Real and imaginary part of a pair, a tensor or a number; the latter is 0 where there is none."""
    if isinstance(value, Pair):
        return value.real, value.imaginary
    return (value.real, value.imag) if isinstance(value, complex) else (value, 0)


def _is_zero(part: Any) -> bool:
    return isinstance(part, int | float) and part == 0


def _as_pair(real: torch.Tensor, imaginary: Any) -> Pair:
    """The pair of parts that broadcast to each other."""
    if not isinstance(imaginary, torch.Tensor):
        imaginary = torch.full_like(real, imaginary)
    # torch leaves its broadcasting functions without types.
    return Pair(*torch.broadcast_tensors(real, imaginary))  # type: ignore[no-untyped-call]


def _add(left: Any, right: Any, *, alpha: Any = 1) -> Pair:
    (a, b), (c, d) = _parts(left), _parts(right)
    return _as_pair(a + c * alpha, b + d * alpha)


def _subtract(left: Any, right: Any, *, alpha: Any = 1) -> Pair:
    return _add(left, right, alpha=-alpha)


def _product_by(multiply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Pair]:
    def product(left: Any, right: Any) -> Pair:
        (a, b), (c, d) = _parts(left), _parts(right)
        if _is_zero(d):
            return _as_pair(multiply(a, c), multiply(b, c))
        if _is_zero(b):
            return _as_pair(multiply(a, c), multiply(a, d))
        return _as_pair(multiply(a, c) - multiply(b, d), multiply(a, d) + multiply(b, c))

    return product


_multiply = _product_by(lambda a, b: a * b)


def _divide(left: Any, right: Any) -> Pair:
    c, d = _parts(right)
    if _is_zero(d):
        a, b = _parts(left)
        return _as_pair(a / c, b / c)
    size = c * c + d * d
    return _multiply(left, Pair(c / size, -d / size))


def _power(base: Pair, exponent: Any) -> Pair:
    if exponent == 2:
        return _multiply(base, base)
    return _exp(_multiply(_log(base), exponent))


def _exp(x: Pair) -> Pair:
    size = x.real.exp()
    return Pair(size * x.imaginary.cos(), size * x.imaginary.sin())


def _log(x: Pair) -> Pair:
    return Pair(_size(x).log(), _angle(x))


def _size(x: Pair) -> torch.Tensor:
    return torch.hypot(x.real, x.imaginary)


def _angle(x: Pair) -> torch.Tensor:
    return torch.atan2(x.imaginary, x.real)


def _conjugate(x: Pair) -> Pair:
    return Pair(x.real, -x.imaginary)


def _polar(size: torch.Tensor, angle: torch.Tensor) -> Pair:
    return Pair(size * angle.cos(), size * angle.sin())


def _view_as_complex(x: torch.Tensor) -> Pair:
    return Pair(x.select(-1, 0), x.select(-1, 1))


def _view_as_real(x: Pair) -> torch.Tensor:
    return torch.stack([x.real, x.imaginary], -1)


def _convert(x: Any, dtype: torch.dtype | None = None, **_placement: Any) -> Any:
    """Between complex types, and to one from a real type; from a complex type to a real one the real part is kept."""
    if dtype is None or not dtype.is_complex:
        return NotImplemented if not isinstance(x, Pair) else (x if dtype is None else x.real.to(dtype))
    part = torch.float64 if dtype == torch.complex128 else torch.float32
    real, imaginary = _parts(x)
    real = real.to(part)
    return Pair(real, imaginary.to(part) if isinstance(imaginary, torch.Tensor) else torch.zeros_like(real))


# --- Fourier transforms, as products with the matrix of the transform ---

_LONGEST_TRANSFORM = 4096  # elements; its matrix takes 128 MiB


def _waves(rows: Any, columns: Any, period: Any, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine (rows, columns) of 2 pi j k / period; the product is reduced exactly before it is rounded."""
    if isinstance(period, int) and period > _LONGEST_TRANSFORM:
        raise ValueError(f"a transform of {period} elements; up to {_LONGEST_TRANSFORM} are supported")
    j = torch.arange(rows, device=like.device).unsqueeze(-1)
    k = torch.arange(columns, device=like.device)
    angle = ((j * k) % period).to(like.dtype) * (2 * torch.pi / period)
    return angle.cos(), angle.sin()


def _along(x: torch.Tensor, matrix: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.matmul(x.movedim(dim, -1), matrix).movedim(-1, dim)


def _transform(x: Pair, dim: int, forward: bool) -> Pair:
    n = x.real.shape[dim]
    cosine, sine = _waves(n, n, n, x.real)
    sine = sine if forward else -sine
    return Pair(
        _along(x.real, cosine, dim) + _along(x.imaginary, sine, dim),
        _along(x.imaginary, cosine, dim) - _along(x.real, sine, dim),
    )


def _factor(sizes: list[Any], normalization: int) -> Any:
    """What results are multiplied by: 0 for nothing, 1 for the root of the sizes' product, 2 for the product."""
    count: Any = 1
    for size in sizes:
        count = count * size
    return (1.0, count**-0.5, 1.0 / count)[normalization]


def _complex_to_complex(x: Pair, dim: list[int], normalization: int, forward: bool) -> Pair:
    result = x
    for d in dim:
        result = _transform(result, d, forward)
    return _multiply(result, _factor([x.real.shape[d] for d in dim], normalization))


def _real_to_complex(x: torch.Tensor, dim: list[int], normalization: int, onesided: bool) -> Pair:
    *others, last = dim
    n = x.shape[last]
    cosine, sine = _waves(n, n // 2 + 1 if onesided else n, n, x)
    result = Pair(_along(x, cosine, last), -_along(x, sine, last))
    for d in others:
        result = _transform(result, d, forward=True)
    return _multiply(result, _factor([x.shape[d] for d in dim], normalization))


def _complex_to_real(x: Pair, dim: list[int], normalization: int, last_dim_size: int) -> torch.Tensor:
    *others, last = dim
    for d in others:
        x = _transform(x, d, forward=False)
    n, bins = last_dim_size, last_dim_size // 2 + 1
    x = Pair(*(part.narrow(last, 0, bins) for part in (x.real, x.imaginary)))
    at = torch.arange(bins, device=x.real.device)
    # All but the first, and the last of an even length, stand for their mirror images as well.
    weight = torch.where((at == 0) | (2 * at == n), 1.0, 2.0).to(x.real.dtype).unsqueeze(-1)
    cosine, sine = _waves(bins, n, n, x.real)
    real, imaginary = _along(x.real, cosine * weight, last), _along(x.imaginary, sine * weight, last)
    factor: float = _factor([*(x.real.shape[d] for d in others), n], normalization)
    return (real - imaginary) * factor


# Composite operations change fresh values in place; the traced graph goes on with the result, which may be a copy.
_IN_PLACE: Mapping[Any, Any] = {
    aten.add_.Tensor: aten.add.Tensor,
    aten.div_.Tensor: aten.div.Tensor,
    aten.mul_.Tensor: aten.mul.Tensor,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.sub_.Tensor: aten.sub.Tensor,
    aten.transpose_.default: aten.transpose.int,
    aten.unsqueeze_.default: aten.unsqueeze.default,
}

_MAKERS: Mapping[Any, Callable[..., Any]] = {
    aten.view_as_complex.default: _view_as_complex,
    aten.complex.default: Pair,
    aten.polar.default: _polar,
    aten._to_copy.default: _convert,
    aten._fft_r2c.default: _real_to_complex,
}

_OPERATIONS: Mapping[Any, Callable[..., Any]] = {
    aten.view_as_real.default: _view_as_real,
    aten.real.default: lambda x: x.real,
    aten.imag.default: lambda x: x.imaginary,
    aten.abs.default: _size,
    aten.angle.default: _angle,
    aten._conj.default: _conjugate,
    aten._neg_view.default: lambda x: Pair(-x.real, -x.imaginary),
    aten.resolve_conj.default: lambda x: x,
    aten.resolve_neg.default: lambda x: x,
    aten.conj_physical.default: _conjugate,
    aten.add.Tensor: _add,
    aten.sub.Tensor: _subtract,
    aten.mul.Tensor: _multiply,
    aten.div.Tensor: _divide,
    aten.pow.Tensor_Scalar: _power,
    aten.exp.default: _exp,
    aten.log.default: _log,
    aten.mm.default: _product_by(aten.mm.default),
    aten.bmm.default: _product_by(aten.bmm.default),
    aten._fft_c2c.default: _complex_to_complex,
    aten._fft_c2r.default: _complex_to_real,
}

_ON_EACH = frozenset(
    {
        aten.alias.default,
        aten.as_strided.default,
        aten.cat.default,
        aten.clone.default,
        aten.constant_pad_nd.default,
        aten.copy.default,
        aten.cumsum.default,
        aten.diagonal.default,
        aten.expand.default,
        aten.flip.default,
        aten.gather.default,
        aten.index.Tensor,
        aten.index_select.default,
        aten.lift_fresh_copy.default,
        aten.mean.dim,
        aten.mean.default,
        aten.neg.default,
        aten.permute.default,
        aten.repeat.default,
        aten.reshape.default,
        aten.roll.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.stack.default,
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.t.default,
        aten.transpose.int,
        aten.unbind.int,
        aten.unsqueeze.default,
        aten.view.default,
        aten.where.self,
    }
)
