"""The garbage collector, put off while nothing is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Puts the collector off while tens of thousands of objects are made that all stay.

    Their number alone would set it off again and again, each time over more of them: a third of the time that it takes
    to open a large package. Use it for work that is bounded and waits for nothing. Where the collector is off already,
    by the caller or another thread in here, it is left alone.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
