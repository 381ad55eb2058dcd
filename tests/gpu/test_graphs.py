"""Plans as graphs on each device: replays give the bits of direct launches, whatever moved in between."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from program_samples import READ, WRITE, pointer, tensor
from runtime_samples import ADD, F4, SCALE, executable
from test_cuda_device import ptx

from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import LaunchConfig
from coilpack.runtime.devices.cuda_driver import call
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.executable import Executable, Export, read_executable, write_executable
from coilpack.runtime.executor import BoundKernel, Executor, Memory
from coilpack.runtime.loading import load_kernels
from coilpack.runtime.plan import build_plan
from coilpack.runtime.program import ir

S = 1  # the default stream

# meet(counter, scratch, y): workgroup i stores i + 1 to scratch[i], waits until all have, and copies the next one's.
MEET = b"""\
.version 8.0
.target sm_75
.address_size 64
.visible .entry meet(.param .u64 counter, .param .u64 scratch, .param .u64 y)
{
.reg .pred %p<2>;
.reg .b32 %r<8>;
.reg .b64 %rd<8>;
ld.param.u64 %rd1, [counter];
ld.param.u64 %rd2, [scratch];
ld.param.u64 %rd3, [y];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %nctaid.x;
add.u32 %r3, %r1, 1;
mul.wide.u32 %rd4, %r1, 4;
add.s64 %rd5, %rd2, %rd4;
st.volatile.global.u32 [%rd5], %r3;
membar.gl;
atom.global.add.u32 %r4, [%rd1], 1;
WAIT:
ld.volatile.global.u32 %r5, [%rd1];
setp.lt.u32 %p1, %r5, %r2;
@%p1 bra WAIT;
rem.u32 %r6, %r3, %r2;
mul.wide.u32 %rd6, %r6, 4;
add.s64 %rd6, %rd2, %rd6;
ld.volatile.global.u32 %r7, [%rd6];
add.s64 %rd7, %rd3, %rd4;
st.global.u32 [%rd7], %r7;
ret;
}
"""


@pytest.fixture(scope="module")
def device(any_device):
    return any_device


@pytest.fixture(scope="module")
def kernels(device):
    modules, bound = load(device)
    yield bound
    modules.close()


def load(device):
    return load_kernels(device, read_executable(executable("sm_75", "8.0")), (SCALE, ADD))


def array(device, data):
    data = np.ascontiguousarray(data)
    buffer = device.allocate(data.nbytes, S)
    device.write(buffer.address, memoryview(data.reshape(-1).view(np.uint8)), S)
    return buffer


def read(device, buffer, dtype="f4"):
    data = np.empty(buffer.nbytes, np.uint8)
    device.read(buffer.address, memoryview(data), S)
    return data.view(dtype)


def function(inputs, operations, outputs=(), arena=0):
    arguments = tuple(ir.Argument(v.name, v.type) for v in inputs)
    signature = ir.Signature("f", arguments, tuple(ir.Argument("", v.type) for v in outputs))
    return ir.Function(signature, tuple(inputs), (*operations, ir.Return(tuple(outputs))), arena)


def bind(device, body, kernels, **options):
    """The executor of a function over an arena of its own, which comes with it."""
    plan = build_plan(body, {}, {})
    arena = device.allocate(plan.arena_nbytes, S)
    device.fill(arena.address, b"\xcd", plan.arena_nbytes, S)
    return Executor(device, plan, kernels, Memory(arena.address), **options), arena


def random_steps(seed, count=60, slots=8):
    """Launches, copies and fills over a few places in the arena, over and over; all of it is returned."""
    draw = random.Random(seed)
    x, y = ir.Value("x", F4), ir.Value("y", tensor(DType.f32, slots, 4))
    places = [ir.Value(f"p{i}", F4) for i in range(slots)]
    rows = [ir.Value(f"row{i}", F4) for i in range(slots)]
    operations = [ir.Alloc(p, ir.AllocSpace.ARENA, 16, 256 * i) for i, p in enumerate(places)]
    operations += [ir.Alloc(y, ir.AllocSpace.OUTPUT, 16 * slots)]
    operations += [ir.View(row, y, 4 * i) for i, row in enumerate(rows)]
    operations += [ir.Fill(p, 0x3F800000 + i) for i, p in enumerate(places)]
    for _ in range(count):
        a, b = draw.choice([*places, x]), draw.choice(places)
        target = draw.choice([p for p in places if p is not a])
        operations.append(
            draw.choices(
                [
                    ir.Dispatch(ADD, (1, 1, 1), (a, b, target)),
                    ir.Dispatch(SCALE, (1, 1, 1), (a, target, draw.uniform(-1, 1), 4)),
                    ir.Copy(a, target),
                    ir.Fill(target, draw.randrange(0x3F800000, 0x40000000)),
                ],
                [4, 4, 1, 1],
            )[0]
        )
    operations += [ir.Copy(p, row) for p, row in zip(places, rows, strict=True)]
    return function([x], operations, [y], 256 * slots)


@pytest.mark.parametrize("seed", range(6))
def test_replays_give_the_bits_of_direct_launches(device, kernels, seed):
    body = random_steps(seed)
    direct, first_arena = bind(device, body, kernels, graphs=False)
    replayed, second_arena = bind(device, body, kernels)
    generator = np.random.default_rng(seed)
    for run in range(6):
        x = array(device, generator.standard_normal(4).astype(np.float32))  # another place each time
        expected, found = array(device, np.zeros(32, np.float32)), array(device, np.zeros(32, np.float32))
        direct.run([x.address], [expected.address], S)
        replayed.run([x.address], [found.address], S)
        assert replayed.has_graph is (run > 0)
        np.testing.assert_array_equal(read(device, expected, "u4"), read(device, found, "u4"))
    assert not direct.has_graph
    for owned in (direct, replayed, first_arena, second_arena):
        owned.close()


def test_a_missing_edge_shows_on_the_emulator(monkeypatch):
    device = resolve_device("emulator")
    modules, kernels = load(device)
    monkeypatch.setattr("coilpack.runtime.executor.step_dependencies", lambda steps: [()] * len(steps))
    body, x = random_steps(0), array(device, np.ones(4, np.float32))
    executor, arena = bind(device, body, kernels)
    results = set()
    for _ in range(8):
        y = array(device, np.zeros(32, np.float32))
        executor.run([x.address], [y.address], S)
        results.add(read(device, y).tobytes())
    assert len(results) > 1
    arena.close()
    modules.close()


PATTERNS = [
    (DType.ui8, 0xAB),
    (DType.f16, 0x0201),
    (DType.f32, 0x04030201),
    (DType.i64, 0x0807060504030201),
    (DType.i64, 0x0403020104030201),
    (DType.complex128, 0x0807060504030201),
]


@pytest.mark.parametrize(("dtype", "pattern"), PATTERNS)
def test_fills(device, kernels, dtype, pattern):
    wide, x = ir.Value("wide", tensor(dtype, 33)), ir.Value("x", F4)
    y, out = ir.Value("y", F4), ir.Value("out", tensor(dtype, 33))
    nbytes = 33 * dtype.itemsize
    operations = [
        ir.Alloc(wide, ir.AllocSpace.ARENA, nbytes, 256),
        ir.Alloc(out, ir.AllocSpace.OUTPUT, nbytes),
        ir.Alloc(y, ir.AllocSpace.OUTPUT, 16),
        ir.Fill(wide, pattern),
        ir.Copy(wide, out),
        ir.Dispatch(SCALE, (1, 1, 1), (x, y, 1.0, 4)),
    ]
    executor, arena = bind(device, function([x], operations, [out, y], 1024), kernels)
    x = array(device, np.zeros(4, np.float32))
    for _ in range(3):
        outputs = [device.allocate(nbytes, S), device.allocate(16, S)]
        executor.run([x.address], [b.address for b in outputs], S)
        assert read(device, outputs[0], "u1").tobytes() == pattern.to_bytes(dtype.itemsize, "little") * 33
        assert set(read(device, arena, "u1")[256 + nbytes : 1024].tolist()) == {0xCD}  # nothing beyond it
    assert executor.has_graph
    executor.close()
    arena.close()


def test_workspaces_are_zeroed_in_the_graph(device, kernels):
    x, sums, y = ir.Value("x", F4), ir.Value("sums", F4), ir.Value("y", F4)
    operations = [
        ir.Alloc(sums, ir.AllocSpace.ARENA, 16, 0),
        ir.Alloc(y, ir.AllocSpace.OUTPUT, 16),
        ir.Fill(sums, 0),
        ir.Dispatch(ADD, (1, 1, 1), (sums, x, sums)),  # adds up, as a split reduction does
        ir.Dispatch(ADD, (1, 1, 1), (sums, x, sums)),
        ir.Copy(sums, y),
    ]
    executor, arena = bind(device, function([x], operations, [y], 256), kernels)
    data, y = np.float32([1, 2, 3, 4]), device.allocate(16, S)
    x = array(device, data)
    for _ in range(4):
        executor.run([x.address], [y.address], S)
        np.testing.assert_array_equal(read(device, y), 2 * data)
    executor.close()
    arena.close()


def test_one_plan_on_several_streams(device, kernels):
    made = [101, 102]
    if device.name != "emulator":
        with device.activate():
            made = [int(call("cuStreamCreate", "test", 1)) for _ in range(2)]
    executor, arena = bind(device, random_steps(1), kernels)
    x, y = array(device, np.ones(4, np.float32)), array(device, np.zeros(32, np.float32))
    results, previous = set(), S
    for stream in [S, *made, 2, *made, S]:
        device.order(previous, stream)
        executor.run([x.address], [y.address], stream)
        device.order(stream, S)
        results.add(read(device, y).tobytes())
        previous = stream
    assert len(results) == 1
    executor.close()
    arena.close()
    if device.name != "emulator":
        with device.activate():
            for stream in made:
                call("cuStreamDestroy", "test", stream)


# --- cooperative kernels ---


@pytest.fixture(scope="module")
def meet(device):
    image = read_executable(write_executable(Executable((MEET,), (Export(0, "meet", "meet", (1, 1, 1)),))))
    parameters = (pointer(DType.i32, READ | WRITE), pointer(DType.i32, READ | WRITE), pointer(DType.i32, WRITE))
    kernel = ir.Kernel("meet", parameters, cooperative=True)
    modules, bound = load_kernels(device, image, (kernel,))
    yield kernel, bound
    modules.close()


@pytest.mark.parametrize("workgroups", [1, 2, 200])
def test_workgroups_that_wait_for_one_another(device, meet, workgroups):
    kernel, bound = meet
    row = tensor(DType.i32, workgroups)
    counter, scratch, y = (ir.Value(n, t) for n, t in (("c", tensor(DType.i32, 1)), ("s", row), ("y", row)))
    operations = [
        ir.Alloc(counter, ir.AllocSpace.ARENA, 4, 0),
        ir.Alloc(scratch, ir.AllocSpace.ARENA, 4 * workgroups, 256),
        ir.Alloc(y, ir.AllocSpace.OUTPUT, 4 * workgroups),
        ir.Fill(counter, 0),
        ir.Dispatch(kernel, (workgroups, 1, 1), (counter, scratch, y)),
    ]
    executor, arena = bind(device, function([], operations, [y], 4096), bound)
    for _ in range(3):
        y = device.allocate(4 * workgroups, S)
        executor.run([], [y.address], S)
        expected = (np.arange(workgroups) + 1) % workgroups + 1
        np.testing.assert_array_equal(read(device, y, "i4"), expected)
    assert executor.has_graph
    executor.close()
    arena.close()


def test_more_workgroups_than_run_at_once(device, meet):
    _, bound = meet
    config = LaunchConfig((1 << 24, 1, 1), (1, 1, 1), 0, cooperative=True)
    with pytest.raises(InputError, match="kernel meet: is cooperative, so its 16777216 workgroups must run at once"):
        device.prepare(bound["meet"].kernel, config, [bytes(8)] * 3)
    device.prepare(bound["meet"].kernel, replace(config, cooperative=False), [bytes(8)] * 3)


# --- what only hardware has ---


@pytest.mark.gpu
def test_graphs_leave_nothing_behind():
    device = resolve_device("cuda:0")
    modules, kernels = load(device)

    def free():
        device.synchronize(S)
        device.trim()
        with device.activate():
            return int(call("cuMemGetInfo", "test")[0])

    x, y = array(device, np.ones(4, np.float32)), array(device, np.zeros(32, np.float32))
    levels = []
    for seed in range(30):
        executor, arena = bind(device, random_steps(seed), kernels)
        for _ in range(3):
            executor.run([x.address], [y.address], S)
        executor.close()
        arena.close()
        levels.append(free())
    modules.close()
    assert levels[-1] >= levels[9] - (2 << 20)


@pytest.mark.gpu
def test_shared_memory_above_the_default():
    device = resolve_device("cuda:0")
    module = device.load_module(ptx(), "test")
    nbytes = device.max_shared_memory_per_block
    bound = {"reverse": BoundKernel(module.kernel("reverse"), (1024, 1, 1), nbytes)}
    kernel = ir.Kernel("reverse", (pointer(DType.i32, WRITE), ir.ScalarParameter(DType.i32)))
    y, z = (ir.Value(name, tensor(DType.i32, 1024)) for name in "yz")
    operations = [ir.Dispatch(kernel, (1, 1, 1), (v, nbytes - 4)) for v in (y, z)]
    executor, _ = bind(device, function([y, z], operations), bound)
    arrays = [array(device, np.zeros(1024, np.int32)) for _ in range(2)]
    for _ in range(2):
        executor.run([a.address for a in arrays], [], S)
    for found in arrays:
        np.testing.assert_array_equal(read(device, found, "i4"), np.arange(1024))
    executor.close()
