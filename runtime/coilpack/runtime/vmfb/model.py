"""A module archive in memory: what a `.vmfb` file says, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coilpack.runtime.executable.model import Executable

RodataKind = Literal["executable", "text", "data"]


@dataclass(frozen=True, slots=True)
class VmFunction:
    """A function that a module exports.

    Args:
        name: without the module's.
        calling_convention: IREE's encoding of argument and result types, as `0r_r`; empty where absent.
        attributes: what the module says of it to host languages, as pairs of key and value.
    """

    name: str
    calling_convention: str
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def declaration(self) -> str:
        """The signature as its author wrote it, as `sync func @f(%x: tensor<8xf32>) -> (…)`; empty where absent."""
        return next((value for key, value in self.attributes if key == "iree.abi.declaration"), "")


@dataclass(frozen=True, slots=True)
class VmImport:
    """A function of another module that this one calls.

    Args:
        name: with its module's, as `hal.device.allocator`.
        calling_convention: as that of `VmFunction`.
        optional: whether the module runs without it.
    """

    name: str
    calling_convention: str
    optional: bool


@dataclass(frozen=True, slots=True)
class VmDependency:
    """A module that this one needs, as `hal`.

    Args:
        name: the module's.
        minimum_version: the oldest version that serves.
        optional: whether this one runs without it.
    """

    name: str
    minimum_version: int
    optional: bool


@dataclass(frozen=True, slots=True)
class Rodata:
    """A segment of read-only data.

    Args:
        nbytes: its size.
        embedded: whether it is in the module's FlatBuffer; else it is behind it.
        kind: an executable of any format, a short text, or anything else.
        text: the text, where it is one. Only embedded data is looked at.
    """

    nbytes: int
    embedded: bool
    kind: RodataKind
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignExecutable:
    """An executable for other devices than CUDA ones. It is told apart and measured, not verified.

    Args:
        format: IREE's name of it, as `embedded-elf-x86_64`.
        nbytes: its size.
        segment: which segment of read-only data it is.
        exports: the names of its functions, where they can be read (of `vmvx-bytecode-fb`); else None.
    """

    format: str
    nbytes: int
    segment: int
    exports: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Vmfb:
    """A module archive.

    Args:
        module_name: the namespace of its functions.
        version: the module's own.
        bytecode_version: major and minor.
        functions: what it exports, `__init` and the like included.
        imports: what it calls of other modules.
        dependencies: the modules that it needs.
        devices: IREE's names of the devices that it asks for, as `cuda` or `local*`.
        formats: IREE's names of the executable formats that it asks a device for, as `cuda-nvptx-fb`.
        parameter_scopes: the scopes that it loads parameters from; see `coilpack.runtime.vmfb.strings`.
        parameter_keys: the names of the parameters that it loads.
        executables: the CUDA executables in it.
        contents: what each of them was read from: with its header where it has one, and with what follows it.
        other_executables: those of other formats.
        rodata: all segments of read-only data, the executables included.
    """

    module_name: str
    version: int
    bytecode_version: tuple[int, int]
    functions: tuple[VmFunction, ...]
    imports: tuple[VmImport, ...]
    dependencies: tuple[VmDependency, ...]
    devices: tuple[str, ...]
    formats: tuple[str, ...]
    parameter_scopes: tuple[str, ...]
    parameter_keys: tuple[str, ...]
    executables: tuple[Executable, ...]
    contents: tuple[memoryview, ...]
    other_executables: tuple[ForeignExecutable, ...]
    rodata: tuple[Rodata, ...]
