"""The package (`.coil`): a program, its executables and its weights in one file. `docs/formats.md` describes it."""

from coilpack.runtime.package.reader import Package
from coilpack.runtime.package.writer import StorageData, Zeros, write_package

__all__ = ["Package", "StorageData", "Zeros", "write_package"]
