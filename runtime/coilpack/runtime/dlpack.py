"""DLPack both ways through ctypes: capsules of version 0 (`dltensor`) and 1 (`dltensor_versioned`).

Source: dlpack.h 1.1 and the Python specification of DLPack. The structures live in ctypes memory; an exported array is
kept alive by a table until its consumer calls the deleter.

A capsule that nobody consumes has no destructor here. A destructor written in Python may be called while another
exception is on its way (numpy drops the capsule so when it refuses the device), and would lose that exception. Instead,
`collect`, which every export calls, drops the capsules that were handed out and are held by nobody else any more.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType, contiguous_strides

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
DEVICE_NAMES = {
    CPU: "CPU",
    CUDA: "CUDA",
    CUDA_HOST: "pinned CPU",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    CUDA_MANAGED: "managed CUDA",
    14: "oneAPI",
}
VERSION = (1, 1)  # what exports declare and imports ask for
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

_NAME, _NAME_VERSIONED = b"dltensor", b"dltensor_versioned"
_USED, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _python_api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    # A prototype of our own: `argtypes` set on `ctypes.pythonapi.X` would hold for every library in the process.
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    return prototype((name, ctypes.pythonapi))


_capsule_new = _python_api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_name = _python_api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_capsule_pointer = _python_api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_capsule_rename = _python_api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_capsule_check = type(_capsule_new(1, _NAME, None))


@dataclass(frozen=True, slots=True)
class ImportedArray:
    """An array that another library lends.

    Args:
        device: DLPack's device type and id.
        address: of the first element.
        type: element type, shape and strides.
        read_only: the lender forbids writing.
        owner: keeps the memory alive; the lender's deleter runs when it is collected.
    """

    device: tuple[int, int]
    address: int
    type: ArrayType
    read_only: bool
    owner: object


# --- export ---

_lent: dict[int, tuple[Any, ...]] = {}  # address of a managed tensor -> what it needs to stay alive
_unclaimed: dict[int, object] = {}  # address of a managed tensor -> its capsule, until it is seen to be consumed


def _release(address: int | None, _pop: Callable[..., object] = _lent.pop) -> None:
    """The deleter of every export; called from whichever thread drops the array, with the GIL taken by ctypes."""
    _pop(address, None)


_RELEASE_CALLBACK = _Deleter(_release)  # must live as long as any consumer
_RELEASE = ctypes.cast(_RELEASE_CALLBACK, ctypes.c_void_p)


def export_capsule(
    address: int, type_: ArrayType, device: tuple[int, int], owner: object, *, versioned: bool, read_only: bool = False
) -> object:
    """Makes a capsule that lends an array.

    Args:
        address: of the first element.
        type_: element type, shape and strides.
        device: DLPack's device type and id.
        owner: what keeps the memory alive; held until the consumer's deleter call.
        versioned: make a `dltensor_versioned`, which only consumers that asked for version 1 know.
        read_only: tell the consumer not to write; only a versioned capsule can.
    """
    collect()
    ndim = len(type_.shape)
    sizes = (ctypes.c_int64 * (2 * ndim or 1))(*type_.shape, *type_.strides)
    managed: Any = _ManagedVersioned() if versioned else _Managed()
    tensor = managed.tensor
    tensor.data, tensor.byte_offset = address, 0
    tensor.device.type, tensor.device.id = device
    tensor.dtype.code, tensor.dtype.bits = type_.dtype.dlpack
    tensor.dtype.lanes, tensor.ndim = 1, ndim
    pointer, start = ctypes.POINTER(ctypes.c_int64), ctypes.addressof(sizes)
    tensor.shape, tensor.strides = (ctypes.cast(start + skip, pointer) for skip in (0, 8 * ndim))
    managed.deleter = _RELEASE
    if versioned:
        (managed.major, managed.minor), managed.flags = VERSION, _READ_ONLY if read_only else 0
    key = ctypes.addressof(managed)
    _lent[key] = (managed, sizes, owner)
    capsule: object = _capsule_new(key, _NAME_VERSIONED if versioned else _NAME, None)
    _unclaimed[key] = capsule
    return capsule


def _references(key: int, table: dict[int, object]) -> int:
    return sys.getrefcount(table[key])


_HELD_BY_TABLE = _references(0, {0: object()})


def collect() -> None:
    """Drops what was exported in capsules that nobody consumed and nobody holds any more."""
    for key in list(_unclaimed):
        if key not in _unclaimed:  # another thread was quicker
            continue
        if _capsule_name(_unclaimed[key]) in (_USED, _USED_VERSIONED):
            _unclaimed.pop(key, None)
        elif _references(key, _unclaimed) == _HELD_BY_TABLE:
            _unclaimed.pop(key, None)
            _lent.pop(key, None)


# --- import ---


class _Borrowed:
    """Calls the lender's deleter, once, when nobody uses the array any more."""

    __slots__ = ("_managed",)

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter and not sys.is_finalizing():
            _Deleter(self._managed.deleter)(ctypes.addressof(self._managed))


