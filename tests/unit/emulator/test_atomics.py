"""Atomic operations, with and without several threads at one address."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_cases import HEADER, values

TYPES = {"u32": "uint32", "s32": "int32", "u64": "uint64", "s64": "int64", "b32": "uint32", "b64": "uint64"}
UPDATES = {
    "add": lambda old, b: old + b,
    "min": min,
    "max": max,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda _, b: b,
    "inc": lambda old, b: 0 if old >= b else old + 1,
    "dec": lambda old, b: b if old == 0 or old > b else old - 1,
}
NUMBERS = [("add", "u32"), ("add", "s32"), ("add", "u64")]
NUMBERS += [(name, type_) for name in ("min", "max") for type_ in ("u32", "s32", "u64", "s64")]
BITS = [(name, type_) for name in ("and", "or", "xor", "exch") for type_ in ("b32", "b64")]
COUNTERS = [("inc", "u32"), ("dec", "u32")]


def kernel(operation: str, type_: str, targets: int, *, returns: bool, shared: bool = False) -> str:
    width = int(type_[1:].removesuffix("x2")) // 8 * (2 if type_.endswith("x2") else 1)
    place = f"mad.wide.u32 %m, %i, {width}, %m;"
    address, space = "[%m]", "global"
    before = after = ""
    if shared:
        place = f"mov.u32 %sm, pool; mad.lo.u32 %sm, %i, {width}, %sm;"
        address, space = "[%sm]", "shared"
        before = f"""setp.lt.u32 %p, %t, {targets}; mad.wide.u32 %w, %t, {width}, %m; mov.u32 %u, pool;
            mad.lo.u32 %u, %t, {width}, %u; @%p ld.global.b{8 * width} %a, [%w];
            @%p st.shared.b{8 * width} [%u], %a; bar.sync 0;"""
        after = f"bar.sync 0; @%p ld.shared.b{8 * width} %a, [%u]; @%p st.global.b{8 * width} [%w], %a;"
    code = (
        f"atom.{space}.{operation}.{type_} %a, {address}, %b;"
        if returns
        else f"red.{space}.{operation}.{type_} {address}, %b;"
    )
    store = f"mad.wide.u32 %o, %t, {width}, %o; st.global.b{8 * width} [%o], %a;" if returns else ""
    return f"""{HEADER}.shared .align 8 .b8 pool[512];
    .visible .entry k(.param .u64 memory, .param .u64 operands, .param .u64 old) {{
        .reg .pred %p; .reg .b32 %t, %i, %u, %sm; .reg .b64 %m, %o, %v, %w; .reg .b{8 * width} %a, %b;
        ld.param.u64 %m, [memory]; ld.param.u64 %v, [operands]; ld.param.u64 %o, [old];
        mov.u32 %t, %tid.x; rem.u32 %i, %t, {targets}; mad.wide.u32 %v, %t, {width}, %v;
        ld.global.b{8 * width} %b, [%v];
        {before} {place} {code} {store} {after} ret; }}"""


def check(machine, name, type_, targets, *, returns, shared=False):
    dtype = TYPES[type_]
    memory, operands = values(dtype, seed=1)[20 : 20 + targets], values(dtype, seed=2)[10:74]
    ptx = kernel(name, type_, targets, returns=returns, shared=shared)
    after, _, old = machine.run(ptx, [memory, operands, np.zeros(64, dtype)], block=64)
    mask = 2 ** (8 * memory.itemsize)

    def signed(v: int) -> int:
        return int(np.array(v % mask, f"u{memory.itemsize}").view(dtype))

    groups = [[t for t in range(64) if t % targets == target] for target in range(targets)]
    for target, threads in enumerate(groups):
        if not returns or (len(threads) > 1 and name == "exch"):
            seen = sorted([*map(int, old[threads]), int(after[target])]) if returns else None
            all_values = sorted([int(memory[target]), *map(int, operands[threads])])
            if name == "exch":  # in some order every value passes through, and the last stays
                assert seen is None or seen == all_values
                assert int(after[target]) in map(int, operands[threads])
                continue
        # What each thread found and left makes one chain from the first value to the last, whatever the order.
        value = int(memory[target])
        if not returns:
            for thread in threads:
                value = signed(UPDATES[name](value, int(operands[thread])))
            assert int(after[target]) == value
            continue
        steps = sorted((int(old[t]), signed(UPDATES[name](int(old[t]), int(operands[t])))) for t in threads)
        starts, ends = sorted([s for s, _ in steps] + [int(after[target])]), sorted([e for _, e in steps] + [value])
        assert starts == ends


@pytest.mark.parametrize(("name", "type_"), NUMBERS + BITS + COUNTERS)
@pytest.mark.parametrize("targets", [64, 5])
def test_operations(machine, name, type_, targets):
    check(machine, name, type_, targets, returns=True)
    if (name, type_) not in COUNTERS and name != "exch":
        check(machine, name, type_, targets, returns=False)


@pytest.mark.parametrize(("name", "type_"), [("add", "u32"), ("max", "s32"), ("exch", "b32"), ("inc", "u32")])
def test_operations_on_shared_memory(machine, name, type_):
    check(machine, name, type_, 5, returns=True, shared=True)


def test_counting_gives_every_number_once(machine):
    ptx = kernel("add", "u32", 1, returns=True)
    after, _, old = machine.run(
        ptx, [np.zeros(1, np.uint32), np.ones(64, np.uint32), np.zeros(64, np.uint32)], block=64
    )
    assert after.tolist() == [64]
    assert sorted(old.tolist()) == list(range(64))


@pytest.mark.parametrize(("type_", "dtype"), [("f32", "float32"), ("f64", "float64")])
@pytest.mark.parametrize("returns", [True, False])
def test_sums_of_floats(machine, type_, dtype, returns):
    memory = np.arange(3).astype(dtype)
    operands = np.arange(64).astype(dtype) / 4  # exact in any order
    ptx = kernel("add", type_, 3, returns=returns)
    after = machine.run(ptx, [memory, operands, np.zeros(64, dtype)], block=64)[0]
    assert after.tolist() == [m + operands[i::3].sum() for i, m in enumerate(memory)]


def test_sums_of_packed_halves(machine):
    memory = np.array([1, 2], np.float16).view(np.uint32)
    operands = np.tile(np.array([0.5, -0.25], np.float16), 64).view(np.uint32)
    ptx = kernel("add.noftz", "f16x2", 1, returns=False)
    after = machine.run(ptx, [memory, operands, np.zeros(64, np.uint32)], block=64)[0]
    assert after.view(np.float16).tolist() == [33.0, -14.0]


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_compare_and_swap(machine, dtype):
    """One thread wins each turn; together they count."""
    width = np.dtype(dtype).itemsize
    ptx = f"""{HEADER}.visible .entry k(.param .u64 memory) {{
        .reg .pred %p; .reg .b{8 * width} %old, %new, %seen; .reg .b64 %m;
        ld.param.u64 %m, [memory]; ld.global.b{8 * width} %old, [%m];
        AGAIN: add.u{8 * width} %new, %old, 3;
        atom.global.cas.b{8 * width} %seen, [%m], %old, %new;
        setp.ne.u{8 * width} %p, %seen, %old; mov.b{8 * width} %old, %seen;
        @%p bra AGAIN;
        ret; }}"""
    assert machine.run(ptx, [np.array([5], dtype)], block=64)[0].tolist() == [5 + 3 * 64]
