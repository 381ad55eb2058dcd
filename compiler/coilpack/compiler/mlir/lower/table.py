"""Every operation that is covered, with what executes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coilpack.compiler.mlir.lower import (
    affine,
    arith_floats,
    arith_integers,
    constants,
    functions,
    generic,
    maths,
    named_contractions,
    named_elementwise,
    named_shapes,
    named_windows,
    slices,
    tensors,
)
from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.syntax import Operation, TensorType

_ELEMENTWISE: Mapping[str, Handler] = {
    **arith_floats.OPERATIONS,
    **arith_integers.OPERATIONS,
    **maths.OPERATIONS,
}


def _of_equal_shapes(handler: Handler) -> Handler:
    """An operation on elements, whose operands that are tensors have one shape; torch would repeat sizes of 1."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        operands = [context.tensor(value) for value in operation.operands if isinstance(value.type, TensorType)]
        for tensor in operands[1:]:
            for dim, (size, first) in enumerate(zip(tensor.shape, operands[0].shape, strict=True)):
                context.require_equal(operation, size, first, f"the sizes of dimension {dim}")
        return context.declared(operation, handler(context, operation))

    return handle


TABLE: Mapping[str, Handler] = {
    **{name: _of_equal_shapes(handler) for name, handler in _ELEMENTWISE.items()},
    **affine.OPERATIONS,
    **constants.OPERATIONS,
    **functions.OPERATIONS,
    **generic.OPERATIONS,
    **named_contractions.OPERATIONS,
    **named_elementwise.OPERATIONS,
    **named_shapes.OPERATIONS,
    **named_windows.OPERATIONS,
    **slices.OPERATIONS,
    **tensors.OPERATIONS,
}
