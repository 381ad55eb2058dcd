"""Errors about MLIR text: the place, what is wrong there, the line and a caret under it."""

from __future__ import annotations

from coilpack.compiler.mlir.syntax import Location, Source
from coilpack.runtime.errors import InvalidFileError, UnsupportedError
from coilpack.runtime.excerpt import excerpt


def invalid(source: Source, location: Location, problem: str) -> InvalidFileError:
    """The error for text that breaks a rule of MLIR, or a limit."""
    shown = excerpt(source.text, location.line, location.column)
    return InvalidFileError(source.file, f"line {location.line}, column {location.column}", f"{problem}\n{shown}")


def unsupported(source: Source, location: Location, problem: str) -> UnsupportedError:
    """The error for valid text that asks for something that is not covered; `problem` names the operation."""
    shown = excerpt(source.text, location.line, location.column)
    return UnsupportedError(f"{source.file}: line {location.line}, column {location.column}: {problem}\n{shown}")
