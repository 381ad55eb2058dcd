"""A content-addressed cache on disk: bytes by the SHA-256 of all that decided them.

An entry is one file, `<directory>/<first two digits of the key>/<the rest>`: 8 bytes `CPCACHE1`, the SHA-256 of the
data (32 bytes), the data. Files appear by rename, so several processes never see half a file; what does not match its
digest is deleted and counts as absent. Reading an entry renews its time stamp, and `prune` deletes the oldest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_log = logging.getLogger(__name__)

_MAGIC = b"CPCACHE1"
_HEADER_SIZE = len(_MAGIC) + hashlib.sha256().digest_size
_TEMPORARY_PREFIX = ".writing-"
_ABANDONED_AFTER = 3600.0  # seconds until a temporary file is taken for one of a writer that died

DEFAULT_LIMIT = 4 * 2**30
"""Bytes that a cache keeps after `Cache.prune` unless told otherwise."""


def default_directory() -> Path:
    """`$XDG_CACHE_HOME/coilpack`, or `~/.cache/coilpack` (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "coilpack"


def content_key(**parts: object) -> str:
    """The key of what `parts` decide: SHA-256, in hex, of their canonical JSON.

    Args:
        parts: JSON values (strings, numbers, booleans, None, lists, dicts with string keys).

    Raises:
        TypeError: a part is not a JSON value.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()


def source_hash(files: Iterable[Path]) -> str:
    """SHA-256, in hex, of the content of source files, so that what changed code makes has another key."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class Cache:
    """The cache in `directory`, which is made when something is first written.

    Safe to share between threads and processes. A directory that cannot be written costs a warning and nothing else.

    Args:
        directory: where entries are; `default_directory()` if None.
        limit: bytes of entries that `prune` leaves.
    """

    def __init__(self, directory: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.directory = directory or default_directory()
        self.limit = limit

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The data stored under `key`, or None where there is none or it is damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None  # absent, or as good as absent
        data = content[_HEADER_SIZE:]
        if content[:_HEADER_SIZE] != _MAGIC + hashlib.sha256(data).digest():
            _log.warning("dropping the damaged cache entry %s", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):  # another process may have pruned it; a read-only cache still serves
            os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Stores `data` under `key`, in place of what was there."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(data).digest())
                    file.write(data)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            _log.warning("cannot write the cache %s: %s", self.directory, error)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.directory.glob("??/*"):
            try:
                yield path, path.stat()
            except FileNotFoundError:  # another process deleted it
                continue

    def prune(self) -> int:
        """Deletes the entries used longest ago until `limit` holds, and files that dead writers left.

        Returns:
            The bytes that were deleted.
        """
        now = time.time()
        entries: list[tuple[float, int, Path]] = []
        doomed: list[tuple[int, Path]] = []
        for path, status in self._files():
            if not path.name.startswith(_TEMPORARY_PREFIX):
                entries.append((status.st_mtime, status.st_size, path))
            elif now - status.st_mtime > _ABANDONED_AFTER:
                doomed.append((status.st_size, path))
        excess = sum(size for _, size, _ in entries) - self.limit
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            doomed.append((size, path))
            excess -= size
        for _, path in doomed:
            with contextlib.suppress(OSError):
                path.unlink()
        return sum(size for size, _ in doomed)
