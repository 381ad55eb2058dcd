"""Streams as callers name them."""

from __future__ import annotations

from coilpack.runtime.devices.base import Device
from coilpack.runtime.errors import InputError

_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD: one handle, another stream in each thread


class _Held(int):
    """A handle that keeps the object it came from: arrays and programs that remember it keep the stream alive."""

    owner: object


def stream_handle(stream: object, device: Device) -> int:
    """The handle of a stream.

    Whoever stores the result of a stream object keeps that object alive. A stream given as a plain integer is its
    owner's to keep: it must outlive the arrays made on it and the programs called on it.

    Args:
        stream: None for the device's default stream, a handle as an integer (0 is the default stream too), or an
            object with `__cuda_stream__()`, which returns (version, handle): CUDA Python's stream protocol.
        device: the device it belongs to.

    Raises:
        InputError: it is none of these.
    """
    if stream is None:
        return device.default_stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise InputError(f"stream {stream!r} speaks version {version} of __cuda_stream__; version 0 is known here")
        held = _Held(handle)
        held.owner = stream
        return held if handle else device.default_stream
    if not isinstance(stream, int) or stream < 0:
        raise InputError(
            f"stream is a {type(stream).__name__}; it must be None, a handle as an integer, or an object with "
            "__cuda_stream__ (CuPy: stream.ptr, torch: stream.cuda_stream)"
        )
    return stream or device.default_stream


def for_all_threads(stream: int, device: Device) -> int:
    """A stream that waits for the work on `stream`, and is the same one in each thread."""
    return device.default_stream if stream == _PER_THREAD_STREAM else stream  # the legacy stream waits for those
