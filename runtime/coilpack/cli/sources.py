"""What the commands that compile have in common: the sources of functions, and the check for what compiling needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import click

from coilpack.runtime.errors import UnsupportedError

FUNCTION = "main"
"""What the only function of a package is called."""


def require_compiler() -> None:
    """Raises `UnsupportedError` where torch or Triton is not installed."""
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"compiling needs {' and '.join(missing)}; get them by: pip install 'coilpack[compile]'")


def function_sources(source: str | None, functions: Sequence[str]) -> dict[str, str]:
    """The source of each function by its name.

    Args:
        source: the only one's.
        functions: or several, each as `NAME=IN`.
    """
    if (source is None) == (not functions):
        raise click.UsageError("name what to compile: either IN, or functions as --function NAME=IN")
    if source is not None:
        return {FUNCTION: source}
    sources: dict[str, str] = {}
    for item in functions:
        name, separator, own = item.partition("=")
        if not (name and separator and own):
            raise click.UsageError(f"--function {item}: it is not of the form NAME=IN")
        if name in sources:
            raise click.UsageError(f"--function {item}: there is a function {name} already")
        sources[name] = own
    return sources
