"""Loads, stores, state spaces and asynchronous copies."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_cases import HEADER, assert_same, values


def copy_kernel(code: str, *, shared: str = "", registers: str = "") -> str:
    """%ra and %rd are the thread's places in two arrays, `stride` bytes apart."""
    return f"""{HEADER}{shared}
    .visible .entry k(.param .u64 pa, .param .u64 pd, .param .u32 stride) {{
        .reg .pred %p; .reg .b16 %h<4>; .reg .b32 %t, %s, %r<8>; .reg .b64 %ra, %rd, %w<4>, %rg; {registers}
        ld.param.u64 %ra, [pa]; ld.param.u64 %rd, [pd]; ld.param.u32 %s, [stride];
        mov.u32 %t, %tid.x; mad.wide.u32 %ra, %t, %s, %ra; mad.wide.u32 %rd, %t, %s, %rd;
        {code}
        ret; }}"""


@pytest.mark.parametrize(
    ("stride", "code"),
    [
        (1, "ld.global.u8 %h0, [%ra]; st.global.u8 [%rd], %h0;"),
        (2, "ld.global.b16 %h0, [%ra]; st.global.b16 [%rd], %h0;"),
        (4, "ld.global.nc.L1::evict_last.b32 {%r0}, [%ra+0]; st.global.b32 [%rd], {%r0};"),
        (8, "ld.global.v2.b32 {%r0, %r1}, [%ra]; st.global.v2.b32 [%rd], {%r0, %r1};"),
        (8, "ld.global.v4.b16 {%h0, %h1, %h2, %h3}, [%ra]; st.global.v4.b16 [%rd], {%h0, %h1, %h2, %h3};"),
        (16, "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%ra]; st.global.v4.b32 [%rd], {%r0, %r1, %r2, %r3};"),
        (16, "ld.global.v2.b64 {%w0, %w1}, [%ra]; st.global.v2.b64 [%rd], {%w0, %w1};"),
        (8, "ld.volatile.global.b64 %w0, [%ra]; st.relaxed.gpu.global.b64 [%rd], %w0;"),
        (4, "ld.b32 %r0, [%ra]; st.b32 [%rd], %r0;"),
    ],
)
def test_copies_of_each_width(machine, stride, code):
    a = np.random.default_rng(1).integers(0, 256, 64 * stride).astype(np.uint8)
    assert_same(machine.run(copy_kernel(code), [a, np.zeros_like(a)], [stride], block=64)[1], a)


def test_offsets_and_extension(machine):
    a = np.random.default_rng(1).integers(0, 256, 64 * 4).astype(np.uint8)
    code = "ld.global.s8 %r0, [%ra+3]; ld.global.u8 %r1, [%ra+1]; sub.s32 %r0, %r0, %r1; st.global.b32 [%rd], %r0;"
    got = machine.run(copy_kernel(code), [a, np.zeros(64, np.int32)], [4], block=64)[1]
    rows = a.reshape(-1, 4)
    assert_same(got, rows[:, 3].view(np.int8).astype(np.int32) - rows[:, 1])


def test_predicated_loads_keep_the_register(machine):
    a = np.arange(64, dtype=np.uint32)
    code = """
        mov.u32 %r0, 7; and.b32 %r1, %t, 1; setp.eq.u32 %p, %r1, 1;
        @%p ld.global.u32 %r0, [%ra]; st.global.u32 [%rd], %r0;"""
    got = machine.run(copy_kernel(code), [a, np.zeros_like(a)], [4], block=64)[1]
    assert got.tolist() == [t if t % 2 else 7 for t in range(64)]


SHARED = ".shared .align 16 .b8 first[16];\n.shared .align 16 .b8 buffer[2048];\n"


@pytest.mark.parametrize("generic", [False, True])
def test_shared_memory(machine, generic):
    place = "mov.u32 %r6, buffer; mad.lo.u32 %r6, %t, 16, %r6;"
    store, load = "st.shared.v4.b32 [%r6]", "ld.shared.v2.b64 {%w0, %w1}, [%r6]"
    if generic:
        place += "cvt.u64.u32 %w2, %r6; cvta.shared.u64 %w2, %w2; isspacep.shared %p, %w2;"
        store, load = "@%p st.v4.b32 [%w2]", "ld.v2.b64 {%w0, %w1}, [%w2]"
    code = f"""
        ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%ra];
        {place} {store}, {{%r3, %r2, %r1, %r0}};
        bar.sync 0; {load}; st.global.v2.b64 [%rd], {{%w0, %w1}};"""
    a = values("uint32")[:256]
    got = machine.run(copy_kernel(code, shared=SHARED), [a, np.zeros_like(a)], [16], block=64)[1]
    assert_same(got, a.reshape(-1, 4)[:, ::-1].copy().ravel())


