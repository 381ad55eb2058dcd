"""The generic form, which every operation has, and the forms of modules and functions."""

from __future__ import annotations

from coilpack.compiler.mlir import syntax
from coilpack.compiler.mlir.syntax import Attribute, FunctionType, StringAttr, TypeAttr
from coilpack.compiler.mlir.text.attributes import dictionary, text_of
from coilpack.compiler.mlir.text.builder import Argument, Builder, Form, Parts
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import Word


def generic(
    b: Builder,
    name: Word,
    values: Node,
    successors: Node,
    properties: Node,
    regions: Node,
    attributes: Node,
    type_: Node,
) -> Parts:
    """`"name"(operands)[blocks] <{properties}> ({regions}) {attributes} : type`."""
    signature = b.function_type(type_)
    text = text_of(b, name)
    operands = b.uses(values.children, signature.inputs, name)
    found = dictionary(b, properties)
    for key, value in dictionary(b, attributes).items():
        if key in found:
            b.fail(name, f"attribute {key!r} is there twice")
        found[key] = value
    nodes = [] if regions is None else regions.children
    blocks = [] if successors is None else successors.children
    built = [b.region(node, isolated=text in _CHECKS) for node in nodes]
    parts = Parts(text, name, operands, signature.results, found, built, tuple(map(b.successor, blocks)))
    if text in _CHECKS:
        _CHECKS[text](b, parts)
    return parts


def _check_module(b: Builder, parts: Parts) -> None:
    """A module has one region of one block; only its name and its symbols matter to who uses it."""
    if [len(region.blocks) for region in parts.regions] not in ([0], [1]):
        b.fail(parts.at, f"{parts.name!r} needs one region of one block")


def _check_function(b: Builder, parts: Parts) -> None:
    """A function has a name and a type, and a region with arguments of that type where it is not only declared."""
    name, type_ = parts.attributes.get("sym_name"), parts.attributes.get("function_type")
    if not isinstance(name, StringAttr):
        b.fail(parts.at, f"{parts.name!r} needs its name as 'sym_name'")
    if not (isinstance(type_, TypeAttr) and isinstance(type_.type, FunctionType)):
        b.fail(parts.at, f"{parts.name!r} needs its type as 'function_type'")
    if len(parts.regions) != 1:
        b.fail(parts.at, f"{parts.name!r} needs one region")
    for block in parts.regions[0].blocks[:1]:
        given = tuple(argument.type for argument in block.arguments)
        if given != type_.type.inputs:
            shown = ", ".join(map(str, given))
            b.fail(parts.at, f"{parts.name!r} is of type {type_.type}, but its first block takes ({shown})")


_CHECKS = {"builtin.module": _check_module, "func.func": _check_function}


def module(b: Builder, name: Word, symbol: Word | None, attributes: Node, body: Node) -> Parts:
    """`module @name attributes {…} {…}`."""
    found = dictionary(b, attributes)
    if symbol is not None:
        found["sym_name"] = StringAttr(text_of(b, symbol))
    parts = Parts("builtin.module", name, attributes=found, regions=[b.region(body, isolated=True)])
    _check_module(b, parts)
    return parts


def function(
    b: Builder,
    name: Word,
    visibility: Node,
    symbol: Word,
    parameters: Node,
    results: Node,
    attributes: Node,
    body: Node,
) -> Parts:
    """`func.func @name(%argument: type {…}, …) -> (type {…}, …) attributes {…} {…}`."""
    found = dictionary(b, attributes)
    given = [parameter.children for parameter in parameters.children]
    made = [] if results is None else [result.children for result in results.children]
    inputs = tuple(b.type(type_) for _, type_, *_ in given)
    outputs = tuple(b.type(result[0]) for result in made)
    own: dict[str, Attribute] = {
        "sym_name": StringAttr(text_of(b, symbol)),
        "function_type": TypeAttr(FunctionType(inputs, outputs)),
    }
    if visibility is not None:
        own["sym_visibility"] = StringAttr(str(visibility.children[0]))
    own |= _dictionaries(b, "arg_attrs", [node for _, _, node, _ in given])
    own |= _dictionaries(b, "res_attrs", [result[1] if len(result) > 1 else None for result in made])
    for key in own.keys() & found.keys():
        b.fail(symbol, f"attribute {key!r} is there twice")
    arguments = _arguments(b, symbol, [word for word, *_ in given], inputs, body)
    return Parts(str(name), name, attributes={**own, **found}, regions=[b.region(body, arguments, isolated=True)])


def _arguments(
    b: Builder, symbol: Word, words: list[Word | None], types: tuple[syntax.Type, ...], body: Node
) -> list[Argument]:
    """The arguments of a function's first block; a declaration has none."""
    if body is None:
        return []
    named = [word for word in words if word is not None]
    if len(named) != len(words):
        b.fail(symbol, "an argument of a function with a body needs a name")
    return list(zip(named, types, strict=True))


def _dictionaries(b: Builder, key: str, nodes: list[Node]) -> dict[str, Attribute]:
    """The attributes of arguments or results, where one has any."""
    if all(node is None for node in nodes):
        return {}
    return {key: syntax.ArrayAttr(tuple(syntax.DictionaryAttr(dictionary(b, node)) for node in nodes))}


FORMS: dict[str, Form] = {"generic": generic, "module": module, "function": function}
