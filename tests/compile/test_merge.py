"""Programs of several targets put together: one signature that all of them hold under."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coilpack.compiler.merge import merge_programs
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import CoilpackError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Symbol
from coilpack.runtime.program.verify import verify_program

ROWS = Symbol("s0")
TYPE = ir.TensorType.contiguous(DType.f32, (ROWS, 4))
SIGNATURE = ir.Signature(
    "main", (ir.Argument("x", TYPE),), (ir.Argument("", TYPE),), (ir.SizeSymbol("s0", 0, 0, 2, 64),)
)
STATE = ir.Global("state", 16)


def _program(target: str, signature: ir.Signature = SIGNATURE, state: ir.Global = STATE) -> ir.Program:
    argument = ir.Value("x", signature.inputs[0].type)
    read = ir.Value("s", ir.TensorType.contiguous(DType.f32, (4,)))
    function = ir.Function(signature, (argument,), (ir.GetGlobal(read, state), ir.Return((argument,))))
    images = (ir.Image(ir.ImageKind.PTX, f"executables/{target}.ptx.cda1"),)
    return ir.Program("test", (signature,), (), (ir.Target(target, images, (), (function,)),), (state,))


def test_guards_are_joined_and_ranges_narrowed() -> None:
    even = ir.Guard(ir.GuardKind.EQUAL, ROWS, 8)
    small = ir.Guard(ir.GuardKind.LESS_EQUAL, ROWS, 32)
    one = replace(SIGNATURE, guards=(small,))
    two = replace(SIGNATURE, guards=(even, small), symbols=(replace(SIGNATURE.symbols[0], minimum=4),))
    merged = merge_programs([_program("sm_80", one), _program("sm_90a", two)])
    (signature,) = merged.signatures
    assert signature.guards == (small, even)
    assert (signature.symbols[0].minimum, signature.symbols[0].maximum) == (4, 64)
    assert [target.name for target in merged.targets] == ["sm_80", "sm_90a"]
    assert all(target.functions[0].signature is signature for target in merged.targets)
    assert merged.globals == (STATE,)
    verify_program(merged)


def test_targets_of_different_functions_are_refused() -> None:
    other = replace(SIGNATURE, inputs=(ir.Argument("y", TYPE),))
    with pytest.raises(CoilpackError, match="targets disagree about the signature of 'main'"):
        merge_programs([_program("sm_80"), _program("sm_90a", other)])
