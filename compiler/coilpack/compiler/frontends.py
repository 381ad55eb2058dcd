"""Turns what the user names into exported programs: `.pt2` files and Python callables."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from coilpack.runtime.errors import CoilpackError, InputError, InvalidFileError

# Parts of a `.pt2` that do not say what the program computes.
_IGNORED_ENTRIES = (".data/serialization_id", "data/sample_inputs/")
_CHUNK = 1 << 22


def export_source(source: str, directory: Path) -> Path:
    """The `.pt2` file behind `source`: itself, or what a callable returns, exported into `directory`.

    Args:
        source: `model.pt2`, or `model.py:callable` where the callable takes nothing and returns `(module, args)` or
            `(module, args, kwargs)`.
        directory: where an exported callable may be written.

    Raises:
        InputError: there is no such file or callable, it returns something else, or it cannot be exported.
        InvalidFileError: the file is not a `.pt2` archive.
    """
    path, separator, name = source.rpartition(":")
    if separator and path.endswith(".py"):
        return _export_callable(Path(path), name, directory)
    found = Path(source)
    if not found.is_file():
        raise InputError(f"there is no file {source!r}; give a .pt2 file or module.py:callable")
    if found.suffix != ".pt2":
        raise InputError(f"{source!r} is neither a .pt2 file nor module.py:callable")
    if not zipfile.is_zipfile(found):
        raise InvalidFileError(source, "", "it is not a .pt2 archive", "Write it with torch.export.save")
    return found


def load_program(path: Path) -> torch.export.ExportedProgram:
    """The exported program in a `.pt2` file; `InvalidFileError` where torch cannot load it."""
    try:
        return torch.export.load(path)
    except Exception as error:
        raise InvalidFileError(
            str(path), "", f"torch {torch.__version__} cannot load it: {error}", "Export it again with this torch"
        ) from error


def fingerprint(path: Path) -> str:
    """A hash over what a `.pt2` file computes: its graph and weights, not its sample inputs or serial number."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for info in sorted(archive.infolist(), key=lambda i: i.filename):
            inner = info.filename.partition("/")[2]  # the first folder is named after the file
            if inner.startswith(_IGNORED_ENTRIES):
                continue
            digest.update(f"{inner}\0{info.file_size}\0".encode())
            with archive.open(info) as entry:
                while chunk := entry.read(_CHUNK):
                    digest.update(chunk)
    return digest.hexdigest()


def _export_callable(path: Path, name: str, directory: Path) -> Path:
    made = _call(path, name)
    module, args, kwargs = _module_and_inputs(made, f"{path}:{name}")
    try:
        with torch.no_grad():
            program = torch.export.export(module.eval(), args, dict(kwargs))
    except Exception as error:
        raise InputError(f"{path}:{name} cannot be exported by torch.export: {error}") from error
    target = directory / f"{path.stem}.pt2"
    try:
        torch.export.save(program, target)
    except Exception as error:
        raise InputError(f"{path}:{name}: its exported program cannot be saved: {error}") from error
    return target


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
