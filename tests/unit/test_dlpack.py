"""DLPack capsules in both directions, on host memory: with numpy and, where it is installed, torch."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import threading
import weakref

import numpy as np
import pytest

from coilpack.runtime import dlpack
from coilpack.runtime.arrays import export_host, host_type, import_host
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
NUMPY_TYPES = [d for d in DType if hasattr(np, d.numpy_name)]
GEOMETRIES = {
    "scalar": np.array(3, np.float32),
    "empty": np.empty((0, 3), np.int64),
    "strided": np.arange(24.0).reshape(2, 3, 4).T,
    "reversed": np.arange(5)[::-1],
}
every_geometry = pytest.mark.parametrize("array", GEOMETRIES.values(), ids=GEOMETRIES)


class Lender:
    """Lends a numpy array through capsules of ours."""

    def __init__(self, array, *, versioned=True, read_only=False, dtype=None):
        self.array, self.versioned, self.read_only = array, versioned, read_only
        self.dtype = dtype or host_type(array, "x").dtype

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = self.versioned and max_version is not None
        return export_host(self.array, self.dtype, versioned=versioned, read_only=self.read_only)


class Owner:
    pass


def host_capsule(owner, *, versioned=False):
    memory = (ctypes.c_float * 4)(1, 2, 3, 4)
    owner.memory = memory
    type_ = ArrayType.contiguous(DType.f32, (4,))
    return dlpack.export_capsule(ctypes.addressof(memory), type_, (1, 0), owner, versioned=versioned)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda d: d.name)
def test_numpy_takes_our_capsules(dtype, versioned):
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    taken = np.from_dlpack(Lender(array, versioned=versioned))
    assert taken.dtype == array.dtype
    np.testing.assert_array_equal(taken, array)
    assert np.shares_memory(taken, array)


@every_geometry
def test_numpy_takes_every_geometry(array):
    taken = np.from_dlpack(Lender(array))
    np.testing.assert_array_equal(taken, array)
    assert taken.size == 0 or taken.strides == array.strides


@every_geometry
def test_we_take_numpys_capsules(array):
    taken = import_host(dlpack.import_capsule(dlpack.request_capsule(array, None, "x")))
    np.testing.assert_array_equal(taken, array)
    assert taken.size == 0 or np.shares_memory(taken, array)


def test_read_only_is_told_both_ways():
    array = np.arange(4)
    assert not np.from_dlpack(Lender(array, read_only=True)).flags.writeable
    array.flags.writeable = False
    lent = dlpack.import_capsule(dlpack.request_capsule(array, None, "x"))
    assert lent.read_only
    assert not import_host(lent).flags.writeable


@pytest.mark.parametrize("versioned", [False, True])
def test_the_owner_lives_until_the_deleter_is_called(versioned):
    owner = Owner()
    watch = weakref.ref(owner)
    capsule = host_capsule(owner, versioned=versioned)
    lent = dlpack.import_capsule(capsule)
    del owner, capsule
    gc.collect()
    assert watch() is not None
    del lent
    assert watch() is None


def test_the_deleter_may_run_in_any_thread():
    owner = Owner()
    watch = weakref.ref(owner)
    lent = [dlpack.import_capsule(host_capsule(owner))]
    del owner
    thread = threading.Thread(target=lent.clear)
    thread.start()
    thread.join()
    assert watch() is None


def test_a_capsule_that_nobody_consumes_is_collected():
    owner, held = Owner(), Owner()
    watch, watch_held = weakref.ref(owner), weakref.ref(held)
    kept = host_capsule(held)
    host_capsule(owner)
    del owner, held
    dlpack.collect()
    assert watch() is None
    assert watch_held() is not None
    np.testing.assert_array_equal(import_host(dlpack.import_capsule(kept)), [1, 2, 3, 4])
    del kept
    dlpack.collect()
    assert watch_held() is None


def test_numpy_refusing_a_device_array_says_so():
    class OnDevice(Lender):
        def __dlpack__(self, **_):
            type_ = ArrayType.contiguous(DType.f32, (4,))
            return dlpack.export_capsule(0x1000, type_, (2, 0), self, versioned=False)

    # With a destructor written in Python this came out as a SystemError, the reason lost.
    with pytest.raises((BufferError, RuntimeError), match=r"[Dd]evice"):
        np.from_dlpack(OnDevice(np.zeros(4, np.float32)))


def test_a_capsule_is_taken_once():
    capsule = dlpack.request_capsule(np.arange(3), None, "x")
    dlpack.import_capsule(capsule)
    with pytest.raises(InputError, match=r"weights: .*fresh.*used_dltensor"):
        dlpack.import_capsule(capsule, "weights")


def test_no_capsule():
    with pytest.raises(InputError, match="it gave a int"):
        dlpack.import_capsule(3)


def test_strides_may_be_left_out_and_byte_offset_counts():
    owner = Owner()
    capsule = host_capsule(owner)
    managed = dlpack._Managed.from_address(dlpack._capsule_pointer(capsule, b"dltensor"))
    managed.tensor.strides = None
    managed.tensor.byte_offset = 4
    managed.tensor.shape[0] = 3
    np.testing.assert_array_equal(import_host(dlpack.import_capsule(capsule)), [2, 3, 4])


@pytest.mark.parametrize(("field", "value"), [("lanes", 2), ("bits", 24), ("code", 3)])
def test_unknown_element_types_are_refused_and_given_back(field, value):
    owner = Owner()
    watch = weakref.ref(owner)
    capsule = host_capsule(owner)
    del owner
    managed = dlpack._Managed.from_address(dlpack._capsule_pointer(capsule, b"dltensor"))
    setattr(managed.tensor.dtype, field, value)
    with pytest.raises(InputError, match=rf"x: DLPack element type.*{value}"):
        dlpack.import_capsule(capsule, "x")
    gc.collect()
    assert watch() is None


def test_a_later_major_version_is_refused():
    owner = Owner()
    capsule = host_capsule(owner, versioned=True)
    managed = dlpack._ManagedVersioned.from_address(dlpack._capsule_pointer(capsule, b"dltensor_versioned"))
    managed.major = 2
    with pytest.raises(InputError, match=r"DLPack 2\.1"):
        dlpack.import_capsule(capsule)


def test_the_lenders_reason_is_passed_on():
    class Refuses:
        def __dlpack__(self, **_):
            raise BufferError("it is on strike")

    with pytest.raises(InputError, match=r"x: Refuses .* it is on strike"):
        dlpack.request_capsule(Refuses(), None, "x")


@needs_torch
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int64", "bool", "complex64"])
def test_torch_both_ways(name):
    import torch

    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, name)).T
    ours = import_host(dlpack.import_capsule(dlpack.request_capsule(tensor, None, "x")))
    assert DType.from_numpy(ours.dtype).numpy_name == name
    np.testing.assert_array_equal(ours.astype("complex64"), tensor.to(torch.complex64).numpy())
    back = torch.from_dlpack(Lender(ours, dtype=DType.from_numpy_name(name)))
    assert back.dtype is tensor.dtype
    assert torch.equal(back, tensor)
    assert back.data_ptr() == tensor.data_ptr()


@needs_torch
def test_torch_tensor_that_needs_grad_is_refused_with_its_reason():
    import torch

    with pytest.raises(InputError, match=r"Tensor .*detach"):
        dlpack.request_capsule(torch.zeros(3, requires_grad=True), None, "x")
