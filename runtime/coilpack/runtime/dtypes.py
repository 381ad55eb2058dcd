"""Element types: one table of their names, sizes, wire codes, and counterparts in numpy and DLPack."""

from __future__ import annotations

import enum
import functools
from typing import Any

import numpy as np


class DType(enum.Enum):
    """An element type; members are named as MLIR writes the type (`f32`, `bf16`, `i64`, `ui8`, `i1` for booleans).

    Attributes:
        code: the `ElementType` code in `program_def.fbs`.
        itemsize: bytes of one element.
        numpy_name: the numpy (or ml_dtypes) name; torch uses the same names.
        dlpack: DLPack's type code and width in bits (one lane).
        triton_name: the name in Triton's kernel signatures (`fp32`, `i64`); empty where Triton has none.
        is_float: whether it is a real floating-point type.
    """

    i1 = (1, 1, "bool", (6, 8), "i1")
    i8 = (2, 1, "int8", (0, 8), "i8")
    i16 = (3, 2, "int16", (0, 16), "i16")
    i32 = (4, 4, "int32", (0, 32), "i32")
    i64 = (5, 8, "int64", (0, 64), "i64")
    ui8 = (6, 1, "uint8", (1, 8), "u8")
    ui16 = (7, 2, "uint16", (1, 16), "u16")
    ui32 = (8, 4, "uint32", (1, 32), "u32")
    ui64 = (9, 8, "uint64", (1, 64), "u64")
    f16 = (10, 2, "float16", (2, 16), "fp16")
    bf16 = (11, 2, "bfloat16", (4, 16), "bf16")
    f32 = (12, 4, "float32", (2, 32), "fp32")
    f64 = (13, 8, "float64", (2, 64), "fp64")
    f8E4M3FN = (14, 1, "float8_e4m3fn", (10, 8), "fp8e4nv")  # noqa: N815 (MLIR's spelling)
    f8E5M2 = (15, 1, "float8_e5m2", (12, 8), "fp8e5")  # noqa: N815 (MLIR's spelling)
    complex64 = (16, 8, "complex64", (5, 64), "")
    complex128 = (17, 16, "complex128", (5, 128), "")

    def __init__(self, code: int, itemsize: int, numpy: str, dlpack: tuple[int, int], ptx: str) -> None:
        # Not properties that go through `value`: they are read for every operand of a program, and those are slow.
        self.code = code
        self.itemsize = itemsize
        self.numpy_name = numpy
        self.dlpack = dlpack
        self.triton_name = ptx
        self.is_float = self._name_.startswith(("f", "bf"))

    def __repr__(self) -> str:
        return f"DType.{self._name_}"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype; for bf16 and fp8 the one that ml_dtypes registers."""
        return _numpy_dtype(self)

    @classmethod
    def from_code(cls, code: int) -> DType:
        """The member with that wire code; `KeyError` where there is none."""
        return _BY_CODE[code]

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DType:
        """The member for a numpy dtype (native byte order); `KeyError` where there is none."""
        return _BY_NUMPY[dtype.name]

    @classmethod
    def from_numpy_name(cls, name: str) -> DType:
        """The member that numpy, ml_dtypes and torch call `name`; `KeyError` where there is none."""
        return _BY_NUMPY[name]

    @classmethod
    def from_dlpack(cls, code: int, bits: int) -> DType:
        """The member for a DLPack type of one lane; `KeyError` where there is none."""
        return _BY_DLPACK[code, bits]

    @classmethod
    def from_triton(cls, name: str) -> DType:
        """The member that Triton's signatures call `name`; `KeyError` where there is none."""
        return _BY_TRITON[name]


@functools.cache
def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    name = dtype.numpy_name
    if hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes  # only for types that numpy lacks: keeps the common import path short

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


_BY_CODE = {d.code: d for d in DType}
_BY_NUMPY = {d.numpy_name: d for d in DType}
_BY_DLPACK = {d.dlpack: d for d in DType}
_BY_TRITON = {d.triton_name: d for d in DType if d.triton_name}
