"""The one error family: whatever is wrong with a file, an input or a device, a `CoilpackError` says so."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CoilpackError(Exception):
    """Root of every error that this project raises for bad input, bad files or failing devices.

    The message is one paragraph that names what is wrong, where, the value found with the limit it broke, and what
    to do. The command prints it as it stands.
    """


class InvalidFileError(CoilpackError):
    """A file is not what it claims to be: truncated, corrupted, of another format or of a newer version.

    Args:
        file: the path or name of the file.
        where: the part of it, as a field path (`exports[3].kernel_name`) or a byte range.
        problem: what was found and the limit it broke.
        hint: what to do about it, if anything can be done.
    """

    def __init__(self, file: str, where: str, problem: str, hint: str = "") -> None:
        self.file, self.where, self.problem, self.hint = file, where, problem, hint
        message = f"{file}: {where}: {problem}" if where else f"{file}: {problem}"
        super().__init__(f"{message}. {hint}" if hint else message)


class UnsupportedError(CoilpackError):
    """A valid input asks for something that is not implemented; the message names it and its source line."""


class InputError(CoilpackError):
    """An argument does not fit: the message names which one, what was expected and what was given."""


class NotFoundError(CoilpackError):
    """A name is not there; the message lists the nearest names that are.

    Args:
        kind: what was looked up, as `export` or `function`.
        name: the name that was asked for.
        where: the file or object that was searched.
        known: the names that exist there.
    """

    def __init__(self, kind: str, name: str, where: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = difflib.get_close_matches(name, self.known, n=3, cutoff=0.5) or self.known[:5]
        listed = ", ".join(repr(n) for n in near)
        more = len(self.known) - len(near)
        tail = f"; there are {more} more" if more > 0 else ""
        nearest = f"nearest: {listed}{tail}" if self.known else f"it has no {kind}s"
        super().__init__(f"{where} has no {kind} named {name!r}; {nearest}")


class DeviceError(CoilpackError):
    """A driver call failed: carries the driver's name for the failure, its explanation and any JIT log."""


class TargetMismatchError(CoilpackError):
    """No image in the file runs on the device: the message names the file's targets and the device's."""
