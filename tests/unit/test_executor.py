"""How plans run: step by step at first, then as graphs whose nodes follow the addresses of each call."""

from __future__ import annotations

import numpy as np
import pytest
from host_device import HostDevice
from program_samples import tensor
from runtime_samples import ADD, F4, SCALE, executable, host_device

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import DeviceError
from coilpack.runtime.executable import read_executable
from coilpack.runtime.executor import Executor, Memory
from coilpack.runtime.loading import load_kernels
from coilpack.runtime.plan import build_plan
from coilpack.runtime.program import ir

S = 1  # the default stream


def values(**types):
    return [ir.Value(name, type_) for name, type_ in types.items()]


def function(inputs, operations, outputs=(), arena=0):
    arguments = tuple(ir.Argument(v.name, v.type) for v in inputs)
    signature = ir.Signature("f", arguments, tuple(ir.Argument("", v.type) for v in outputs))
    return ir.Function(signature, tuple(inputs), (*operations, ir.Return(tuple(outputs))), arena)


def chain():
    """y = 2 x + x + 1, with a fill, a copy and three launches."""
    x, doubled, ones, total, y = values(x=F4, doubled=F4, ones=F4, total=F4, y=F4)
    arena = [ir.Alloc(v, ir.AllocSpace.ARENA, 16, 256 * i) for i, v in enumerate((doubled, ones, total))]
    operations = [
        *arena,
        ir.Alloc(y, ir.AllocSpace.OUTPUT, 16),
        ir.Fill(ones, 0x3F800000),
        ir.Dispatch(SCALE, (1, 1, 1), (x, doubled, 2.0, 4)),
        ir.Dispatch(ADD, (1, 1, 1), (doubled, x, total)),
        ir.Dispatch(ADD, (1, 1, 1), (total, ones, total)),
        ir.Copy(total, y),
    ]
    return function([x], operations, [y], 768)


class Bound:
    """A function on the host device, with the memory that it needs."""

    def __init__(self, body: ir.Function, device: HostDevice | None = None, **options: bool) -> None:
        self.device = device or host_device()
        self.modules, self.kernels = load_kernels(self.device, read_executable(executable()), (SCALE, ADD))
        plan = build_plan(body, {}, {})
        self.arena = self.device.allocate(plan.arena_nbytes, S)
        self.executor = Executor(self.device, plan, self.kernels, Memory(self.arena.address), **options)

    def array(self, *numbers: float):
        data = np.float32(numbers)
        buffer = self.device.allocate(data.nbytes, S)
        self.device.write(buffer.address, memoryview(data.view(np.uint8)), S)
        return buffer

    def read(self, buffer) -> list[float]:
        data = np.empty(buffer.nbytes // 4, np.float32)
        self.device.read(buffer.address, memoryview(data.view(np.uint8)), S)
        return data.tolist()

    def run(self, arguments, outputs, stream=S) -> list[str]:
        """Runs it, and says how."""
        self.device.log.clear()
        self.executor.run([b.address for b in arguments], [b.address for b in outputs], stream)
        return [str(what) for what, *_ in self.device.log if what in ("graph", "launch")]


DIRECT, GRAPH = ["launch"] * 3, ["graph"] + ["launch"] * 3


def test_the_second_run_is_a_graph():
    bound = Bound(chain())
    x, y = bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0)
    assert bound.run([x], [y]) == DIRECT
    assert not bound.executor.has_graph
    for _ in range(3):
        bound.device.fill(y.address, bytes(1), 16, S)
        assert bound.run([x], [y], stream=7) == GRAPH
        assert bound.read(y) == [4, 7, 10, 13]
    assert ("graph", 5, 7) in bound.device.log
    (graph,) = bound.device.graphs
    assert graph.updates == []
    assert graph.dependencies == [(), (), (1,), (2, 0), (3,)]


