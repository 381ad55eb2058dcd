"""The kernels that Inductor compiled for one graph, as plain data: what its static launcher bundle holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ConstantValue = int | float | str | None
"""The value of a compile-time constant of a kernel; booleans are ints. Others stand as their text."""


@dataclass(frozen=True)
class CompiledConfiguration:
    """One configuration of a kernel that was compiled.

    Attributes:
        kernel_hash: names its artifact; Triton's cache keeps it in the folder of that name.
        symbol: the entry of its PTX.
        values: block sizes and other constants that the tuner chose, as `{"XBLOCK": 256}`; empty for templates, whose
            source holds them.
        num_warps: warps of a workgroup.
        num_stages: pipeline stages.
    """

    kernel_hash: str
    symbol: str
    values: Mapping[str, ConstantValue]
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Autotuner:
    """An autotuner of the bundle: a kernel with the configurations that were compiled for it.

    Attributes:
        kernel_name: what Inductor calls the kernel; `Placeholder.DESCRIPTIVE_NAME` for a candidate without a name yet.
        results: what was compiled.
        winner: `kernel_hash` of the result that tuning chose; None where it has not been tuned.
        source: the text of the function that was compiled, from `def` on; None where it is unknown.
    """

    kernel_name: str
    results: tuple[CompiledConfiguration, ...]
    winner: str | None = None
    source: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class KernelArtifact:
    """What Triton wrote for one compiled configuration.

    Attributes:
        ptx: the PTX as Triton wrote it; None where it is missing.
        cubin: the machine code; None where it is missing.
        metadata: what Triton says of the kernel: `num_warps`, `shared`, `global_scratch_size`, ...
    """

    ptx: str | None = field(repr=False)
    cubin: bytes | None = field(repr=False)
    metadata: Mapping[str, object]


@dataclass(frozen=True)
class KernelBundle:
    """Autotuners, and artifacts by `kernel_hash`."""

    autotuners: tuple[Autotuner, ...]
    artifacts: Mapping[str, KernelArtifact]
