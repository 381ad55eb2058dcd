"""The header of a safetensors file: 8 bytes of length, JSON, then the tensors' bytes without gaps.

The format is described at https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.json_object import parse_object

HEADER_LENGTH: Final = struct.Struct("<Q")
MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit
DATA_ALIGNMENT: Final = 64  # bytes from the start of what we write to its first tensor

_NAMES: Final[dict[DType, str]] = {
    DType.i1: "BOOL",
    DType.i8: "I8",
    DType.i16: "I16",
    DType.i32: "I32",
    DType.i64: "I64",
    DType.ui8: "U8",
    DType.ui16: "U16",
    DType.ui32: "U32",
    DType.ui64: "U64",
    DType.f16: "F16",
    DType.bf16: "BF16",
    DType.f32: "F32",
    DType.f64: "F64",
    DType.f8E4M3FN: "F8_E4M3",
    DType.f8E5M2: "F8_E5M2",
}
# The format has no complex128, and older readers no complex64: they are written as pairs of their parts.
_PARTS: Final = {DType.complex64: DType.f32, DType.complex128: DType.f64}

# Bits of an element. Types of the format that have no counterpart here may stand in a file that is only referred to.
_BITS: Final = {name: 8 * dtype.itemsize for dtype, name in _NAMES.items()} | {
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file: its bytes are [begin, end) behind the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def pack_header(tensors: Sequence[tuple[str, DType, tuple[int, ...]]]) -> bytes:
    """The header, length included, of tensors (name, type, shape) that follow it in that order without gaps.

    Spaces at its end let the data start at a multiple of `DATA_ALIGNMENT`.
    """
    header: dict[str, Any] = {}
    begin = 0
    for name, dtype, shape in tensors:
        end = begin + math.prod(shape) * dtype.itemsize
        part = _PARTS.get(dtype)
        stated = (*shape, 2) if part else shape
        header[name] = {"dtype": _NAMES[part or dtype], "shape": list(stated), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(HEADER_LENGTH.size + len(text)) % DATA_ALIGNMENT)
    return HEADER_LENGTH.pack(len(text)) + text


def read_header(data: memoryview, file: str) -> tuple[dict[str, Tensor], int]:
    """The tensors of a file by name, and the byte at which their data starts.

    Args:
        data: the whole file.
        file: its name in messages.

    Raises:
        InvalidFileError: the header breaks a rule of the format, or a tensor does not lie in the data.
    """
    if len(data) < HEADER_LENGTH.size:
        raise InvalidFileError(file, "", f"it has {len(data)} bytes; a safetensors file has at least 8")
    length: int = HEADER_LENGTH.unpack_from(data)[0]
    limit = min(MAX_HEADER_BYTES, len(data) - HEADER_LENGTH.size)
    if length > limit:
        raise InvalidFileError(file, "bytes 0 to 8", f"the header has {length} bytes; the limit is {limit}")
    start = HEADER_LENGTH.size + length
    tensors = [_tensor(name, entry, file) for name, entry in _parse(data[HEADER_LENGTH.size : start], file).items()]
    _check_ranges(tensors, len(data) - start, file)
    return {tensor.name: tensor for tensor in tensors}, start


def _parse(text: memoryview, file: str) -> dict[str, Any]:
    header = parse_object(text, file, "header")
    header.pop("__metadata__", None)
    return header


def _tensor(name: str, entry: Any, file: str) -> Tensor:
    def fail(problem: str) -> NoReturn:
        raise InvalidFileError(file, f"header: tensor {name[:200]!r}", problem)

    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        fail("it must be an object of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        fail(f"its dtype is {str(dtype)[:40]!r}; known are {', '.join(_BITS)}")
    if not _is_sizes(shape) or len(shape) > 64:
        fail("its shape must be a list of up to 64 sizes that are not negative")
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        fail("its data_offsets must be two numbers, the first not above the second")
    bits = math.prod(shape) * _BITS[dtype]
    begin, end = offsets
    if bits != 8 * (end - begin):
        fail(f"{end - begin} bytes of data for {dtype} elements of shape {shape}, which take {-(-bits // 8)}")
    return Tensor(name, dtype, tuple(shape), begin, end)


def _is_sizes(value: Any) -> bool:
    """Whether it is a list of unsigned 63-bit numbers; `True` is none."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _check_ranges(tensors: Sequence[Tensor], nbytes: int, file: str) -> None:
    """The format wants every byte of the data in exactly one tensor."""
    end = 0
    for tensor in sorted(tensors, key=lambda item: (item.begin, item.end)):
        if tensor.begin != end:
            kind = "overlaps the tensor before it" if tensor.begin < end else "leaves a gap"
            place = f"it starts at byte {tensor.begin} of the data, but that before it ends at {end}"
            raise InvalidFileError(file, f"header: tensor {tensor.name[:200]!r}", f"it {kind}: {place}")
        end = tensor.end
    if end != nbytes:
        raise InvalidFileError(file, "header", f"its tensors take {end} bytes, but {nbytes} bytes of data follow")
