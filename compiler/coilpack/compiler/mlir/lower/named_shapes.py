"""Named operations that move, repeat or combine whole dimensions: transpose, broadcast, map, reduce, softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from coilpack.compiler.mlir.lower.arith_floats import arithmetic
from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.lower.elements import element_of
from coilpack.compiler.mlir.lower.generic import input_count
from coilpack.compiler.mlir.lower.named_bodies import execute_structured, identity
from coilpack.compiler.mlir.syntax import AffineDim, AffineMap, Block, DenseArrayAttr, IntegerAttr, Operation, Value


def _dims(context: Context, operation: Operation, name: str, rank: int) -> list[int]:
    """An attribute that lists different dimensions of a tensor of this rank."""
    attribute = operation.attributes.get(name)
    dims = [int(dim) for dim in attribute.values] if isinstance(attribute, DenseArrayAttr) else []
    if len(set(dims)) != len(dims) or any(not 0 <= dim < rank for dim in dims):
        raise context.invalid(operation, f"{operation.name}: {name} = {dims} are not different dimensions below {rank}")
    return dims


def _onto(context: Context, operation: Operation, tensor: torch.Tensor, init: torch.Tensor) -> Sequence[Data]:
    """A tensor that is a whole result, once its sizes are those of `init`."""
    if tensor.ndim != init.ndim:
        raise context.invalid(operation, f"{operation.name}: {tensor.ndim} dimensions go into {init.ndim}")
    for dim, (size, wanted) in enumerate(zip(tensor.shape, init.shape, strict=True)):
        context.require_equal(operation, size, wanted, f"size {dim} of the result and of its init")
    return context.declared(operation, (tensor.to(init.dtype),))


def _transpose(context: Context, operation: Operation) -> Sequence[Data]:
    tensor, init = context.tensors(operation)
    order = _dims(context, operation, "permutation", tensor.ndim)
    if len(order) != tensor.ndim:
        raise context.invalid(operation, f"{operation.name}: permutation = {order} for {tensor.ndim} dimensions")
    return _onto(context, operation, tensor.permute(order), init)


def _broadcast(context: Context, operation: Operation) -> Sequence[Data]:
    tensor, init = context.tensors(operation)
    added = _dims(context, operation, "dimensions", init.ndim)
    if tensor.ndim + len(added) != init.ndim:
        problem = f"{tensor.ndim} dimensions and {len(added)} more are not {init.ndim}"
        raise context.invalid(operation, f"{operation.name}: {problem}")
    for dim in sorted(added):
        tensor = tensor.unsqueeze(dim)
    shape = [init.shape[dim] if dim in added else size for dim, size in enumerate(tensor.shape)]
    return _onto(context, operation, tensor.expand(shape), init)


def _with_outputs(operation: Operation) -> Block:
    """The body with an argument for each operand; older texts of `linalg.map` leave out those of outputs."""
    block = operation.regions[0].blocks[0]
    missing = operation.operands[len(block.arguments) :]
    elements = [(value.name, element_of(value.type)) for value in missing]
    added = tuple(Value(name, element) for name, element in elements if element is not None)
    return Block((*block.arguments, *added), block.operations)


def _map(context: Context, operation: Operation) -> Sequence[Data]:
    rank = context.tensor(operation.operands[-1]).ndim
    return execute_structured(context, operation, [identity(rank)] * len(operation.operands), _with_outputs(operation))


def _reduce(context: Context, operation: Operation) -> Sequence[Data]:
    rank, count = context.tensor(operation.operands[0]).ndim, input_count(operation)
    reduced = _dims(context, operation, "dimensions", rank)
    kept = AffineMap(rank, 0, tuple(AffineDim(dim) for dim in range(rank) if dim not in reduced))
    maps = [identity(rank)] * count + [kept] * (len(operation.operands) - count)
    return execute_structured(context, operation, maps, operation.regions[0].blocks[0])


def _softmax(context: Context, operation: Operation) -> Sequence[Data]:
    tensor, init = context.tensors(operation)
    dim = operation.attributes.get("dimension")
    if not isinstance(dim, IntegerAttr) or not 0 <= dim.value < tensor.ndim:
        raise context.invalid(operation, f"{operation.name}: it has no dimension below {tensor.ndim}")
    return _onto(context, operation, torch.softmax(arithmetic(tensor), dim.value), init)


OPERATIONS: Mapping[str, Handler] = {
    "linalg.transpose": _transpose,
    "linalg.broadcast": _broadcast,
    "linalg.map": _map,
    "linalg.reduce": _reduce,
    "linalg.softmax": _softmax,
}
