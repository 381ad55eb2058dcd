"""Makes torch and Triton believe that a GPU of the target's kind is there.

Inductor bakes device properties into kernels and caches them in module-level caches, so a process serves one target for
its whole life; the compiler starts one process for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler import _triton_compat
from coilpack.compiler.targets import Target
from coilpack.runtime.errors import CoilpackError

_served: list[Target] = []


class _Properties:
    """The fields of torch's CUDA device properties that Inductor reads, from the target's table row."""

    type, index, uuid, gcnArchName = "cuda", 0, "", ""  # noqa: N815 (torch's names)

    def __init__(self, target: Target) -> None:
        self.name = target.device_name
        self.major, self.minor = target.major, target.minor
        self.multi_processor_count = target.multiprocessor_count
        self.warp_size = target.warp_size
        self.max_threads_per_multi_processor = target.max_threads_per_multiprocessor
        self.max_threads_per_block = target.max_threads_per_block
        self.regs_per_multiprocessor = target.registers_per_multiprocessor
        self.total_memory = target.total_memory
        self.L2_cache_size = target.l2_cache_size
        self.shared_memory_per_block = target.shared_memory_per_block
        self.shared_memory_per_block_optin = target.shared_memory_per_block_optin
        self.shared_memory_per_multiprocessor = target.shared_memory_per_multiprocessor


def _interface(target: Target) -> type:
    """A device interface that answers for the target without a driver."""
    properties = _Properties(target)

    class Offline(compat.DeviceInterface):
        get_device_properties = staticmethod(lambda device=None: properties)  # noqa: ARG005
        is_available = staticmethod(lambda: True)
        current_device = staticmethod(lambda: 0)
        device_count = staticmethod(lambda: 1)
        get_compute_capability = staticmethod(lambda device=None: target.compute_capability)  # noqa: ARG005
        is_triton_capable = staticmethod(lambda device=None: True)  # noqa: ARG005
        raise_if_triton_unavailable = staticmethod(lambda device=None: None)  # noqa: ARG005
        is_bf16_supported = staticmethod(lambda including_emulation=False: True)  # noqa: ARG005
        is_dtype_supported = staticmethod(lambda dtype, including_emulation=False: True)  # noqa: ARG005
        synchronize = staticmethod(lambda device=None: None)  # noqa: ARG005

        class Worker:
            set_device = staticmethod(lambda device: None)  # noqa: ARG005
            current_device = staticmethod(lambda: 0)
            get_device_properties = staticmethod(lambda device=None: properties)  # noqa: ARG005

    return Offline


def served_target() -> Target | None:
    """The target that this process compiles for; None where it has compiled for none."""
    return _served[0] if _served else None


@contextmanager
def target_device(target: Target) -> Iterator[None]:
    """Within it, Inductor and Triton compile for `target`, with a GPU or without.

    Raises:
        CoilpackError: this process has already compiled for another target.
    """
    if _served and _served[0] != target:
        raise CoilpackError(f"this process compiles for {_served[0].name}; {target.name} needs a process of its own")
    if not _served:
        _served.append(target)
        compat.get_interface_for_device("cuda")  # registers torch's own, which would otherwise replace ours later
        for name in ("cuda", "cuda:0"):
            compat.register_interface_for_device(name, _interface(target))
    properties: Any = _Properties(target)
    before = torch.cuda.get_device_properties
    torch.cuda.get_device_properties = lambda device=None: properties  # noqa: ARG005
    try:
        with (
            compat.cuda_device_guard(),
            _triton_compat.offline_driver(
                target.compute_capability,
                target.shared_memory_per_block_optin,
                target.multiprocessor_count,
                target.registers_per_multiprocessor,
            ),
        ):
            compat.forget_missing_triton()
            yield
    finally:
        torch.cuda.get_device_properties = before
