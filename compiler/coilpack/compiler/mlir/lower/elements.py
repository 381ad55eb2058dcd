"""Element types of MLIR as torch holds them.

Integers are signless in MLIR and signed in torch, so that an unsigned operation reads the same bits otherwise; `i1` is
torch's bool, whose one bit is -1 where it is read as signed; `index` is int64.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from coilpack.compiler.mlir.syntax import ScalarType, TensorType, Type

FLOATS: Mapping[str, torch.dtype] = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2": torch.float8_e5m2,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
}
INTEGERS: Mapping[str, torch.dtype] = {
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "index": torch.int64,
}
DTYPES: Mapping[str, torch.dtype] = {**FLOATS, **INTEGERS}
INDEX = ScalarType("index")
_RAW: Mapping[int, str] = {1: "uint8", 2: "int16"}  # what carries the bits of types that torch cannot take from numpy


def element_of(type_: Type) -> ScalarType | None:
    """The element of a tensor, or the scalar itself; None for any other type."""
    if isinstance(type_, TensorType):
        return type_.element
    return type_ if isinstance(type_, ScalarType) else None


def is_float(element: ScalarType) -> bool:
    """Whether it is a floating-point type that is covered."""
    return element.name in FLOATS


def bits_of(element: ScalarType) -> int:
    """Width in bits of a covered type; 64 for `index`."""
    if element.name == "i1":
        return 1
    return DTYPES[element.name].itemsize * 8


def to_torch(array: npt.NDArray[np.generic]) -> torch.Tensor:
    """An array of numpy's or ml_dtypes' elements as a tensor of its own."""
    plain = np.array(array, order="C", copy=True)
    if plain.dtype.isbuiltin == 1:
        return torch.from_numpy(plain)
    return torch.from_numpy(plain.view(_RAW[plain.itemsize])).view(getattr(torch, plain.dtype.name))
