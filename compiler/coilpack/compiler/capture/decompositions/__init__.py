"""Replacements for operations that Inductor would send to a library: each is fused, or a Triton kernel of our own.

A replacement takes the operator's arguments and gives its result, in operations that are traced and replaced again;
`NotImplemented` leaves the operator to Inductor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from coilpack.compiler.capture.decompositions import (
    convolutions,
    embeddings,
    pointwise,
    pooling,
    products,
    recurrent,
    resampling,
    sampling,
    scattering,
    sorting,
    user_kernels,
    windows,
)

_MODULES = (
    convolutions,
    embeddings,
    pointwise,
    pooling,
    products,
    recurrent,
    resampling,
    sampling,
    scattering,
    sorting,
    user_kernels,
    windows,
)

TABLE: Mapping[Any, Callable[..., Any]] = {op: f for module in _MODULES for op, f in module.TABLE.items()}
"""For a decomposition table: fires for operators with a kernel of their own, wherever they come from."""

OVERRIDES: Mapping[Any, Callable[..., Any]] = {op: f for module in _MODULES for op, f in module.OVERRIDES.items()}
"""For an interpreter of the exported graph: composite operators, which are taken apart before a table sees them."""


def complete(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Inductor's decomposition table with what is replaced here, wherever it comes from.

    Inductor's sum of complex tensors, a view of their memory, goes: it would hide what they are made of.
    """
    return {**{op: f for op, f in table.items() if op != torch.ops.aten.add.Tensor}, **TABLE}
