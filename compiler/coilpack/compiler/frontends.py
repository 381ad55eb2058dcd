"""Turns what the user names into exported programs: `.pt2` files and Python callables."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.python_file import import_module
from coilpack.runtime.errors import InputError, InvalidFileError, UnsupportedError

_UNKNOWN_OPERATOR = re.compile(r"failed to resolve torch\.ops\.(\S+) to an operator")


def load_program(path: Path) -> torch.export.ExportedProgram:
    """The exported program in a `.pt2` file; its weights stay there, mapped.

    Raises:
        InvalidFileError: torch cannot load it.
        UnsupportedError: it calls a custom operator, which a `.pt2` file names but does not hold.
    """
    from coilpack.compiler.mapped_archive import mapped_tensors  # brings Inductor, which an export does without

    try:
        with _logged_errors() as logged, mapped_tensors(path):
            return torch.export.load(path)
    except Exception as error:
        reason = _root(logged[-1] if logged else error)
        if operator := _UNKNOWN_OPERATOR.search(reason):
            raise UnsupportedError(
                f"{path}: it calls the custom operator {operator[1]}, whose code is not in the file; "
                "compile module.py:callable with the module that registers it"
            ) from error
        hint = "Export it again with this torch"
        raise InvalidFileError(str(path), "", f"torch {torch.__version__} cannot load it: {reason}", hint) from error


@contextmanager
def _logged_errors() -> Iterator[list[BaseException]]:
    """Collects the errors that `torch.export.load` reports in its log alone; what it raises only refers to there."""
    found: list[BaseException] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1]:
                found.append(record.exc_info[1])

    logger, collector = logging.getLogger(torch.export.__name__), Collector()
    logger.addHandler(collector)
    try:
        yield found
    finally:
        logger.removeHandler(collector)


def _root(error: BaseException) -> str:
    """The first sentence of what an error was raised from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0].rstrip(".")


def export_callable(path: Path, name: str, target: Path) -> None:
    """Exports what a callable returns as the `.pt2` file `target`.

    Args:
        path: a Python file, which is run.
        name: a callable in it that takes nothing and returns `(module, args)`, `(module, args, kwargs)`,
            `(module, args, kwargs, dynamic_shapes)`, a mapping with these names as keys, or an exported program.
            `dynamic_shapes` is as `torch.export.export` takes it.
        target: the file to write.

    Raises:
        InputError: there is no such file or callable, it returns something else, or it cannot be exported.
    """
    program = _export(_call(path, name), f"{path}:{name}")
    try:
        torch.export.save(program, target)
    except Exception as error:
        raise InputError(f"{path}:{name}: its exported program cannot be saved: {error}") from error


_PARTS = ("module", "args", "kwargs", "dynamic_shapes")


def _export(made: Any, what: str) -> torch.export.ExportedProgram:
    if isinstance(made, torch.export.ExportedProgram):
        return made
    module, args, kwargs, dynamic_shapes = _parts(made, what)
    try:
        with torch.no_grad():
            return torch.export.export(module.eval(), args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise InputError(f"{what} cannot be exported by torch.export: {error}") from error


def _parts(made: Any, what: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any], Any]:
    """What a callable returned as its four parts."""
    given = made if isinstance(made, Mapping) else {}
    if isinstance(made, tuple) and 2 <= len(made) <= len(_PARTS):
        given = dict(zip(_PARTS, made, strict=False))
    if unknown := sorted(set(given) - set(_PARTS), key=str):
        raise InputError(f"{what} returns {unknown[0]!r}, which is none of {', '.join(_PARTS)}")
    module, args = given.get("module"), given.get("args", ())
    kwargs = given.get("kwargs") or {}
    if isinstance(module, torch.nn.Module) and isinstance(args, tuple | list) and isinstance(kwargs, Mapping):
        return module, tuple(args), dict(kwargs), given.get("dynamic_shapes")
    raise InputError(
        f"{what} must return (module, args), with kwargs and dynamic_shapes behind them where there are any, a mapping "
        f"of these, or an exported program; it returns {_described(made)}"
    )


def _described(made: Any) -> str:
    if isinstance(made, tuple):
        return f"({', '.join(type(part).__name__ for part in made)})"
    return type(made).__name__


def _call(path: Path, name: str) -> Any:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    module = import_module(path)
    function = getattr(module, name, None)
    if triton.tuned_function(function) is not None:
        raise InputError(f"{path}:{name} is a Triton kernel; give --signature to compile it by itself")
    if not callable(function):
        known = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise InputError(f"{path} has no callable {name!r}; it has {known}")
    return function()
