"""The devices that compiled models run on."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["emulator", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request):
    """Each device of this machine: the emulator, and the GPU where there is one."""
    from coilpack.runtime import resolve_device

    return resolve_device(request.param)
