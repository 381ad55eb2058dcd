"""Named operations by element: `linalg.elementwise` of a kind, and those that are named as their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coilpack.compiler.mlir.lower.context import Context, Data, Handler
from coilpack.compiler.mlir.lower.elements import is_float
from coilpack.compiler.mlir.lower.generic import input_count, maps_of
from coilpack.compiler.mlir.lower.named_bodies import COMBINERS, BodyWriter, execute_structured, identity
from coilpack.compiler.mlir.syntax import Block, DialectAttr, Operation, TensorType, Value

_Formula = Callable[[BodyWriter, Sequence[Value]], Value]

_OF_ONE_FLOAT: Mapping[str, str] = {
    "abs": "math.absf",
    "negf": "arith.negf",
    **{
        name: f"math.{name}"
        for name in (
            *("exp", "log", "log10", "log1p", "log2", "ceil", "floor", "round", "sqrt", "rsqrt", "tanh", "erf"),
            *("sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
        )
    },
}


def _of_one_float(name: str) -> _Formula:
    return lambda writer, inputs: writer.apply(name, inputs, writer.result)


def _combined(kind: str) -> _Formula:
    return lambda writer, inputs: writer.combine(kind, inputs[0], inputs[1])


def _square(writer: BodyWriter, inputs: Sequence[Value]) -> Value:
    return writer.apply("arith.mulf", (inputs[0], inputs[0]), writer.result)


def _reciprocal(writer: BodyWriter, inputs: Sequence[Value]) -> Value:
    return writer.apply("arith.divf", (writer.constant(1.0, writer.result), inputs[0]), writer.result)


def _select(writer: BodyWriter, inputs: Sequence[Value]) -> Value:
    return writer.apply("arith.select", inputs, writer.result)


_UNARY: Mapping[str, _Formula] = {
    **{kind: _of_one_float(name) for kind, name in _OF_ONE_FLOAT.items()},
    "square": _square,
    "reciprocal": _reciprocal,
}
_KINDS: Mapping[str, tuple[int, _Formula]] = {
    **{kind: (1, formula) for kind, formula in _UNARY.items()},
    **{kind: (2, _combined(kind)) for kind in COMBINERS},
    "select": (3, _select),
}
_CONDITIONS = {"select": 1}  # how many inputs are no numbers of the result's type
_OTHER_NAMES = {"max": "max_signed", "min": "min_signed"}  # of operations; else a kind is the name of one


def _body(context: Context, operation: Operation, kind: str) -> Block:
    arity, formula = _KINDS[kind]
    if input_count(operation) != arity:
        raise context.invalid(operation, f"{operation.name}: {input_count(operation)} inputs; {kind} has {arity}")
    writer = BodyWriter.of(context, operation)
    if kind in _UNARY and not is_float(writer.result):
        raise context.unsupported(operation, f"{operation.name}: {kind} of {writer.result} is not defined")
    conditions = _CONDITIONS.get(kind, 0)
    inputs = writer.arguments[:arity]
    converted = [writer.convert(value, writer.result) for value in inputs[conditions:]]
    return writer.block(formula(writer, [*inputs[:conditions], *converted]))


def _elementwise(context: Context, operation: Operation, kind: str) -> Sequence[Data]:
    if "indexing_maps" in operation.attributes:
        maps = maps_of(context, operation)
    else:
        output = operation.operands[-1].type
        rank = len(output.shape) if isinstance(output, TensorType) else 0
        maps = [identity(rank)] * len(operation.operands)
    return execute_structured(context, operation, maps, _body(context, operation, kind))


def _named(kind: str) -> Handler:
    return lambda context, operation: _elementwise(context, operation, kind)


def _of_kind(attribute: str) -> Handler:
    """The handler of an operation that an attribute gives its kind."""

    def handle(context: Context, operation: Operation) -> Sequence[Data]:
        kind = operation.attributes.get(attribute)
        if not isinstance(kind, DialectAttr) or kind.body not in _KINDS:
            text = kind.body if isinstance(kind, DialectAttr) else "none"
            raise context.unsupported(operation, f"{operation.name}: the kind {text} is not covered")
        return _elementwise(context, operation, kind.body)

    return handle


OPERATIONS: Mapping[str, Handler] = {
    **{f"linalg.{kind}": _named(kind) for kind in _KINDS if kind not in _OTHER_NAMES.values()},
    **{f"linalg.{name}": _named(kind) for name, kind in _OTHER_NAMES.items()},
    "linalg.elementwise": _of_kind("kind"),
}
