"""A package written by hand: `main(x) = x * x` of four floats, for every device from sm_80 on."""

from __future__ import annotations

from pathlib import Path

from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import BindingFlags, Executable, Export, write_executable
from coilpack.runtime.package import write_package
from coilpack.runtime.program import ir

ENTRY = "executables/sm_80.ptx.cda1"
EXPORT_NAME = "main_dispatch_0_square$4"

PTX = b"""\
.version 8.0
.target sm_80
.address_size 64
.visible .entry main_dispatch_0_square_4(.param .u64 source, .param .u64 target)
{
    .reg .pred %p;
    .reg .b32 %i;
    .reg .f32 %x;
    .reg .b64 %a, %b, %o;
    mov.u32 %i, %tid.x;
    setp.ge.u32 %p, %i, 4;
    @%p bra done;
    mul.wide.u32 %o, %i, 4;
    ld.param.u64 %a, [source];
    ld.param.u64 %b, [target];
    cvta.to.global.u64 %a, %a;
    cvta.to.global.u64 %b, %b;
    add.s64 %a, %a, %o;
    add.s64 %b, %b, %o;
    ld.global.f32 %x, [%a];
    mul.f32 %x, %x, %x;
    st.global.f32 [%b], %x;
done:
    ret;
}
"""


def square_executable() -> bytes:
    flags = (BindingFlags.READ_ONLY, BindingFlags(0))
    export = Export(0, "main_dispatch_0_square_4", EXPORT_NAME, (32, 1, 1), binding_flags=flags)
    return write_executable(Executable((PTX,), (export,)))


def square_program() -> ir.Program:
    four = ir.TensorType.contiguous(DType.f32, (4,))
    signature = ir.Signature("main", (ir.Argument("x", four),), (ir.Argument("y", four),))
    pointers = [ir.PointerParameter(DType.f32, access, 4) for access in (ir.Access.READ, ir.Access.WRITE)]
    kernel = ir.Kernel(EXPORT_NAME, tuple(pointers))
    x, y = ir.Value("x", four), ir.Value("y", four)
    operations = (
        ir.Alloc(y, ir.AllocSpace.OUTPUT, 16),
        ir.Dispatch(kernel, (1, 1, 1), (x, y)),
        ir.Return((y,)),
    )
    function = ir.Function(signature, (x,), operations)
    target = ir.Target("sm_80", (ir.Image(ir.ImageKind.PTX, ENTRY),), (kernel,), (function,))
    return ir.Program("test 1.0", (signature,), (), (target,))


def write_square_package(path: Path) -> Path:
    write_package(path, square_program(), {ENTRY: square_executable()}, [])
    return path
