"""Writes files and folders so that a reader sees the old content or the whole new one, never a part."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from coilpack.runtime.errors import InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # raised without the name of the file that is written


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write, seekable, that takes the name `path` when the block ends without an error.

    It lies in the folder of `path` under a temporary name meanwhile, which is removed on an error. The data is on disk
    before the name changes.

    Raises:
        InputError: the folder is not there or cannot be written, the disk is full, or `path` is a folder.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and (error.filename == name or error.errno in _NO_ROOM):
            raise InputError(f"{target} cannot be written: {error.strerror}") from error
        raise


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` as the file `path`; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(data)


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuses a path that `atomic_file` could not write, before the work whose result is to lie there.

    Raises:
        InputError: it is a folder, or its folder is not there or cannot be written.
    """
    target = Path(path)
    check_parent(target)
    if target.is_dir():
        raise InputError(f"{target} cannot be written: it is a folder; name the file to write")


def check_parent(path: str | os.PathLike[str]) -> None:
    """Refuses a path in a folder that is not there, or in which nothing can be made.

    Raises:
        InputError: so it is.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{target} cannot be written: there is no folder {str(target.parent)!r}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{target} cannot be written: its folder is not writable")


@contextmanager
def atomic_folder(path: str | os.PathLike[str], check: Callable[[], None]) -> Iterator[Path]:
    """A new folder to write into, that takes the name `path` when the block ends without an error.

    It lies beside `path` under a temporary name meanwhile, which is removed on an error. A folder of that name is
    replaced, with all that is in it; where the name is a link, what it leads to.

    Args:
        path: the folder to make.
        check: called just before it takes its name; raises where what is there must stay.

    Raises:
        InputError: the folder cannot be made there.
    """
    target = Path(os.path.realpath(path))
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent))
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from error
    try:
        made, old = scratch / "new", scratch / "old"
        made.mkdir()
        yield made
        check()
        _replace_folder(target, made, old)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _replace_folder(target: Path, made: Path, old: Path) -> None:
    """Moves `made` to `target`, and what was there to `old`; whatever ends this early, it is there again."""
    try:
        if target.exists():
            os.rename(target, old)
        os.rename(made, target)
    except BaseException as error:
        if old.exists() and not target.exists():
            os.rename(old, target)
        if isinstance(error, OSError):
            raise InputError(f"{target} cannot be replaced: {error.strerror}") from error
        raise


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
