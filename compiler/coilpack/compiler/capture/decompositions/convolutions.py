"""Convolutions that no template takes: other numbers of dimensions, dilated, transposed, in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten

_TEMPLATE_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Any convolution as one that a template takes, or as a matrix product; `NotImplemented` for those as they are."""
    dims = weight.dim() - 2
    stride, padding, dilation, output_padding = (
        list(v) * (dims if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding)
    )
    if transposed:
        return _transposed(x, weight, bias, stride, padding, dilation, output_padding, groups)
    if dims == 1:
        # Of height 1, for which there is a template.
        x, weight = x.unsqueeze(-2), weight.unsqueeze(-2)
        flat = aten.convolution(x, weight, bias, [1, *stride], [0, *padding], [1, *dilation], False, [0, 0], groups)
        return flat.squeeze(-2)
    if x.dtype in _TEMPLATE_TYPES and all(d == 1 for d in dilation):
        return NotImplemented
    return _by_columns(x, weight, bias, stride, padding, dilation, groups)


def _transposed(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """As a plain convolution of the input with zeros between its elements, by the kernel turned around."""
    dims = weight.dim() - 2
    spatial = list(range(-dims, 0))
    for dim, step in zip(spatial, stride, strict=True):
        if step > 1:
            at = torch.arange((x.shape[dim] - 1) * step + 1, device=x.device)
            present = (at % step == 0).reshape(-1, *[1] * (-1 - dim))
            x = torch.where(present, x.index_select(dim, at // step), 0)
    margins: list[int] = []
    for axis in reversed(range(dims)):
        margin = dilation[axis] * (weight.shape[2 + axis] - 1) - padding[axis]
        margins += [margin, margin + output_padding[axis]]
    x = aten.constant_pad_nd(x, margins)  # negative margins cut
    channels, per_group = weight.shape[0] // groups, weight.shape[1]
    weight = weight.reshape(groups, channels, per_group, *weight.shape[2:]).transpose(1, 2)
    weight = weight.reshape(groups * per_group, channels, *weight.shape[3:]).flip(spatial)
    ones, zeros = [1] * dims, [0] * dims
    return aten.convolution(x, weight.contiguous(), bias, ones, zeros, list(dilation), False, zeros, groups)


def _by_columns(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Gathers what each result multiplies into a column, then one product for each group."""
    dims = weight.dim() - 2
    x = aten.constant_pad_nd(x, [p for pad in reversed(padding) for p in (pad, pad)])
    batch, kernel = x.shape[0], list(weight.shape[2:])
    index: list[torch.Tensor] = []
    out = []
    for axis in range(dims):
        size = (x.shape[2 + axis] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        out.append(size)
        within = torch.arange(kernel[axis], device=x.device).unsqueeze(-1) * dilation[axis]
        at = within + torch.arange(size, device=x.device) * stride[axis]
        index.append(at.reshape(*[1] * (2 * axis), kernel[axis], size, *[1] * (2 * (dims - 1 - axis))))
    columns = aten.index(x, [None, None, *index])  # (batch, channels, kernel and result of each axis in turn)
    order = [0, 1, *range(2, 2 + 2 * dims, 2), *range(3, 3 + 2 * dims, 2)]
    count = 1
    for size in (x.shape[1] // groups, *kernel):
        count = count * size
    columns = columns.permute(order).reshape(batch, groups, count, -1)
    rows = weight.reshape(groups, weight.shape[0] // groups, count)
    result = torch.matmul(rows, columns).reshape(batch, weight.shape[0], *out)
    return result if bias is None else result + bias.reshape(-1, *[1] * dims)


TABLE: Mapping[Any, Callable[..., Any]] = {aten.convolution.default: _convolution}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {}
