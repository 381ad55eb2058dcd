"""What the compilation of one target yields, as one block of bytes: for the cache and between processes.

A stored ZIP of `program.fb` (the program with this one target), `executables/*.cda1`, and for each tensor that Inductor
added `constants/<n>` with its name, type and shape in `constants.json`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.package import StorageData
from coilpack.runtime.program import ir
from coilpack.runtime.program.codec import decode_program, encode_program

_PROGRAM, _CONSTANTS = "program.fb", "constants.json"


@dataclass(frozen=True)
class Constant:
    """A tensor that the compiler added to the weights: type, shape, and its row-major bytes."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes

    def storage(self, name: str) -> StorageData:
        """It as a storage of the package."""
        return StorageData(name, self.dtype, self.shape, lambda: [self.data])


@dataclass(frozen=True)
class TargetBundle:
    """A program with one target, its executables by package entry, and its added constants by storage name."""

    program: ir.Program
    executables: Mapping[str, bytes]
    constants: Mapping[str, Constant] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The bundle as one block."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_PROGRAM, encode_program(self.program))
            for entry, data in self.executables.items():
                archive.writestr(entry, data)
            listing = [[name, c.dtype.name, list(c.shape)] for name, c in self.constants.items()]
            archive.writestr(_CONSTANTS, json.dumps(listing))
            for number, constant in enumerate(self.constants.values()):
                archive.writestr(f"constants/{number}", constant.data)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> TargetBundle:
        """The bundle in `data`; `InvalidFileError` naming `what` where it holds none."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                program = decode_program(archive.read(_PROGRAM), file=f"{what}/{_PROGRAM}")
                entries = [image.entry for target in program.targets for image in target.images]
                executables = {entry: archive.read(entry) for entry in entries}
                constants = {
                    name: Constant(DType[dtype], tuple(shape), archive.read(f"constants/{number}"))
                    for number, (name, dtype, shape) in enumerate(json.loads(archive.read(_CONSTANTS)))
                }
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
            raise InvalidFileError(what, "", f"it is not a compiled target ({error})") from error
        return cls(program, executables, constants)
