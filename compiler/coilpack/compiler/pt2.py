"""`.pt2` archives as content: what they compute, and their weights by digest, without importing torch.

A `.pt2` is a stored ZIP in which `torch.export.save` writes each weight's bytes as an entry of its own. An entry is
known here by the SHA-256 of its bytes, so nothing else of the archive's layout matters, and weights stream from it into
a package.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from coilpack.runtime.errors import InvalidFileError

# Parts that do not say what the program computes.
_IGNORED_ENTRIES = (".data/serialization_id", "data/sample_inputs/")
_CHUNK = 1 << 22  # bytes
_OPERATOR = re.compile(rb'"target": "torch\.ops\.([\w.]+)"')
_TORCH_LIBRARIES = ("aten", "higher_order", "prim", "prims")


@dataclass(frozen=True)
class Pt2File:
    """A `.pt2` file, read once.

    Attributes:
        path: where it is.
        digests: the SHA-256 of each entry's bytes, in hex, by the entry's name without its first folder (which is named
            after the file).
    """

    path: Path
    digests: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Pt2File:
        """Reads and hashes the file.

        Raises:
            InvalidFileError: it is not a ZIP archive, or a damaged one.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                digests = {_inner(info.filename): _digest(archive, info) for info in archive.infolist()}
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            hint = "Write it with torch.export.save"
            raise InvalidFileError(str(path), "", f"it is not a .pt2 archive ({error})", hint) from error
        return cls(path, digests)

    @cached_property
    def fingerprint(self) -> str:
        """A hash over what the file computes: its graph and weights, not its sample inputs or serial number."""
        kept = sorted(item for item in self.digests.items() if not item[0].startswith(_IGNORED_ENTRIES))
        return hashlib.sha256("\0".join(f"{name}\0{digest}" for name, digest in kept).encode()).hexdigest()

    @cached_property
    def custom_operators(self) -> tuple[str, ...]:
        """The operators that it calls and torch does not have, as `library.name.overload`. Their code is elsewhere."""
        with zipfile.ZipFile(self.path) as archive:
            graphs = [archive.read(info) for info in archive.infolist() if info.filename.endswith(".json")]
        found = {name.decode() for graph in graphs for name in _OPERATOR.findall(graph)}
        return tuple(sorted(name for name in found if name.partition(".")[0] not in _TORCH_LIBRARIES))

    @cached_property
    def _by_digest(self) -> Mapping[str, str]:
        return {digest: name for name, digest in self.digests.items()}

    def content(self, digest: str) -> Callable[[], Iterable[bytes]] | None:
        """A function that streams the entry with that digest; None where there is no such entry."""
        entry = self._by_digest.get(digest)
        if entry is None:
            return None

        def chunks() -> Iterable[bytes]:
            with zipfile.ZipFile(self.path) as archive:
                (name,) = (i.filename for i in archive.infolist() if _inner(i.filename) == entry)
                with archive.open(name) as stream:
                    while chunk := stream.read(_CHUNK):
                        yield chunk

        return chunks


def _inner(name: str) -> str:
    return name.partition("/")[2]


def _digest(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    digest = hashlib.sha256()
    with archive.open(info) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
