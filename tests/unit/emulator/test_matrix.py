"""Matrix instructions against numpy; each test writes out where the PTX ISA puts the parts of a matrix."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from ptx_cases import HEADER, assert_same

# instruction types: (numpy type in memory, bits, values that multiply exactly in every order of summing)
ELEMENTS = {
    "f16": (np.float16, 16),
    "bf16": (ml_dtypes.bfloat16, 16),
    "tf32": (np.float32, 32),
    "f64": (np.float64, 64),
    "s8": (np.int8, 8),
    "u8": (np.uint8, 8),
    "e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 8),
}


def left_place(lane: int, element: int, m: int, bits: int) -> tuple[int, int]:
    """Row and column of a thread's element of A: registers go down the row groups first, then along k."""
    per = max(32 // bits, 1)
    register, part = divmod(element, per)
    groups = m // 8
    return lane // 4 + 8 * (register % groups), lane % 4 * per + part + register // groups * 4 * per


def right_place(lane: int, element: int, bits: int) -> tuple[int, int]:
    per = max(32 // bits, 1)
    register, part = divmod(element, per)
    return lane % 4 * per + part + register * 4 * per, lane // 4


def result_place(lane: int, element: int) -> tuple[int, int]:
    return lane // 4 + 8 * (element // 2), lane % 4 * 2 + element % 2


def fragments(matrix: np.ndarray, count: int, place) -> np.ndarray:
    return np.array([[matrix[place(lane, e)] for e in range(count)] for lane in range(32)], matrix.dtype)


FORMS = [
    ("m16n8k8.row.col.f32.f16.f16.f32", "f16", np.float32),
    ("m16n8k16.row.col.f32.f16.f16.f32", "f16", np.float32),
    ("m16n8k16.row.col.f16.f16.f16.f16", "f16", np.float16),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", "bf16", np.float32),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", "bf16", np.float32),
    ("m16n8k4.row.col.f32.tf32.tf32.f32", "tf32", np.float32),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", "tf32", np.float32),
    ("m8n8k4.row.col.f64.f64.f64.f64", "f64", np.float64),
    ("m16n8k16.row.col.s32.s8.s8.s32", "s8", np.int32),
    ("m16n8k32.row.col.s32.s8.s8.s32", "s8", np.int32),
    ("m16n8k32.row.col.satfinite.s32.u8.u8.s32", "u8", np.int32),
    ("m8n8k16.row.col.s32.s8.s8.s32", "s8", np.int32),
]
FP8_FORMS = [
    ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "e4m3", np.float32),
    ("m16n8k32.row.col.f32.e5m2.e5m2.f32", "e5m2", np.float32),
]


