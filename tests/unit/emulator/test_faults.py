"""Planted faults: each is found, and the report says where."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptx_cases import HEADER, Machine

from coilpack.runtime.devices.emulator.device import Emulator
from coilpack.runtime.devices.emulator.frame import Checks
from coilpack.runtime.errors import DeviceError


def kernel(code: str) -> str:
    return f"""{HEADER}.shared .align 16 .b8 pool[256];
    .visible .entry faulty(.param .u64 pa, .param .u64 pd) {{
        .reg .pred %p; .reg .b32 %t, %i, %s, %v, %r<4>; .reg .b64 %a, %d, %w;
        ld.param.u64 %a, [pa]; ld.param.u64 %d, [pd]; mov.u32 %s, pool;
        mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, 32, %t;
        {code}
        ret; }}"""


def fails(machine, code: str, *patterns: str, size: int = 96, block: int = 32, grid: int = 3) -> None:
    with pytest.raises(DeviceError) as caught:
        machine.run(kernel(code), [np.arange(size, dtype=np.uint32)] * 2, grid=grid, block=block, name="faulty")
    message = str(caught.value)
    assert message.startswith("kernel faulty, line ")
    for pattern in patterns:
        assert re.search(pattern, message), f"{pattern} is not in: {message}"


def test_one_past_the_end(emulated):
    code = "add.u32 %i, %i, 1; mad.wide.u32 %a, %i, 4, %a; ld.global.u32 %v, [%a];"
    fails(
        emulated,
        code,
        r"`ld.global.u32 %v, \[%a\];`",
        r"CTA \(2, 0, 0\), thread \(31, 0, 0\)",
        r"reads 4 bytes at 0x[0-9a-f]+, outside any buffer",
        r"0 bytes past the end of buffer 1 \(384 bytes at 0x",
    )


def test_before_the_start_under_a_predicate(emulated):
    code = "setp.eq.u32 %p, %i, 40; mad.wide.u32 %d, %i, 4, %d; @%p add.u64 %d, %d, -200; st.global.u32 [%d], %i;"
    fails(emulated, code, r"CTA \(1, 0, 0\), thread \(8, 0, 0\)", "writes 4 bytes", "40 bytes before buffer 2")


def test_a_vector_across_the_end(emulated):
    code = "mad.wide.u32 %a, %i, 16, %a; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%a];"
    fails(emulated, code, "reads 16 bytes", r"CTA \(1, 0, 0\), thread \(31, 0, 0\)", size=63 * 4 + 2, grid=2)


@pytest.mark.parametrize("divergent", [False, True])
def test_a_misaligned_vector(emulated, divergent):
    skip = "setp.lt.u32 %p, %t, 2; @%p bra END;" if divergent else ""
    code = f"{skip} mad.wide.u32 %a, %i, 4, %a; ld.global.v2.u32 {{%r0, %r1}}, [%a]; END:"
    thread = 3 if divergent else 1
    fails(emulated, code, rf"CTA \(0, 0, 0\), thread \({thread}, 0, 0\)", "is not a multiple of 8 bytes", size=100)


def test_a_null_pointer(emulated):
    fails(emulated, "mov.u64 %a, 0; ld.global.u32 %v, [%a];", "at 0x0, outside any buffer")


def test_use_after_free(emulated):
    device = emulated.device
    freed = device.allocate(400, 1)
    address = freed.address
    freed.close()
    code = f"mov.u64 %a, {address + 12}; ld.global.u32 %v, [%a];"
    fails(emulated, code, r"12 bytes into buffer \d+ \(400 bytes at 0x[0-9a-f]+\), which was freed")


def test_shared_memory_out_of_bounds(emulated):
    code = "mad.lo.u32 %v, %t, 8, %s; add.u32 %v, %v, 12; st.shared.u32 [%v], %t;"
    what = r"writes 4 bytes at offset 0x104 of shared memory, of which the CTA has 256 bytes"
    fails(emulated, code, r"thread \(31, 0, 0\)", what)


def test_misaligned_shared_memory(emulated):
    fails(emulated, "mad.lo.u32 %v, %t, 2, %s; st.shared.u32 [%v], %t;", r"thread \(1, 0, 0\)", "not a multiple of 4")


def test_shared_memory_that_was_never_written(emulated):
    code = """
        setp.ne.u32 %p, %t, 7; mad.lo.u32 %v, %t, 4, %s; @%p st.shared.u32 [%v], %t; bar.sync 0;
        ld.shared.u32 %r0, [%v];"""
    fails(
        emulated, code, r"`ld.shared.u32 %r0, \[%v\];`", r"thread \(7, 0, 0\)", "4 bytes at offset 0x1c.*never written"
    )


def test_shared_memory_does_not_outlive_its_cta():
    machine = Machine(Emulator(chunk_bytes=1, capacity=1 << 32))
    code = """
        setp.eq.u32 %p, %i, %t; mad.lo.u32 %v, %t, 4, %s; @%p st.shared.u32 [%v], %t; bar.sync 0;
        ld.shared.u32 %r0, [%v];"""
    fails(machine, code, r"CTA \(1, 0, 0\), thread \(0, 0, 0\)", "never written")


def test_a_buffer_that_was_never_written_is_warned_of(emulated):
    device = emulated.device
    unwritten = device.allocate(64, 1)
    code = f"mov.u64 %a, {unwritten.address}; ld.global.u32 %v, [%a]; st.global.u32 [%d], %v;"
    with pytest.warns(RuntimeWarning, match=r"kernel faulty, line \d+: `ld.global.u32 .*nothing was written"):
        emulated.run(kernel(code), [np.zeros(1, np.uint32)] * 2, name="faulty")


def test_checks_can_be_turned_off():
    machine = Machine(Emulator(checks=Checks(uninitialized=False), capacity=1 << 32))
    code = "mad.lo.u32 %v, %t, 4, %s; ld.shared.u32 %r0, [%v]; mad.wide.u32 %d, %t, 4, %d; st.global.u32 [%d], %r0;"
    assert machine.run(kernel(code), [np.ones(32, np.uint32)] * 2, name="faulty")[1].tolist() == [0] * 32


def test_traps(emulated):
    fails(
        emulated,
        "setp.eq.u32 %p, %i, 70; @%p trap;",
        "`@%p trap;`",
        r"CTA \(2, 0, 0\), thread \(6, 0, 0\)",
        "stopped itself",
    )


def test_assertions_say_what_they_say():
    text = b"index out of bounds: 0 <= tmp4 < 10\0"
    bytes_ = ", ".join(map(str, text))
    file = ", ".join(map(str, b"model.py\0"))
    ptx = f"""{HEADER}
    .extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;
    .global .align 1 .b8 message[{len(text)}] = {{{bytes_}}};
    .global .align 1 .b8 source[9] = {{{file}}};
    .visible .entry faulty(.param .u64 pa) {{
        .reg .pred %p; .reg .b32 %t; .reg .b64 %m<4>;
        mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 9;
        @%p bra END;
        mov.u64 %m0, message; cvta.global.u64 %m1, %m0; mov.u64 %m2, source; cvta.global.u64 %m3, %m2;
        {{
        .param .b64 param0; st.param.b64 [param0], %m1;
        .param .b64 param1; st.param.b64 [param1], %m3;
        .param .b32 param2; st.param.b32 [param2], 17;
        .param .b64 param3; st.param.b64 [param3], %m3;
        .param .b64 param4; st.param.b64 [param4], 1;
        call.uni __assertfail, (param0, param1, param2, param3, param4);
        }}
        END: ret; }}"""
    machine = Machine(Emulator(capacity=1 << 32))
    with pytest.raises(
        DeviceError,
        match=r"thread \(9, 0, 0\): the assertion `index out of bounds: 0 <= tmp4 < 10` failed \(model.py:17",
    ):
        machine.run(ptx, [np.zeros(1, np.uint32)], name="faulty")


EXCHANGE = """
    mad.lo.u32 %v, %t, 4, %s; st.shared.u32 [%v], %t;
    {barrier}
    xor.b32 %r0, %t, {other}; mad.lo.u32 %v, %r0, 4, %s; ld.shared.u32 %r1, [%v];
    {second}
    st.shared.u32 [%v], %r1;"""


@pytest.fixture
def strict():
    return Machine(Emulator(checks=Checks(races=True), capacity=1 << 32))


def test_a_missing_barrier(strict):
    code = EXCHANGE.format(barrier="", other=32, second="bar.sync 0;")
    what = "reads byte 0x80 of shared memory, which warp 1 wrote without a barrier between: a race"
    where = (r"`ld.shared.u32 %r1, \[%v\];`", r"CTA \(0, 0, 0\), thread \(0, 0, 0\)")
    fails(strict, code, *where, what, block=64, size=192)


def test_a_missing_barrier_before_writing(strict):
    code = EXCHANGE.format(barrier="bar.sync 0;", other=32, second="xor.b32 %v, %v, 128;")
    what = "writes byte 0x0 of shared memory, which warp 1 read without a barrier between: a race"
    fails(strict, code, r"`st.shared.u32 \[%v\], %r1;`", what, block=64, size=192)


def test_two_warps_that_write_one_place(strict):
    fails(strict, "st.shared.u32 [%s], %t;", "writes byte 0x0 of shared memory, which warp 1 wrote", block=64, size=192)


@pytest.mark.parametrize("other", [32, 1])
def test_barriers_and_warps_in_step_are_no_races(strict, other):
    barrier = "bar.sync 0;" if other == 32 else ""
    code = EXCHANGE.format(barrier=barrier, other=other, second=barrier)
    strict.run(kernel(code), [np.zeros(192, np.uint32)] * 2, grid=3, block=64, name="faulty")
