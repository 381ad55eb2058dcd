"""Matrix products by each device's library, against float64."""

from __future__ import annotations

import importlib.util

import ml_dtypes  # noqa: F401 (registers bfloat16 with numpy)
import numpy as np
import pytest
from program_samples import tensor

from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Matrix, Product
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import DeviceError
from coilpack.runtime.executor import Executor, Memory
from coilpack.runtime.plan import build_plan
from coilpack.runtime.program import ir

S = 1  # the default stream

# Of the target's type: one rounding of the result, and the sums, in f32 unless all is f64.
TOLERANCES = {DType.f16: 2**-10, DType.bf16: 2**-7, DType.f32: 2**-20, DType.f64: 2**-48}


@pytest.fixture(scope="module")
def device(any_device):
    if any_device.name != "emulator" and importlib.util.find_spec("nvmath") is None:
        pytest.skip("needs the extra `cublas`")
    return any_device


def matrix_type(dtype, shape, layout):
    """Row-major, column-major, or with a gap after each row or column."""
    *batch, rows, columns = shape
    gap = 8 if layout.endswith("+") else 0
    strides = (columns + gap, 1) if layout.startswith("row") else (1, rows + gap)
    span = max(rows * strides[0], columns * strides[1])
    return ir.TensorType(dtype, tuple(shape), (*([span] if batch else []), *strides))


def write(device, address, type_, values):
    """Stores an array in the places that a type gives its elements."""
    itemsize = type_.dtype.itemsize
    nbytes = itemsize * (1 + sum((n - 1) * s for n, s in zip(type_.shape, type_.strides, strict=True)))
    raw = np.zeros(nbytes, np.uint8)
    view = np.lib.stride_tricks.as_strided(
        raw.view(type_.dtype.numpy), type_.shape, [s * itemsize for s in type_.strides]
    )
    view[...] = values
    device.write(address, memoryview(raw), S)
    return view.astype(np.float64)


def run(device, types, *, alpha=1.0, beta=0.0, tf32=False, moving=True, runs=3):
    """Runs a product (twice in a plan, the second over the first's sides again) and compares it with float64."""
    names = ["target", "lhs", "rhs", "addend"][: len(types)]
    values = [ir.Value(name, type_) for name, type_ in zip(names, types, strict=True)]
    signature = ir.Signature("f", tuple(ir.Argument(v.name, v.type) for v in values), ())
    product = ir.Matmul(*values, alpha=alpha, beta=beta, tf32=tf32)
    body = ir.Function(signature, tuple(values), (product, product, ir.Return(())))
    executor = Executor(device, build_plan(body, {}, {}), {}, Memory())
    generator = np.random.default_rng(0)
    for _ in range(runs):
        nbytes = [8 * (1 + sum((n - 1) * s for n, s in zip(t.shape, t.strides, strict=True))) for t in types]
        buffers = [device.allocate(n + 256, S) for n in nbytes]
        addresses = [buffer.address + 16 * moving for buffer in buffers]
        data = [generator.standard_normal(t.shape) for t in types]
        exact = [write(device, *place) for place in zip(addresses, types, data, strict=True)]
        executor.run(addresses, [], S)
        expected = alpha * exact[1] @ exact[2]
        scale = abs(alpha) * np.abs(exact[1]) @ np.abs(exact[2]) + 1e-6
        if len(types) == 4:
            expected = expected + beta * exact[3]
            scale = scale + np.abs(beta * exact[3])
        found = read(device, addresses[0], types[0])
        tolerance = 2**-9 if tf32 else TOLERANCES[types[0].dtype]
        assert np.max(np.abs(found - expected) / scale) < tolerance
    assert executor.has_graph is (runs > 1)
    executor.close()


