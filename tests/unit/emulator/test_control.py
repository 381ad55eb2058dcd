"""Branches, divergence, loops and barriers."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_cases import HEADER

from coilpack.runtime.devices.emulator.device import Emulator
from coilpack.runtime.devices.emulator.frame import Checks
from coilpack.runtime.errors import DeviceError


def kernel(code: str, *, shared: str = "") -> str:
    """%t is the thread, %n its CTA, %d what it writes at its place in the grid."""
    return f"""{HEADER}{shared}
    .visible .entry k(.param .u64 pd) {{
        .reg .pred %p, %q; .reg .b32 %t, %n, %d, %i, %u, %v, %s; .reg .b64 %rd, %at;
        ld.param.u64 %rd, [pd];
        mov.u32 %t, %tid.x; mov.u32 %n, %ctaid.x; mov.u32 %u, %ntid.x; mad.lo.u32 %u, %n, %u, %t;
        mad.wide.u32 %at, %u, 4, %rd;
        {code}
        st.global.b32 [%at], %d;
        END: ret; }}"""


def run(machine, code: str, *, grid: int = 1, block: int = 64, shared: str = "", fill: int = 0) -> list[int]:
    out = np.full(grid * block, fill, np.uint32)
    return machine.run(kernel(code, shared=shared), [out], grid=grid, block=block)[0].tolist()


def collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def test_divergent_loops(machine):
    """Every thread has its own number of turns and its own way through each."""
    code = """
        add.u32 %v, %u, 1; mov.u32 %d, 0;
        LOOP: setp.le.u32 %p, %v, 1;
        @%p bra DONE;
        and.b32 %i, %v, 1; setp.eq.u32 %q, %i, 0;
        @%q bra EVEN;
        mad.lo.u32 %v, %v, 3, 1; bra NEXT;
        EVEN: shr.u32 %v, %v, 1;
        NEXT: add.u32 %d, %d, 1; bra LOOP;
        DONE:"""
    assert run(machine, code, grid=3) == [collatz(n + 1) for n in range(192)]


def test_early_exits_and_blocks_of_any_size(machine):
    for block in (1, 7, 33, 100):
        code = "mov.u32 %d, 5; setp.ge.u32 %p, %t, 5; @%p bra END; mov.u32 %d, %t;"
        expected = [t if t < 5 else 99 for t in range(block)]
        assert run(machine, code, block=block, fill=99) == expected
        assert run(machine, "setp.ge.u32 %p, %t, 5; @%p exit; mov.u32 %d, %t;", block=block, fill=99) == expected


def test_predicated_instructions(machine):
    code = "mov.u32 %d, 1; and.b32 %i, %t, 1; setp.eq.u32 %p, %i, 0; @%p add.u32 %d, %d, %t; @!%p mov.u32 %d, 77;"
    assert run(machine, code) == [1 + t if t % 2 == 0 else 77 for t in range(64)]


def test_values_of_a_loop_are_each_threads_own(machine):
    """A value computed before the loop variable moves on is read after threads have left at different turns."""
    code = """
        mov.u32 %i, 0; mov.u32 %d, 0;
        LOOP: mul.lo.u32 %v, %i, 10;
        add.u32 %i, %i, 1;
        setp.lt.u32 %p, %i, %t;
        @%p bra LOOP;
        add.u32 %d, %v, %i;"""
    assert run(machine, code) == [(max(t, 1) - 1) * 10 + max(t, 1) for t in range(64)]


SHARED = ".shared .align 4 .b8 buffer[1024];"


def test_barriers_order_shared_memory(machine):
    """Reversal through shared memory, the halves of the CTA having taken different ways to the barrier."""
    code = """
        mov.u32 %s, buffer; mad.lo.u32 %i, %t, 4, %s;
        setp.lt.u32 %p, %t, 32;
        @%p bra LOW;
        add.u32 %v, %t, 1000; bra STORE;
        LOW: add.u32 %v, %t, 2000;
        STORE: st.shared.u32 [%i], %v;
        bar.sync 0;
        sub.u32 %v, 63, %t; mad.lo.u32 %i, %v, 4, %s;
        ld.shared.u32 %d, [%i];"""
    expected = [(63 - t) + (2000 if 63 - t < 32 else 1000) for t in range(64)]
    assert run(machine, code, grid=5, shared=SHARED) == expected * 5


def test_named_barriers(machine):
    """A producer warp arrives and goes on; a consumer warp waits for it."""
    code = """
        mov.u32 %s, buffer; and.b32 %v, %t, 31; mad.lo.u32 %i, %v, 4, %s;
        mov.u32 %d, 0;
        setp.lt.u32 %p, %t, 32;
        @%p bra CONSUMER;
        st.shared.u32 [%i], %t;
        bar.arrive 3, 64;
        bra DONE;
        CONSUMER: bar.sync 3, 64;
        ld.shared.u32 %d, [%i];
        DONE:"""
    assert run(machine, code, grid=3, shared=SHARED) == [*range(32, 64), *[0] * 32] * 3


def test_threads_that_left_are_not_waited_for(machine):
    code = "setp.ge.u32 %p, %t, 32; @%p bra END; bar.sync 0; mov.u32 %d, 3;"
    assert run(machine, code) == [3] * 32 + [0] * 32


def test_a_barrier_that_is_never_complete_is_an_error(emulated):
    code = "setp.ge.u32 %p, %t, 32; @%p bra OTHER; bar.sync 1, 64; OTHER: mov.u32 %d, 3;"
    with pytest.raises(
        DeviceError, match=r"kernel k, line \d+: `bar.sync 1, 64;`.*waits for ever: 32 threads.*barrier 1"
    ):
        run(emulated, code)


def test_a_warp_instruction_that_waits_for_ever_is_an_error(emulated):
    code = """
        setp.ge.u32 %p, %t, 16; @%p bra OTHER;
        shfl.sync.bfly.b32 %d, %t, 1, 31, -1; bra END;
        OTHER: shfl.sync.bfly.b32 %d, %t, 2, 31, -1;"""
    with pytest.raises(DeviceError, match=r"`shfl.sync.bfly.b32 %d, %t, 1, 31, -1;`.*member mask"):
        run(emulated, code, block=32)


def test_a_loop_without_end_is_an_error():
    from ptx_cases import Machine

    machine = Machine(Emulator(checks=Checks(no_progress=3000), capacity=1 << 32))
    with pytest.raises(DeviceError, match=r"kernel k: no progress: 3000 instructions.*line \d+: `add.u32 %d, %d, 1;`"):
        run(machine, "mov.u32 %d, 0; LOOP: add.u32 %d, %d, 1; setp.ne.u32 %p, %d, 0; @%p bra LOOP;")


def test_ctas_that_wait_for_each_other(machine):
    """A barrier over the grid: every CTA counts itself in and spins until all have."""
    ptx = f"""{HEADER}.visible .entry k(.param .u64 pd, .param .u64 counter) {{
        .reg .pred %p; .reg .b32 %t, %n, %v, %all; .reg .b64 %rd, %rc;
        ld.param.u64 %rd, [pd]; ld.param.u64 %rc, [counter];
        mov.u32 %t, %tid.x; mov.u32 %n, %ctaid.x; mov.u32 %all, %nctaid.x;
        setp.ne.u32 %p, %t, 0;
        @%p bra MEET;
        atom.global.add.u32 %v, [%rc], 1;
        SPIN: ld.acquire.gpu.global.u32 %v, [%rc];
        setp.lt.u32 %p, %v, %all;
        @%p bra SPIN;
        MEET: bar.sync 0;
        ld.volatile.global.u32 %v, [%rc];
        mad.wide.u32 %rd, %n, 4, %rd; st.global.u32 [%rd], %v;
        ret; }}"""
    counts, _ = machine.run(ptx, [np.zeros(20, np.uint32), np.zeros(1, np.uint32)], grid=20, block=32)
    assert counts.tolist() == [20] * 20


def test_a_lock_that_threads_of_a_warp_contend_for(machine):
    """Independent thread scheduling: the lane that holds the lock must get its turn while others spin."""
    ptx = f"""{HEADER}.visible .entry k(.param .u64 pd, .param .u64 lock) {{
        .reg .pred %p; .reg .b32 %v; .reg .b64 %rd, %rl;
        ld.param.u64 %rd, [pd]; ld.param.u64 %rl, [lock];
        SPIN: atom.global.acquire.gpu.cas.b32 %v, [%rl], 0, 1;
        setp.ne.u32 %p, %v, 0;
        @%p bra SPIN;
        ld.volatile.global.u32 %v, [%rd]; add.u32 %v, %v, 1; st.volatile.global.u32 [%rd], %v;
        membar.gl;
        atom.global.release.gpu.exch.b32 %v, [%rl], 0;
        ret; }}"""
    count, _ = machine.run(ptx, [np.zeros(1, np.uint32), np.zeros(1, np.uint32)], grid=2, block=32)
    assert count.tolist() == [64]


def test_the_grid_is_run_in_chunks():
    from ptx_cases import Machine

    small = Machine(Emulator(chunk_bytes=1 << 16, capacity=1 << 32))
    code = """
        mov.u32 %s, buffer; mad.lo.u32 %i, %t, 4, %s;
        st.shared.u32 [%i], %u; bar.sync 0; ld.shared.u32 %d, [%i];"""
    assert run(small, code, grid=100, shared=SHARED) == list(range(6400))


def test_an_empty_grid_does_nothing(emulated):
    assert run(emulated, "mov.u32 %d, 1;", grid=1, block=32) == [1] * 32
    out = emulated.run(kernel("mov.u32 %d, 1;"), [np.zeros(4, np.uint32)], grid=(0, 1, 1))[0]
    assert out.tolist() == [0] * 4


def test_calls(machine):
    """A function with a result, a branch and a return in the middle, called twice."""
    function = """
    .func (.param .b32 result) halve(.param .b32 number, .param .b32 least) {
        .reg .pred %p; .reg .b32 %r<3>;
        ld.param.b32 %r0, [number]; ld.param.b32 %r1, [least];
        setp.lt.u32 %p, %r0, %r1;
        @%p bra SMALL;
        shr.u32 %r2, %r0, 1; st.param.b32 [result+0], %r2; ret;
        SMALL: st.param.b32 [result+0], %r0;
        ret;
    }"""
    call = """{{
        .param .b32 a; st.param.b32 [a+0], {given}; .param .b32 b; st.param.b32 [b+0], {least}; .param .b32 back;
        call.uni (back), halve, (a, b);
        ld.param.b32 %v, [back+0]; }}"""
    code = f"mov.u32 %i, 40; {call.format(given='%t', least='%i')} {call.format(given='%v', least=10)} mov.u32 %d, %v;"

    def expected(t: int) -> int:
        once = t // 2 if t >= 40 else t
        return once // 2 if once >= 10 else once

    assert run(machine, code, shared=function) == [expected(t) for t in range(64)]
