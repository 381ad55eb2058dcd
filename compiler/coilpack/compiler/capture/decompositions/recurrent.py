"""Recurrent layers, unrolled over time, and their cells as plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat

aten = torch.ops.aten
_linear = torch.nn.functional.linear


def _lstm_cell(
    x: torch.Tensor,
    state: Sequence[torch.Tensor],
    input_weight: torch.Tensor,
    state_weight: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    state_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, cell = state
    gates = _linear(x, input_weight, input_bias) + _linear(hidden, state_weight, state_bias)
    enter, forget, candidate, leave = gates.chunk(4, -1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gru_cell(
    x: torch.Tensor,
    hidden: torch.Tensor,
    input_weight: torch.Tensor,
    state_weight: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    state_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    reset, update, candidate = _linear(x, input_weight, input_bias).chunk(3, -1)
    own_reset, own_update, own_candidate = _linear(hidden, state_weight, state_bias).chunk(3, -1)
    update = (update + own_update).sigmoid()
    candidate = (candidate + (reset + own_reset).sigmoid() * own_candidate).tanh()
    return candidate + update * (hidden - candidate)


TABLE: Mapping[Any, Callable[..., Any]] = {}

OVERRIDES: Mapping[Any, Callable[..., Any]] = {
    **compat.decompositions_of(aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input),
    aten.lstm_cell.default: _lstm_cell,
    aten.gru_cell.default: _gru_cell,
}
