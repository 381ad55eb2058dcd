"""Copies between layouts: IREE's arrays are row-major, those of a signature may have other strides.

The runtime's own kernel for strided copies does the work; `coilpack.runtime.strided` describes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from coilpack.compiler.arithmetic import ceil_divide, multiply
from coilpack.compiler.iree.abi import iree_kernel
from coilpack.compiler.iree.executables import HostKernel
from coilpack.compiler.iree.launches import LaunchOperand, Pointer
from coilpack.runtime import strided
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr

_U32, _I64 = ir.ScalarParameter(DType.ui32), ir.ScalarParameter(DType.i64)


def copy_unit(dtype: DType) -> int:
    """The bytes that the kernel for arrays of that type moves at a time."""
    return math.gcd(dtype.itemsize, max(strided.UNITS))


def copy_kernel(unit: int, executable: str, path: str) -> HostKernel:
    """The kernel for units of that many bytes, called `executable` in the module and written to `path`."""
    dtype = DType[f"ui{8 * unit}"]
    parameters: tuple[ir.KernelParameter, ...] = (
        ir.PointerParameter(dtype, ir.Access.WRITE, unit),
        ir.PointerParameter(dtype, ir.Access.READ, unit),
        _U32,
        _U32,
        *(_U32, _I64, _I64) * strided.MAX_DIMS,
    )
    name = strided.kernel_name(unit)
    abi = iree_kernel(strided.kernel_ptx([unit]), name, parameters)
    return HostKernel(name, executable, path, parameters, abi, (strided.BLOCK, 1, 1))


def copy_launch(
    type_: ir.TensorType, source: Pointer, source_strides: Sequence[Expr], target: Pointer, strides: Sequence[Expr]
) -> tuple[tuple[Expr, Expr, Expr], list[LaunchOperand]]:
    """Grid and operands of a copy.

    Args:
        type_: element type and shape of what is copied.
        source: where it is.
        source_strides: its strides, in elements.
        target: where it goes.
        strides: the strides there; no two elements may lie in one place.

    Raises:
        UnsupportedError: it has too many dimensions.
    """
    unit = copy_unit(type_.dtype)
    dims = list(_dims(type_, source_strides, strides, unit))
    if len(dims) > strided.MAX_DIMS:
        raise UnsupportedError(
            f"an array of {len(dims)} dimensions that is not row-major cannot be an argument or result of a module for "
            f"IREE; the limit is {strided.MAX_DIMS}"
        )
    count = multiply(*(size for size, _, _ in dims))
    filled = [*reversed(dims), *[(1, 0, 0)] * (strided.MAX_DIMS - len(dims))]
    operands: list[LaunchOperand] = [target, source, count, len(dims), *(item for dim in filled for item in dim)]
    grid: tuple[Expr, Expr, Expr] = (ceil_divide(count, strided.BLOCK), 1, 1)
    return grid, operands


def _dims(
    type_: ir.TensorType, source: Sequence[Expr], target: Sequence[Expr], unit: int
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Size, and bytes between neighbours on both sides, of each dimension; the outermost first."""
    itemsize = type_.dtype.itemsize
    for size, near, far in zip(type_.shape, source, target, strict=True):
        if size != 1:
            yield size, multiply(near, itemsize), multiply(far, itemsize)
    if itemsize != unit:
        yield itemsize // unit, unit, unit
