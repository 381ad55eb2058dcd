"""The Triton kernels of a module that Inductor generated (`output_code.py`): read, never run.

Such a module assigns each kernel as `name = async_compile.triton('name', '''source''')` and launches them as
`name.run(...)`. A kernel that it names must have its source there; what would not become part of the executable is an
error, never left out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from coilpack.runtime.errors import InputError, InvalidFileError, UnsupportedError

_COMPILER = "async_compile"
_NOT_KERNELS = ("wait",)  # methods of the compiler that make nothing


@dataclass(frozen=True)
class KernelText:
    """A kernel of a generated module.

    Attributes:
        name: the module's name for it.
        function: the name of the function in the source.
        source: Python source that defines it.
        line: where the module assigns it.
    """

    name: str
    function: str
    source: str
    line: int


@dataclass(frozen=True)
class ModuleKernels:
    """What a generated module does with kernels.

    Attributes:
        assigned: its kernels by name, in its order.
        launched: the line of the first launch of each name, in its order.
    """

    assigned: Mapping[str, KernelText]
    launched: Mapping[str, int]

    def unassigned(self) -> dict[str, int]:
        """The names that are launched without a kernel of that name, with the line of the first launch."""
        return {name: line for name, line in self.launched.items() if name not in self.assigned}


def read_module(path: Path) -> list[KernelText]:
    """The kernels that a generated module assigns, in order.

    Raises:
        InputError: there is no such file, or it assigns no kernels.
        InvalidFileError: it is no Python source, a kernel has no source in it, or a name is assigned twice.
        UnsupportedError: it assigns something else than Triton kernels.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error
    kernels = read_kernels(text, str(path))
    for name, line in kernels.unassigned().items():
        _fail(str(path), line, f"it launches {name!r}, which has no source in the module")
    if not kernels.assigned:
        raise InputError(
            f"{str(path)!r} assigns no kernels by `async_compile.triton(...)`, so it is no module that Inductor "
            "generated; a model is named as module.py:callable"
        )
    return list(kernels.assigned.values())


def read_kernels(source: str, file: str) -> ModuleKernels:
    """The kernels that the source of a generated module assigns, and those that it launches.

    Args:
        source: the text of the module.
        file: what messages call it.

    Raises:
        InvalidFileError: it is no Python source, a kernel has no source in it, or a name is assigned twice.
        UnsupportedError: it assigns something else than Triton kernels.
    """
    reader = _ModuleReader(file)
    try:
        reader.visit(ast.parse(source))
    except (SyntaxError, ValueError) as error:
        raise InvalidFileError(file, "", f"it is no Python source: {error}") from error
    except (RecursionError, MemoryError) as error:  # the parser's stack, too, is memory to Python
        raise InvalidFileError(file, "", "its expressions are nested too deeply to be read") from error
    return ModuleKernels(reader.kernels, reader.launched)


class _ModuleReader(ast.NodeVisitor):
    """Collects assignments of kernels and launches of them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.kernels: dict[str, KernelText] = {}
        self.launched: dict[str, int] = {}
        self._assigned: set[int] = set()  # calls of the compiler that stand on the right of `name = `

    def visit_Assign(self, node: ast.Assign) -> None:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=compiler), attr=method)) as call,
            ) if compiler == _COMPILER:
                self._assigned.add(id(call))
                self._assign(name, method, call)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(value=ast.Name(id=name), attr="run") if any(k.arg == "stream" for k in node.keywords):
                self.launched.setdefault(name, node.lineno)
            case ast.Attribute(value=ast.Name(id=compiler), attr=method) if compiler == _COMPILER:
                if method not in _NOT_KERNELS and id(node) not in self._assigned:
                    _fail(self.file, node.lineno, f"the result of {_COMPILER}.{method} is not assigned to a name")
        self.generic_visit(node)

    def _assign(self, name: str, method: str, call: ast.Call) -> None:
        if method != "triton":
            raise UnsupportedError(
                f"{self.file}:{call.lineno}: {name} is made by {_COMPILER}.{method}; only Triton kernels are compiled"
            )
        texts = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args[:2]]
        if len(texts) < 2 or not all(isinstance(text, str) for text in texts):
            _fail(self.file, call.lineno, f"the source of kernel {name!r} is not in the module")
        if name in self.kernels:
            _fail(self.file, call.lineno, f"kernel {name!r} is assigned twice")
        function, source = map(str, texts)
        self.kernels[name] = KernelText(name, function, source, call.lineno)


def _fail(file: str, line: int, problem: str) -> NoReturn:
    raise InvalidFileError(file, f"line {line}", problem, "Let Inductor generate the module anew")
