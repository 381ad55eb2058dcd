"""Arguments that kernels cannot use as they lie, on the emulator: its kernels copy them, and it checks every access."""

from __future__ import annotations

import numpy as np
import pytest
from program_samples import tensor
from runtime_samples import WEIGHTS, MemoryPackage
from state_samples import StatePackage

from coilpack.runtime.arrays import DeviceArray, to_device
from coilpack.runtime.devices.emulator.device import Emulator
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.plan import build_plan
from coilpack.runtime.program import ir
from coilpack.runtime.session import Program
from coilpack.runtime.staging import Stager
from coilpack.runtime.strided import StridedCopier

X, BIAS = np.float32([1, 2, 3, 4]), np.float32([0.5, 0, 0, -0.5])
EXPECTED = 2 * X + BIAS + WEIGHTS["w"]


@pytest.fixture(scope="module")
def device():
    return Emulator()


@pytest.fixture(scope="module")
def program(device):
    with Program(MemoryPackage(), device, "m.coil") as opened:
        yield opened


@pytest.fixture(scope="module")
def stateful(device):
    with Program(StatePackage(), device, "m.coil") as opened:
        yield opened


def strided(device, owner, first, shape, strides, *, read_only=False):
    """A view of an array from its element `first` on, with strides in elements."""
    type_ = ArrayType(owner.dtype, shape, strides)
    address = owner.address + first * owner.dtype.itemsize
    return DeviceArray(device, owner, address, type_, 1, read_only=read_only)


@pytest.mark.parametrize(
    ("data", "first", "stride"),
    [
        (np.repeat(X, 2), 0, 2),
        (X[::-1], 3, -1),
        (np.repeat(X, 3)[::-1], 11, -3),
        (np.concatenate([[0], X]), 1, 1),
    ],
)
def test_arrays_of_other_strides_and_alignments(program, device, data, first, stride):
    x = strided(device, to_device(np.ascontiguousarray(data, np.float32), device), first, (4,), (stride,))
    for _ in range(3):
        np.testing.assert_array_equal(program(x, BIAS).numpy(), EXPECTED)


def test_an_array_whose_elements_are_one(program, device):
    x = strided(device, to_device(np.float32([3]), device), 0, (4,), (0,))
    np.testing.assert_array_equal(program(x, BIAS).numpy(), 6 + BIAS + WEIGHTS["w"])


