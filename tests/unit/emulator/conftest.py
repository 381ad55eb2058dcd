"""The devices that the emulator's cases run on: itself, and a GPU where there is one."""

from __future__ import annotations

import numpy as np
import pytest

from coilpack.runtime.devices import resolve_device


@pytest.fixture(
    scope="session", params=["emulator", pytest.param("cuda:0", marks=pytest.mark.gpu)], ids=["emulator", "cuda"]
)
def machine(request):
    from ptx_cases import Machine

    return Machine(resolve_device(request.param))


@pytest.fixture
def emulated():
    """An emulator of its own, for faults and for settings."""
    from ptx_cases import Machine

    from coilpack.runtime.devices.emulator.device import Emulator

    return Machine(Emulator(capacity=1 << 32))


@pytest.fixture(autouse=True)
def quiet_numpy():
    """References compute with infinities and NaNs on purpose."""
    with np.errstate(all="ignore"):
        yield
