"""The functions of a parsed module."""

from __future__ import annotations

from coilpack.compiler.mlir.syntax import Block, Module, Operation, StringAttr


def function_name(function: Operation) -> str:
    """The name of a `func.func`."""
    name = function.attributes["sym_name"]
    assert isinstance(name, StringAttr)
    return name.value


def body_of(function: Operation) -> Block | None:
    """The body of a `func.func`; None for a declaration."""
    blocks = [block for region in function.regions for block in region.blocks]
    return blocks[0] if blocks else None


def public_functions(module: Module) -> dict[str, Operation]:
    """The functions that a package has, by name: those with a body that are not private."""
    found = {}
    for function in module.functions():
        visibility = function.attributes.get("sym_visibility")
        private = isinstance(visibility, StringAttr) and visibility.value != "public"
        if not private and body_of(function) is not None:
            found[function_name(function)] = function
    return found
