"""The forms of `tensor`."""

from __future__ import annotations

from collections.abc import Sequence

from coilpack.compiler.mlir.syntax import Attribute, IntegerAttr, TensorType, UnitAttr, Value
from coilpack.compiler.mlir.text.attributes import I64, attribute, dictionary
from coilpack.compiler.mlir.text.builder import Builder, Form, Parts
from coilpack.compiler.mlir.text.common import INDEX, count, indices, same, segments, sizes, tensor
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import Word


def empty(b: Builder, name: Word, values: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.empty(%size) : type`."""
    made = tensor(b, name, b.type(type_))
    return Parts(str(name), name, _dynamic(b, name, values, made), [made], dictionary(b, attributes))


def _dynamic(b: Builder, name: Word, values: Node, type_: TensorType) -> Sequence[Value]:
    """One size for each dynamic dimension of a type."""
    words = [] if values is None else values.children
    wanted = type_.shape.count(None)
    if len(words) != wanted:
        b.fail(name, f"{name!s} of {type_} needs a size for each '?': {wanted}, not {len(words)}")
    return same(b, words, INDEX)


def dim(b: Builder, name: Word, attributes: Node, operands: Node, type_: Node) -> Parts:
    """`tensor.dim %tensor, %number : type`."""
    words = count(b, name, operands.children, 2)
    return Parts(str(name), name, b.uses(words, [b.type(type_), INDEX], name), [INDEX], dictionary(b, attributes))


def rank(b: Builder, name: Word, value: Word, attributes: Node, type_: Node) -> Parts:
    """`tensor.rank %tensor : type`."""
    return Parts(str(name), name, [b.use(value, b.type(type_))], [INDEX], dictionary(b, attributes))


def extract(b: Builder, name: Word, value: Word, at: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.extract %tensor[%i] : type`."""
    given = _indexed(b, name, at, type_)
    operands = [b.use(value, given), *indices(b, at)]
    return Parts(str(name), name, operands, [given.element], dictionary(b, attributes))


def insert(b: Builder, name: Word, scalar: Word, into: Word, at: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.insert %scalar into %tensor[%i] : type`."""
    given = _indexed(b, name, at, type_)
    operands = [b.use(scalar, given.element), b.use(into, given), *indices(b, at)]
    return Parts(str(name), name, operands, [given], dictionary(b, attributes))


def _indexed(b: Builder, name: Word, at: Node, type_: Node) -> TensorType:
    given = tensor(b, name, b.type(type_))
    if len(at.children) != len(given.shape):
        b.fail(
            name, f"{name!s} of {given} needs an index for each dimension: {len(given.shape)}, not {len(at.children)}"
        )
    return given


def _slice(
    b: Builder, name: Word, nodes: Sequence[Node], before: int, rank_: int
) -> tuple[list[Value], dict[str, Attribute]]:
    """The offsets, sizes and strides of a slice, behind a number of other operands."""
    values: list[Value] = []
    found: dict[str, Attribute] = {}
    counts = []
    for key, node in zip(("static_offsets", "static_sizes", "static_strides"), nodes, strict=True):
        if len(node.children) != rank_:
            b.fail(name, f"{name!s} of a tensor of rank {rank_}: a list has the length {len(node.children)}")
        given, found[key] = sizes(b, node)
        values += given
        counts.append(len(given))
    return values, {**found, **segments(*[1] * before, *counts)}


def extract_slice(
    b: Builder,
    name: Word,
    value: Word,
    offsets: Node,
    lengths: Node,
    strides: Node,
    attributes: Node,
    source: Node,
    to: Node,
) -> Parts:
    """`tensor.extract_slice %tensor[offsets][sizes][strides] : type to type`."""
    given = tensor(b, name, b.type(source))
    values, found = _slice(b, name, (offsets, lengths, strides), 1, len(given.shape))
    operands = [b.use(value, given), *values]
    return Parts(str(name), name, operands, [b.type(to)], {**found, **dictionary(b, attributes)})


def insert_slice(
    b: Builder,
    name: Word,
    value: Word,
    into: Word,
    offsets: Node,
    lengths: Node,
    strides: Node,
    attributes: Node,
    source: Node,
    to: Node,
) -> Parts:
    """`tensor.insert_slice %slice into %tensor[offsets][sizes][strides] : type into type`."""
    given = tensor(b, name, b.type(to))
    values, found = _slice(b, name, (offsets, lengths, strides), 2, len(given.shape))
    operands = [b.use(value, b.type(source)), b.use(into, given), *values]
    return Parts(str(name), name, operands, [given], {**found, **dictionary(b, attributes)})


def regroup(
    b: Builder, name: Word, value: Word, groups: Node, shape: Node, attributes: Node, source: Node, to: Node
) -> Parts:
    """`tensor.expand_shape %tensor [[0, 1]] output_shape [2, %n] : type into type`, and `tensor.collapse_shape`."""
    given, made = b.type(source), tensor(b, name, b.type(to))
    values: list[Value] = []
    found = {"reassociation": attribute(b, groups), **dictionary(b, attributes)}
    if name == "tensor.expand_shape":
        if shape is None:
            b.fail(name, "tensor.expand_shape needs its output_shape")
        values, found["static_output_shape"] = sizes(b, shape)
    elif shape is not None:
        b.fail(name, f"{name!s} has no output_shape")
    return Parts(str(name), name, [b.use(value, given), *values], [made], found)


def reshape(b: Builder, name: Word, value: Word, shape: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.reshape %tensor(%shape) : (type, type) -> type`."""
    signature = b.function_type(type_)
    operands = b.uses([value, *shape.children], signature.inputs, name)
    return Parts(str(name), name, operands, signature.results, dictionary(b, attributes))


def pad(
    b: Builder,
    name: Word,
    value: Word,
    nofold: Node,
    low: Node,
    high: Node,
    body: Node,
    attributes: Node,
    source: Node,
    to: Node,
) -> Parts:
    """`tensor.pad %tensor low[…] high[…] {…} : type to type`."""
    given, made = b.type(source), b.type(to)
    before, found_low = sizes(b, low)
    behind, found_high = sizes(b, high)
    found: dict[str, Attribute] = {"static_low": found_low, "static_high": found_high}
    found |= segments(1, len(before), len(behind))
    if nofold is not None:
        found["nofold"] = UnitAttr()
    operands = [b.use(value, given), *before, *behind]
    return Parts(str(name), name, operands, [made], {**found, **dictionary(b, attributes)}, [b.region(body)])


def splat(b: Builder, name: Word, value: Word, lengths: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.splat %scalar[%size] : type`."""
    made = tensor(b, name, b.type(type_))
    operands = [b.use(value, made.element), *_dynamic(b, name, lengths, made)]
    return Parts(str(name), name, operands, [made], dictionary(b, attributes))


def from_elements(b: Builder, name: Word, operands: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.from_elements %a, %b : type`."""
    made = tensor(b, name, b.type(type_))
    words = [] if operands is None else operands.children
    return Parts(str(name), name, same(b, words, made.element), [made], dictionary(b, attributes))


def concat(b: Builder, name: Word, number: Word, operands: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.concat dim(0) %a, %b : (type, type) -> type`."""
    signature = b.function_type(type_)
    values = b.uses(operands.children, signature.inputs, name)
    found = {"dim": IntegerAttr(b.small(number), I64), **dictionary(b, attributes)}
    return Parts(str(name), name, values, signature.results, found)


def generate(b: Builder, name: Word, operands: Node, body: Node, attributes: Node, type_: Node) -> Parts:
    """`tensor.generate %size {…} : type`."""
    made = tensor(b, name, b.type(type_))
    values = _dynamic(b, name, operands, made)
    return Parts(str(name), name, values, [made], dictionary(b, attributes), [b.region(body)])


FORMS: dict[str, Form] = {
    form.__name__: form
    for form in (
        empty,
        dim,
        rank,
        extract,
        insert,
        extract_slice,
        insert_slice,
        regroup,
        reshape,
        pad,
        splat,
        from_elements,
        concat,
        generate,
    )
}
