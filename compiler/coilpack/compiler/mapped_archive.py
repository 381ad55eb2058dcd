"""Loads exported programs with their weights mapped from the file: reading a model takes no memory of its size."""

from __future__ import annotations

import mmap
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat

_LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of name and extra field, which the data follows
_TENSORS = ("data/weights/weight_", "data/constants/tensor_")


class _MappedEntries:
    """The stored entries of a ZIP archive as writable views of a private mapping; pages are read when touched."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            self._mapping = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
            self._entries = {
                info.filename.partition("/")[2]: info
                for info in archive.infolist()
                if info.compress_type == zipfile.ZIP_STORED
            }

    def get(self, name: str) -> memoryview | None:
        """The bytes of the entry `name` (without the archive's folder); None where it is not there, packed or empty."""
        info = self._entries.get(name)
        if info is None or not info.file_size:
            return None
        name_length, extra_length = _LOCAL_HEADER.unpack_from(self._mapping, info.header_offset)
        start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        return self._mapping[start : start + info.file_size]


@contextmanager
def mapped_tensors(path: Path) -> Iterator[None]:
    """Within it, `torch.export.load(path)` maps tensors instead of reading them."""
    package: Any = compat.pt2_package
    original = package.PT2ArchiveReader
    entries = _MappedEntries(path)

    class Records:
        """torch's reader of the archive, but for the storages of tensors."""

        def __init__(self, reader: Any) -> None:
            self._reader = reader

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

        def get_storage_from_record(self, name: str, count: int, dtype: torch.dtype) -> torch.Tensor:
            data = entries.get(name)
            if data is None:
                stored: torch.Tensor = self._reader.get_storage_from_record(name, count, dtype)
                return stored
            return torch.frombuffer(data, dtype=dtype, count=count)

    class Reader(package.PT2ArchiveReader):  # type: ignore[misc]
        def __init__(self, source: Any) -> None:
            super().__init__(source)
            reader: Any = self
            reader.archive_file = Records(reader.archive_file)

        def read_bytes(self, name: str) -> Any:  # where torch makes tensors of bytes
            data = entries.get(name) if name.startswith(_TENSORS) else None
            return super().read_bytes(name) if data is None else data

    package.PT2ArchiveReader = Reader
    try:
        yield
    finally:
        package.PT2ArchiveReader = original
