"""A package in memory, with kernels as PTX and as the Python functions that stand for them on the host device."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
from host_device import HostDevice
from program_samples import READ, WRITE, pointer, tensor

from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import Executable, Export, write_executable
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol
from coilpack.runtime.program.verify import verify_program

PTX = """\
.version {version}
.target {target}
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u32 n)
{{
.reg .pred %p<2>;
.reg .b32 %r<6>;
.reg .f32 %f<4>;
.reg .b64 %rd<6>;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %tid.x;
mad.lo.s32 %r4, %r1, %r2, %r3;
ld.param.u32 %r5, [n];
setp.ge.u32 %p1, %r4, %r5;
@%p1 bra DONE;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mul.wide.u32 %rd3, %r4, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4];
ld.param.f32 %f2, [factor];
mul.rn.f32 %f3, %f1, %f2;
st.global.f32 [%rd5], %f3;
DONE:
ret;
}}
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 y)
{{
.reg .b32 %r<2>;
.reg .f32 %f<4>;
.reg .b64 %rd<8>;
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd1, %r1, 4;
ld.param.u64 %rd2, [a];
ld.param.u64 %rd3, [b];
ld.param.u64 %rd4, [y];
add.s64 %rd5, %rd2, %rd1;
add.s64 %rd6, %rd3, %rd1;
add.s64 %rd7, %rd4, %rd1;
ld.global.f32 %f1, [%rd5];
ld.global.f32 %f2, [%rd6];
add.rn.f32 %f3, %f1, %f2;
st.global.f32 [%rd7], %f3;
ret;
}}
"""


def scale(device, _, parameters):
    (factor,), (n,) = struct.unpack("<f", parameters[2]), struct.unpack("<i", parameters[3])
    device.view(parameters[1], "f4", n)[:] = device.view(parameters[0], "f4", n) * np.float32(factor)


def add(device, _, parameters):
    a, b, y = (device.view(p, "f4", 4) for p in parameters)
    y[:] = a + b


def host_device() -> HostDevice:
    return HostDevice({"scale": scale, "add": add})


SCALE = ir.Kernel(
    "scale$1",
    (pointer(DType.f32, READ), pointer(DType.f32, WRITE), ir.ScalarParameter(DType.f32), ir.ScalarParameter(DType.i32)),
)
ADD = ir.Kernel("add", (pointer(DType.f32, READ), pointer(DType.f32, READ), pointer(DType.f32, WRITE)))
F4 = tensor(DType.f32, 4)
N = Symbol("n")
FN = tensor(DType.f32, N)
WEIGHTS = {"w": np.float32([10, 20, 30, 40]), "odd": np.arange(5, dtype=np.uint8)}
STORAGES = tuple(ir.Storage(name, array.nbytes) for name, array in WEIGHTS.items())


def product(a: Expr, b: Expr) -> Expr:
    return Binary(ExprKind.MUL, a, b)


def _values(**types: ir.TensorType) -> list[ir.Value]:
    return [ir.Value(name, type_) for name, type_ in types.items()]


def _main() -> ir.Function:
    """main(x, bias) = 2 x + bias + w"""
    x, bias, doubled, total, out, weight = _values(x=F4, bias=F4, doubled=F4, total=F4, out=F4, weight=F4)
    signature = ir.Signature("main", (ir.Argument("x", F4), ir.Argument("bias", F4)), (ir.Argument("", F4),))
    operations = (
        ir.Parameter(weight, STORAGES[0]),
        ir.Alloc(doubled, ir.AllocSpace.ARENA, 16, 0),
        ir.Dispatch(SCALE, (1, 1, 1), (x, doubled, 2.0, 4)),
        ir.Alloc(total, ir.AllocSpace.ARENA, 16, 256),
        ir.Dispatch(ADD, (1, 1, 1), (doubled, bias, total)),
        ir.Alloc(out, ir.AllocSpace.OUTPUT, 16),
        ir.Dispatch(ADD, (1, 1, 1), (total, weight, out)),
        ir.Return((out,)),
    )
    return ir.Function(signature, (x, bias), operations, 512)


def _update() -> ir.Function:
    """update(x, cache): cache = 3 x; returns cache, w and the last two of x"""
    x, cache, weight, tail = _values(x=F4, cache=F4, weight=F4, tail=tensor(DType.f32, 2))
    inputs = (ir.Argument("x", F4), ir.Argument("cache", F4))
    signature = ir.Signature("update", inputs, tuple(ir.Argument("", t) for t in (F4, F4, tail.type)))
    operations = (
        ir.Dispatch(SCALE, (1, 1, 1), (x, cache, 3.0, 4)),
        ir.Parameter(weight, STORAGES[0]),
        ir.View(tail, x, 2),
        ir.Return((cache, weight, tail)),
    )
    return ir.Function(signature, (x, cache), operations)


def _dynamic() -> ir.Function:
    """dynamic(x[n]) = -(-x), through the arena"""
    x, negated, out = _values(x=FN, negated=FN, out=FN)
    symbols = (ir.SizeSymbol("n", 0, 0, 0, 1000),)
    signature = ir.Signature("dynamic", (ir.Argument("x", FN),), (ir.Argument("", FN),), symbols)
    nbytes, grid = product(N, 4), (Binary(ExprKind.FLOORDIV, Binary(ExprKind.ADD, N, 31), 32), 1, 1)
    operations = (
        ir.Alloc(negated, ir.AllocSpace.ARENA, nbytes, 0),
        ir.Dispatch(SCALE, grid, (x, negated, -1.0, N)),
        ir.Alloc(out, ir.AllocSpace.OUTPUT, nbytes),
        ir.Dispatch(SCALE, grid, (negated, out, -1.0, N)),
        ir.Return((out,)),
    )
    return ir.Function(signature, (x,), operations, nbytes)


def program(targets: Mapping[str, str] | None = None) -> ir.Program:
    """The functions above for each target; `targets` gives the PTX version of each."""
    functions = (_main(), _update(), _dynamic())
    made = tuple(
        ir.Target(name, (ir.Image(ir.ImageKind.PTX, f"executables/{name}.ptx.cda1"),), (SCALE, ADD), functions)
        for name in (targets or {"sm_80": "8.7"})
    )
    result = ir.Program("coilpack tests", tuple(f.signature for f in functions), STORAGES, made)
    verify_program(result)
    return result


def executable(target: str = "sm_80", version: str = "8.7") -> bytes:
    exports = (Export(0, "scale", "scale$1", (32, 1, 1)), Export(1, "add", "add", (4, 1, 1)))
    return write_executable(Executable((PTX.format(target=target, version=version).encode(),), exports))


class MemoryPackage:
    """What `Program` asks of a package, without a file."""

    def __init__(self, targets: Mapping[str, str] | None = None) -> None:
        targets = targets or {"sm_80": "8.7"}
        self.program = program(targets)
        self.images = {f"executables/{name}.ptx.cda1": executable(name, version) for name, version in targets.items()}

    def image(self, entry: str) -> memoryview:
        return memoryview(self.images[entry])

    def storage(self, name: str) -> memoryview:
        return memoryview(WEIGHTS[name].tobytes())
