"""Arrays on a device, and other libraries' arrays seen as ours: DLPack, the CUDA array interface, numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coilpack.runtime import dlpack
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Device
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, UnsupportedError
from coilpack.runtime.layout import ArrayType, contiguous_strides
from coilpack.runtime.streams import for_all_threads, stream_handle

HostArray = np.ndarray[Any, np.dtype[Any]]

_NO_SYNC = -1  # DLPack: the consumer orders the streams itself


class ArrayExportError(InputError, BufferError):
    """An array cannot be lent as asked; a BufferError too, as the DLPack protocol wants it."""


class MissingInterfaceError(UnsupportedError, AttributeError):
    """An array has no CUDA array interface; an AttributeError too, so that `hasattr` says False."""


class DeviceArray:
    """An array in device memory.

    Work on it is ordered by `stream`: whoever reads it on another stream waits for that one first, which the exchange
    protocols see to. Its memory returns to the device, in that stream's order, when nobody refers to it any more: the
    stream must live as long, and work that uses the array on other streams must be ordered before that by its owner.
    A per-thread stream is remembered as the default one, which waits for it whatever thread the array comes to.

    Args:
        device: where it lies.
        owner: keeps the memory alive (a `Buffer`, or what another library lent).
        address: of its first element.
        type_: element type, shape and strides.
        stream: the stream on which its contents become ready.
        read_only: it must not be written.
    """

    __slots__ = ("__weakref__", "_owner", "address", "device", "read_only", "stream", "type")

    def __init__(
        self, device: Device, owner: object, address: int, type_: ArrayType, stream: int, *, read_only: bool = False
    ) -> None:
        self.device = device
        self._owner = owner
        self.address = address
        self.type = type_
        self.stream = for_all_threads(stream, device)
        self.read_only = read_only

    def __repr__(self) -> str:
        strides = "" if self.type.is_contiguous else f", strides={self.strides}"
        return f"DeviceArray({self.type}{strides}, device={self.device.name})"

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.type.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each dimension."""
        return self.type.strides

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.type.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.type.size * self.type.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no len()")
        return self.shape[0]

    def part(self, offset: int, type_: ArrayType) -> DeviceArray:
        """Another array in its memory, `offset` bytes from its first element.

        It is of the same stream: whoever uses one of them comes after those that use the other, and before the memory
        is freed.
        """
        address, read_only = self.address + offset, self.read_only
        return DeviceArray(self.device, self._owner, address, type_, self.stream, read_only=read_only)

    def numpy(self) -> HostArray:
        """A copy in host memory, once the array is ready; bf16 and fp8 have the dtypes of `ml_dtypes`.

        Raises:
            DeviceError: the work that computes it failed.
        """
        low, _ = self.type.extent
        data = np.empty(self.type.span_nbytes, np.uint8)
        self.device.read(self.address + low * self.dtype.itemsize, data.data, self.stream)
        view = host_view(data, self.type)
        return view if view.flags.c_contiguous else view.copy(order="C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        if copy is False:
            raise ValueError(f"{self!r} is in device memory: numpy gets a copy or nothing")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device type and id."""
        return self.device.dlpack_device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule that lends the array, by the Python specification of DLPack.

        Args:
            stream: the stream that the consumer works on: 1 or None is the legacy default one, 2 the per-thread one,
                -1 asks for no ordering.
            max_version: the newest version that the consumer knows; without it the capsule is unversioned.
            dl_device: where it shall lie: the device, or the host, (1, 0).
            copy: True for a copy; False where a copy is not wanted.

        Raises:
            ArrayExportError: an `InputError` and a `BufferError`: the array cannot be lent like that.
        """
        versioned = max_version is not None and max_version[0] >= 1
        own = self.device.dlpack_device
        if dl_device is not None and tuple(dl_device) != own:
            if tuple(dl_device) != (dlpack.CPU, 0) or copy is False:
                kind = dlpack.DEVICE_NAMES.get(dl_device[0], str(dl_device[0]))
                raise ArrayExportError(f"{self!r} cannot be lent to {kind} device {dl_device[1]} without a copy")
            return export_host(self.numpy(), self.dtype, versioned=versioned)
        source = self._copied() if copy else self
        source._hand_over(stream)
        read_only = self.read_only and not copy
        if read_only and not versioned:
            raise ArrayExportError(f"{self!r} is read-only, which only DLPack 1 can say; the consumer knows no such")
        return dlpack.export_capsule(source.address, source.type, own, source, versioned=versioned, read_only=read_only)

    def _copied(self) -> DeviceArray:
        buffer = self.device.allocate(self.type.span_nbytes, self.stream)
        offset = self.type.extent[0] * self.dtype.itemsize
        self.device.copy(buffer.address, self.address + offset, self.type.span_nbytes, self.stream)
        return DeviceArray(self.device, buffer, buffer.address - offset, self.type, self.stream)

    def _hand_over(self, stream: int | None) -> None:
        """Orders a consumer's stream, named as DLPack does, after the array's."""
        if self.device.dlpack_device[0] == dlpack.CPU:
            if stream is not None:
                raise ArrayExportError(f"{self!r} is in host memory, where DLPack has no streams; got stream={stream}")
            self.device.synchronize(self.stream)
        elif stream == 0 or (stream is not None and stream < _NO_SYNC):
            raise ArrayExportError(f"stream={stream} means nothing in DLPack; the default stream is 1, or 2 per thread")
        elif stream != _NO_SYNC:
            self.device.order(self.stream, stream or self.device.default_stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3."""
        kind = self.device.dlpack_device[0]
        if kind != dlpack.CUDA or not hasattr(np, self.dtype.numpy_name):
            why = "has no typestr in it" if kind == dlpack.CUDA else "is not in CUDA memory"
            raise MissingInterfaceError(f"{self!r} has no CUDA array interface: {self.dtype.name} {why}; use DLPack")
        itemsize = self.dtype.itemsize
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.address if self.size else 0, self.read_only),
            "strides": None if self.type.is_contiguous else tuple(s * itemsize for s in self.strides),
            "stream": self.stream,
        }


# --- making arrays ---


def empty(
    shape: Sequence[int], dtype: DType | str, device: str | Device = "auto", stream: object = None
) -> DeviceArray:
    """An array of uninitialised device memory.

    Args:
        shape: elements along each dimension.
        dtype: an element type or its name, as `f32` or `bf16`.
        device: a device or its name.
        stream: the stream that will use it first.

    Raises:
        InputError: a size is negative, or there is no such type.
        DeviceError: there is no such device, or not enough memory.
    """
    where = resolve_device(device)
    if any(size < 0 for size in shape):
        raise InputError(f"shape {tuple(shape)}: sizes must not be negative")
    type_ = ArrayType.contiguous(_as_dtype(dtype), [int(size) for size in shape])
    handle = stream_handle(stream, where)
    buffer = where.allocate(type_.span_nbytes, handle)
    return DeviceArray(where, buffer, buffer.address, type_, handle)


def to_device(array: object, device: str | Device = "auto", stream: object = None) -> DeviceArray:
    """An array on the device: a copy of host data, or a view of an array that is there already.

    Args:
        array: a numpy array, or anything with DLPack or the CUDA array interface.
        device: a device or its name.
        stream: the stream that will use it first.

    Raises:
        InputError: it is no array, of an element type that is not supported, or on another device.
        DeviceError: there is no such device, or not enough memory.
    """
    where = resolve_device(device)
    handle = stream_handle(stream, where)
    view = as_device_view(array, where, handle)
    return view if isinstance(view, DeviceArray) else upload(view, host_type(view, "array"), where, handle)


def upload(array: HostArray, type_: ArrayType, device: Device, stream: int) -> DeviceArray:
    """Copies a host array into new device memory with the layout of `type_`, whose shape and element type it has."""
    low, _ = type_.extent
    data = array
    if not (type_.is_contiguous and array.flags.c_contiguous):
        staged = np.zeros(type_.span_nbytes, np.uint8)
        host_view(staged, type_)[...] = array
        data = staged
    buffer = device.allocate(type_.span_nbytes, stream)
    device.write(buffer.address, as_bytes(data), stream)
    return DeviceArray(device, buffer, buffer.address - low * type_.dtype.itemsize, type_, stream)


def _as_dtype(dtype: DType | str) -> DType:
    if isinstance(dtype, DType):
        return dtype
    if dtype in DType.__members__:
        return DType[dtype]
    raise InputError(f"{dtype!r} is no element type; there are {', '.join(DType.__members__)}")


# --- host memory ---


def as_bytes(array: HostArray) -> memoryview:
    """The bytes of a C-contiguous array; goes through uint8 because ml_dtypes' types have no buffer protocol."""
    return array.reshape(-1).view(np.uint8).data


def host_view(data: HostArray, type_: ArrayType) -> HostArray:
    """The bytes of a block (uint8, one dimension) seen as an array whose lowest element begins the block."""
    itemsize = type_.dtype.itemsize
    strides = tuple(s * itemsize for s in type_.strides)
    offset = -type_.extent[0] * itemsize
    return np.ndarray(type_.shape, type_.dtype.numpy, data.data if data.size else None, offset, strides)


def host_type(array: HostArray, what: str) -> ArrayType:
    """The row-major type for a host array's data.

    Raises:
        InputError: its element type is not supported.
    """
    try:
        if not array.dtype.isnative:
            raise KeyError
        dtype = DType.from_numpy(array.dtype)
    except KeyError:
        found, names = f"{array.dtype!s} ({array.dtype.str})", ", ".join(d.numpy_name for d in DType)
        raise InputError(f"{what}: numpy dtype {found} is not supported; supported are {names}") from None
    return ArrayType.contiguous(dtype, array.shape)


def export_host(array: HostArray, dtype: DType, *, versioned: bool, read_only: bool = False) -> object:
    """A DLPack capsule over a host array, which it keeps alive."""
    strides = tuple(s // dtype.itemsize for s in array.strides) if array.size else contiguous_strides(array.shape)
    type_ = ArrayType(dtype, array.shape, strides)
    address = array.__array_interface__["data"][0]
    return dlpack.export_capsule(address, type_, (dlpack.CPU, 0), array, versioned=versioned, read_only=read_only)


class _HostMemory:
    """Borrowed host bytes as numpy takes them; numpy keeps this object, and so the owner, alive."""

    def __init__(self, address: int, nbytes: int, owner: object, *, read_only: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, read_only)}


def import_host(lent: dlpack.ImportedArray) -> HostArray:
    """A numpy array over host memory that another library lends."""
    type_ = lent.type
    if not type_.size:
        return np.empty(type_.shape, type_.dtype.numpy)
    start = lent.address + type_.extent[0] * type_.dtype.itemsize
    data = np.asarray(_HostMemory(start, type_.span_nbytes, lent.owner, read_only=lent.read_only))
    return host_view(data, type_)


# --- other libraries' arrays ---


def as_device_view(array: object, device: Device, stream: int, what: str = "array") -> DeviceArray | HostArray:
    """Sees any array as one of ours, without a copy.

    Args:
        array: a `DeviceArray`, a numpy array, or an object with DLPack or the CUDA array interface.
        device: the device whose arrays are wanted.
        stream: the stream that will use the data; it is ordered after the stream that makes it.
        what: the array's name, for messages.

    Returns:
        A `DeviceArray` on `device`, or a numpy array where the data is in host memory.

    Raises:
        InputError: it is no array, of an element type that is not supported, or on another device.
    """
    if isinstance(array, DeviceArray):
        if array.device is not device:
            raise InputError(f"{what}: it is on {array.device.name}, it must be on {device.name}")
        device.order(array.stream, stream)
        return array
    if isinstance(array, np.ndarray | np.generic):
        view = np.asarray(array)
        if isinstance(array, np.generic):
            view.flags.writeable = False  # a copy: nobody would see what is written to it
        return view
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(array, device, stream, what)
    if hasattr(array, "__cuda_array_interface__"):
        return _from_cuda_interface(array, device, stream, what)
    raise InputError(
        f"{what}: a {type(array).__name__} is no array; pass a numpy array, or one that has DLPack "
        "or the CUDA array interface"
    )


def _from_dlpack(array: Any, device: Device, stream: int, what: str) -> DeviceArray | HostArray:
    kind, ordinal = (int(part) for part in array.__dlpack_device__())
    own = device.dlpack_device
    if kind in (dlpack.CPU, dlpack.CUDA_HOST):
        return import_host(dlpack.import_capsule(dlpack.request_capsule(array, None, what), what))
    if own[0] != dlpack.CUDA or kind not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        place = dlpack.DEVICE_NAMES.get(kind, f"DLPack device type {kind}")
        raise InputError(f"{what}: it is in {place} memory, it must be on {device.name} or in host memory")
    if kind == dlpack.CUDA and ordinal != own[1]:
        raise InputError(f"{what}: it is on cuda:{ordinal}, it must be on {device.name}")
    lent = dlpack.import_capsule(dlpack.request_capsule(array, stream, what), what)
    return DeviceArray(device, lent.owner, lent.address, lent.type, stream, read_only=lent.read_only)


def _from_cuda_interface(array: Any, device: Device, stream: int, what: str) -> DeviceArray:
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise InputError(f"{what}: masked arrays are not supported")
    numpy_type = np.dtype(interface["typestr"])
    dtype = host_type(np.empty(0, numpy_type), what).dtype
    shape = tuple(int(size) for size in interface["shape"])
    strides = _element_strides(interface.get("strides"), shape, dtype, what)
    address, read_only = interface["data"]
    type_ = ArrayType(dtype, shape, strides)
    if type_.size and not device.owns(address):
        raise InputError(f"{what}: its memory at {address:#x} is not on {device.name}")
    producer = interface.get("stream")
    if producer == 0:
        raise InputError(f"{what}: stream 0 has no meaning in the CUDA array interface; the default stream is 1 or 2")
    if producer is not None:
        device.order(int(producer), stream)
    return DeviceArray(device, array, address or 0, type_, stream, read_only=bool(read_only))


def _element_strides(strides: Sequence[int] | None, shape: tuple[int, ...], dtype: DType, what: str) -> tuple[int, ...]:
    if strides is None:
        return contiguous_strides(shape)
    if any(step % dtype.itemsize for step in strides):
        raise InputError(f"{what}: strides {tuple(strides)} are no multiples of its elements' {dtype.itemsize} bytes")
    return tuple(step // dtype.itemsize for step in strides)
