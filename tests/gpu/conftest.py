"""The devices of these tests, most of which need a CUDA device; they use the sample programs of the unit tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))


@pytest.fixture(scope="session")
def device():
    from coilpack.runtime.devices import resolve_device

    return resolve_device("cuda:0")


@pytest.fixture(scope="session", params=["emulator", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def any_device(request):
    """Each device of this machine: the emulator, and the GPU where there is one."""
    from coilpack.runtime.devices import resolve_device

    return resolve_device(request.param)
