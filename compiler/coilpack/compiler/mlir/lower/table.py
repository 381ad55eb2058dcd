"""Every operation that is covered, with what executes it."""

from __future__ import annotations

from collections.abc import Mapping

from coilpack.compiler.mlir.lower import arith_floats, arith_integers, constants, functions
from coilpack.compiler.mlir.lower.context import Handler

TABLE: Mapping[str, Handler] = {
    **arith_floats.OPERATIONS,
    **arith_integers.OPERATIONS,
    **constants.OPERATIONS,
    **functions.OPERATIONS,
}