def test_dynamic_shared_memory_lies_behind_the_declared(machine):
    code = """
        mov.u32 %r6, pool; mad.lo.u32 %r6, %t, 4, %r6; mov.u32 %r5, first; mad.lo.u32 %r5, %t, 4, %r5;
        setp.lt.u32 %p, %t, 4;
        st.shared.u32 [%r6], %t; @%p st.shared.u32 [%r5], 1000;
        bar.sync 0; ld.shared.u32 %r0, [%r6]; st.global.u32 [%rd], %r0;"""
    shared = ".shared .align 4 .b8 first[16];\n.extern .shared .align 16 .b8 pool[];\n"
    ptx = copy_kernel(code, shared=shared)
    got = machine.run(ptx, [np.zeros(1, np.uint32), np.zeros(64, np.uint32)], [4], block=64, shared=256)[1]
    assert got.tolist() == list(range(64))


def test_local_memory(machine):
    """As LLVM writes it: a depot, its generic address, and stores through both."""
    code = """
        mov.u64 %w0, depot; cvta.local.u64 %w1, %w0;
        st.local.u32 [%w0], %t; add.u32 %r0, %t, 100; st.u32 [%w1+4], %r0;
        ld.u32 %r1, [%w1]; ld.local.u32 %r2, [%w0+4];
        mad.lo.u32 %r0, %r1, 1000, %r2; st.global.u32 [%rd], %r0;"""
    ptx = copy_kernel(code).replace(".reg .pred %p;", ".local .align 8 .b8 depot[8]; .reg .pred %p;")
    got = machine.run(ptx, [np.zeros(1, np.uint32), np.zeros(64, np.uint32)], [4], block=64)[1]
    assert got.tolist() == [t * 1000 + t + 100 for t in range(64)]


def test_variables_with_initial_values(machine):
    variables = """
        .const .align 4 .b32 table[4] = {10, -20, 0x1E, 40};
        .global .align 4 .f32 scale = 0f3FC00000;"""
    code = """
        and.b32 %r0, %t, 3; mov.u64 %w0, table; mad.wide.u32 %w0, %r0, 4, %w0; ld.const.u32 %r1, [%w0];
        ld.global.f32 %r2, [scale]; cvt.rzi.u32.f32 %r2, %r2; add.u32 %r1, %r1, %r2; st.global.u32 [%rd], %r1;"""
    ptx = copy_kernel(code, shared=variables)
    got = machine.run(ptx, [np.zeros(1, np.uint32), np.zeros(8, np.int32)], [4], block=8)[1]
    assert got.tolist() == [11, -19, 31, 41] * 2


def test_parameters_of_each_width(machine):
    ptx = f"""{HEADER}.visible .entry k(.param .u64 pd, .param .u32 a, .param .u32 b) {{
        .reg .b16 %h; .reg .b32 %r<4>; .reg .b64 %rd;
        ld.param.u64 %rd, [pd]; ld.param.s16 %r0, [a]; ld.param.u8 %r1, [b+1]; ld.param.u32 %r2, [b];
        st.global.u32 [%rd], %r0; st.global.u32 [%rd+4], %r1; st.global.u32 [%rd+8], %r2; ret; }}"""
    got = machine.run(ptx, [np.zeros(3, np.int32)], [-5, 0x11223344], block=1)[0]
    assert got.tolist() == [-5, 0x33, 0x11223344]


@pytest.mark.parametrize("size", [4, 8, 16])
def test_asynchronous_copies(machine, size):
    bypass = "cg" if size == 16 else "ca"
    code = f"""
        mov.u32 %r6, buffer; mad.lo.u32 %r6, %t, {size}, %r6;
        cp.async.{bypass}.shared.global [%r6+0], [%ra+0], {size};
        cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
        mov.u32 %r0, 0;
        COPY: add.u32 %r1, %r6, %r0; ld.shared.u32 %r2, [%r1]; cvt.u64.u32 %w0, %r0; add.u64 %w0, %w0, %rd;
        st.global.u32 [%w0], %r2; add.u32 %r0, %r0, 4; setp.lt.u32 %p, %r0, {size}; @%p bra COPY;"""
    a = np.random.default_rng(1).integers(0, 256, 64 * size).astype(np.uint8)
    got = machine.run(copy_kernel(code, shared=SHARED), [a, np.zeros_like(a)], [size], block=64)[1]
    assert_same(got, a)


def test_asynchronous_copies_fill_with_zeros(machine):
    """Each thread reads as many of 16 bytes as its number modulo 17."""
    code = """
        mov.u32 %r6, buffer; mad.lo.u32 %r6, %t, 16, %r6; rem.u32 %r5, %t, 17;
        cp.async.cg.shared.global [%r6], [%ra], 16, %r5;
        cp.async.wait_all; bar.sync 0;
        ld.shared.v2.b64 {%w0, %w1}, [%r6]; st.global.v2.b64 [%rd], {%w0, %w1};"""
    a = np.random.default_rng(1).integers(1, 256, 64 * 16).astype(np.uint8)
    got = machine.run(copy_kernel(code, shared=SHARED), [a, np.zeros_like(a)], [16], block=64)[1]
    expected = np.where(np.arange(16) < (np.arange(64) % 17)[:, None], a.reshape(64, 16), 0)
    assert_same(got, expected.astype(np.uint8).ravel())
