"""The GPU architectures that kernels are compiled for: one table of their names, limits and device facts.

Limits per compute capability: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability",
and `cuda/experimental/__device/arch_traits.cuh` of NVIDIA's CCCL. PTX versions: PTX ISA, "Release Notes" (the version
that introduced each target). Multiprocessors, L2 and memory: the datasheet of the product named in `device_name`;
Inductor's heuristics read them, the kernels are right on any device of the architecture.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coilpack.runtime.errors import InputError, NotFoundError

PtxVersion = tuple[int, int]
"""A version of the PTX ISA, as (8, 7) for 8.7."""

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU architecture, with a typical device of it. Sizes are in bytes.

    Attributes:
        name: as users write it: `sm_90`.
        ptx_name: as the PTX says: `sm_90a`. Code for an `a` target runs on that architecture only.
        compute_capability: major x 10 + minor.
        minimum_ptx_version: the first PTX version that knows `ptx_name`.
        default_ptx_version: the version to write where the user names none; low, so that older drivers take the file.
        device_name: the product whose facts these are.
        shared_memory_per_block: without an opt-in.
        shared_memory_per_block_optin: the most that a block may have.
        registers_per_multiprocessor: 32-bit registers.
        tensor_memory_columns: of 128 lanes x 32 bits; 0 where there is no tensor memory.
    """

    name: str
    ptx_name: str
    compute_capability: int
    minimum_ptx_version: PtxVersion
    default_ptx_version: PtxVersion
    device_name: str
    multiprocessor_count: int
    max_threads_per_multiprocessor: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block_optin: int
    l2_cache_size: int
    total_memory: int
    tensor_memory_columns: int = 0
    max_threads_per_block: int = 1024
    registers_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 48 * _KIB
    warp_size: int = 32

    @property
    def major(self) -> int:
        """Major compute capability."""
        return self.compute_capability // 10

    @property
    def minor(self) -> int:
        """Minor compute capability."""
        return self.compute_capability % 10


# name, PTX name, since, default, device, multiprocessors, threads, shared KiB (each, per block), L2, memory, columns
_TABLE = (
    ("sm_75", "sm_75", (6, 3), (8, 7), "NVIDIA T4", 40, 1024, 64, 64, 4 * _MIB, 16 * _GIB, 0),
    ("sm_80", "sm_80", (7, 0), (8, 7), "NVIDIA A100 80GB", 108, 2048, 164, 163, 40 * _MIB, 80 * _GIB, 0),
    ("sm_86", "sm_86", (7, 1), (8, 7), "NVIDIA A10", 72, 1536, 100, 99, 6 * _MIB, 24 * _GIB, 0),
    ("sm_89", "sm_89", (7, 8), (8, 7), "NVIDIA L40S", 142, 1536, 100, 99, 96 * _MIB, 48 * _GIB, 0),
    ("sm_90", "sm_90a", (8, 0), (8, 7), "NVIDIA H100 SXM", 132, 2048, 228, 227, 50 * _MIB, 80 * _GIB, 0),
    ("sm_100", "sm_100a", (8, 6), (8, 7), "NVIDIA B200", 148, 2048, 228, 227, 126 * _MIB, 180 * _GIB, 512),
    ("sm_103", "sm_103a", (8, 8), (8, 8), "NVIDIA B300", 148, 2048, 228, 227, 126 * _MIB, 270 * _GIB, 512),
    ("sm_120", "sm_120a", (8, 7), (8, 7), "NVIDIA GeForce RTX 5090", 170, 1536, 100, 99, 96 * _MIB, 32 * _GIB, 0),
    ("sm_121", "sm_121a", (8, 8), (8, 8), "NVIDIA GB10", 48, 1536, 100, 99, 24 * _MIB, 120 * _GIB, 0),
)

TARGETS: dict[str, Target] = {
    row[0]: Target(
        name=row[0],
        ptx_name=row[1],
        compute_capability=int(row[0].removeprefix("sm_")),
        minimum_ptx_version=row[2],
        default_ptx_version=row[3],
        device_name=row[4],
        multiprocessor_count=row[5],
        max_threads_per_multiprocessor=row[6],
        shared_memory_per_multiprocessor=row[7] * _KIB,
        shared_memory_per_block_optin=row[8] * _KIB,
        l2_cache_size=row[9],
        total_memory=row[10],
        tensor_memory_columns=row[11],
    )
    for row in _TABLE
}
"""All targets by `Target.name`."""

_BY_ANY_NAME = {**{t.ptx_name: t for t in TARGETS.values()}, **TARGETS}


def parse_target(name: str) -> Target:
    """The target called `name`, by its own name (`sm_90`) or its PTX name (`sm_90a`).

    Raises:
        NotFoundError: there is none of that name; the message lists the nearest.
    """
    try:
        return _BY_ANY_NAME[name]
    except KeyError:
        raise NotFoundError("target", name, "this compiler", TARGETS) from None


def parse_ptx_version(text: str) -> PtxVersion:
    """The PTX version written `major.minor`, as `8.4`.

    Raises:
        InputError: the text is not of that form.
    """
    match = re.fullmatch(r"(\d{1,2})\.(\d)", text)
    if match is None:
        raise InputError(f"PTX version {text!r} is not of the form major.minor, as 8.4")
    return int(match[1]), int(match[2])


def format_ptx_version(version: PtxVersion) -> str:
    """The version as PTX writes it: `8.7`."""
    return f"{version[0]}.{version[1]}"


def choose_ptx_version(target: Target, requested: PtxVersion | None) -> PtxVersion:
    """The PTX version to write for `target`: the requested one, or the target's default.

    Raises:
        InputError: the requested version does not know the target yet.
    """
    if requested is None:
        return target.default_ptx_version
    if requested < target.minimum_ptx_version:
        raise InputError(
            f"PTX version {format_ptx_version(requested)} does not know {target.ptx_name}; "
            f"ask for {format_ptx_version(target.minimum_ptx_version)} or later"
        )
    return requested
