"""`linalg.generic`: the body is executed once, on tensors over the iteration space; reductions become torch's."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from coilpack.compiler.mlir.lower.bodies import Body
from coilpack.compiler.mlir.lower.context import Context, Data, Handler, as_number
from coilpack.compiler.mlir.lower.reductions import Reduction, reduced
from coilpack.compiler.mlir.lower.spaces import Space, seen, space_of
from coilpack.compiler.mlir.syntax import (
    AffineConstant,
    AffineDim,
    AffineMap,
    AffineMapAttr,
    ArrayAttr,
    DenseArrayAttr,
    IntegerAttr,
    Operation,
)

_STEP_LIMIT = 256  # of a reduction that is executed step by step, each a copy of the body


@dataclass(frozen=True, eq=False)
class Structured:
    """A structured operation: what `linalg.generic` writes out, and its named forms imply.

    Attributes:
        operation: for messages, and the type of results.
        dims: of the iteration space.
        inputs: what the operands are.
        inits: what the outputs start from.
        body: what happens at each point of the space.
    """

    operation: Operation
    dims: int
    inputs: Sequence[Data]
    inits: Sequence[torch.Tensor]
    body: Body

    @property
    def output_maps(self) -> Sequence[AffineMap]:
        """The map of each output."""
        return self.body.maps[len(self.inputs) :]

    @cached_property
    def kept(self) -> Sequence[frozenset[int]]:
        """The dimensions of each output; all others are reduced."""
        return [frozenset(r.position for r in m.results if isinstance(r, AffineDim)) for m in self.output_maps]

    def execute(self, context: Context) -> tuple[Data, ...]:
        """The results.

        Raises:
            CoilpackError: sizes do not fit, or the body is not covered.
        """
        for map_ in self.output_maps:
            self._check_output(context, map_)
        space = space_of(context, self.operation, self.dims, [*self.inputs, *self.inits], self.body.maps)
        views = [
            seen(context, self.operation, data, map_, space)
            for data, map_ in zip([*self.inputs, *self.inits], self.body.maps, strict=True)
        ]
        with context.iterating(space.indices()):
            context.bind(self.body.block.arguments, views)
            values = self._values(context, space, views)
        stored = [self._stored(space, number, value) for number, value in enumerate(values)]
        return context.declared(self.operation, stored)

    def _values(self, context: Context, space: Space, views: Sequence[Data]) -> Sequence[Data]:
        """The outputs over the space, of size 1 along what is reduced."""
        everything = frozenset(range(self.dims))
        whole = [number for number, kept in enumerate(self.kept) if kept == everything]
        values: dict[int, Data] = {}
        if all(self.body.reads(self.body.yielded[number]) <= set(whole) for number in whole):
            wanted = [self.body.yielded[number] for number in whole]
            values.update(zip(whole, self.body.evaluate(context, wanted), strict=True))
        inits = views[len(self.inputs) :]
        for kept in dict.fromkeys(self.kept):
            group = [number for number, other in enumerate(self.kept) if other == kept and number not in values]
            if group and kept != everything:
                reduction = Reduction(self.body, space, everything - kept, group, inits)
                values.update(reduced(context, reduction))
        missing = [number for number in range(len(self.inits)) if number not in values]
        if missing:
            values.update(self._step_by_step(context, space, views, missing))
        return [values[number] for number in range(len(self.inits))]

    def _step_by_step(
        self, context: Context, space: Space, views: Sequence[Data], wanted: Collection[int]
    ) -> Mapping[int, Data]:
        """Executes the body once for each point of the reduced dimensions, in order."""
        kept = self.kept[next(iter(wanted))]
        loops = [dim for dim in range(self.dims) if dim not in kept]
        sizes = [space.sizes[dim] for dim in loops]
        if any(self.kept[number] != kept for number in range(len(self.inits))) or not loops:
            raise context.unsupported(self.operation, f"{self.operation.name}: its outputs depend on one another")
        steps = 1
        for size in sizes:
            steps *= size if isinstance(size, int) else _STEP_LIMIT + 1
        if steps > _STEP_LIMIT:
            raise context.unsupported(
                self.operation,
                f"{self.operation.name}: the body is no sum, product, extreme or other reduction that is covered, "
                f"and there are more than {_STEP_LIMIT} steps to execute one by one",
            )
        states = list(views[len(self.inputs) :])
        for point in itertools.product(*(range(int(size)) for size in sizes)):
            at = dict(zip(loops, point, strict=True))
            inputs = [_at(view, at) for view in views[: len(self.inputs)]]
            with context.iterating([at.get(dim, index) for dim, index in enumerate(context.indices)]):
                states = list(context.run(self.body.block, [*inputs, *states]))
        return {number: states[number] for number in wanted}

    def _check_output(self, context: Context, map_: AffineMap) -> None:
        positions = [r.position for r in map_.results if isinstance(r, AffineDim)]
        constants = sum(isinstance(r, AffineConstant) for r in map_.results)
        if len(positions) != len(set(positions)) or len(positions) + constants != len(map_.results):
            name = self.operation.name
            raise context.unsupported(self.operation, f"{name}: an output's map is more than a choice of dimensions")

    def _stored(self, space: Space, number: int, value: Data) -> torch.Tensor:
        """A result of the output's shape and type; where its map has constants, the rest is what it was."""
        init, map_ = self.inits[number], self.output_maps[number]
        positions = [r.position for r in map_.results if isinstance(r, AffineDim)]
        if isinstance(value, torch.Tensor):
            tensor = space.spread(value, positions)
        else:
            tensor = space.spread(torch.full((), as_number(value), dtype=init.dtype), positions)
        for dim in reversed(range(self.dims)):
            tensor = tensor if dim in positions else tensor.select(dim, 0)
        order = sorted(positions)
        tensor = tensor.permute([order.index(position) for position in positions])
        constants = [(k, r.value) for k, r in enumerate(map_.results) if isinstance(r, AffineConstant)]
        return _placed(init, tensor, constants) if constants else tensor


