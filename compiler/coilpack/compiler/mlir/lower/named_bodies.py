"""The bodies that named operations of `linalg` imply, written as operations of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coilpack.compiler.mlir.lower.bodies import Body
from coilpack.compiler.mlir.lower.context import Context, Data
from coilpack.compiler.mlir.lower.elements import INDEX, bits_of, element_of, is_float
from coilpack.compiler.mlir.lower.generic import Structured, input_count
from coilpack.compiler.mlir.syntax import (
    AffineDim,
    AffineMap,
    Attribute,
    Block,
    DialectAttr,
    FloatAttr,
    Operation,
    ScalarType,
    Value,
)

# What MLIR's kinds of functions are on floats, on integers, and on bits; "" where there is none.
COMBINERS: Mapping[str, tuple[str, str, str]] = {
    "add": ("arith.addf", "arith.addi", "arith.ori"),
    "sub": ("arith.subf", "arith.subi", ""),
    "mul": ("arith.mulf", "arith.muli", "arith.andi"),
    "div": ("arith.divf", "arith.divsi", ""),
    "div_unsigned": ("", "arith.divui", ""),
    "max_signed": ("arith.maximumf", "arith.maxsi", "arith.maxsi"),
    "min_signed": ("arith.minimumf", "arith.minsi", "arith.minsi"),
    "max_unsigned": ("arith.maximumf", "arith.maxui", "arith.maxui"),
    "min_unsigned": ("arith.minimumf", "arith.minui", "arith.minui"),
    "powf": ("math.powf", "", ""),
}


@dataclass
class BodyWriter:
    """Writes the body of a named operation.

    Attributes:
        context: for refusals.
        operation: the named operation, whose place the body's operations have.
        arguments: an element of each operand.
    """

    context: Context
    operation: Operation
    arguments: tuple[Value, ...]
    _operations: list[Operation] = field(default_factory=list)

    @classmethod
    def of(cls, context: Context, operation: Operation) -> BodyWriter:
        """The writer for an operation, whose operands are tensors or scalars."""
        return cls(context, operation, tuple(Value(v.name, _element(v)) for v in operation.operands))

    @property
    def result(self) -> ScalarType:
        """The element type of the last output."""
        return _element(self.arguments[-1])

    def apply(
        self, name: str, operands: Sequence[Value], type_: ScalarType, attributes: Mapping[str, Attribute] | None = None
    ) -> Value:
        """An operation with one result."""
        result = Value(f"%{len(self._operations)}", type_)
        operation = Operation(name, tuple(operands), (result,), attributes or {}, (), self.operation.location)
        self._operations.append(operation)
        return result

    def constant(self, value: float, type_: ScalarType) -> Value:
        """A floating-point number."""
        return self.apply("arith.constant", (), type_, {"value": FloatAttr(value, type_)})

    def combine(self, kind: str, left: Value, right: Value) -> Value:
        """One of `COMBINERS`, of two values of one type.

        Raises:
            UnsupportedError: it is not defined for their type.
        """
        type_ = _element(left)
        on_floats, on_integers, on_bits = COMBINERS[kind]
        name = on_floats if is_float(type_) else on_bits if type_.name == "i1" else on_integers
        if not name:
            raise self.context.unsupported(self.operation, f"{self.operation.name}: {kind} of {type_} is not defined")
        return self.apply(name, (left, right), type_)

    def convert(self, value: Value, to: ScalarType) -> Value:
        """A conversion as MLIR's named operations imply it for operands of another type than the result's."""
        name = _conversion(_element(value), to, is_unsigned(self.operation))
        return self.apply(name, (value,), to) if name else value

    def block(self, *yielded: Value) -> Block:
        """The whole body."""
        self._operations.append(Operation("linalg.yield", yielded, (), {}, (), self.operation.location))
        return Block(self.arguments, tuple(self._operations))


def _element(value: Value) -> ScalarType:
    element = element_of(value.type)
    assert element is not None  # the context has checked the operands
    return element


def is_unsigned(operation: Operation) -> bool:
    """Whether integers are widened with zeros: its attribute `cast` says so."""
    return operation.attributes.get("cast") == DialectAttr("linalg.type_fn", "cast_unsigned")


def _conversion(source: ScalarType, target: ScalarType, unsigned: bool) -> str:
    """The operation that converts; empty where there is nothing to convert."""
    if source == target:
        return ""
    sign = "u" if unsigned else "s"
    if is_float(source) and is_float(target):
        difference = bits_of(target) - bits_of(source)
        return "arith.extf" if difference > 0 else "arith.truncf" if difference < 0 else "arith.convertf"
    if is_float(source):
        return f"arith.fpto{sign}i"
    if is_float(target):
        return f"arith.{sign}itofp"
    if INDEX in (source, target):
        return "arith.index_castui" if unsigned else "arith.index_cast"
    return f"arith.ext{sign}i" if bits_of(target) > bits_of(source) else "arith.trunci"


def identity(rank: int) -> AffineMap:
    """The map of what has all dimensions of the space, in order."""
    return AffineMap(rank, 0, tuple(AffineDim(dim) for dim in range(rank)))


def execute_structured(
    context: Context, operation: Operation, maps: Sequence[AffineMap], block: Block
) -> tuple[Data, ...]:
    """Executes a named operation as the generic one with these maps and this body.

    Raises:
        CoilpackError: sizes do not fit.
    """
    count = input_count(operation)
    inputs = [context.data(operand) for operand in operation.operands[:count]]
    inits = [context.tensor(operand) for operand in operation.operands[count:]]
    return Structured(operation, maps[0].dims, inputs, inits, Body(block, count, maps)).execute(context)
