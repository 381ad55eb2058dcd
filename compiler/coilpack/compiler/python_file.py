"""Python files that a user names, run as modules."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from coilpack.runtime.errors import CoilpackError, InputError


def python_callable(source: str) -> tuple[Path, str] | None:
    """Path and name of `module.py:callable`; None for any other source."""
    path, separator, name = source.rpartition(":")
    return (Path(path), name) if separator and path.endswith(".py") else None


def import_module(path: Path) -> ModuleType:
    """Runs a Python file as a module of its own, with its folder importable while it runs.

    Raises:
        InputError: it is no Python file, or raises an error.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except CoilpackError:
        raise
    except Exception as error:
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        with contextlib.suppress(ValueError):  # the file may have taken it out, or put others before it
            sys.path.remove(folder)
    return module
