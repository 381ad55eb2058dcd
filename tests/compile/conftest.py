"""The device that compiled models run on."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def device():
    """The best device of this machine; skips where there is none."""
    from coilpack.runtime import CoilpackError, resolve_device

    try:
        return resolve_device("auto")
    except CoilpackError as error:
        pytest.skip(f"needs a device to run kernels on: {error}")
