"""The forms of `linalg`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coilpack.compiler.mlir.syntax import (
    ArrayAttr,
    Attribute,
    Block,
    DenseArrayAttr,
    DialectAttr,
    DictionaryAttr,
    IntegerAttr,
    Operation,
    Region,
    StringAttr,
    TensorType,
    Type,
    Value,
)
from coilpack.compiler.mlir.text.attributes import I64, attribute, dictionary
from coilpack.compiler.mlir.text.builder import Builder, Form, Parts
from coilpack.compiler.mlir.text.common import INDEX, flag, segments, typed
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import Word

# Operations without groups of operands, each of which is one value.
_UNGROUPED = ("linalg.softmax", "linalg.transpose", "linalg.broadcast", "linalg.map", "linalg.reduce")


class _Operands(NamedTuple):
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def all(self) -> tuple[Value, ...]:
        return (*self.inputs, *self.outputs)

    def segments(self) -> dict[str, Attribute]:
        return segments(len(self.inputs), len(self.outputs))


def _operands(b: Builder, name: Word, inputs: Node, outputs: Node) -> _Operands:
    """`ins(…) outs(…)`."""
    given, made = (() if node is None else typed(b, node.children[0], name) for node in (inputs, outputs))
    return _Operands(given, made)


def _results(b: Builder, name: Word, node: Node, outputs: Sequence[Value]) -> tuple[Type, ...]:
    """The types of the results, which are those of the outputs that are tensors."""
    types = () if node is None else b.types(node)
    wanted = tuple(value.type for value in outputs if isinstance(value.type, TensorType))
    if types != wanted:
        shown = [", ".join(map(str, group)) or "none" for group in (wanted, types)]
        b.fail(name, f"{name!s} gives what it has in 'outs': {shown[0]}; the text gives {shown[1]} behind '->'")
    return types


def structured(
    b: Builder, name: Word, traits: Node, inputs: Node, outputs: Node, more: Node, body: Node, results: Node
) -> Parts:
    """`linalg.generic {maps, iterators} ins(…) outs(…) {…} -> type`."""
    given = attribute(b, traits)
    if not isinstance(given, DictionaryAttr):
        b.fail(name, f"{name!s} needs a dictionary of its maps and iterators")
    found = {**given.values, **dictionary(b, more)}
    iterators = found.get("iterator_types")
    if isinstance(iterators, ArrayAttr):
        found["iterator_types"] = ArrayAttr(tuple(map(_iterator, iterators.values)))
    operands = _operands(b, name, inputs, outputs)
    types = _results(b, name, results, operands.outputs)
    return Parts(str(name), name, operands.all, types, {**found, **operands.segments()}, [b.region(body)])


def _iterator(iterator: Attribute) -> Attribute:
    """`"parallel"` as `#linalg.iterator_type<parallel>`, which it is short for."""
    return DialectAttr("linalg.iterator_type", iterator.value) if isinstance(iterator, StringAttr) else iterator


def index(b: Builder, name: Word, number: Word, attributes: Node, type_: Node) -> Parts:
    """`linalg.index 0 : index`."""
    if b.type(type_) != INDEX:
        b.fail(name, f"{name!s} is of type index, not {b.type(type_)}")
    return Parts(
        str(name),
        name,
        types=[INDEX],
        attributes={"dim": IntegerAttr(b.small(number), I64), **dictionary(b, attributes)},
    )


def named(
    b: Builder,
    name: Word,
    settings: Node,
    properties: Node,
    attributes: Node,
    inputs: Node,
    outputs: Node,
    results: Node,
) -> Parts:
    """`linalg.matmul {…} ins(…) outs(…) -> type`."""
    found: dict[str, Attribute] = {}
    for key, value in (setting.children for setting in settings.children):
        if key.data == "along":
            found["dimension"] = IntegerAttr(b.small(value), I64)
        elif key.data == "short":
            found["kind"] = DialectAttr("linalg.elementwise_kind", str(value))
        else:
            found["indexing_maps" if key.data == "maps" else "kind"] = attribute(b, value)
    found |= dictionary(b, properties) | dictionary(b, attributes)
    operands = _operands(b, name, inputs, outputs)
    if name not in _UNGROUPED:
        found |= operands.segments()
    return Parts(str(name), name, operands.all, _results(b, name, results, operands.outputs), found)


def bodied(
    b: Builder,
    name: Word,
    combiner: Node,
    inputs: Node,
    outputs: Node,
    dimensions: Node,
    attributes: Node,
    arguments: Node,
    body: Node,
) -> Parts:
    """`linalg.reduce {op} ins(…) outs(…) dimensions = […]`, or with a body behind; also map, broadcast, transpose."""
    operands = _operands(b, name, inputs, outputs)
    found: dict[str, Attribute] = {}
    if dimensions is not None:
        key, values = dimensions.children
        found[str(key)] = _numbers(b, key, attribute(b, values))
    found |= dictionary(b, attributes)
    regions = []
    if body is not None:
        pairs = (argument.children for argument in arguments.children)
        regions = [b.region(body, [(word, b.type(type_)) for word, type_, _ in pairs])]
    elif combiner is not None:
        regions = [_combined(b, name, combiner, operands)]
    types = [value.type for value in operands.outputs if isinstance(value.type, TensorType)]
    return Parts(str(name), name, operands.all, types, found, regions)


def _numbers(b: Builder, key: Word, values: Attribute) -> Attribute:
    assert isinstance(values, ArrayAttr)
    numbers = tuple(value.value for value in values.values if isinstance(value, IntegerAttr))
    if len(numbers) != len(values.values):
        b.fail(key, f"{str(key)!r} must be a list of integers")
    return DenseArrayAttr(I64, numbers)


def _combined(b: Builder, name: Word, combiner: Node, operands: _Operands) -> Region:
    """The body that `{ arith.addf }` is short for: the operation on an element of each operand, and its yield."""
    operation, flags, attributes = combiner.children
    place = b.location(operation)
    elements = []
    for number, value in enumerate(operands.all):
        type_ = value.type
        elements.append(Value(f"%{number}", type_.element if isinstance(type_, TensorType) else type_))
    used = elements
    if name == "linalg.reduce":  # what is accumulated comes first
        count = len(operands.inputs)
        used = [*elements[count:], *elements[:count]]
    elif name == "linalg.map":
        used = elements[: len(operands.inputs)]
    made = tuple(Value("", value.type) for value in elements[len(operands.inputs) :])
    found = {**flag(b, flags), **dictionary(b, attributes)}
    first = Operation(str(operation), tuple(used), made, found, (), place)
    last = Operation("linalg.yield", made, (), {}, (), place)
    return Region((Block(tuple(elements), (first, last)),))


FORMS: dict[str, Form] = {"structured": structured, "index": index, "named": named, "bodied": bodied}