def test_graphs_are_left_out_on_request():
    bound = Bound(chain(), graphs=False)
    x, y = bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0)
    assert [bound.run([x], [y]) for _ in range(3)] == [DIRECT] * 3
    assert bound.device.graphs == []


def test_only_what_moved_is_updated():
    bound = Bound(chain())
    x, first, second = bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0), bound.array(0, 0, 0, 0)
    other = bound.array(5, 6, 7, 8)
    for _ in range(2):
        bound.run([x], [first])
    (graph,) = bound.device.graphs
    bound.run([x], [second])
    assert (graph.updates, bound.read(second)) == ([4], [4, 7, 10, 13])
    bound.run([other], [second])
    assert (graph.updates, bound.read(second)) == ([4, 1, 2], [16, 19, 22, 25])
    bound.run([other], [second])
    assert graph.updates == [4, 1, 2]


def test_one_step_needs_no_graph():
    x, y = values(x=F4, y=F4)
    bound = Bound(function([x, y], [ir.Dispatch(SCALE, (1, 1, 1), (x, y, 2.0, 4))]))
    arrays = [bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0)]
    assert [bound.run(arrays, []) for _ in range(3)] == [["launch"]] * 3


@pytest.mark.parametrize("pattern", [1, 0, 0x0000000100000001])
def test_wide_fills_that_move_are_left_out(pattern):
    wide = tensor(DType.i64, 4)
    x, y, numbers = values(x=F4, y=F4, numbers=wide)
    operations = [ir.Dispatch(SCALE, (1, 1, 1), (x, y, 2.0, 4)), ir.Fill(numbers, pattern)]
    bound = Bound(function([x, y, numbers], operations))
    arrays = [bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0), bound.array(*[0] * 8)]
    runs = [bound.run(arrays, []) for _ in range(2)]
    assert runs == [["launch"], ["launch"] if pattern == 1 else ["graph", "launch"]]
    words = np.int64([pattern] * 4).view(np.float32).tolist()
    assert bound.read(arrays[2]) == words


def test_arguments_that_are_only_read_may_overlap():
    x, y, z = values(x=F4, y=F4, z=F4)
    steps = [ir.Dispatch(ADD, (1, 1, 1), (x, y, z)), ir.Dispatch(ADD, (1, 1, 1), (z, y, z))]
    bound = Bound(function([x, y, z], steps))
    same, out = bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0)
    assert bound.run([same, same, out], []) == ["launch"] * 2
    assert bound.run([same, same, out], []) == ["graph", "launch", "launch"]
    assert bound.read(out) == [3, 6, 9, 12]


def test_closing_frees_the_graph():
    bound = Bound(chain())
    x, y = bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0)
    for _ in range(2):
        bound.run([x], [y])
    bound.executor.close()
    bound.executor.close()
    assert [graph.open for graph in bound.device.graphs] == [False]


class Refusing(HostDevice):
    """It has no memory for a graph at first."""

    refusals = 1

    def build_graph(self, nodes, dependencies):
        if self.refusals:
            self.refusals -= 1
            raise DeviceError("no memory")
        return super().build_graph(nodes, dependencies)


def test_a_graph_that_cannot_be_built():
    bound = Bound(chain(), Refusing(host_device().bodies))
    x, y = bound.array(1, 2, 3, 4), bound.array(0, 0, 0, 0)
    bound.run([x], [y])
    with pytest.raises(DeviceError, match="no memory"):
        bound.run([x], [y])
    assert not bound.executor.has_graph
    assert bound.run([x], [y]) == GRAPH
    assert bound.read(y) == [4, 7, 10, 13]


def test_products_name_the_function_and_the_line():
    a, b, c = values(**dict.fromkeys("abc", tensor(DType.f32, 4, 4)))
    body = function([a, b, c], [ir.Matmul(c, a, b, location="m.py:3")])
    with pytest.raises(DeviceError, match=r"function 'f': matmul operation \(from m.py:3\): the host has no library"):
        Bound(body)
