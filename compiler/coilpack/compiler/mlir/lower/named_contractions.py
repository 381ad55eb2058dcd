"""Named products of matrices and vectors: `linalg.matmul` and its like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.lower.generic import maps_of
from coilpack.compiler.mlir.lower.named_bodies import BodyWriter, execute_structured
from coilpack.compiler.mlir.syntax import AffineDim, AffineMap, Operation

# The dimensions of both factors and of the result, as in `torch.einsum`.
_EQUATIONS: Mapping[str, str] = {
    "linalg.matmul": "mk,kn->mn",
    "linalg.matmul_transpose_a": "km,kn->mn",
    "linalg.matmul_transpose_b": "mk,nk->mn",
    "linalg.batch_matmul": "bmk,bkn->bmn",
    "linalg.batch_matmul_transpose_a": "bkm,bkn->bmn",
    "linalg.batch_matmul_transpose_b": "bmk,bnk->bmn",
    "linalg.batch_reduce_matmul": "bmk,bkn->mn",
    "linalg.matvec": "mn,n->m",
    "linalg.vecmat": "m,mn->n",
    "linalg.batch_matvec": "bmk,bk->bm",
    "linalg.batch_vecmat": "bk,bkn->bn",
    "linalg.dot": "m,m->",
}


def _maps(equation: str) -> list[AffineMap]:
    factors, result = equation.split("->")
    parts = [*factors.split(","), result]
    letters = list(dict.fromkeys(result + "".join(parts)))
    return [AffineMap(len(letters), 0, tuple(AffineDim(letters.index(c)) for c in part)) for part in parts]


def _multiply_and_add(context: Context, operation: Operation, maps: Sequence[AffineMap]) -> Sequence[Data]:
    """Adds the products of elements, each converted to the type of the result, onto what stands in `outs`."""
    if len(operation.operands) != len(maps):
        problem = f"{operation.name}: {len(operation.operands)} operands instead of {len(maps)}"
        raise context.invalid(operation, problem)
    writer = BodyWriter.of(context, operation)
    left, right, total = writer.arguments
    product = writer.combine("mul", writer.convert(left, writer.result), writer.convert(right, writer.result))
    return execute_structured(context, operation, maps, writer.block(writer.combine("add", total, product)))


def _contraction(equation: str) -> Handler:
    default = _maps(equation)

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        given = "indexing_maps" in operation.attributes
        return _multiply_and_add(context, operation, maps_of(context, operation) if given else default)

    return handle


def _contract(context: Context, operation: Operation) -> Sequence[Data]:
    return _multiply_and_add(context, operation, maps_of(context, operation))


OPERATIONS: Mapping[str, Handler] = {
    **{name: _contraction(equation) for name, equation in _EQUATIONS.items()},
    "linalg.contract": _contract,
}
