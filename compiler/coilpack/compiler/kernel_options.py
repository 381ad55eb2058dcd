"""How a bare Triton function is called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelOptions:
    """How a Triton function is compiled.

    Attributes:
        signature: see `coilpack.compiler.standalone.signature_text`.
        grid: workgroups along x, y and z, as `cdiv(n, BLOCK), 1, 1`, over names of arguments, or `p<i>` for parameter i
            of the compiled kernel; None where a caller gives the grid.
        num_warps: warps of a workgroup; None for the configuration's, or Triton's default.
        num_stages: stages of pipelined loops; None likewise.
    """

    signature: str
    grid: str | None = None
    num_warps: int | None = None
    num_stages: int | None = None
