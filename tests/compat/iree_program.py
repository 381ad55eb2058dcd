"""A program whose functions use each operation that a host program for IREE has, and its kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import Executable, Export, read_executable, write_executable
from coilpack.runtime.package import StorageData
from coilpack.runtime.program import ir
from coilpack.runtime.program.parser import parse_program
from coilpack.runtime.program.verify import verify_program

_TEXT = Path(__file__).with_suffix(".txt")

# y[i] += factor * x[i] + shift, for i < n. Pointers and scalars are mixed, and scalars have 8, 32 and 64 bits.
_MIX = """\
.visible .entry mix(.param .u64 n, .param .u64 x, .param .u8 shift, .param .u64 y, .param .f32 factor)
{
.reg .pred %p<2>;
.reg .b16 %h<2>;
.reg .b32 %r<5>;
.reg .f32 %f<6>;
.reg .b64 %rd<8>;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %tid.x;
mad.lo.u32 %r3, %r1, 32, %r2;
cvt.u64.u32 %rd1, %r3;
ld.param.u64 %rd2, [n];
setp.ge.u64 %p1, %rd1, %rd2;
@%p1 bra DONE;
shl.b64 %rd3, %rd1, 2;
ld.param.u64 %rd4, [x];
add.s64 %rd5, %rd4, %rd3;
ld.param.u64 %rd6, [y];
add.s64 %rd7, %rd6, %rd3;
ld.global.f32 %f1, [%rd5];
ld.global.f32 %f2, [%rd7];
ld.param.f32 %f3, [factor];
fma.rn.f32 %f4, %f1, %f3, %f2;
ld.param.s8 %h1, [shift];
cvt.rn.f32.s16 %f5, %h1;
add.rn.f32 %f4, %f4, %f5;
st.global.f32 [%rd7], %f4;
DONE:
ret;
}
"""
# Exchanges a[i] and b[i], for i < 32.
_SWAP = """\
.visible .entry swap(.param .u64 a, .param .u64 b)
{
.reg .b32 %r<2>;
.reg .f32 %f<3>;
.reg .b64 %rd<6>;
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd1, %r1, 4;
ld.param.u64 %rd2, [a];
ld.param.u64 %rd3, [b];
add.s64 %rd4, %rd2, %rd1;
add.s64 %rd5, %rd3, %rd1;
ld.global.f32 %f1, [%rd4];
ld.global.f32 %f2, [%rd5];
st.global.f32 [%rd4], %f2;
st.global.f32 [%rd5], %f1;
ret;
}
"""
# a[i] = x[i] and b[i] = -x[i], for i < 32.
_PAIR = """\
.visible .entry pair(.param .u64 x, .param .u64 a, .param .u64 b)
{
.reg .b32 %r<2>;
.reg .f32 %f<3>;
.reg .b64 %rd<8>;
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd1, %r1, 4;
ld.param.u64 %rd2, [x];
ld.param.u64 %rd3, [a];
ld.param.u64 %rd4, [b];
add.s64 %rd5, %rd2, %rd1;
add.s64 %rd6, %rd3, %rd1;
add.s64 %rd7, %rd4, %rd1;
ld.global.f32 %f1, [%rd5];
neg.f32 %f2, %f1;
st.global.f32 [%rd6], %f1;
st.global.f32 [%rd7], %f2;
ret;
}
"""
_HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n"


def program() -> ir.Program:
    """The program, verified."""
    parsed = parse_program(_TEXT.read_text(), file=str(_TEXT))
    verify_program(parsed)
    return parsed


def executable() -> Executable:
    """Its kernels."""
    kernels = {"mix": _MIX, "swap": _SWAP, "pair": _PAIR}
    exports = tuple(Export(i, name, name, (32, 1, 1), i) for i, name in enumerate(kernels))
    images = tuple(f"{_HEAD}{text}".encode() for text in kernels.values())
    return read_executable(write_executable(Executable(images, exports)))


def storages() -> list[StorageData]:
    """Its weights: numbers that are the same everywhere."""
    numbers = np.random.default_rng(3).standard_normal(96).astype(np.float32)
    return [
        StorageData("weights", DType.f32, (64,), lambda: [numbers[:64].data]),
        StorageData("half", DType.f32, (32,), lambda: [numbers[64:].data]),
    ]