def _placed(init: torch.Tensor, part: torch.Tensor, constants: Sequence[tuple[int, int]]) -> torch.Tensor:
    """`init` with the part at constant indices of some dimensions replaced."""
    dim, index = constants[-1]
    rest = constants[:-1]
    inner = _placed(init.select(dim, index), part, rest) if rest else part
    return torch.select_scatter(init, inner, dim, index)


def _at(data: Data, point: Mapping[int, int]) -> Data:
    """What a view is at some indices."""
    if not isinstance(data, torch.Tensor) or data.ndim == 0:
        return data
    for dim, index in point.items():
        data = data.narrow(dim, index if data.shape[dim] != 1 else 0, 1)
    return data


def maps_of(context: Context, operation: Operation) -> list[AffineMap]:
    """The `indexing_maps` of an operation.

    Raises:
        InvalidFileError: it has none, or too few.
    """
    attribute = operation.attributes.get("indexing_maps")
    values = attribute.values if isinstance(attribute, ArrayAttr) else ()
    maps = [value.map for value in values if isinstance(value, AffineMapAttr)]
    if len(maps) != len(operation.operands):
        raise context.invalid(operation, f"{operation.name}: {len(maps)} maps for {len(operation.operands)} operands")
    return maps


def input_count(operation: Operation) -> int:
    """How many operands are inputs; those behind them are outputs."""
    sizes = operation.attributes.get("operandSegmentSizes")
    if isinstance(sizes, DenseArrayAttr):
        return int(sizes.values[0])
    return len(operation.operands) - max(1, len(operation.results))


def _generic(context: Context, operation: Operation) -> Sequence[Data]:
    maps, count = maps_of(context, operation), input_count(operation)
    body = Body(operation.regions[0].blocks[0], count, maps)
    inputs = [context.data(operand) for operand in operation.operands[:count]]
    inits = [context.tensor(operand) for operand in operation.operands[count:]]
    return Structured(operation, maps[0].dims, inputs, inits, body).execute(context)


def _index(context: Context, operation: Operation) -> Sequence[Data]:
    dim = operation.attributes["dim"]
    assert isinstance(dim, IntegerAttr)
    if dim.value >= len(context.indices):
        raise context.invalid(operation, f"linalg.index: dimension {dim.value} of {len(context.indices)}")
    return (context.indices[dim.value],)


def _fill(context: Context, operation: Operation) -> Sequence[Data]:
    value, init = context.tensors(operation)
    return context.declared(operation, (value.to(init.dtype).expand(init.shape),))


def _copy(context: Context, operation: Operation) -> Sequence[Data]:
    value, init = context.tensors(operation)
    for size, other in zip(value.shape, init.shape, strict=True):
        context.require_equal(operation, size, other, "a size of what is copied")
    return context.declared(operation, (value.to(init.dtype),))


OPERATIONS: Mapping[str, Handler] = {
    "linalg.generic": _generic,
    "linalg.index": _index,
    "linalg.fill": _fill,
    "linalg.copy": _copy,
}
