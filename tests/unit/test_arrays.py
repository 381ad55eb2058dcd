"""Device arrays: conversion to numpy, the exchange protocols, and what is accepted as an array."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from host_device import HostDevice

from coilpack.runtime.arrays import (
    ArrayExportError,
    DeviceArray,
    MissingInterfaceError,
    as_device_view,
    empty,
    to_device,
    upload,
)
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType

pytestmark = pytest.mark.filterwarnings("error")


class CudaLike(HostDevice):
    """Says that its memory is that of cuda:0; nothing here looks at the bytes through another library."""

    name = "cuda:0"
    dlpack_device = (2, 0)


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.name)
def test_there_and_back(dtype):
    array = (np.arange(12) % 2).reshape(3, 4).astype(dtype.numpy)
    on_device = to_device(array, HostDevice())
    assert (on_device.dtype, on_device.shape, on_device.nbytes) == (dtype, (3, 4), array.nbytes)
    back = on_device.numpy()
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    assert not np.shares_memory(back, array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)], ids=str)
def test_small_shapes(shape):
    array = np.ones(shape, np.float16)
    on_device = to_device(array, HostDevice())
    np.testing.assert_array_equal(on_device.numpy(), array)
    assert on_device.numpy().shape == shape


def test_strided_arrays_come_back_row_major():
    device = HostDevice()
    data = np.arange(10, dtype=np.int32)
    whole = to_device(data, device)
    for shape, strides, offset in [((2, 3), (1, 2), 1), ((4,), (2,), 0), ((5,), (-2,), 9), ((2, 2), (0, 1), 3)]:
        view = DeviceArray(device, whole, whole.address + 4 * offset, ArrayType(DType.i32, shape, strides), 1)
        expected = np.lib.stride_tricks.as_strided(data[offset:], shape, tuple(4 * s for s in strides))
        np.testing.assert_array_equal(view.numpy(), expected)


def test_upload_into_another_layout():
    device = HostDevice()
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    columns = upload(array, ArrayType(DType.f32, (2, 3), (1, 2)), device, 1)
    np.testing.assert_array_equal(columns.numpy(), array)
    raw = DeviceArray(device, columns, columns.address, ArrayType.contiguous(DType.f32, (6,)), 1)
    np.testing.assert_array_equal(raw.numpy(), [0, 3, 1, 4, 2, 5])


def test_non_contiguous_host_arrays():
    array = np.arange(24, dtype=np.int16).reshape(4, 6)[::2, ::-1]
    np.testing.assert_array_equal(to_device(array, HostDevice()).numpy(), array)


def test_memory_is_freed_with_the_last_reference():
    device = HostDevice()
    array = empty((4,), "f32", device)
    view = DeviceArray(device, array, array.address, array.type, 1)
    del array
    assert len(device.blocks) == 1
    del view
    assert not device.blocks


def test_numpy_converts_on_request_and_refuses_without_copy():
    array = to_device(np.float32([1.5, 2]), HostDevice())
    assert np.asarray(array).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(array, dtype=np.int64), [1, 2])
    with pytest.raises(ValueError, match="in device memory"):
        np.asarray(array, copy=False)


def test_attributes_and_repr():
    device = HostDevice()
    array = empty((2, 3), DType.bf16, device)
    assert repr(array) == "DeviceArray(2x3xbf16, device=host)"
    assert (len(array), array.ndim, array.size, array.strides) == (2, 2, 6, (3, 1))
    turned = DeviceArray(device, array, array.address, ArrayType(DType.bf16, (3, 2), (1, 3)), 1)
    assert repr(turned) == "DeviceArray(3x2xbf16, strides=(1, 3), device=host)"
    with pytest.raises(TypeError):
        len(empty((), "f32", device))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"), [((-1,), "f32", "negative"), ((1,), "float", "no element type")]
)
def test_empty_refuses(shape, dtype, message):
    with pytest.raises(InputError, match=message):
        empty(shape, dtype, HostDevice())


# --- DLPack ---


def test_dlpack_shares_host_memory_with_numpy():
    array = to_device(np.arange(6.0).reshape(2, 3), HostDevice())
    taken = np.from_dlpack(array)
    taken[1, 2] = 42
    assert array.numpy()[1, 2] == 42
    assert np.from_dlpack(array, copy=True).ctypes.data != array.address


def test_dlpack_keeps_the_memory():
    device = HostDevice()
    taken = np.from_dlpack(to_device(np.arange(3), device))
    assert len(device.blocks) == 1
    np.testing.assert_array_equal(taken, [0, 1, 2])
    del taken
    assert not device.blocks


def test_dlpack_orders_the_consumers_stream():
    device = CudaLike()
    array = to_device(np.arange(3), device, stream=7)
    for stream, logged in [(None, ("order", 7, 1)), (1, ("order", 7, 1)), (2, ("order", 7, 2)), (99, ("order", 7, 99))]:
        device.log.clear()
        array.__dlpack__(stream=stream)
        assert device.log == [logged]
    for stream in (-1, 7):
        device.log.clear()
        array.__dlpack__(stream=stream)
        assert device.log == []


@pytest.mark.parametrize("stream", [0, -2])
def test_dlpack_refuses_streams_without_meaning(stream):
    with pytest.raises(ArrayExportError, match=f"stream={stream}"):
        to_device(np.arange(3), CudaLike()).__dlpack__(stream=stream)


def test_dlpack_to_the_host():
    array = to_device(np.arange(3), CudaLike())
    np.testing.assert_array_equal(np.from_dlpack(array, device="cpu"), [0, 1, 2])
    with pytest.raises(BufferError, match="without a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="CUDA device 1"):
        array.__dlpack__(dl_device=(2, 1))


def test_dlpack_versions():
    array = to_device(np.arange(3), HostDevice())
    assert '"dltensor"' in repr(array.__dlpack__())
    assert '"dltensor"' in repr(array.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 0)))


def test_dlpack_of_a_read_only_array_needs_version_1():
    device = HostDevice()
    lent = to_device(np.arange(3), device)
    array = DeviceArray(device, lent, lent.address, lent.type, 1, read_only=True)
    assert not np.from_dlpack(array).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    assert array.__dlpack__(copy=True)


# --- the CUDA array interface ---


def test_cuda_array_interface():
    device = CudaLike()
    array = to_device(np.ones((2, 3), np.float16), device, stream=5)
    assert array.__cuda_array_interface__ == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f2",
        "data": (array.address, False),
        "strides": None,
        "stream": 5,
    }
    turned = DeviceArray(device, array, array.address, ArrayType(DType.f16, (3, 2), (1, 3)), 5)
    assert turned.__cuda_array_interface__["strides"] == (2, 6)
    assert to_device(np.ones((0, 3)), device).__cuda_array_interface__["data"] == (0, False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_without_typestr_have_no_interface(dtype):
    array = to_device(np.ones(3, getattr(ml_dtypes, dtype)), CudaLike())
    assert not hasattr(array, "__cuda_array_interface__")
    with pytest.raises(MissingInterfaceError, match="no typestr in it; use DLPack"):
        _ = array.__cuda_array_interface__


class Interface:
    def __init__(self, owner, **changed):
        self.owner = owner
        fields = {"version": 3, "shape": (2, 3), "typestr": "<f4", "data": (owner.address, False), "strides": None}
        self.__cuda_array_interface__ = fields | {"stream": None} | changed


def test_a_scalar_is_a_copy_and_cannot_be_written():
    number, array = np.float32(2), np.zeros(3, np.float32)
    assert not as_device_view(number, HostDevice(), 1).flags.writeable
    assert as_device_view(array, HostDevice(), 1).flags.writeable


def test_taking_the_interface():
    device = CudaLike()
    owner = to_device(np.arange(12, dtype=np.float32), device)
    view = as_device_view(Interface(owner), device, 1)
    assert (view.address, view.dtype, view.shape, view.strides) == (owner.address, DType.f32, (2, 3), (3, 1))
    view = as_device_view(Interface(owner, strides=(4, 8), stream=2, data=(owner.address, True)), device, 9)
    assert (view.strides, view.read_only, device.log) == ((1, 2), True, [("order", 2, 9)])
    del owner
    np.testing.assert_array_equal(view.numpy(), [[0, 2, 4], [1, 3, 5]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mask": "m"}, "x: masked"),
        ({"typestr": ">f4"}, r"x: numpy dtype >f4 .* not supported"),
        ({"typestr": "<M8[s]"}, "x: numpy dtype datetime64"),
        ({"strides": (6, 2)}, r"x: strides \(6, 2\) are no multiples"),
        ({"data": (4096, False)}, "x: its memory at 0x1000 is not on cuda:0"),
        ({"stream": 0}, "x: stream 0"),
    ],
)
def test_interfaces_that_are_refused(changed, message):
    device = CudaLike()
    with pytest.raises(InputError, match=message):
        as_device_view(Interface(to_device(np.zeros(12), device), **changed), device, 1, "x")


# --- what counts as an array ---


def test_views_of_host_objects():
    device = HostDevice()
    array = np.arange(3)
    assert as_device_view(array, device, 1) is array
    assert as_device_view(np.float32(2), device, 1).shape == ()

    class OnlyDlpack:
        def __dlpack__(self, **arguments):
            return array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return array.__dlpack_device__()

    assert np.shares_memory(as_device_view(OnlyDlpack(), device, 1), array)


def test_views_of_device_arrays():
    device = HostDevice()
    array = to_device(np.arange(3), device, stream=5)
    assert as_device_view(array, device, 6) is array
    assert device.log == [("order", 5, 6)]
    with pytest.raises(InputError, match="x: it is on host, it must be on cuda:0"):
        as_device_view(array, CudaLike(), 1, "x")


@pytest.mark.parametrize(
    ("place", "message"),
    [((2, 1), "on cuda:1, it must be on cuda:0"), ((10, 0), "in ROCm memory"), ((99, 0), "type 99")],
)
def test_other_devices_are_refused(place, message):
    class Elsewhere:
        def __dlpack__(self, **_):
            raise AssertionError("must not be asked")

        def __dlpack_device__(self):
            return place

    with pytest.raises(InputError, match=message):
        as_device_view(Elsewhere(), CudaLike(), 1)


@pytest.mark.parametrize("value", [[1, 2], 3.0, "x", None])
def test_what_is_no_array(value):
    with pytest.raises(InputError, match=f"x: a {type(value).__name__} is no array"):
        as_device_view(value, HostDevice(), 1, "x")


@pytest.mark.parametrize(
    "array",
    [np.zeros(2, ">f4"), np.zeros(2, object), np.zeros(2, "M8[s]"), np.zeros(2, "U3")],
    ids=lambda a: a.dtype.str,
)
def test_host_types_that_are_refused(array):
    with pytest.raises(InputError, match="not supported; supported are bool, int8"):
        to_device(array, HostDevice())
