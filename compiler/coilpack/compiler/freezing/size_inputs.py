"""Inputs for sizes that a generated module could not tell from its other inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.retrace import Retraced
from coilpack.compiler.capture.symbols import input_symbols
from coilpack.compiler.capture.sympy_source import as_sympy


@dataclass(frozen=True)
class SizeInput:
    """A size that a dimension of an input shows as `factor * size + offset`.

    Attributes:
        name: of its symbol.
        index: the number of the input.
        dim: the dimension.
    """

    name: str
    index: int
    dim: int
    factor: int
    offset: int

    def value(self, arguments: Sequence[Any]) -> int:
        """The size at a call with `arguments`, those for the inputs that were there before."""
        return (int(arguments[self.index].shape[self.dim]) - self.offset) // self.factor


def add_size_inputs(retraced: Retraced) -> tuple[SizeInput, ...]:
    """Gives the graph an integer input, after the others, for each size that no input shows by itself.

    A module that Inductor writes in Python reads sizes off its inputs' dimensions as they are: of an input of `4*n`
    rows it would not know `n`, and Inductor refuses to write it. A package works `n` out, and passes no such input.

    Returns:
        The sizes, in the order of the new placeholders.

    Raises:
        UnsupportedError: a size cannot be computed from any input's dimension; names both.
    """
    inputs = retraced.inputs
    shown = {size for size in _sizes(inputs) if size.is_Symbol}
    missing = {symbol.name for size in _sizes(inputs) for symbol in size.free_symbols - shown}
    added = tuple(
        _size_input(symbol.name, symbol.input, symbol.dim, inputs[symbol.input])
        for symbol in (input_symbols(inputs, {}) if missing else ())
        if symbol.name in missing and symbol.dim is not None
    )
    graph = retraced.graph_module.graph
    for size in added:
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            node = graph.placeholder(f"size_{size.name}")
        node.meta["val"] = compat.symbolic_size(retraced.fake_mode.shape_env, size.name)
        inputs.append(node.meta["val"])
    retraced.graph_module.recompile()
    return added


def _size_input(name: str, index: int, dim: int, tensor: torch.Tensor) -> SizeInput:
    expr = as_sympy(tensor.shape[dim])
    (symbol,) = expr.free_symbols  # in which it is linear
    offset = expr.subs(symbol, 0)
    return SizeInput(name, index, dim, int(expr.subs(symbol, 1) - offset), int(offset))


def _sizes(inputs: Sequence[Any]) -> Iterator[sympy.Expr]:
    """The symbolic dimensions, strides and numbers of the inputs."""
    for value in inputs:
        numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for number in numbers:
            if isinstance(number, torch.SymInt):
                yield number.node.expr
