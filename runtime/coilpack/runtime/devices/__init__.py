"""Devices by name."""

from __future__ import annotations

from coilpack.runtime.devices.base import Device
from coilpack.runtime.errors import DeviceError, InputError


def resolve_device(device: str | Device = "auto") -> Device:
    """The device of a name.

    Args:
        device: `cuda` (the first one), `cuda:N`, `emulator`, `auto` (the first CUDA device, or the emulator where there
            is none), or a device, which is returned.

    Raises:
        InputError: there is no device of that name.
        DeviceError: the CUDA driver or the device is not there, or does not start.
    """
    if not isinstance(device, str):
        return device
    if device == "auto":
        try:
            return _cuda(0)
        except DeviceError:
            return _emulator()
    if device == "emulator":
        return _emulator()
    kind, colon, number = device.partition(":")
    if kind != "cuda" or (colon and not (number.isascii() and number.isdecimal())):
        raise InputError(
            f"{device!r} is no device; devices are named 'auto', 'emulator', 'cuda' and 'cuda:N' with N from 0 on"
        )
    return _cuda(int(number or 0))


def _cuda(ordinal: int) -> Device:
    from coilpack.runtime.devices.cuda import cuda_device  # the driver's bindings wait until they are needed

    return cuda_device(ordinal)


def _emulator() -> Device:
    from coilpack.runtime.devices.emulator.device import emulator  # its PTX parser waits until it is needed

    return emulator()
