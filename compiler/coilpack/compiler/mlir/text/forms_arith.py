"""The forms of `arith`, `math`, `affine`, `cf`, and of calls and returns."""

from __future__ import annotations

from coilpack.compiler.mlir.syntax import (
    AffineMapAttr,
    Attribute,
    DenseElementsAttr,
    FloatAttr,
    IntegerAttr,
    ScalarType,
    StringAttr,
    SymbolRefAttr,
    Type,
)
from coilpack.compiler.mlir.text.attributes import I1, I64, attribute, dictionary, text_of
from coilpack.compiler.mlir.text.builder import Builder, Form, Parts
from coilpack.compiler.mlir.text.common import INDEX, count, flag, indices, same, truths, typed
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import Word
from coilpack.compiler.mlir.text.operations import ELEMENTWISE, PAIRS, TESTS

_INTEGER_PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
_FLOAT_PREDICATES = [
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
]
_ROUNDED = ("arith.convertf", "arith.truncf")
_ROUNDINGS = ["to_nearest_even", "downward", "upward", "toward_zero", "to_nearest_away"]


def call(b: Builder, name: Word, callee: Word, values: Node, attributes: Node, type_: Node) -> Parts:
    """`func.call @name(%a) : (type) -> type`."""
    signature = b.function_type(type_)
    operands = b.uses(values.children, signature.inputs, name)
    found = {"callee": SymbolRefAttr((text_of(b, callee),)), **dictionary(b, attributes)}
    return Parts("func.call", name, operands, signature.results, found)


def give(b: Builder, name: Word, attributes: Node, values: Node) -> Parts:
    """`return %a : type` and the yields."""
    full = "func.return" if name == "return" else str(name)
    return Parts(full, name, typed(b, values, name), attributes=dictionary(b, attributes))


def check(b: Builder, name: Word, condition: Word, message: Word, attributes: Node) -> Parts:
    """`cf.assert %condition, "message"`."""
    found = {"msg": StringAttr(text_of(b, message)), **dictionary(b, attributes)}
    return Parts(str(name), name, [b.use(condition, I1)], attributes=found)


def affine(b: Builder, name: Word, map_: Node, dims: Node, symbols: Node, attributes: Node) -> Parts:
    """`affine.apply map(%d)[%s]`."""
    found = attribute(b, map_)
    given = len(dims.children), 0 if symbols is None else len(symbols.children)
    if not isinstance(found, AffineMapAttr):
        b.fail(map_.children[0], "expected an affine map")
    if given != (found.map.dims, found.map.symbols):
        wanted = f"{found.map.dims} and {found.map.symbols}"
        b.fail(name, f"the map's dimensions and symbols are {wanted}; given are {given[0]} and {given[1]}")
    operands = [*same(b, dims.children, INDEX), *indices(b, symbols)]
    return Parts(str(name), name, operands, [INDEX], {"map": found, **dictionary(b, attributes)})


def constant(b: Builder, name: Word, attributes: Node, value: Node) -> Parts:
    """`arith.constant value : type`."""
    found = attribute(b, value)
    if not isinstance(found, IntegerAttr | FloatAttr | DenseElementsAttr):
        b.unsupported(name, "arith.constant of an attribute that is no number and no tensor of numbers")
    return Parts(str(name), name, types=[found.type], attributes={"value": found, **dictionary(b, attributes)})


def elementwise(b: Builder, name: Word, operands: Node, flags: Node, attributes: Node, type_: Node) -> Parts:
    """`arith.addf %a, %b fastmath<…> : type`."""
    given = b.type(type_)
    values = same(b, count(b, name, operands.children, ELEMENTWISE[name]), given)
    types = [truths(given)] if name in TESTS else [given] * (2 if name in PAIRS else 1)
    return Parts(str(name), name, values, types, {**flag(b, flags), **dictionary(b, attributes)})


def mixed(b: Builder, name: Word, operands: Node, flags: Node, attributes: Node, first: Node, second: Node) -> Parts:
    """`math.fpowi %a, %b : type, type` of operands, `arith.addui_extended %a, %b : type, type` of results."""
    types = b.type(first), b.type(second)
    words = count(b, name, operands.children, 2)
    found = {**flag(b, flags), **dictionary(b, attributes)}
    if name == "math.fpowi":
        return Parts(str(name), name, b.uses(words, types, name), types[:1], found)
    return Parts(str(name), name, same(b, words, types[0]), types, found)


def compare(
    b: Builder, name: Word, predicate: Node, operands: Node, flags: Node, attributes: Node, type_: Node
) -> Parts:
    """`arith.cmpf olt, %a, %b : type`."""
    word = predicate if isinstance(predicate, Word) else predicate.children[0]
    known = _INTEGER_PREDICATES if name == "arith.cmpi" else _FLOAT_PREDICATES
    key = text_of(b, word)
    if key not in known:
        b.fail(word, f"{name!s} has no predicate {key!r}; expected one of {', '.join(known)}")
    given = b.type(type_)
    values = same(b, count(b, name, operands.children, 2), given)
    found: dict[str, Attribute] = {"predicate": IntegerAttr(known.index(key), I64)}
    return Parts(str(name), name, values, [truths(given)], {**found, **flag(b, flags), **dictionary(b, attributes)})


def select(b: Builder, name: Word, operands: Node, attributes: Node, types: Node) -> Parts:
    """`arith.select %truth, %a, %b : type`, or with the truth's type before."""
    *condition, given = (b.type(type_) for type_ in types.children)
    if len(condition) > 1:
        b.fail(name, f"{name!s} takes one type, or two: that of the truths and that of the values")
    truth, first, second = count(b, name, operands.children, 3)
    values = b.uses([truth, first, second], [condition[0] if condition else I1, given, given], name)
    return Parts(str(name), name, values, [given], dictionary(b, attributes))


def clamp(
    b: Builder, name: Word, value: Word, low: Word, high: Word, flags: Node, attributes: Node, type_: Node
) -> Parts:
    """`math.clampf %value to [%low, %high] : type`."""
    given = b.type(type_)
    found = {**flag(b, flags), **dictionary(b, attributes)}
    return Parts(str(name), name, same(b, [value, low, high], given), [given], found)


def cast(
    b: Builder, name: Word, value: Word, rounding: Word | None, flags: Node, attributes: Node, source: Node, to: Node
) -> Parts:
    """`arith.extf %a : type to type`."""
    found = {**flag(b, flags), **dictionary(b, attributes)}
    if rounding is not None:
        if rounding not in _ROUNDINGS or name not in _ROUNDED:
            b.fail(rounding, f"unexpected {str(rounding)!r}; expected ':'")
        found["roundingmode"] = IntegerAttr(_ROUNDINGS.index(rounding), ScalarType("i32"))
    result: Type = b.type(to)
    return Parts(str(name), name, [b.use(value, b.type(source))], [result], found)


FORMS: dict[str, Form] = {
    "call": call,
    "yield": give,
    "assert": check,
    "affine": affine,
    "constant": constant,
    "elementwise": elementwise,
    "mixed": mixed,
    "compare": compare,
    "select": select,
    "clamp": clamp,
    "cast": cast,
}
