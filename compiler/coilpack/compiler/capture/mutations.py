"""The order in which new values go over the inputs that they replace, so that none is read after it is overwritten.

A new value that is computed is ready before the first input changes. One that only views an input, or copies it, may be
read from the input itself when its turn comes, because Inductor drops what it takes for needless copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch

from coilpack.compiler.capture.bindings import Mutation

aten = torch.ops.aten
# Operators that give a copy of one argument, and its position.
_COPIES: Mapping[object, int] = {
    aten.clone.default: 0,
    aten.contiguous.default: 0,
    aten.copy.default: 1,
    aten.lift_fresh_copy.default: 0,
    aten._to_copy.default: 0,
    aten.to.dtype: 0,
}


def order_mutations(graph: torch.fx.Graph, mutations: Sequence[Mutation]) -> tuple[Mutation, ...]:
    """The same mutations in an order that works, those without one marked `aside`.

    Args:
        graph: a functional graph.
        mutations: which of its results replace which of its placeholders.
    """
    placeholders = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    owners = {placeholders[m.placeholder]: number for number, m in enumerate(mutations)}
    results = [output.args[0][m.result] for m in mutations]
    aside = {n for n, node in enumerate(results) if n in {owners[p] for p in _reached(node, _views) if p in owners}}
    reads = [{owners[p] for p in _reached(node, _lookalikes) if p in owners} for node in results]
    while True:
        # What number `n` reads must not be overwritten before `n` is written, unless its new value was put aside.
        after: dict[int, set[int]] = {n: set() for n in range(len(mutations))}
        for number, read in enumerate(reads):
            for other in read - {number} if number not in aside else ():
                after[other].add(number)
        try:
            order = list(TopologicalSorter(after).static_order())
        except CycleError as error:
            aside.add(error.args[1][0])
            continue
        return tuple(replace(mutations[number], aside=number in aside) for number in order)


def _reached(
    node: torch.fx.Node, sources: Callable[[torch.fx.Node], Iterator[torch.fx.Node]]
) -> Iterator[torch.fx.Node]:
    """The placeholders that `node` may turn out to be, going back along `sources`."""
    seen: set[torch.fx.Node] = set()
    pending = [node]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            if node.op == "placeholder":
                yield node
            pending.extend(sources(node))


def _views(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The arguments that a node views or copies."""
    if node.target in _COPIES:
        source = node.args[_COPIES[node.target]]
        if isinstance(source, torch.fx.Node):
            yield source
    elif isinstance(node.target, torch._ops.OpOverload):
        for declared, argument in zip(node.target._schema.arguments, node.args, strict=False):
            if declared.alias_info is not None and isinstance(argument, torch.fx.Node):
                yield argument


def _lookalikes(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The arguments that a node views, copies, or might be replaced by: those of the same type, shape and strides."""
    yield from _views(node)
    value: Any = node.meta.get("val")
    for argument in node.all_input_nodes if isinstance(value, torch.Tensor) else ():
        other = argument.meta.get("val")
        if isinstance(other, torch.Tensor) and _may_be_alike(value, other):
            yield argument


def _may_be_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether types, shapes and strides can be the same.

    Sizes that are not known count as equal: comparing them would make the program one for that case alone.
    """
    if one.dtype != other.dtype or one.dim() != other.dim():
        return False
    pairs = zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=True)
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))