def import_capsule(capsule: object, what: str = "array") -> ImportedArray:
    """Takes over the array in a capsule, which becomes used.

    Args:
        capsule: what `__dlpack__` returned.
        what: the array's name, for messages.

    Raises:
        InputError: it is no fresh DLPack capsule, or holds what this runtime has no type for.
    """
    name = _capsule_name(capsule) if isinstance(capsule, _capsule_check) else None
    if name == _NAME:
        managed: Any = _Managed.from_address(_capsule_pointer(capsule, name))
        _capsule_rename(capsule, _USED)
        read_only = False
    elif name == _NAME_VERSIONED:
        managed = _ManagedVersioned.from_address(_capsule_pointer(capsule, name))
        _capsule_rename(capsule, _USED_VERSIONED)
        read_only = bool(managed.flags & _READ_ONLY)
    else:
        given = f"a capsule named {name.decode(errors='replace')!r}" if name else f"a {type(capsule).__name__}"
        raise InputError(f"{what}: __dlpack__ must give a fresh DLPack capsule, it gave {given}")
    owner = _Borrowed(managed)
    if name == _NAME_VERSIONED and managed.major != VERSION[0]:
        found = f"{managed.major}.{managed.minor}"
        raise InputError(f"{what}: the capsule is of DLPack {found}; versions 0 and 1 are known here")
    tensor = managed.tensor
    type_ = ArrayType(_element_type(tensor.dtype, what), *_geometry(tensor))
    address = (tensor.data or 0) + tensor.byte_offset
    return ImportedArray((tensor.device.type, tensor.device.id), address, type_, read_only, owner)


def _element_type(dtype: Any, what: str) -> DType:
    try:
        if dtype.lanes == 1:
            return DType.from_dlpack(dtype.code, dtype.bits)
    except KeyError:
        pass
    raise InputError(
        f"{what}: DLPack element type (code {dtype.code}, {dtype.bits} bits, {dtype.lanes} lanes) is not supported; "
        f"supported are {', '.join(d.name for d in DType)}"
    )


def _geometry(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ndim = tensor.ndim
    shape = tuple(tensor.shape[:ndim]) if ndim else ()
    strides = tuple(tensor.strides[:ndim]) if ndim and tensor.strides else contiguous_strides(shape)
    return shape, strides


def request_capsule(array: Any, stream: int | None, what: str) -> object:
    """Asks an array for its capsule, of version 1 where the library has it.

    Args:
        array: an object with `__dlpack__`.
        stream: the stream that will use the data, None where the data is not on a device with streams.
        what: the array's name, for messages.

    Raises:
        InputError: the library refuses, with its reason.
    """
    stream = None if stream is None else int(stream)  # torch takes no subclass of int
    try:
        try:
            return array.__dlpack__(stream=stream, max_version=VERSION)
        except TypeError:  # the library is older than the argument
            return array.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError) as error:
        raise InputError(f"{what}: {type(array).__name__} does not export it by DLPack: {error}") from error
