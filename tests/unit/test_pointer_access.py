"""What kernels do through their pointers, read from PTX."""

from __future__ import annotations

import pytest

from coilpack.compiler.kernels.access import parameter_access
from coilpack.runtime.program.ir import Access

R, W, NONE = Access.READ, Access.WRITE, Access(0)


def access(*lines: str, parameters: int = 2) -> tuple[Access, ...]:
    declared = ",\n".join(f"  .param .u64 .ptr .global .align 1 k_param_{i}" for i in range(parameters))
    loads = "\n".join(f"  ld.param.b64 %rd{i}, [k_param_{i}];" for i in range(parameters))
    body = "\n".join(f"  {line}" for line in lines)
    return parameter_access(
        f".version 8.7\n.target sm_80\n.visible .entry k(\n{declared}\n)\n{{\n{loads}\n{body}\n  ret;\n}}\n"
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), (NONE, NONE)),
        (("ld.global.b32 %r1, [%rd0];", "st.global.b32 [%rd1+4], %r1;"), (R, W)),
        (("mad.wide.s32 %rd8, %r3, 4, %rd1;", "@%p1 st.global.v2.b32 [ %rd8 + 0 ], { %r1, %r2 };"), (NONE, W)),
        (("cvta.to.global.u64 %rd7, %rd0;", "atom.global.gpu.add.f32 %f1, [%rd7], %f2;"), (R | W, NONE)),
        (("red.global.add.u32 [%rd1], 1;",), (NONE, R | W)),
        (("cp.async.cg.shared.global [ %r9 + 0 ], [ %rd0 + 0 ], 0x10, %r4;",), (R, NONE)),
        (("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;",), (NONE, W)),
        (("prefetch.global.L2 [%rd0];",), (NONE, NONE)),
        (("selp.b64 %rd9, %rd0, %rd1, %p1;", "ld.global.b32 %r1, [%rd9];"), (R, R)),
        (("mov.b64 {%r1, %r2}, %rd0;", "mov.b64 %rd9, {%r1, %r2};", "st.global.b8 [%rd9], %rs1;"), (W, NONE)),
        # The address comes round a loop, from an instruction that stands behind its use.
        (("$L__BB0_1:", "ld.global.b32 %r1, [%rd9];", "add.s64 %rd9, %rd0, 4;", "bra $L__BB0_1;"), (R, NONE)),
        # What is loaded is data: a store of it says nothing about where it came from.
        (("ld.global.b64 %rd5, [%rd0];", "st.global.b64 [%rd1], %rd5;"), (R, W)),
        # An address in memory, or handed to a function, may be followed by whoever finds it.
        (("st.shared.b64 [%r1], %rd0;",), (R | W, NONE)),
        (("st.param.b64 [param0], %rd1;",), (NONE, R | W)),
        (("// begin inline asm", "{ st.global.b32 [%rd1], %r1; }", "// end inline asm"), (NONE, W)),
        (("/* st.global.b32 [%rd0], %r1; */",), (NONE, NONE)),
        (("multimem.red.global.add.u32 [%rd0], %r1;",), (R | W, NONE)),
    ],
)
def test_access(lines, expected) -> None:
    assert access(*lines) == expected
