"""The body of a structured operation, of which only what is needed is executed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from coilpack.compiler.mlir.lower.affine import dims_in
from coilpack.compiler.mlir.lower.context import Context, Data
from coilpack.compiler.mlir.syntax import AffineMap, Block, IntegerAttr, Operation, Value


@dataclass(frozen=True, eq=False)
class Body:
    """A block whose arguments are an element of each input, then of each output.

    Attributes:
        block: the operations; the last yields.
        input_count: how many arguments are inputs.
        maps: the map of each argument.
    """

    block: Block
    input_count: int
    maps: Sequence[AffineMap]

    @property
    def outputs(self) -> Sequence[Value]:
        """The arguments that are the outputs' elements so far."""
        return self.block.arguments[self.input_count :]

    @property
    def yielded(self) -> Sequence[Value]:
        """What becomes the outputs' elements."""
        return self.block.operations[-1].operands

    @cached_property
    def _definitions(self) -> Mapping[Value, Operation]:
        return {result: operation for operation in self.block.operations for result in operation.results}

    def definition(self, value: Value) -> Operation | None:
        """The operation of the body that makes a value; None for an argument and what is defined outside."""
        return self._definitions.get(value)

    @cached_property
    def _reads(self) -> Mapping[Value, frozenset[int]]:
        """The outputs that each value depends on."""
        own = {value: frozenset([number]) for number, value in enumerate(self.outputs)}
        return self._spread(own, lambda operation: frozenset())  # noqa: ARG005 (nothing reads an output by itself)

    @cached_property
    def _dims(self) -> Mapping[Value, frozenset[int]]:
        """The dimensions of the iteration space that each value varies along."""
        own = {}
        for value, map_ in zip(self.block.arguments, self.maps, strict=True):
            own[value] = frozenset(dim for result in map_.results for dim in dims_in(result))
        return self._spread(own, _index_dim)

    def _spread(
        self, own: dict[Value, frozenset[int]], of_operation: Callable[[Operation], frozenset[int]]
    ) -> Mapping[Value, frozenset[int]]:
        for operation in self.block.operations:
            found = of_operation(operation).union(*(own.get(v, frozenset()) for v in operation.operands))
            own.update(dict.fromkeys(operation.results, found))
        return own

    def reads(self, value: Value) -> frozenset[int]:
        """The numbers of the outputs whose elements so far a value depends on."""
        return self._reads.get(value, frozenset())

    def dims(self, value: Value) -> frozenset[int]:
        """The dimensions of the iteration space that a value varies along."""
        return self._dims.get(value, frozenset())

    def evaluate(self, context: Context, wanted: Collection[Value]) -> list[Data]:
        """Executes what some values need, once the arguments are bound that these depend on."""
        needed: set[Operation] = set()
        stack = list(wanted)
        while stack:
            operation = self.definition(stack.pop())
            if operation is not None and operation not in needed:
                needed.add(operation)
                stack.extend(operation.operands)
        for operation in self.block.operations:
            if operation in needed:
                context.execute(operation)
        return [context.data(value) for value in wanted]


def _index_dim(operation: Operation) -> frozenset[int]:
    dim = operation.attributes.get("dim")
    return frozenset([dim.value]) if operation.name == "linalg.index" and isinstance(dim, IntegerAttr) else frozenset()
