"""The syntax of modules that Inductor generates: the function that runs the kernels, and parts of its statements."""

from __future__ import annotations

import ast
import math
import re

import torch

from coilpack.runtime.errors import InvalidFileError, UnsupportedError

_CALL, _RUNNER = "call", "Runner"
_PARTITION = re.compile(r"partition_\d+")
_ANEW = "Let Inductor generate the module anew"
_NUMBERS = {"math.inf": math.inf, "math.nan": math.nan, "inf": math.inf, "nan": math.nan}


def call_body(module_source: str, file: str) -> list[ast.stmt]:
    """The statements of the function `call`, which takes the list `args`.

    Args:
        module_source: the text of the module.
        file: what messages call it.

    Raises:
        InvalidFileError: it is no Python source, or has no such function.
        UnsupportedError: it is cut into partitions.
    """
    try:
        tree = ast.parse(module_source)
    except (SyntaxError, ValueError) as error:
        raise InvalidFileError(file, "", f"it is no Python source: {error}", _ANEW) from error
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, function in functions.items():
        if _PARTITION.fullmatch(name):
            raise UnsupportedError(
                f"{file}:{function.lineno}: the graph is cut into partitions ({name}), which no package runs; compile "
                "it with `graph_partition` off"
            )
    methods = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == _RUNNER)
    methods_by_name = {node.name: node for body in methods for node in body if isinstance(node, ast.FunctionDef)}
    call = functions.get(_CALL) or methods_by_name.get(_CALL)
    if call is None or [argument.arg for argument in call.args.args][-1:] != ["args"]:
        raise InvalidFileError(
            file, "", f"it has neither a function `{_CALL}(args)` nor `{_RUNNER}.{_CALL}`, as Inductor writes it", _ANEW
        )
    return call.body


def called(node: ast.expr) -> str | None:
    """The dotted name of the function that an expression calls; None if it is no call."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else None


def positional(call: ast.Call, count: int, keywords: tuple[str, ...] = ()) -> list[ast.expr]:
    """The arguments of a call that takes so many, and exactly these keywords.

    Raises:
        UnsupportedError: it takes others.
    """
    if len(call.args) != count or tuple(keyword.arg for keyword in call.keywords) != keywords:
        raise UnsupportedError(f"it takes {count} arguments" + "".join(f", and {keyword}=" for keyword in keywords))
    return call.args


def number(node: ast.expr) -> float | None:
    """The value of a floating-point literal, also of an infinite one; None for anything else."""
    match node:
        case ast.Constant(value=float() as value):
            return value
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as text)], keywords=[]):
            return _NUMBERS.get(text)
    return _NUMBERS.get(ast.unparse(node))


def element_type(node: ast.expr) -> torch.dtype:
    """The element type that an expression names, as `torch.float32`.

    Raises:
        UnsupportedError: it names none.
    """
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if isinstance(
            found := getattr(torch, name, None), torch.dtype
        ):
            return found
    raise UnsupportedError(f"`{ast.unparse(node)}` is no element type")
