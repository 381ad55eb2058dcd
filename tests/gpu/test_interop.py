"""Arrays and streams of torch and CuPy, in and out, in contexts that they made."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_samples import WEIGHTS, MemoryPackage

from coilpack.runtime import InputError, to_device
from coilpack.runtime.session import Program

pytestmark = pytest.mark.gpu

X, BIAS = np.float32([1, 2, 3, 4]), np.float32([0.5, 0, 0, -0.5])
EXPECTED = 2 * X + BIAS + WEIGHTS["w"]


@pytest.fixture
def program(device):
    with Program(MemoryPackage({"sm_75": "8.0"}), device, "m.coil") as opened:
        yield opened


class StreamOf:
    """A stream handle as an object with CUDA Python's protocol; keeps the stream that it is of."""

    def __init__(self, handle, stream):
        self.handle, self.stream = handle, stream

    def __cuda_stream__(self):
        return (0, self.handle)


# --- torch ---


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool"])
def test_torch_both_ways(torch, device, dtype):
    tensor = (torch.arange(12, device="cuda") % 2).reshape(3, 4).to(getattr(torch, dtype))
    array = to_device(tensor, device)
    assert (array.address, array.dtype.numpy_name, array.shape) == (tensor.data_ptr(), dtype, (3, 4))
    np.testing.assert_array_equal(array.numpy().astype(np.float32), tensor.float().cpu().numpy())
    back = torch.from_dlpack(array)
    assert back.data_ptr() == tensor.data_ptr()
    assert back.dtype is tensor.dtype
    np.testing.assert_array_equal(back.float().cpu().numpy(), tensor.float().cpu().numpy())


def test_bf16_from_numpy_to_torch(torch, device):
    import ml_dtypes

    array = np.linspace(-3, 3, 50).astype(ml_dtypes.bfloat16)
    tensor = torch.from_dlpack(to_device(array, device))
    assert tensor.dtype is torch.bfloat16
    np.testing.assert_array_equal(tensor.float().cpu().numpy(), array.astype(np.float32))


def test_torch_tensors_in_and_out_of_a_program(torch, program):
    x, bias = torch.from_numpy(X).cuda(), torch.from_numpy(BIAS).cuda()
    np.testing.assert_array_equal(torch.from_dlpack(program(x, bias)).cpu().numpy(), EXPECTED)
    cache = torch.zeros(9, device="cuda")[1:5]  # 4 bytes off the alignment that the kernel assumes
    program(x, cache, function="update")
    np.testing.assert_array_equal(cache.cpu().numpy(), 3 * X)
    spread = torch.zeros(8, device="cuda")
    spread[::2] = x
    np.testing.assert_array_equal(torch.from_dlpack(program(spread[::2], bias)).cpu().numpy(), EXPECTED)
    one = torch.full((1,), 3.0, device="cuda").expand(4)
    np.testing.assert_array_equal(program(one, bias).numpy(), 6 + BIAS + WEIGHTS["w"])
    column = spread.reshape(4, 2)[:, 1]
    program(x, column, function="update")
    np.testing.assert_array_equal(spread.cpu().numpy(), np.stack([X, 3 * X], axis=1).reshape(-1))
    with pytest.raises(InputError, match="several of its elements may lie in one place"):
        program(x, one, function="update")
    with pytest.raises(InputError, match="detach"):
        program(x.clone().requires_grad_(), bias)
    np.testing.assert_array_equal(program(x.cpu(), bias).numpy(), EXPECTED)


def test_torch_streams(torch, program):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1000, device="cuda")
        for step in range(50):
            torch.cuda._sleep(20000)
            x.fill_(step)
            y = torch.from_dlpack(program(x, function="dynamic", stream=StreamOf(stream.cuda_stream, stream)))
            z = torch.from_dlpack(program(x, function="dynamic"))  # on another stream than x: ordered by DLPack
            assert y.sum().item() == z.sum().item() == step * 1000


def test_torch_keeps_the_memory_of_a_result(torch, program):
    tensors = [torch.from_dlpack(program(X + k, BIAS)) for k in range(20)]
    for k, tensor in enumerate(tensors):
        np.testing.assert_array_equal(tensor.cpu().numpy(), EXPECTED + 2 * k)


# --- CuPy ---


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


def test_cupy_in_and_out_of_a_program(cupy, program):
    x, bias = cupy.asarray(X), cupy.asarray(BIAS)
    result = program(x, bias)
    np.testing.assert_array_equal(cupy.from_dlpack(result).get(), EXPECTED)
    np.testing.assert_array_equal(cupy.asarray(result).get(), EXPECTED)  # by the CUDA array interface
    stream = cupy.cuda.Stream(non_blocking=True)
    np.testing.assert_array_equal(program(x, bias, stream=StreamOf(stream.ptr, stream)).numpy(), EXPECTED)


class OnlyInterface:
    """Shows nothing of an array but its CUDA array interface."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


def test_the_cuda_array_interface(program, device):
    x = OnlyInterface(to_device(X, device, stream=1))
    np.testing.assert_array_equal(program(x, BIAS).numpy(), EXPECTED)


def test_the_cuda_array_interface_of_torch(torch, program):
    x = OnlyInterface(torch.from_numpy(X).cuda())
    np.testing.assert_array_equal(program(x, BIAS).numpy(), EXPECTED)


def test_numpy_refuses_device_memory_with_its_own_words(device):
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(to_device(X, device))
    np.testing.assert_array_equal(np.asarray(to_device(X, device)), X)
