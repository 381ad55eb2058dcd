"""Recognises reductions in bodies: chains of one combining operation, and a comparison that picks the winner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from coilpack.compiler.mlir.lower.bodies import Body
from coilpack.compiler.mlir.lower.context import Context, Data
from coilpack.compiler.mlir.lower.contractions import contracted
from coilpack.compiler.mlir.lower.reducers import REDUCERS, Reducer
from coilpack.compiler.mlir.lower.spaces import Space
from coilpack.compiler.mlir.lower.winners import winners
from coilpack.compiler.mlir.syntax import Value


@dataclass(frozen=True, eq=False)
class Reduction:
    """Outputs that are reduced along the same dimensions.

    Attributes:
        body: the body, whose inputs are bound over the space.
        space: the iteration space.
        dims: the dimensions that are reduced.
        outputs: their numbers.
        inits: what each output of the body starts from, over the space.
    """

    body: Body
    space: Space
    dims: frozenset[int]
    outputs: Sequence[int]
    inits: Sequence[Data]

    @property
    def along(self) -> tuple[int, ...]:
        """The dimensions in order."""
        return tuple(sorted(self.dims))


def reduced(context: Context, reduction: Reduction) -> dict[int, Data]:
    """The outputs that are recognised, by number, of size 1 along what is reduced."""
    if any(isinstance(size, int) and size == 0 for size in map(reduction.space.sizes.__getitem__, reduction.along)):
        return {number: reduction.inits[number] for number in reduction.outputs}
    found: dict[int, Data] = {}
    for number in reduction.outputs:
        value = _independent(context, reduction, number)
        value = _chain(context, reduction, number) if value is None else value
        if value is not None:
            found[number] = value
    others = winners(context, reduction.body, reduction.space, reduction.along, reduction.outputs, reduction.inits)
    return {**others, **found}


def _independent(context: Context, reduction: Reduction, number: int) -> Data | None:
    """An output that does not read what it was: the last step's value."""
    value = reduction.body.yielded[number]
    if reduction.body.reads(value) or any(not isinstance(reduction.space.sizes[d], int) for d in reduction.dims):
        return None
    (data,) = reduction.body.evaluate(context, [value])
    tensor = reduction.space.spread(data)
    for dim in reduction.along:
        tensor = tensor.narrow(dim, int(reduction.space.sizes[dim]) - 1, 1)
    return tensor


def _chain(context: Context, reduction: Reduction, number: int) -> Data | None:
    """An output that is the old value, combined with others by one kind of operation; None for any other."""
    terms = _terms(reduction.body, number)
    if terms is None:
        return None
    result = context.as_tensor(reduction.inits[number], reduction.body.outputs[number])
    for reducer, term in reversed(terms):
        result = reducer.combine(result, _term(context, reduction, reducer, term))
    return result


def _terms(body: Body, number: int) -> list[tuple[Reducer, Value]] | None:
    """What an output is combined with, the last first."""
    value, output = body.yielded[number], body.outputs[number]
    terms: list[tuple[Reducer, Value]] = []
    while value is not output:
        operation = body.definition(value)
        reducer = REDUCERS.get(operation.name) if operation else None
        if operation is None or reducer is None or (terms and reducer.family != terms[0][0].family):
            return None
        old, other = operation.operands
        if reducer.commutes and not body.reads(old):
            old, other = other, old
        if body.reads(other) or body.reads(old) != {number}:
            return None
        terms.append((reducer, other))
        value = old
    return terms or None


def _term(context: Context, reduction: Reduction, reducer: Reducer, term: Value) -> torch.Tensor:
    """A term, combined over what is reduced."""
    if reducer.family == "sum":
        product = contracted(context, reduction.body, reduction.space, reduction.along, term)
        if product is not None:
            return product
    (data,) = reduction.body.evaluate(context, [term])
    return reducer.reduce(reduction.space.spread(context.as_tensor(data, term)), reduction.along)