def read(device, address, type_):
    itemsize = type_.dtype.itemsize
    nbytes = itemsize * (1 + sum((n - 1) * s for n, s in zip(type_.shape, type_.strides, strict=True)))
    raw = np.zeros(nbytes, np.uint8)
    device.read(address, memoryview(raw), S)
    strides = [s * itemsize for s in type_.strides]
    return np.lib.stride_tricks.as_strided(raw.view(type_.dtype.numpy), type_.shape, strides).astype(np.float64)


DTYPES = [DType.f16, DType.bf16, DType.f32, DType.f64]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("layouts", ["row row row", "column row column", "row+ column+ row+", "column+ column row"])
def test_layouts(device, dtype, layouts):
    target, lhs, rhs = layouts.split()
    m, n, k = 24, 40, 16
    shapes = ((m, n), target), ((m, k), lhs), ((k, n), rhs)
    run(device, [matrix_type(dtype, *shape) for shape in shapes])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(1, 40, 16), (24, 1, 16), (24, 40, 1), (1, 1, 1), (17, 13, 7)], ids=str)
def test_odd_shapes(device, dtype, shape):
    m, n, k = shape
    run(device, [tensor(dtype, m, n), tensor(dtype, m, k), tensor(dtype, k, n)], alpha=-0.5)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_batches(device, dtype):
    shapes = ((3, 24, 16), "row+"), ((3, 24, 32), "column"), ((3, 32, 16), "row")
    run(device, [matrix_type(dtype, *shape) for shape in shapes])
    one = ir.TensorType(dtype, (3, 32, 16), (0, 16, 1))  # the same right side for all
    run(device, [matrix_type(dtype, *shapes[0]), matrix_type(dtype, *shapes[1]), one])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("layout", ["row", "column+"])
def test_addends(device, dtype, layout):
    shapes = ((24, 16), layout), ((24, 32), "row"), ((32, 16), "row"), ((24, 16), layout)
    run(device, [matrix_type(dtype, *shape) for shape in shapes], alpha=0.5, beta=-2.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize(("layout", "strides"), [("row", (0, 1)), ("column", (1, 0))])
def test_rows_and_columns_that_are_added_to_each(device, dtype, layout, strides):
    shapes = ((24, 16), layout), ((24, 32), "row"), ((32, 16), "row")
    types = [matrix_type(dtype, *shape) for shape in shapes]
    run(device, [*types, ir.TensorType(dtype, (24, 16), strides)], beta=1.0)


@pytest.mark.parametrize("dtype", [DType.f16, DType.bf16], ids=lambda d: d.name)
def test_sums_that_are_kept_in_f32(device, dtype):
    run(device, [tensor(DType.f32, 24, 16), tensor(dtype, 24, 32), tensor(dtype, 32, 16)])


def test_tf32(device):
    run(device, [tensor(DType.f32, 64, 64), tensor(DType.f32, 64, 64), tensor(DType.f32, 64, 64)], tf32=True)


@pytest.mark.parametrize("dtype", [DType.f16, DType.f32], ids=lambda d: d.name)
def test_a_product_with_a_workspace(device, dtype):
    """A long sum of few elements, which the library splits."""
    run(device, [tensor(dtype, 32, 32), tensor(dtype, 32, 8192), tensor(dtype, 8192, 32)])


def test_places_that_stay(device):
    run(device, [tensor(DType.f32, 24, 16), tensor(DType.f32, 24, 32), tensor(DType.f32, 32, 16)], moving=False)


@pytest.mark.gpu
def test_a_product_that_the_library_lacks():
    pytest.importorskip("nvmath", reason="needs the extra `cublas`")
    plain = Matrix(True, 24, 0)
    product = Product(DType.f32, DType.f32, 1, 24, 24, 24, plain, plain, plain, None, False, 1.0, 0.0, False)
    with pytest.raises(DeviceError, match=r"matrix product \(24 x 24\) @ \(24 x 24\) of f32 to f32 on cuda:0: "):
        resolve_device("cuda:0").prepare_product(product, [1, 1, 1])  # elements at odd addresses