def check(machine, form: str, element: str, result: type, values) -> None:
    m, n, k = (int(part) for part in form.split(".")[0].replace("m", "").replace("n", " ").replace("k", " ").split())
    dtype, bits = ELEMENTS[element]
    a, b, c = values((m, k)), values((k, n)), values((m, n)).astype(result)
    a, b = a.astype(dtype), b.astype(dtype)
    per, word = max(32 // bits, 1), 64 if bits == 64 else 32
    counts = [m * k // 32, k * n // 32, m * n // 32]
    parts = [
        fragments(a, counts[0], lambda lane, e: left_place(lane, e, m, bits)),
        fragments(b, counts[1], lambda lane, e: right_place(lane, e, bits)),
        fragments(c, counts[2], result_place),
    ]
    registers = [p.reshape(32, -1).view(f"u{word // 8}") for p in parts]
    sizes = [r.shape[1] for r in registers]
    names = [[f"%{x}{i}" for i in range(size)] for x, size in zip("abc", sizes, strict=True)]
    results = [f"%d{i}" for i in range(sizes[2])]
    step = word // 8
    loads = [
        f"mad.wide.u32 %at, %t, {len(group) * step}, %p{x};"
        + "".join(f"ld.global.b{word} {name}, [%at+{i * step}];" for i, name in enumerate(group))
        for x, group in zip("abc", names, strict=True)
    ]
    stores = "".join(f"st.global.b{word} [%at+{i * step}], {name};" for i, name in enumerate(results))
    every = [name for group in (*names, results) for name in group]
    listed = [", ".join(group) for group in (results, *names)]
    ptx = f"""{HEADER}.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{
        .reg .b32 %t; .reg .b64 %at, %pa, %pb, %pc, %pd; .reg .b{word} {", ".join(every)};
        ld.param.u64 %pa, [pa]; ld.param.u64 %pb, [pb]; ld.param.u64 %pc, [pc]; ld.param.u64 %pd, [pd];
        mov.u32 %t, %tid.x; {" ".join(loads)}
        mma.sync.aligned.{form} {", ".join(f"{{{group}}}" for group in listed)};
        mad.wide.u32 %at, %t, {sizes[2] * step}, %pd; {stores} ret; }}"""
    assert per * sizes[0] == counts[0] or bits == 64
    out = machine.run(ptx, [*registers, np.zeros_like(registers[2])], block=32)[3]
    wide = np.int64 if np.issubdtype(result, np.integer) else np.float64
    expected = (a.astype(wide) @ b.astype(wide) + c.astype(wide)).astype(result)
    got = out.view(result).reshape(32, -1)
    assert_same(got.ravel(), fragments(expected, counts[2], result_place).ravel())


def small_integers(shape):
    return np.random.default_rng(sum(shape)).integers(0, 5, shape)


@pytest.mark.parametrize(("form", "element", "result"), FORMS, ids=[form for form, *_ in FORMS])
def test_products(machine, form, element, result):
    check(machine, form, element, result, small_integers)


@pytest.mark.parametrize(("form", "element", "result"), FP8_FORMS, ids=[form for form, *_ in FP8_FORMS])
def test_products_of_fp8(emulated, form, element, result):
    check(emulated, form, element, result, small_integers)


LOADS = [(count, turned) for count in (1, 2, 4) for turned in (False, True)]


@pytest.mark.parametrize(("count", "turned"), LOADS)
def test_loading_matrices(machine, count, turned):
    """Rows lie 16 bytes apart in a scrambled order, which the addresses undo."""
    rows = 8 * count
    a = np.arange(rows * 8, dtype=np.uint16).reshape(rows, 8)
    order = np.random.default_rng(1).permutation(rows)
    names = ", ".join(f"%d{i}" for i in range(count))
    stores = "".join(f"st.global.b32 [%at+{4 * i}], %d{i};" for i in range(count))
    trans = ".trans" if turned else ""
    ptx = f"""{HEADER}.shared .align 16 .b8 pool[1024];
    .visible .entry k(.param .u64 pa, .param .u64 po, .param .u64 pd) {{
        .reg .pred %p; .reg .b32 %t, %r, %s, %d<4>; .reg .b64 %at, %pa, %po, %pd, %w<2>;
        ld.param.u64 %pa, [pa]; ld.param.u64 %po, [po]; ld.param.u64 %pd, [pd];
        mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, {rows}; mov.u32 %s, pool; mov.u32 %r, %s;
        @!%p bra READY;
        mad.wide.u32 %at, %t, 16, %pa; ld.global.v2.b64 {{%w0, %w1}}, [%at];
        mad.wide.u32 %at, %t, 4, %po; ld.global.u32 %r, [%at]; mad.lo.u32 %r, %r, 16, %s;
        st.shared.v2.b64 [%r], {{%w0, %w1}};
        READY: bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%r];
        mad.wide.u32 %at, %t, {4 * count}, %pd; {stores} ret; }}"""
    out = machine.run(ptx, [a, order.astype(np.uint32), np.zeros((32, count), np.uint32)], block=32)[2]
    for q in range(count):
        matrix = a[8 * q : 8 * q + 8]
        matrix = matrix.T if turned else matrix
        expected = [[matrix[lane // 4, lane % 4 * 2], matrix[lane // 4, lane % 4 * 2 + 1]] for lane in range(32)]
        assert out[:, q].copy().view(np.uint16).reshape(32, 2).tolist() == expected


def test_transposing_in_registers(machine):
    a = np.arange(64, dtype=np.uint16)
    ptx = f"""{HEADER}.visible .entry k(.param .u64 pa, .param .u64 pd) {{
        .reg .b32 %t, %a, %d; .reg .b64 %pa, %pd;
        ld.param.u64 %pa, [pa]; ld.param.u64 %pd, [pd]; mov.u32 %t, %tid.x;
        mad.wide.u32 %pa, %t, 4, %pa; mad.wide.u32 %pd, %t, 4, %pd; ld.global.b32 %a, [%pa];
        movmatrix.sync.aligned.m8n8.trans.b16 %d, %a; st.global.b32 [%pd], %d; ret; }}"""
    out = machine.run(ptx, [a, np.zeros_like(a)], block=32)[1]
    assert out.reshape(8, 8).tolist() == a.reshape(8, 8).T.tolist()