@pytest.mark.parametrize("seed", range(6))
def test_two_dimensions_of_any_strides(stateful, device, seed):
    rng = np.random.default_rng(seed)
    rows, columns = 2 * int(rng.integers(1, 4)), int(rng.integers(1, 5))
    strides = [(1, rows), (columns + 2, 1), (-columns, 1), (columns, -1), (0, 1), (3 * columns, 3)][seed]
    memory = rng.standard_normal(400).astype(np.float32)
    x = strided(device, to_device(memory, device), 200, (rows, columns), strides)
    expected = [[memory[200 + i * strides[0] + j * strides[1]] for j in range(columns)] for i in range(rows)]
    given = (x, 1, np.zeros(rows // 2, np.float32))
    _, scaled, _ = stateful(*given, function="integers")
    np.testing.assert_array_equal(scaled.numpy(), 3 * np.array(expected))


def test_addresses_inside_of_an_element(program, device):
    """As a record array has them; DLPack and the CUDA array interface can say so."""
    memory = to_device(np.frombuffer(b"\0" + X.tobytes() + b"\0\0\0", np.uint8), device)
    x = DeviceArray(device, memory, memory.address + 1, ArrayType.contiguous(DType.f32, (4,)), 1)
    np.testing.assert_array_equal(program(x, BIAS).numpy(), EXPECTED)


# --- arguments that are written ---


@pytest.mark.parametrize(("first", "stride"), [(0, 2), (1, 2), (7, -2), (1, 1)])
def test_what_is_written_goes_where_the_elements_lie(program, device, first, stride):
    memory = to_device(np.full(8, -1, np.float32), device)
    cache = strided(device, memory, first, (4,), (stride,))
    updated, *_ = program(X, cache, function="update")
    expected = np.full(8, -1, np.float32)
    expected[[first + i * stride for i in range(4)]] = 3 * X
    np.testing.assert_array_equal(memory.numpy(), expected)  # and nothing between them is written
    np.testing.assert_array_equal(updated.numpy(), 3 * X)


def test_elements_in_one_place_are_not_written(program, device):
    cache = strided(device, to_device(X, device), 0, (4,), (0,))
    with pytest.raises(InputError, match=r"argument 1 \('cache'\): several of its elements may lie in one place"):
        program(X, cache, function="update")
    host = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (4,), (2,), writeable=True)
    with pytest.raises(InputError, match="in one place"):
        program(X, host, function="update")


@pytest.mark.parametrize("shape", [(4, 0), (0, 4), (3, 0, 2)])
@pytest.mark.parametrize("on_device", [False, True])
def test_an_empty_array_may_be_written(device, shape, on_device):
    type_ = tensor(DType.f32, *shape)
    x = ir.Value("x", type_)
    signature = ir.Signature("f", (ir.Argument("x", type_),), ())
    plan = build_plan(ir.Function(signature, (x,), (ir.Fill(x, 0), ir.Return(()))), {}, {})
    given = np.zeros(shape, np.float32)
    view = to_device(given, device) if on_device else given
    (staged,) = Stager(device, StridedCopier(device)).stage([view], plan, 1, ["x"])
    assert plan.written == {0}
    assert staged is not None
    assert staged.array.shape == shape


# --- arguments that share memory ---


def test_one_array_read_twice(program, device):
    x = to_device(X, device)
    np.testing.assert_array_equal(program(x, x).numpy(), 2 * X + X + WEIGHTS["w"])


@pytest.mark.parametrize("shift", [0, 1, 3, 4])
def test_what_is_read_is_read_before_it_is_written(program, device, shift):
    memory = to_device(np.arange(8, dtype=np.float32), device)
    cache = strided(device, memory, 0, (4,), (1,))
    x = strided(device, memory, shift, (4,), (1,), read_only=True)
    for _ in range(4):  # as a graph too
        before = x.numpy()
        updated, _, tail = program(x, cache, function="update")
        np.testing.assert_array_equal(cache.numpy(), 3 * before)
        np.testing.assert_array_equal(updated.numpy(), 3 * before)
        np.testing.assert_array_equal(tail.numpy(), before[2:])


def test_neighbours_are_not_copied(program, device):
    memory = to_device(np.arange(8, dtype=np.float32), device)
    cache, x = (strided(device, memory, first, (4,), (1,)) for first in (0, 4))
    _, _, tail = program(x, cache, function="update")
    assert tail.address == x.address + 8


def test_arrays_that_are_interleaved_share_nothing(program, device):
    memory = to_device(np.zeros(8, np.float32), device)
    even, odd = (strided(device, memory, first, (4,), (2,)) for first in (0, 1))
    for _ in range(4):  # as a graph too
        program(X, even, function="update")
        program(even, odd, function="update")
    np.testing.assert_array_equal(memory.numpy(), np.stack([3 * X, 9 * X], axis=1).reshape(-1))


@pytest.mark.parametrize(("first", "stride"), [(0, 1), (3, 1), (0, 2), (3, -1)])
def test_two_that_are_written_and_share_memory(stateful, device, first, stride):
    memory = to_device(np.zeros(8, np.float32), device)
    a, b = strided(device, memory, 0, (4,), (1,)), strided(device, memory, first, (4,), (stride,))
    message = r"pair: argument 1 \('a'\) and argument 2 \('b'\) share memory, and the function writes to both"
    with pytest.raises(InputError, match=message):
        stateful(X, a, b, function="pair")
    host = np.zeros(8, np.float32)
    with pytest.raises(InputError, match="share memory"):
        stateful(X, host[:4], np.lib.stride_tricks.as_strided(host[first:], (4,), (4 * stride,)), function="pair")
    assert not memory.numpy().any()
    assert not host.any()


def test_two_that_are_written_side_by_side(stateful, device):
    memory = to_device(np.zeros(8, np.float32), device)
    a, b = (strided(device, memory, first, (4,), (2,)) for first in (0, 1))
    for _ in range(4):  # as a graph too
        stateful(X, a, b, function="pair")
    np.testing.assert_array_equal(memory.numpy(), np.stack([2 * X, 3 * X], axis=1).reshape(-1))
    host = np.zeros((4, 2), np.float32)
    stateful(X, host[:, 1], host[:, 0], function="pair")
    np.testing.assert_array_equal(host, np.stack([3 * X, 2 * X], axis=1))


# --- results that share memory ---


def test_results_that_are_one_array_or_an_input(stateful, device):
    x, a, b = (to_device(data, device) for data in (X, 0 * X, 0 * X))
    out, same, given = stateful(x, a, b, function="pair")
    assert out.address == same.address
    assert given.address == x.address
    del out, x
    np.testing.assert_array_equal(same.numpy(), -X)
    np.testing.assert_array_equal(given.numpy(), X)
