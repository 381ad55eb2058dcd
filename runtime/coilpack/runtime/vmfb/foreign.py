"""Executables for other devices than CUDA ones: told apart by how they begin."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from coilpack.runtime.vmfb.archive import is_vmfb
from coilpack.schemas import wire

VMVX: Final = "vmvx-bytecode-fb"
# File identifiers of the FlatBuffers in IREE's `schemas/*_executable_def.fbs`.
_IDENTIFIERS: Final = {b"HIP1": "rocm-hsaco-fb", b"MTL1": "metal-msl-fb", b"VKE1": "vulkan-spirv-fb"}
# `e_machine` of an ELF file, by IREE's names of architectures; RISC-V by its number of bits.
_MACHINES: Final = {3: "x86_32", 40: "arm_32", 62: "x86_64", 183: "arm_64", 243: "riscv_"}
_ELF_CLASS_BITS: Final = {1: "32", 2: "64"}
_ELF_MACHINE: Final = struct.Struct("<H")
_ELF_MACHINE_OFFSET, _ELF_CLASS_OFFSET = 18, 4


def foreign_format(content: memoryview, formats: Sequence[str]) -> str | None:
    """Returns IREE's name of an executable's format, or None if the content is no executable that is known.

    Args:
        content: all of it.
        formats: those that the module asks for. They say how an ELF file is loaded, and whether a module inside is an
            executable.
    """
    if len(content) < wire.EXECUTABLE_HEADER.size:
        return None
    at = wire.IDENTIFIER_OFFSET
    for identifier, name in _IDENTIFIERS.items():
        if identifier in (bytes(content[:4]), bytes(content[at : at + 4])):
            return name
    if bytes(content[:4]) == wire.ELF_MAGIC:
        return _elf_format(content, formats)
    return VMVX if VMVX in formats and is_vmfb(content) else None


def _elf_format(content: memoryview, formats: Sequence[str]) -> str:
    number = _ELF_MACHINE.unpack_from(content, _ELF_MACHINE_OFFSET)[0]
    machine = _MACHINES.get(number, f"machine_{number}")
    if machine.endswith("_"):
        machine += _ELF_CLASS_BITS.get(content[_ELF_CLASS_OFFSET], "")
    asked = [name for name in formats if name.endswith(f"-elf-{machine}")]
    return asked[0] if asked else f"elf-{machine}"
