"""The CUDA driver API through cuda-python: loaded when first used, every result checked by one helper."""

from __future__ import annotations

import functools
from typing import Any

from coilpack.runtime.errors import DeviceError

MINIMUM_DRIVER = 12040  # CUDA 12.4: cuFuncGetParamInfo, cuFuncLoad and cuModuleEnumerateFunctions appeared there

# The PTX ISA that each CUDA release brought (PTX ISA manual, "Release History"). The driver reports its CUDA version.
_PTX_OF_CUDA: dict[tuple[int, int], tuple[int, int]] = {
    (12, 4): (8, 4),
    (12, 5): (8, 5),
    (12, 6): (8, 5),
    (12, 7): (8, 6),
    (12, 8): (8, 7),
    (12, 9): (8, 8),
    (13, 0): (9, 0),
    (13, 1): (9, 1),
    (13, 2): (9, 2),
    (13, 3): (9, 3),
    (13, 4): (9, 4),
}

_HINTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "Free device memory, or use a smaller batch",
    "CUDA_ERROR_NO_DEVICE": "`nvidia-smi` must list a device; CUDA_VISIBLE_DEVICES may hide it",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "libcuda and the kernel module are of different versions: reboot or reinstall",
    "CUDA_ERROR_NOT_INITIALIZED": "CUDA does not survive fork(): start worker processes with `spawn`",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "A kernel queued before accessed memory that is not its own; the CUDA context is "
    "lost, so the process must start anew",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "A kernel queued before used an address less aligned than its code assumes; the "
    "CUDA context is lost, so the process must start anew",
    "CUDA_ERROR_LAUNCH_FAILED": "The CUDA context is lost, so the process must start anew",
    "CUDA_ERROR_INVALID_HANDLE": "A stream handle must belong to this device and must not have been destroyed",
}


@functools.cache
def driver() -> Any:
    """The module `cuda.bindings.driver`; its import costs about 0.2 s, so it waits for the first use."""
    from cuda.bindings import driver as module

    return module


def stream_object(handle: int) -> Any:
    """cuda-python's object for a stream handle."""
    return _stream_object(int(handle))  # a plain integer: the cache must not keep what a handle may keep alive


@functools.lru_cache(maxsize=256)
def _stream_object(handle: int) -> Any:
    """Kept, for making one anew costs much of a launch."""
    return driver().CUstream(handle)


def failure(code: Any, attempt: str) -> DeviceError:
    """The error for driver result `code`: its name and explanation, what was attempted, and what to do where known."""
    cu = driver()
    name = cu.cuGetErrorName(code)[1]
    text = cu.cuGetErrorString(code)[1]
    name = name.decode() if name else f"CUDA error {int(code)}"
    explanation = text.decode() if text else "no explanation from the driver"
    hint = _HINTS.get(name)
    return DeviceError(f"{attempt}: {name}: {explanation}" + (f". {hint}" if hint else ""))


def call(function: str, attempt: str, *arguments: Any) -> Any:
    """Calls a driver function and returns its results without the status: nothing, the one value, or a tuple.

    Args:
        function: name in the driver API, as `cuMemAlloc`.
        attempt: what the call is for, to begin an error message with.
        *arguments: as cuda-python takes them.

    Raises:
        DeviceError: the status is not CUDA_SUCCESS, or the installed driver lacks the function.
    """
    try:
        code, *values = getattr(driver(), function)(*arguments)
    except RuntimeError as error:  # how cuda-python reports a library or symbol that cannot be found
        raise DeviceError(f"{attempt}: {function} is not available: {error}") from error
    if code:
        raise failure(code, attempt)
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


@functools.cache
def initialize() -> int:
    """Loads and starts the driver, once in a process, and returns its CUDA version (13000 for 13.0).

    Raises:
        DeviceError: there is no driver, it cannot start, no device is visible, or it is too old.
    """
    try:
        code = driver().cuInit(0)[0]
    except RuntimeError as error:
        raise DeviceError(
            "no CUDA driver: the library libcuda was searched for with the system's loader and not found. "
            "Install the NVIDIA driver (in a container: run it with access to the GPU); `nvidia-smi` must list a device"
        ) from error
    if code:
        raise failure(code, "starting the CUDA driver (cuInit)")
    version = int(call("cuDriverGetVersion", "asking for the driver's version"))
    if version < MINIMUM_DRIVER:
        raise DeviceError(
            f"the CUDA driver is for CUDA {version_text(version)}; at least {version_text(MINIMUM_DRIVER)} is needed. "
            "Install a newer NVIDIA driver"
        )
    return version


def version_text(version: int) -> str:
    """A driver version as people write it: 13000 is `13.0`."""
    return f"{version // 1000}.{version % 1000 // 10}"


def newest_ptx(version: int) -> tuple[int, int] | None:
    """The newest PTX ISA that a driver of that CUDA version compiles; None where it is newer than what is known here.

    The driver of an unknown release takes at least what the known ones take, and says itself what it refuses.
    """
    release = (version // 1000, version % 1000 // 10)
    if release > max(_PTX_OF_CUDA):
        return None
    return max((ptx for cuda, ptx in _PTX_OF_CUDA.items() if cuda <= release), default=(8, 4))
