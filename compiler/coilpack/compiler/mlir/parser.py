"""Reads MLIR's textual form: modules of operations in generic form, and in their own where it is known."""

from __future__ import annotations

from coilpack.compiler.mlir.diagnostics import invalid, unsupported
from coilpack.compiler.mlir.syntax import Attribute, Location, Module, Operation, Source, StringAttr
from coilpack.compiler.mlir.text import forms_arith, forms_builtin, forms_linalg, forms_tensor
from coilpack.compiler.mlir.text.attributes import define_attribute
from coilpack.compiler.mlir.text.builder import Builder
from coilpack.compiler.mlir.text.grammar import Node, UnknownOperationError, parse_tree
from coilpack.compiler.mlir.text.lexer import MAX_CHARACTERS, LexicalError
from coilpack.compiler.mlir.text.places import Places
from coilpack.compiler.mlir.text.verify import verify
from coilpack.runtime.collector import no_collections

_FORMS = {**forms_builtin.FORMS, **forms_arith.FORMS, **forms_tensor.FORMS, **forms_linalg.FORMS}


def parse_module(text: str, *, file: str = "<text>") -> Module:
    """Reads a module.

    A name must be defined before it is used, and within what is visible there; the types that the text gives must be
    those of the values, also where operations of `func` and `arith` are in generic form. What else the definition of an
    operation demands is left to who uses it.

    Args:
        text: MLIR, one module or the operations of one.
        file: its name in messages.

    Returns:
        The module; every operation is in its generic form, whatever the text has.

    Raises:
        InvalidFileError: the text breaks a rule or a limit; the message has the line, the column, and a caret.
        UnsupportedError: an operation stands there in a form of its own that is not known.
    """
    source = Source(file, text)
    if len(text) > MAX_CHARACTERS:
        problem = f"a text of {len(text)} characters; the limit is {MAX_CHARACTERS}"
        raise invalid(Source(file, ""), Location(1, 1), problem)
    with no_collections():  # a growing tree has no garbage, and would be searched for it again and again
        return _read(source)


def _read(source: Source) -> Module:
    text = source.text
    try:
        tree = parse_tree(text)
    except UnknownOperationError as error:
        problem = f"operation {error.name!r} is not covered in this form"
        raise unsupported(source, Places(text).location(error.offset), problem) from None
    except LexicalError as error:
        raise invalid(source, Places(text).location(error.offset), error.problem) from None
    return _module(source, tree)


def _module(source: Source, tree: Node) -> Module:
    *items, _end = tree.children
    resources = None
    if items and not hasattr(items[-1], "data"):
        resources = str(items.pop())
    builder = Builder(source, _FORMS, resources)
    nodes = []
    for item in items:
        if item.data == "operation":
            nodes.append(item)
        else:
            define = define_attribute if item.data == "attribute_alias" else Builder.define_type
            define(builder, *item.children)
    block = builder.block(nodes, ())
    module = _wrapped(source, block.operations)
    _check_names(module)
    verify(module)
    return module


def _check_names(module: Module) -> None:
    """Two operations of a module cannot have one name."""
    first: dict[str, Location] = {}
    for operation in module.operations:
        name = operation.attributes.get("sym_name")
        if not isinstance(name, StringAttr):
            continue
        if name.value in first:
            problem = f"symbol {name.value!r} is defined before, in line {first[name.value].line}"
            raise invalid(module.source, operation.location, problem)
        first[name.value] = operation.location


def _wrapped(source: Source, operations: tuple[Operation, ...]) -> Module:
    """The module that the text spells out, or the one around its operations."""
    attributes: dict[str, Attribute] = {}
    if len(operations) == 1 and operations[0].name == "builtin.module":
        (module,) = operations
        attributes = dict(module.attributes)
        (region,) = module.regions
        operations = tuple(operation for block in region.blocks for operation in block.operations)
    name = attributes.pop("sym_name", None)
    return Module(source, name.value if isinstance(name, StringAttr) else "", attributes, operations)
