"""The devices of these tests, most of which need a CUDA device; they use samples of the other tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("unit", "compile", "compat"))


@pytest.fixture(scope="session")
def device():
    from coilpack.runtime.devices import resolve_device

    return resolve_device("cuda:0")


@pytest.fixture(scope="session", params=["emulator", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def any_device(request):
    """Each device of this machine: the emulator, and the GPU where there is one."""
    from coilpack.runtime.devices import resolve_device

    return resolve_device(request.param)
