"""Turns what the user names into exported programs: `.pt2` files and Python callables."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from coilpack.runtime.errors import CoilpackError, InputError, InvalidFileError


def load_program(path: Path) -> torch.export.ExportedProgram:
    """The exported program in a `.pt2` file; `InvalidFileError` where torch cannot load it."""
    try:
        return torch.export.load(path)
    except Exception as error:
        raise InvalidFileError(
            str(path), "", f"torch {torch.__version__} cannot load it: {error}", "Export it again with this torch"
        ) from error


def export_callable(path: Path, name: str, target: Path) -> None:
    """Exports what a callable returns as the `.pt2` file `target`.

    Args:
        path: a Python file, which is run.
        name: a callable in it that takes nothing and returns `(module, args)` or `(module, args, kwargs)`.
        target: the file to write.

    Raises:
        InputError: there is no such file or callable, it returns something else, or it cannot be exported.
    """
    made = _call(path, name)
    module, args, kwargs = _module_and_inputs(made, f"{path}:{name}")
    try:
        with torch.no_grad():
            program = torch.export.export(module.eval(), args, dict(kwargs))
    except Exception as error:
        raise InputError(f"{path}:{name} cannot be exported by torch.export: {error}") from error
    try:
        torch.export.save(program, target)
    except Exception as error:
        raise InputError(f"{path}:{name}: its exported program cannot be saved: {error}") from error


def _call(path: Path, name: str) -> Any:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    module = _import(path)
    function = getattr(module, name, None)
    if not callable(function):
        known = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise InputError(f"{path} has no callable {name!r}; it has {known}")
    return function()


def _import(path: Path) -> ModuleType:
    """Runs a Python file as a module of its own, with its folder importable while it runs."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except CoilpackError:
        raise
    except Exception as error:
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module


def _module_and_inputs(made: Any, what: str) -> tuple[torch.nn.Module, tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(made, tuple) and len(made) in (2, 3):
        module, args, *rest = made
        kwargs = rest[0] if rest else {}
        if isinstance(module, torch.nn.Module) and isinstance(args, tuple | list) and isinstance(kwargs, Mapping):
            return module, tuple(args), kwargs
    raise InputError(f"{what} must return (module, args) or (module, args, kwargs), not {type(made).__name__}")
