"""What is known of CUDA drivers, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.cuda_driver import newest_ptx, version_text
from coilpack.runtime.devices.cuda_product import _library
from coilpack.runtime.errors import DeviceError, InputError


@pytest.mark.parametrize(
    ("driver", "ptx"),
    [(12040, (8, 4)), (12060, (8, 5)), (12090, (8, 8)), (13000, (9, 0)), (13010, (9, 1)), (99000, None)],
)
def test_newest_ptx(driver, ptx):
    assert newest_ptx(driver) == ptx


def test_version_text():
    assert version_text(13000) == "13.0"
    assert version_text(12080) == "12.8"


@pytest.mark.parametrize("name", ["", "tpu", "cuda:", "cuda:-1", "cuda:x", "CUDA", "cuda:¹"])
def test_no_devices(name):
    with pytest.raises(InputError, match="is no device"):
        resolve_device(name)


def test_without_a_cuda_device_auto_is_the_emulator():
    # In a process of its own, with every device hidden, so that it also holds where there is a GPU.
    code = "from coilpack.runtime.devices import resolve_device; print(resolve_device('auto').name)"
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "emulator")


def test_a_cuda_device_that_is_not_there_says_what_to_do():
    code = "from coilpack.runtime.devices import resolve_device; resolve_device('cuda:0')"
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DeviceError" in done.stderr
    assert "nvidia-smi" in done.stderr


def test_without_the_library_of_products(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    with pytest.raises(DeviceError, match=r"need nvmath-python: .*pip install 'coilpack\[cublas\]'"):
        _library.__wrapped__()
