"""A compiled kernel as plain data, its form in the cache, and the check of what it asks of the device."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from coilpack.compiler.kernels.signature import Parameter, is_iree_compatible
from coilpack.compiler.targets import Target
from coilpack.runtime.errors import CoilpackError


class ResourceError(CoilpackError):
    """A kernel asks for more than the target has; another configuration of it may fit.

    Args:
        kernel_name: the kernel.
        resource: what it is: `shared memory`, with the unit in `unit`.
        needed: how much it asks for.
        limit: how much a block may have on the target.

    Attributes:
        another: whether another configuration of the kernel is left to try; set by who knows them.
    """

    another = False

    def __init__(self, kernel_name: str, resource: str, needed: int, limit: int, unit: str, target: str) -> None:
        self.kernel_name, self.resource, self.needed, self.limit = kernel_name, resource, needed, limit
        super().__init__(
            f"kernel {kernel_name!r} needs {needed:,} {unit} of {resource} per block, and {target} has {limit:,}; "
            "choose a smaller configuration"
        )


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """One kernel compiled for one target.

    Attributes:
        kernel_name: the symbol of the PTX entry.
        ptx: normalized PTX.
        cubin: the machine code, where it was asked for.
        registers: of a thread, where machine code says it; 0 elsewhere.
        parameters: in the order of the PTX.
        num_warps: warps of a block.
        num_ctas: blocks of a cluster.
        shared_memory_bytes: dynamic shared memory of a block.
        tensor_memory_columns: columns of tensor memory that a block allocates.
        cooperative: whether all blocks must be resident at once.
        programmatic_launch: whether it may start before the kernel ahead of it has ended.
    """

    kernel_name: str
    ptx: str
    parameters: tuple[Parameter, ...]
    num_warps: int
    num_ctas: int
    shared_memory_bytes: int
    tensor_memory_columns: int
    cooperative: bool
    programmatic_launch: bool
    cubin: bytes | None = None
    registers: int = 0

    @property
    def block_dims(self) -> tuple[int, int, int]:
        """Threads of a block."""
        return (32 * self.num_warps, 1, 1)

    @property
    def iree_compatible(self) -> bool:
        """Whether IREE's runtime can launch it: no cluster, pointers before 32-bit constants, within its limits."""
        return self.num_ctas == 1 and not self.cooperative and is_iree_compatible(self.parameters)

    def to_bytes(self) -> bytes:
        """All but the cubin and what it says, for the cache: a line of JSON, then the PTX."""
        header = asdict(self)
        del header["ptx"], header["cubin"], header["registers"]
        return json.dumps(header, sort_keys=True).encode() + b"\n" + self.ptx.encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LoweredKernel:
        """The reverse of `to_bytes`."""
        header, _, ptx = data.partition(b"\n")
        fields = json.loads(header)
        parameters = tuple(Parameter(**p) for p in fields.pop("parameters"))
        return cls(ptx=ptx.decode(), parameters=parameters, **fields)


# Registers are given to a warp in units of 256, and to a block for a multiple of 4 warps (CUDA occupancy calculator).
_REGISTER_UNIT, _WARP_UNIT = 256, 4


def block_registers(kernel: LoweredKernel, warp_size: int = 32) -> int:
    """The registers that a block occupies; 0 where no machine code says it."""
    of_warp = -(-kernel.registers * warp_size // _REGISTER_UNIT) * _REGISTER_UNIT
    return of_warp * (-(-kernel.num_warps // _WARP_UNIT) * _WARP_UNIT)


def check_resources(kernel: LoweredKernel, target: Target) -> None:
    """Checks that a block of `kernel` can exist on `target`; Triton checks only when it launches.

    Raises:
        ResourceError: it needs more shared memory, tensor memory, threads or registers than a block may have.
    """
    for resource, needed, limit, unit in (
        ("shared memory", kernel.shared_memory_bytes, target.shared_memory_per_block_optin, "bytes"),
        ("tensor memory", kernel.tensor_memory_columns, target.tensor_memory_columns, "columns"),
        ("the multiprocessor", kernel.block_dims[0], target.max_threads_per_block, "threads"),
        ("the register file", block_registers(kernel), target.registers_per_multiprocessor, "registers"),
    ):
        if needed > limit:
            raise ResourceError(kernel.kernel_name, resource, needed, limit, unit, target.name)
