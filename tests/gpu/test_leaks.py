"""Device memory that opening and closing leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_samples import MemoryPackage

from coilpack.runtime.devices.cuda_driver import call, driver
from coilpack.runtime.session import Program

pytestmark = pytest.mark.gpu


def test_opening_again_and_again_leaks_nothing(device):
    def reserved():
        device.synchronize(1)
        device.trim()
        attribute = driver().CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        with device.activate():
            return int(call("cuMemPoolGetAttribute", "test", device._pool, attribute))

    levels = []
    for _ in range(12):
        with Program(MemoryPackage({"sm_75": "8.0"}), device, "m.coil") as program:
            program(np.ones(1000, np.float32), function="dynamic").numpy()
        levels.append(reserved())  # of this process alone: others may share the device
    assert levels[-1] <= levels[3]
