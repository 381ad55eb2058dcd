"""Kernels in IREE's parameter order: what their PTX becomes, and that it computes what it did before."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from coilpack.compiler.iree.abi import Constant, IreeKernel, iree_kernel
from coilpack.runtime import strided
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import LaunchConfig
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import CoilpackError, UnsupportedError
from coilpack.runtime.images import describe_image
from coilpack.runtime.program.ir import Access, KernelParameter, PointerParameter, ScalarParameter

DATA = Path(__file__).parent / "data" / "ptx"
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
IN = PointerParameter(DType.i64, Access.READ, 16)
OUT = PointerParameter(DType.i64, Access.WRITE, 16)
I1, I16, I32, I64, F16, F32, F64 = (
    ScalarParameter(DType[name]) for name in ("i1", "i16", "i32", "i64", "f16", "f32", "f64")
)

# How the parameters of each kind are declared, with the bytes that tests give them.
_SCALARS = {
    I1: (".u8 {}", b"\1"),
    I16: (".u16 {}", struct.pack("<h", -2)),
    F16: (".align 2 .b8 {}[2]", struct.pack("<e", 1.5)),
    I32: (".u32 {}", struct.pack("<i", -77777)),
    F32: (".f32 {}", struct.pack("<f", 0.1)),
    I64: (".u64 {}", struct.pack("<q", -0x0123456789ABCDEF)),
    F64: (".f64 {}", struct.pack("<d", 0.7)),
}


def kernel(parameters: list[KernelParameter], *body: str) -> str:
    declared = [
        ".param " + (_SCALARS[p][0] if p in _SCALARS else ".u64 .ptr .global .align 1 {}").format(f"k_param_{i}")
        for i, p in enumerate(parameters)
    ]
    lines = [
        ".reg .pred %p<3>;",
        ".reg .b16 %rs<9>;",
        ".reg .b32 %r<9>;",
        ".reg .b64 %rd<9>;",
        "setp.eq.u32 %p1, 0, 0;",
        *body,
        "ret;",
    ]
    text = "".join(f"\t{line}\n" for line in lines)
    return f"{HEADER}.visible .entry k(\n\t" + ",\n\t".join(declared) + f"\n)\n.reqntid 32\n{{\n{text}}}\n"


def run(ptx: str, values: list[bytes], inputs: np.ndarray, output: int, source: int | None) -> np.ndarray:
    """What one thread of the entry `k` leaves in its output, given its parameters but for the two addresses."""
    device = resolve_device("emulator")
    stream = device.default_stream
    buffers = [device.allocate(256, stream) for _ in range(2)]
    device.write(buffers[0].address, memoryview(bytes(256)), stream)
    device.write(buffers[1].address, memoryview(inputs).cast("B"), stream)
    for index, buffer in ((output, buffers[0]), (source, buffers[1])):
        if index is not None:
            values[index] = buffer.address.to_bytes(8, "little")
    module = device.load_module(memoryview(ptx.encode()), "k.ptx")
    launch = device.prepare(module.kernel("k"), LaunchConfig((1, 1, 1), (32, 1, 1), 0), values)
    with device.activate():
        launch.run(stream)
    result = np.zeros(256, np.uint8)
    device.read(buffers[0].address, memoryview(result), stream)
    module.close()
    for buffer in buffers:
        buffer.close()
    return result


def values_of(parameters: list[KernelParameter]) -> list[bytes]:
    return [_SCALARS[p][1] if p in _SCALARS else bytes(8) for p in parameters]


def iree_values(found: IreeKernel, values: list[bytes]) -> list[bytes]:
    """The parameters as IREE passes them: addresses, then words whose unused bytes may hold anything."""
    words = [(values[c.parameter] + b"\xee" * 4)[4 * c.word :][:4] for c in found.constants]
    return [values[index] for index in found.bindings] + words


MIXED: list[KernelParameter] = [I1, OUT, F64, IN, F16, I64, F32, IN, I16, I32]
MIXED_BODY = (
    "ld.param.b64 %rd1, [k_param_1];",
    "ld.param.b8 %rs1, [k_param_0];",
    "st.global.b8 [%rd1], %rs1;",
    "ld.param.b16 %rs2, [k_param_4];",
    "st.global.b16 [%rd1+2], %rs2;",
    "ld.param.u16 %rs3, [k_param_8];",
    "st.global.b16 [%rd1+4], %rs3;",
    "ld.param.f32 %r1, [k_param_6];",
    "st.global.b32 [%rd1+8], %r1;",
    "ld.param.b64 %rd2, [k_param_2];",
    "st.global.b64 [%rd1+16], %rd2;",
    "ld.param.b64 %rd3, [k_param_7];",
    "ld.global.b64 %rd4, [%rd3];",
    "ld.param.b64 %rd5, [k_param_5];",
    "add.s64 %rd5, %rd5, %rd4;",
    "st.global.b64 [%rd1+24], %rd5;",
)


def test_mixed_parameters_compute_the_same():
    before = kernel(MIXED, *MIXED_BODY)
    found = iree_kernel(before, "k", MIXED)
    assert found.bindings == (1, 7)  # 3 and 9 are never read
    assert found.read_only == (False, True)
    assert found.constants == (
        Constant(0, 0, 1),
        Constant(2, 0, 8),
        Constant(2, 1, 8),
        Constant(4, 0, 2),
        Constant(5, 0, 8),
        Constant(5, 1, 8),
        Constant(6, 0, 4),
        Constant(8, 0, 2),
    )
    (parameters,) = describe_image(found.ptx.encode()).entries.values()
    assert [p.size for p in parameters] == [8] * 2 + [4] * 8
    inputs = np.array([1000], np.int64)
    values = values_of(MIXED)
    expected = run(before, values, inputs, 1, 7)
    sum_ = struct.unpack("<q", _SCALARS[I64][1])[0] + 1000
    assert expected[:32].tobytes() == b"\1\0" + b"".join(
        (
            _SCALARS[F16][1],
            _SCALARS[I16][1],
            b"\0\0",
            _SCALARS[F32][1],
            bytes(4),
            _SCALARS[F64][1],
            struct.pack("<q", sum_),
        )
    )
    np.testing.assert_array_equal(run(found.ptx, iree_values(found, values), inputs, 0, 1), expected)


@pytest.mark.parametrize(
    "load",
    [
        ("ld.param.u64 %rd2, [k_param_0];", "st.global.b64 [%rd1], %rd2;"),
        ("ld.param::entry.b64 %rd2, [ k_param_0 + 0 ];", "st.global.b64 [%rd1], %rd2;"),
        ("ld.param.v2.b32 {%r1, %r2}, [k_param_0];", "st.global.v2.b32 [%rd1], {%r1, %r2};"),
        (
            "ld.param.v4.b16 {%rs1, %rs2, %rs3, %rs4}, [k_param_0];",
            "st.global.v4.b16 [%rd1], {%rs1, %rs2, %rs3, %rs4};",
        ),
        ("ld.param.b32 %r1, [k_param_0];", "st.global.b32 [%rd1], %r1;"),
        ("ld.param.b32 %r1, [k_param_0+4];", "st.global.b32 [%rd1], %r1;"),
        ("ld.param.s16 %rs1, [k_param_0+6];", "st.global.b16 [%rd1], %rs1;"),
        ("ld.param.u8 %rs1, [k_param_0+3];", "st.global.b8 [%rd1], %rs1;"),
        ("mov.b64 %rd2, 5;", "@%p1 ld.param.b64 %rd2, [k_param_0];", "st.global.b64 [%rd1], %rd2;"),
        ("mov.b64 %rd2, 5;", "@!%p1 ld.param.b64 %rd2, [k_param_0];", "st.global.b64 [%rd1], %rd2;"),
        (".reg .b32 %lo, %hi_<2>;", "ld.param.b64 %rd2, [k_param_0];", "st.global.b64 [%rd1], %rd2;"),
    ],
    ids=lambda lines: lines[-2],
)
def test_loads_of_a_split_parameter(load):
    parameters = [I64, OUT]
    before = kernel(parameters, "ld.param.b64 %rd1, [k_param_1];", *load)
    found = iree_kernel(before, "k", parameters)
    values, inputs = values_of(parameters), np.zeros(1)
    expected = run(before, values, inputs, 1, None)
    assert expected.any()
    np.testing.assert_array_equal(run(found.ptx, iree_values(found, values), inputs, 0, None), expected)
    assert iree_kernel(found.ptx, "k", [OUT, *[I32] * len(found.constants)]).ptx == found.ptx


def test_a_half_that_is_never_read_goes():
    text = kernel([OUT, I64], "ld.param.b64 %rd1, [k_param_0];", "ld.param.b32 %r1, [k_param_1+4];")
    assert iree_kernel(text, "k", [OUT, I64]).constants == (Constant(1, 1, 8),)


def test_golden():
    """A kernel that Triton wrote, before and after."""
    parameters = [PointerParameter(DType.f32, Access.WRITE, 16), I32, I64, F32, F16, I1]
    text = (DATA / "scalars.normalized.ptx").read_text()
    found = iree_kernel(text, "scalars_dispatch_0", parameters)
    assert found.ptx == (DATA / "scalars.iree.ptx").read_text()
    assert [(c.parameter, c.word) for c in found.constants] == [(1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (5, 0)]


def test_what_is_in_order_stays_as_it_is():
    text = (DATA / "add.normalized.ptx").read_text()
    pointer = PointerParameter(DType.f32, Access.READ, 16)
    found = iree_kernel(text, "add_dispatch_0", [pointer, pointer, PointerParameter(DType.f32, Access.WRITE, 16), I32])
    assert found == IreeKernel(text, (0, 1, 2), (True, True, False), (Constant(3, 0, 4),))


def test_one_entry_of_several():
    """The others, with parameters of the same names, are not touched."""
    parameters = [OUT, IN, I32, I32, *[I32, I64, I64] * 8]
    found = iree_kernel(strided.PTX, "coilpack_copy_4", parameters)
    assert len(found.constants) == 2 + 8 * 5
    before, after = (describe_image(text.encode()).entries for text in (strided.PTX, found.ptx))
    assert {name for name in before if before[name] != after[name]} == {"coilpack_copy_4"}


@pytest.mark.parametrize(
    ("parameter", "count", "what"),
    [(IN, 17, "17 pointers; .* at most 16"), (I64, 33, "66 constants of 32 bits; .* at most 64")],
)
def test_counts_over_the_limits(parameter, count, what):
    body = [f"ld.param.b64 %rd1, [k_param_{i}];" for i in range(count)]
    with pytest.raises(UnsupportedError, match=f"kernel 'k' takes {what}"):
        iree_kernel(kernel([parameter] * count, *body), "k", [parameter] * count)
    found = iree_kernel(kernel([parameter] * count, *body[:-1]), "k", [parameter] * count)
    assert len(found.bindings) + len(found.constants) in (16, 64)


def test_a_wide_parameter_whose_address_is_taken():
    text = kernel([I64], "mov.b64 %rd1, k_param_0;", "ld.param.b64 %rd2, [%rd1];")
    with pytest.raises(UnsupportedError, match="does not only load its 64-bit parameter 'k_param_0'"):
        iree_kernel(text, "k", [I64])


def test_parameters_that_are_not_those_of_the_entry():
    with pytest.raises(CoilpackError, match=r"have \[8, 4\] bytes where the program says \[8, 8\]"):
        iree_kernel(kernel([OUT, I32]), "k", [OUT, I64])
    with pytest.raises(CoilpackError, match="kernel 'other': its PTX has no entry of that name"):
        iree_kernel(kernel([OUT, I32]), "other", [OUT, I32])


@pytest.mark.compiler
def test_ptxas_takes_it():
    from coilpack.compiler.kernels.assemble import assemble
    from coilpack.compiler.targets import parse_target

    found = iree_kernel(kernel(MIXED, *MIXED_BODY), "k", MIXED)
    cubin = describe_image(assemble(found.ptx, parse_target("sm_80"), kernel_name="k"))
    assert [p.size for p in cubin.entries["k"]] == [8] * 2 + [4] * 8
