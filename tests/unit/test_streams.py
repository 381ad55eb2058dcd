"""Streams as callers name them."""

from __future__ import annotations

import gc
import weakref

import pytest
from host_device import HostDevice

from coilpack.runtime.errors import InputError
from coilpack.runtime.streams import stream_handle


class Stream:
    def __init__(self, version, handle):
        self.pair = (version, handle)

    def __cuda_stream__(self):
        return self.pair


@pytest.mark.parametrize(
    ("stream", "handle"), [(None, 1), (0, 1), (2, 2), (0x7F00, 0x7F00), (Stream(0, 9), 9), (Stream(0, 0), 1)]
)
def test_handles(stream, handle):
    assert stream_handle(stream, HostDevice()) == handle


def test_a_handle_keeps_the_stream_it_came_from():
    stream = Stream(0, 9)
    kept = weakref.ref(stream)
    handle = stream_handle(stream, HostDevice())
    del stream
    gc.collect()
    assert kept() is not None
    del handle
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("stream", [-1, "0", 1.0, Stream(1, 5)])
def test_no_streams(stream):
    with pytest.raises(InputError, match=r"stream"):
        stream_handle(stream, HostDevice())
