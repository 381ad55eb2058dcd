"""Exchange within warps, against loops over lanes."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_cases import HEADER

LANES = 32


def kernel(code: str, registers: str = "", *, width: int = 4) -> str:
    """Loads %a of each thread, runs `code`, stores %d."""
    kind = f"b{8 * width}"
    return f"""{HEADER}.visible .entry k(.param .u64 pa, .param .u64 pd) {{
        .reg .pred %p, %q; .reg .b32 %t, %u; .reg .{kind} %a; .reg .b32 %d; .reg .b64 %ra, %rd; {registers}
        ld.param.u64 %ra, [pa]; ld.param.u64 %rd, [pd];
        mov.u32 %t, %tid.x;
        mad.wide.u32 %ra, %t, {width}, %ra; mad.wide.u32 %rd, %t, 4, %rd;
        ld.global.{kind} %a, [%ra];
        {code}
        st.global.b32 [%rd], %d;
        ret; }}"""


def run(machine, code: str, a: np.ndarray, registers: str = "") -> np.ndarray:
    out = np.zeros(len(a), np.uint32)
    return machine.run(kernel(code, registers, width=a.itemsize), [a, out], block=len(a))[1]


def source_lane(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """As the PTX ISA's pseudo-code for shfl has it."""
    segment, clamp, b = c >> 8 & 31, c & 31, b & 31
    top = (lane & segment) | (clamp & ~segment & 31)
    bottom = lane & segment
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": bottom | (b & ~segment & 31)}[mode]
    inside = j >= top if mode == "up" else j <= top
    return (j if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(machine, mode, width):
    a = np.random.default_rng(1).integers(0, 2**32, 64).astype(np.uint32)
    for amount in (0, 1, 5, 16, 31):
        control = (32 - width) << 8 | (0 if mode == "up" else 31)
        expected = [source_lane(mode, t % 32, amount, control) for t in range(64)]
        got = run(machine, f"shfl.sync.{mode}.b32 %d, %a, {amount}, {control}, -1;", a)
        assert got.tolist() == [a[t // 32 * 32 + lane] for t, (lane, _) in enumerate(expected)]
        code = f"shfl.sync.{mode}.b32 %u|%p, %a, {amount}, {control}, -1; selp.u32 %d, 1, 0, %p;"
        assert run(machine, code, a).tolist() == [int(inside) for _, inside in expected]


def test_shuffle_with_lanes_of_its_own(machine):
    a = np.arange(100, 132, dtype=np.uint32)
    got = run(machine, "mul.lo.u32 %u, %t, 7; shfl.sync.idx.b32 %d, %a, %u, 31, -1;", a)
    assert got.tolist() == [int(a[t * 7 % 32]) for t in range(32)]


def test_votes(machine):
    a = np.random.default_rng(2).integers(0, 2, 64).astype(np.uint32)
    a[32:] = 1
    warps = a.reshape(2, 32).astype(bool)
    set_p = "setp.ne.u32 %p, %a, 0;"
    for mode, per_warp in (
        ("all", warps.all(1)),
        ("any", warps.any(1)),
        ("uni", warps.all(1) | ~warps.any(1)),
    ):
        got = run(machine, f"{set_p} vote.sync.{mode}.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;", a)
        assert got.reshape(2, 32).tolist() == [[int(v)] * 32 for v in per_warp]
    got = run(machine, f"{set_p} vote.sync.ballot.b32 %d, !%p, -1;", a)
    expected = [sum(int(not bit) << lane for lane, bit in enumerate(warp)) for warp in warps]
    assert got.reshape(2, 32).tolist() == [[v] * 32 for v in expected]


def test_a_vote_of_those_that_came(machine):
    """Only the odd lanes vote; the mask of the active ones is theirs, too."""
    code = """
        mov.u32 %d, 0; and.b32 %u, %t, 1; setp.eq.u32 %q, %u, 0;
        @%q bra DONE;
        setp.ne.u32 %p, %a, 0;
        vote.sync.ballot.b32 %d, %p, 0xAAAAAAAA;
        DONE:"""
    a = np.ones(32, np.uint32)
    assert run(machine, code, a).tolist() == [0, 0xAAAAAAAA] * 16


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_matches(machine, dtype):
    a = np.random.default_rng(3).integers(0, 5, 32).astype(dtype) * np.array(
        2**20 if dtype == "uint32" else 2**40, dtype
    )
    bits = 8 * a.itemsize
    got = run(machine, f"match.any.sync.b{bits} %d, %a, -1;", a)
    assert got.tolist() == [sum(int(a[i] == a[j]) << j for j in range(32)) for i in range(32)]
    got = run(machine, f"match.all.sync.b{bits} %d|%p, %a, -1; @!%p mov.u32 %d, 7;", a)
    assert got.tolist() == [7] * 32
    got = run(machine, f"match.all.sync.b{bits} %d|%p, %a, -1;", np.full(32, 9, dtype))
    assert got.tolist() == [0xFFFFFFFF] * 32


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [
        ("add.u32", "uint32", lambda v: int(v.sum(dtype=np.uint32))),
        ("add.s32", "int32", lambda v: int(v.sum(dtype=np.int32))),
        ("min.s32", "int32", lambda v: int(v.min())),
        ("max.s32", "int32", lambda v: int(v.max())),
        ("min.u32", "uint32", lambda v: int(v.min())),
        ("max.u32", "uint32", lambda v: int(v.max())),
        ("and.b32", "uint32", lambda v: int(np.bitwise_and.reduce(v))),
        ("or.b32", "uint32", lambda v: int(np.bitwise_or.reduce(v))),
        ("xor.b32", "uint32", lambda v: int(np.bitwise_xor.reduce(v))),
    ],
)
def test_reductions(machine, name, dtype, function):
    a = np.random.default_rng(4).integers(0, 2**32, 64).astype(np.uint32)
    got = run(machine, f"redux.sync.{name} %d, %a, -1;", a)
    expected = [function(warp) % 2**32 for warp in a.view(dtype).reshape(2, 32)]
    assert got.reshape(2, 32).tolist() == [[v] * 32 for v in expected]


def test_special_registers(machine):
    for name, expected in (
        ("%laneid", [t % 32 for t in range(64)]),
        ("%lanemask_lt", [(1 << t % 32) - 1 for t in range(64)]),
        ("%lanemask_ge", [0xFFFFFFFF ^ ((1 << t % 32) - 1) for t in range(64)]),
        ("%ntid.x", [64] * 64),
        ("%nctaid.y", [1] * 64),
    ):
        assert run(machine, f"mov.u32 %d, {name};", np.zeros(64, np.uint32)).tolist() == expected


def test_positions_in_a_grid(machine):
    """Each thread of a three-dimensional launch writes its coordinates at its linear place."""
    ptx = f"""{HEADER}.visible .entry k(.param .u64 pd) {{
        .reg .b32 %x, %y, %z, %bx, %by, %bz, %nx, %ny, %v, %i, %n; .reg .b64 %rd;
        ld.param.u64 %rd, [pd];
        mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;
        mov.u32 %bx, %ctaid.x; mov.u32 %by, %ctaid.y; mov.u32 %bz, %ctaid.z;
        mov.u32 %nx, %nctaid.x; mov.u32 %ny, %nctaid.y;
        mad.lo.u32 %i, %bz, %ny, %by; mad.lo.u32 %i, %i, %nx, %bx;
        mov.u32 %n, %ntid.z; mad.lo.u32 %i, %i, %n, %z;
        mov.u32 %n, %ntid.y; mad.lo.u32 %i, %i, %n, %y;
        mov.u32 %n, %ntid.x; mad.lo.u32 %i, %i, %n, %x;
        mad.lo.u32 %v, %bz, 10, %by; mad.lo.u32 %v, %v, 10, %bx; mad.lo.u32 %v, %v, 10, %z;
        mad.lo.u32 %v, %v, 10, %y; mad.lo.u32 %v, %v, 10, %x;
        mad.wide.u32 %rd, %i, 4, %rd; st.global.u32 [%rd], %v; ret; }}"""
    grid, block = (3, 2, 2), (5, 3, 2)
    out = machine.run(ptx, [np.zeros(12 * 30, np.uint32)], grid=grid, block=block)[0]
    expected = [
        int(f"{bz}{by}{bx}{z}{y}{x}")
        for bz in range(2) for by in range(2) for bx in range(3) for z in range(2) for y in range(3) for x in range(5)
    ]  # fmt: skip
    assert out.tolist() == expected
