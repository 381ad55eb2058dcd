"""Reads the header facts of a cubin: an ELF file for the machine `EM_CUDA`.

NVIDIA documents no more than that; what is used here was read off cubins that ptxas 12.8 and 13.1 wrote for sm_75 to
sm_120a and compared with what cuobjdump prints of them (tests hold such cubins).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.images.model import ImageInfo, ParamInfo

_HEADER: Final = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RECORD: Final = struct.Struct("<BBH")
_PARAM: Final = struct.Struct("<IHHI")
_REGISTERS: Final = struct.Struct("<II")  # index of the function's symbol, and how many

_EM_CUDA: Final = 190
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_SHT_SYMTAB, _SHT_NOBITS = 2, 8
_STT_FUNC: Final = 2
_STO_CUDA_ENTRY: Final = 0x10

# Records of `.nv.info.*` and `.nv.compat`: form, attribute, then a value of 16 bits or that many bytes behind.
_FORM_SIZED: Final = 4
_ATTRIBUTE_PARAM: Final = 0x17
_ATTRIBUTE_REGISTERS: Final = 0x2F
_COMPAT_ACCELERATED: Final = 0x09

# ABI version 7 (to sm_90): architecture in bits 0 to 7 of e_flags, bit 11 set for "a".
# ABI version 8 (Blackwell): in bits 8 to 15; "a" stands in `.nv.compat`.
_ABI_7, _ABI_8 = 7, 8
_ABI_7_ACCELERATED: Final = 0x800


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Elf:
    """Bounds-checked access to the sections of a 64-bit ELF file."""

    def __init__(self, data: bytes | memoryview, file: str, where: str) -> None:
        self.data, self.file, self.where = memoryview(data), file, where
        self.size = len(data)
        # Names may overlap in a hostile file; together they take no more than the file.
        self.name_budget = self.size
        if self.size < _HEADER.size:
            raise self.fail(f"the cubin has {self.size} bytes; an ELF header takes {_HEADER.size}")
        (_, class_, order, _, _, self.abi, _, machine, *rest) = _HEADER.unpack_from(data)
        (_, _, segments, table, self.flags, _, segment_size, segment_count, section_size, count, names) = rest
        if (class_, order, machine) != (_CLASS_64, _LITTLE_ENDIAN, _EM_CUDA):
            raise self.fail(
                f"the ELF file has class {class_}, byte order {order} and machine {machine}; "
                f"a cubin has {_CLASS_64}, {_LITTLE_ENDIAN} and {_EM_CUDA}"
            )
        if section_size != _SECTION.size:
            raise self.fail(f"the cubin has section headers of {section_size} bytes; they take {_SECTION.size}")
        self._fits("section headers", table, count * section_size)
        self._fits("program headers", segments, segment_count * segment_size)
        headers = self.data[table : table + count * section_size]
        self.sections = list(map(_Section._make, _SECTION.iter_unpack(headers)))
        for section in self.sections:
            if section.type != _SHT_NOBITS:
                self._fits("a section", section.offset, section.size)
        self.names = self.section(names)

    def _fits(self, what: str, offset: int, size: int) -> None:
        if offset + size > self.size:
            raise self.fail(
                f"the cubin has {self.size} bytes, too few for {what} of {size} bytes at byte {offset}; "
                "it may be truncated"
            )

    def fail(self, problem: str) -> InvalidFileError:
        return InvalidFileError(self.file, self.where, problem)

    def section(self, index: int) -> _Section:
        if index >= len(self.sections):
            raise self.fail(f"the cubin refers to section {index} of {len(self.sections)}")
        return self.sections[index]

    def content(self, section: _Section) -> memoryview:
        if section.type == _SHT_NOBITS:
            return self.data[:0]
        return self.data[section.offset : section.offset + section.size]

    def text(self, strings: bytes, offset: int) -> str:
        if offset >= len(strings):
            raise self.fail(f"a name at byte {offset} lies outside its table of {len(strings)} bytes")
        end = strings.find(0, offset, offset + self.name_budget + 1)
        if end < 0:
            raise self.fail(f"the name at byte {offset} of its table does not end, or the names of the cubin overlap")
        self.name_budget -= end - offset
        return strings[offset:end].decode("utf-8", "replace")


def _records(elf: _Elf, content: memoryview) -> list[tuple[int, int, memoryview]]:
    """Returns attribute, value and bytes of each record of an information section."""
    records = []
    at = 0
    while at + _RECORD.size <= len(content):
        form, attribute, value = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        size = value if form == _FORM_SIZED else 0
        if at + size > len(content):
            raise elf.fail(f"a record of {size} bytes does not fit its section of {len(content)}")
        records.append((attribute, value, content[at : at + size]))
        at += size
    return records


def _target(elf: _Elf, by_name: dict[str, _Section]) -> str:
    if elf.abi == _ABI_7:
        return f"sm_{elf.flags & 0xFF}{'a' if elf.flags & _ABI_7_ACCELERATED else ''}"
    if elf.abi == _ABI_8:
        compat = by_name.get(".nv.compat")
        records = _records(elf, elf.content(compat)) if compat else []
        accelerated = any(a == _COMPAT_ACCELERATED and value & 0xFF == 1 for a, value, _ in records)
        return f"sm_{elf.flags >> 8 & 0xFF}{'a' if accelerated else ''}"
    raise elf.fail(f"the cubin has ABI version {elf.abi}; known are {_ABI_7} and {_ABI_8}")


def _params(elf: _Elf, section: _Section | None) -> tuple[ParamInfo, ...]:
    found: dict[int, ParamInfo] = {}
    for attribute, _, content in _records(elf, elf.content(section)) if section else ():
        if attribute == _ATTRIBUTE_PARAM and len(content) == _PARAM.size:
            _, ordinal, offset, packed = _PARAM.unpack(content)
            # Bits 18 and up hold the size; the record has no alignment of the parameter's own place.
            size = packed >> 18
            alignment = min(size & -size, 16) or 1
            found[ordinal] = ParamInfo(str(ordinal), size, alignment, "", offset)
    if sorted(found) != list(range(len(found))):
        raise elf.fail(f"the cubin describes parameters {sorted(found)} of a kernel: some are missing")
    return tuple(found[ordinal] for ordinal in range(len(found)))


def _kernels(elf: _Elf) -> dict[int, str]:
    """Returns the symbols of functions that are marked as entries, by their index in the symbol table."""
    table = next((section for section in elf.sections if section.type == _SHT_SYMTAB), None)
    if table is None:
        raise elf.fail("the cubin has no symbol table")
    content, strings = elf.content(table), bytes(elf.content(elf.section(table.link)))
    symbols = _SYMBOL.iter_unpack(content[: len(content) // _SYMBOL.size * _SYMBOL.size])
    return {
        index: elf.text(strings, name)
        for index, (name, info, other, *_) in enumerate(symbols)
        if info & 0xF == _STT_FUNC and other & _STO_CUDA_ENTRY
    }


def describe_cubin(image: bytes | memoryview, *, file: str, where: str, kernels: bool) -> ImageInfo:
    """Reads the header facts of a cubin; see `describe_image`."""
    elf = _Elf(image, file, where)
    strings = bytes(elf.content(elf.names))
    by_name = {elf.text(strings, section.name): section for section in elf.sections}
    names = list(_kernels(elf).values()) if kernels else []
    entries = {name: _params(elf, by_name.get(f".nv.info.{name}")) for name in names}
    return ImageInfo("cubin", _target(elf, by_name), None, entries)


def register_counts(image: bytes | memoryview, *, file: str = "<cubin>") -> dict[str, int]:
    """How many registers a thread of each kernel of a cubin takes; kernels of which it does not say are left out.

    Raises:
        InvalidFileError: it is no valid cubin.
    """
    elf = _Elf(image, file, "")
    strings, kernels = bytes(elf.content(elf.names)), _kernels(elf)
    counts = {}
    for section in elf.sections:
        if elf.text(strings, section.name) == ".nv.info":
            for attribute, _, content in _records(elf, elf.content(section)):
                if attribute == _ATTRIBUTE_REGISTERS and len(content) == _REGISTERS.size:
                    symbol, count = _REGISTERS.unpack(content)
                    if symbol in kernels:
                        counts[kernels[symbol]] = count
    return counts


def code_sections(image: bytes | memoryview, *, file: str = "<cubin>") -> dict[str, bytes]:
    """The machine code of each kernel of a cubin, as the device runs it: neither symbols nor line information.

    Raises:
        InvalidFileError: it is no valid cubin.
    """
    elf = _Elf(image, file, "")
    strings = bytes(elf.content(elf.names))
    kernels = frozenset(_kernels(elf).values())
    named = {elf.text(strings, section.name).removeprefix(".text."): section for section in elf.sections}
    return {name: bytes(elf.content(section)) for name, section in named.items() if name in kernels}
