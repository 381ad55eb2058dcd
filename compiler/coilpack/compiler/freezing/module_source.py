"""The function of a generated module that runs its kernels, found in the module's source."""

from __future__ import annotations

import ast
import re

from coilpack.runtime.errors import InvalidFileError, UnsupportedError

_CALL, _RUNNER = "call", "Runner"
_PARTITION = re.compile(r"partition_\d+")
_ANEW = "Let Inductor generate the module anew"


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
