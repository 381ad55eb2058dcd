"""What the compilation of one target yields, as one block of bytes: for the cache and between processes.

A stored ZIP of `program.fb` (the program with this one target), `executables/*.cda1`, `storages.json` (name, type,
shape and SHA-256 of each storage) and, for storages whose bytes are nowhere else, `storages/<n>`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.program import ir
from coilpack.runtime.program.codec import decode_program, encode_program

_PROGRAM, _STORAGES = "program.fb", "storages.json"


@dataclass(frozen=True)
class StorageContent:
    """A storage of the program: type and shape under which it is listed, the SHA-256 of its bytes, and these.

    `data` is None where the bytes are found elsewhere by their digest, as in the `.pt2` that was compiled.
    """

    dtype: DType
    shape: tuple[int, ...]
    digest: str
    data: bytes | None


@dataclass(frozen=True)
class TargetBundle:
    """A program with one target, its executables by package entry, and its storages by name."""

    program: ir.Program
    executables: Mapping[str, bytes]
    storages: Mapping[str, StorageContent]

    def to_bytes(self) -> bytes:
        """The bundle as one block."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_PROGRAM, encode_program(self.program))
            for entry, data in self.executables.items():
                archive.writestr(entry, data)
            listing = [[name, s.dtype.name, s.shape, s.digest] for name, s in self.storages.items()]
            archive.writestr(_STORAGES, json.dumps(listing))
            for number, storage in enumerate(self.storages.values()):
                if storage.data is not None:
                    archive.writestr(f"storages/{number}", storage.data)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> TargetBundle:
        """The bundle in `data`; `InvalidFileError` naming `what` where it holds none."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                program = decode_program(archive.read(_PROGRAM), file=f"{what}/{_PROGRAM}")
                entries = [image.entry for target in program.targets for image in target.images]
                executables = {entry: archive.read(entry) for entry in entries}
                names = set(archive.namelist())
                storages = {
                    name: StorageContent(
                        DType[dtype], tuple(shape), digest, archive.read(entry) if entry in names else None
                    )
                    for entry, (name, dtype, shape, digest) in (
                        (f"storages/{number}", row) for number, row in enumerate(json.loads(archive.read(_STORAGES)))
                    )
                }
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
            raise InvalidFileError(what, "", f"it is not a compiled target ({error})") from error
        return cls(program, executables, storages)
