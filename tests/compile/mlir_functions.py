"""Calls operations of MLIR through their lowering, with torch and without Inductor."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch

from coilpack.compiler.mlir.lower.elements import to_torch
from coilpack.compiler.mlir.lower.export import lower_function
from coilpack.compiler.mlir.parser import parse_module

NUMPY = {
    "i1": np.dtype(bool),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
}


def call_module(text: str, name: str, *arrays: np.ndarray | int) -> list[np.ndarray]:
    """The results of a function; `bfloat16` and narrower ones as float32."""
    module = lower_function(parse_module(text), name)
    results = module(*(a if isinstance(a, int) else to_torch(np.asarray(a)) for a in arrays))
    return [_numpy(result) for result in results]


def _numpy(result: torch.Tensor | int) -> np.ndarray:
    if not isinstance(result, torch.Tensor):
        return np.asarray(result)
    plain = result.dtype.itemsize > 2 or result.dtype == torch.float16 or not result.is_floating_point()
    return (result if plain else result.to(torch.float32)).numpy()


def elementwise(
    operation: str, operands: Sequence[tuple[str, np.ndarray]], results: Sequence[str], properties: str = ""
) -> list[np.ndarray]:
    """An operation applied to tensors of these element types; `properties` is what stands in `<{…}>`."""
    shape = "x".join(str(size) for size in operands[0][1].shape)
    types = [f"tensor<{shape}x{element}>" for element, _ in operands]
    made = [f"tensor<{shape}x{element}>" for element in results]
    arguments = ", ".join(f"%a{n}: {type_}" for n, type_ in enumerate(types))
    names = ", ".join(f"%a{n}" for n in range(len(types)))
    returned, given = ", ".join(f"%r#{n}" for n in range(len(made))), f"<{{{properties}}}>" if properties else ""
    text = f"""
    func.func @f({arguments}) -> ({", ".join(made)}) {{
      %r:{len(made)} = "{operation}"({names}) {given} : ({", ".join(types)}) -> ({", ".join(made)})
      "func.return"({returned}) : ({", ".join(made)}) -> ()
    }}"""
    return call_module(text, "f", *(values for _, values in operands))


def reduction(
    body: str, inputs: Sequence[tuple[str, np.ndarray]], inits: Sequence[tuple[str, np.ndarray]]
) -> list[np.ndarray]:
    """A `linalg.generic` that reduces the second of two dimensions.

    `body` uses `%x0`, … for the elements of the inputs and `%o0`, … for what the outputs hold, and yields.
    """
    rows, columns = inputs[0][1].shape
    types = [f"tensor<{rows}x{columns}x{element}>" for element, _ in inputs]
    out_types = [f"tensor<{rows}x{element}>" for element, _ in inits]
    arguments = ", ".join(f"%a{n}: {type_}" for n, type_ in enumerate([*types, *out_types]))
    names = ", ".join(f"%a{n}" for n in range(len(types) + len(out_types)))
    maps = ["affine_map<(d0, d1) -> (d0, d1)>"] * len(types) + ["affine_map<(d0, d1) -> (d0)>"] * len(out_types)
    block = [f"%x{n}: {element}" for n, (element, _) in enumerate(inputs)]
    block += [f"%o{n}: {element}" for n, (element, _) in enumerate(inits)]
    returned = ", ".join(f"%r#{n}" for n in range(len(out_types)))
    text = f"""
    func.func @f({arguments}) -> ({", ".join(out_types)}) {{
      %r:{len(out_types)} = "linalg.generic"({names}) <{{
          indexing_maps = [{", ".join(maps)}],
          iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>],
          operandSegmentSizes = array<i32: {len(types)}, {len(out_types)}>}}> ({{
      ^bb0({", ".join(block)}):
        {body}
      }}) : ({", ".join([*types, *out_types])}) -> ({", ".join(out_types)})
      "func.return"({returned}) : ({", ".join(out_types)}) -> ()
    }}"""
    return call_module(text, "f", *(values for _, values in [*inputs, *inits]))
