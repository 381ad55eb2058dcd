"""Every operation that is covered, with what executes it."""

from __future__ import annotations

from collections.abc import Mapping

from coilpack.compiler.mlir.lower import (
    affine,
    arith_floats,
    arith_integers,
    constants,
    functions,
    generic,
    maths,
    slices,
    tensors,
)
from coilpack.compiler.mlir.lower.context import Handler

TABLE: Mapping[str, Handler] = {
    **affine.OPERATIONS,
    **arith_floats.OPERATIONS,
    **arith_integers.OPERATIONS,
    **constants.OPERATIONS,
    **functions.OPERATIONS,
    **generic.OPERATIONS,
    **maths.OPERATIONS,
    **slices.OPERATIONS,
    **tensors.OPERATIONS,
}
