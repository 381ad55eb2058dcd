"""The rules of a product by the library of matrix products: element types, shapes, and layouts that it can take."""

from __future__ import annotations

import math

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.types import TypeChecker

# Of both sides, and of target and addend.
_ELEMENT_TYPES = [({side}, side) for side in (DType.f16, DType.bf16, DType.f32, DType.f64)]
_ELEMENT_TYPES += [({side}, DType.f32) for side in (DType.f16, DType.bf16)]


def matmul_problem(operation: ir.Matmul, checker: TypeChecker) -> str:
    """What is wrong with a product as far as is known before a call; empty where nothing is.

    Raises:
        TypeProblemError: a type breaks a rule of its own.
    """
    values = {"target": operation.target, "lhs": operation.lhs, "rhs": operation.rhs}
    if operation.addend is not None:
        values["addend"] = operation.addend
    sides = {values[key].type.dtype for key in ("lhs", "rhs")}
    sums = {value.type.dtype for key, value in values.items() if key in ("target", "addend")}
    if len(sides) > 1 or len(sums) > 1 or (sides, *sums) not in _ELEMENT_TYPES:
        given = ", ".join(f"%{value.name} {value.type.dtype.name}" for value in values.values())
        return f"lhs and rhs must be of one type among f16, bf16, f32 and f64, the others of it or f32; it has: {given}"
    ranks = {len(value.type.shape) for value in values.values()}
    if ranks not in ({2}, {3}):
        given = ", ".join(f"%{value.name} {len(value.type.shape)}" for value in values.values())
        return f"all must have 2 dimensions, or all 3; they have: {given}"
    if not math.isfinite(operation.alpha) or not math.isfinite(operation.beta):
        return f"alpha is {operation.alpha!r} and beta {operation.beta!r}; they must be finite"
    if operation.addend is None and operation.beta != 0:
        return f"beta is {operation.beta!r} but there is no addend"
    return _shape_problem(values, checker) or _layout_problem(values, checker)


def _shape_problem(values: dict[str, ir.Value], checker: TypeChecker) -> str:
    shapes = {key: [checker.value(size) for size in value.type.shape] for key, value in values.items()}
    target, lhs, rhs = shapes["target"], shapes["lhs"], shapes["rhs"]
    pairs = [("rows of target and lhs", target[-2], lhs[-2]), ("columns of target and rhs", target[-1], rhs[-1])]
    pairs.append(("columns of lhs and rows of rhs", lhs[-1], rhs[-2]))
    if len(target) == 3:
        pairs += [(f"batches of target and {key}", target[0], shapes[key][0]) for key in ("lhs", "rhs")]
    if "addend" in shapes:
        pairs += [("sizes of target and addend", *pair) for pair in zip(target, shapes["addend"], strict=True)]
    for what, one, other in pairs:
        if one is not None and other is not None and one != other:
            return f"the {what} differ: {one} and {other}"
    return ""


def _layout_problem(values: dict[str, ir.Value], checker: TypeChecker) -> str:
    for key in ("target", "lhs", "rhs"):
        value = values[key]
        rows, columns = (checker.value(size) for size in value.type.shape[-2:])
        down, along = (checker.value(stride) for stride in value.type.strides[-2:])
        if not _follows(columns, along, rows, down) and not _follows(rows, down, columns, along):
            return f"the rows and columns of %{value.name} are neither row- nor column-major: strides {down}, {along}"
    target = values["target"]
    if len(target.type.shape) == 3 and checker.value(target.type.strides[0]) == 0:
        counts = [checker.value(size) for size in target.type.shape]
        if None not in counts and 0 not in counts and counts[0] != 1:
            return f"the batches of %{target.name} lie over each other"
    return ""


def _follows(count: int | None, step: int | None, lines: int | None, pitch: int | None) -> bool:
    """Whether `lines` runs of `count` neighbours may lie `pitch` elements apart, as far as is known."""
    if step is not None and step != 1 and (count is None or count > 1):
        return False
    return lines is None or lines <= 1 or pitch is None or count is None or pitch >= count
