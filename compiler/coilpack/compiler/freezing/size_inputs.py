"""Inputs for sizes that a generated module could not tell from its other inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.retrace import Retraced


def add_size_inputs(retraced: Retraced) -> list[torch.SymInt]:
    """Gives the graph an integer input, after the others, for each size that no input shows by itself.

    A module that Inductor writes in Python reads sizes off its inputs' dimensions as they are: of an input of `4*n`
    rows it would not know `n`, and Inductor refuses to write it. A package works `n` out, and passes no such input.

    Returns:
        The sizes, in the order of the new placeholders; their number at a call follows from the other inputs'.
    """
    shown = {size for size in _sizes(retraced.inputs) if size.is_Symbol}
    needed = {symbol for size in _sizes(retraced.inputs) for symbol in size.free_symbols}
    names = sorted(symbol.name for symbol in needed - shown)
    added = [compat.symbolic_size(retraced.fake_mode.shape_env, name) for name in names]
    graph = retraced.graph_module.graph
    last = graph.find_nodes(op="placeholder")[-1] if added else None
    for name, size in zip(names, added, strict=True):
        assert last is not None  # a size is an input's
        with graph.inserting_after(last):
            last = graph.placeholder(f"size_{name}")
        last.meta["val"] = size
    retraced.inputs.extend(added)
    retraced.graph_module.recompile()
    return added


def _sizes(inputs: Sequence[Any]) -> Iterator[sympy.Expr]:
    """The symbolic dimensions, strides and numbers of the inputs."""
    for value in inputs:
        numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for number in numbers:
            if isinstance(number, torch.SymInt):
                yield number.node.expr
