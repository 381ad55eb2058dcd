"""What a device is to the rest of the runtime: memory, copies, kernel modules and launches on in-order streams.

Two devices implement it: `cuda:N` through the CUDA driver, and the emulator. Everything above (packages, plans, arrays)
is written against these protocols alone. Addresses and stream handles are integers, so that they pass unchanged to and
from DLPack, the CUDA array interface and `__cuda_stream__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError


@dataclass(frozen=True, slots=True, order=True)
class ComputeCapability:
    """An NVIDIA architecture, as `sm_<major><minor>`."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}"


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """Geometry of a launch: workgroups (CTAs), threads in each, bytes of dynamic shared memory for each.

    All workgroups of a `cooperative` launch run at once, so they may wait for one another.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_memory_bytes: int
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """Where the elements of a matrix lie, counted in elements.

    Args:
        is_row_major: rows are contiguous; columns are otherwise.
        leading: from the start of a row (or column) to that of the next; 0 where one is broadcast.
        batch_stride: from a matrix of a batch to the next; 0 where there is one for all.
    """

    is_row_major: bool
    leading: int
    batch_stride: int

    @property
    def strides(self) -> tuple[int, int, int]:
        """Between the matrices of a batch, rows, and columns."""
        row, column = (self.leading, 1) if self.is_row_major else (1, self.leading)
        return self.batch_stride, row, column


@dataclass(frozen=True, slots=True)
class Product:
    """target = alpha * lhs @ rhs + beta * addend, for each matrix of a batch.

    Args:
        dtype: of both sides: f16, bf16, f32 or f64. Sums are f32, or f64 for f64.
        target_dtype: of target and addend: `dtype`, or f32.
        batch: how many products.
        m: rows of lhs and target.
        n: columns of rhs and target.
        k: columns of lhs and rows of rhs.
        target: m x n.
        lhs: m x k.
        rhs: k x n.
        addend: m x n, laid out as the target, or broadcast; None where nothing is added.
        is_bias: the addend is one row (of a row-major target) or one column that is added to each, and beta is 1.
        alpha: factor of the product.
        beta: factor of the addend.
        tf32: f32 factors may be rounded to TF32.
    """

    dtype: DType
    target_dtype: DType
    batch: int
    m: int
    n: int
    k: int
    target: Matrix
    lhs: Matrix
    rhs: Matrix
    addend: Matrix | None
    is_bias: bool
    alpha: float
    beta: float
    tf32: bool

    @property
    def size(self) -> int:
        """Elements of the target."""
        return self.batch * self.m * self.n


class Buffer(Protocol):
    """A block of device memory; freed when closed or collected."""

    @property
    def address(self) -> int:
        """Device address, at least 256-byte aligned; 0 for an empty buffer."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    def close(self) -> None:
        """Frees the memory, in order after the work queued on the buffer's stream. Closing twice is harmless."""


class Kernel(Protocol):
    """One entry point of a loaded module."""

    @property
    def name(self) -> str:
        """The symbol it was looked up by."""

    @property
    def parameter_layout(self) -> tuple[tuple[int, int], ...]:
        """(offset, size) in bytes of each parameter, as the loaded image has them."""

    @property
    def max_threads_per_block(self) -> int:
        """Most threads a workgroup of it may have on this device."""


class Module(Protocol):
    """A loaded kernel image."""

    def kernel(self, name: str) -> Kernel:
        """The entry point `name`; `NotFoundError` where the image has none."""

    def close(self) -> None:
        """Unloads it. Its kernels must no longer be launched."""


class Launch(Protocol):
    """A launch whose geometry and parameter bytes are fixed but for addresses that may be patched between runs.

    Not thread-safe: whoever owns it runs it from one thread at a time.
    """

    def set_parameter(self, index: int, value: bytes) -> None:
        """Replaces parameter `index` by `value`, which has the parameter's size."""

    def run(self, stream: int) -> None:
        """Queues the launch on `stream`; called within the device's `activate()`, which many launches share."""


class PreparedProduct(Protocol):
    """A matrix product whose layout and algorithm are fixed. Not thread-safe, like `Launch`."""

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of memory that it works in, which nothing else may use meanwhile."""

    def set_address(self, index: int, address: int) -> None:
        """Says where operand `index` lies: target, left side, right side, addend."""

    def set_workspace(self, address: int) -> None:
        """Says where its workspace lies."""

    def run(self, stream: int) -> None:
        """Queues the product on `stream`; called within the device's `activate()`."""


class LaunchNode:
    """A kernel launch in a graph."""

    __slots__ = ("launch",)

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    def set_address(self, index: int, address: int) -> None:
        """Makes parameter `index` that address."""
        self.launch.set_parameter(index, address.to_bytes(8, "little"))


class CopyNode:
    """A copy of `nbytes` in a graph, between two addresses of the device."""

    __slots__ = ("nbytes", "source", "target")

    def __init__(self, target: int, source: int, nbytes: int) -> None:
        self.target, self.source, self.nbytes = target, source, nbytes

    def set_address(self, index: int, address: int) -> None:
        """Makes that address the target (0) or the source (1)."""
        if index:
            self.source = address
        else:
            self.target = address


class FillNode:
    """A fill of `nbytes` in a graph, as `Device.fill` does it."""

    __slots__ = ("address", "nbytes", "pattern")

    def __init__(self, address: int, pattern: bytes, nbytes: int) -> None:
        self.address, self.pattern, self.nbytes = address, pattern, nbytes

    def set_address(self, index: int, address: int) -> None:
        """Makes that address the target, which is operand 0."""
        assert index == 0, "a fill has one operand"
        self.address = address


class ProductNode:
    """A matrix product in a graph."""

    __slots__ = ("product",)

    def __init__(self, product: PreparedProduct) -> None:
        self.product = product

    def set_address(self, index: int, address: int) -> None:
        """Says where operand `index` lies."""
        self.product.set_address(index, address)


GraphNode = LaunchNode | CopyNode | FillNode | ProductNode


class Graph(Protocol):
    """Nodes that run as one piece of work. It holds the addresses that the nodes had when it was made or updated."""

    def update(self, index: int) -> None:
        """Takes over the addresses of node `index`, for the runs from now on."""

    def run(self, stream: int) -> None:
        """Queues all nodes on `stream`; called within the device's `activate()`. Runs must be in order."""

    def close(self) -> None:
        """Frees it once the runs that are queued are done. Closing twice is harmless."""


class Stopwatch(Protocol):
    """Measures pieces of work on one stream; the host waits once for many of them. Not thread-safe, like `Launch`.

    All but `read` and `close` are called within the device's `activate()`.
    """

    @property
    def unit(self) -> str:
        """What it counts: `us` that the device takes, or `instructions` that the emulator executes."""

    @property
    def is_exact(self) -> bool:
        """Whether equal work measures the same each time: once is enough then, and there are no caches."""

    def flush(self) -> None:
        """Queues what leaves nothing of use in the device's caches, and keeps it busy while more is queued."""

    def start(self) -> None:
        """Begins a sample: work queued from now on counts."""

    def stop(self) -> None:
        """Ends the sample that has begun."""

    def read(self) -> list[float]:
        """Waits for the samples since the latest reading, and gives them in order; `DeviceError` when work failed."""

    def close(self) -> None:
        """Frees what it holds. Closing twice is harmless."""


@runtime_checkable
class Device(Protocol):
    """A machine that runs kernels. All methods may be called from any thread."""

    @property
    def name(self) -> str:
        """`cuda:0`, `emulator`."""

    @property
    def description(self) -> str:
        """For people: model name and architecture."""

    @property
    def driver_version(self) -> str:
        """The version of what compiles and launches on it, `13.0` of a CUDA driver; empty where there is no such."""

    @property
    def compute_capability(self) -> ComputeCapability:
        """The architecture whose code it runs."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's device type and id: (2, N) for CUDA, (1, 0) for the host."""

    @property
    def default_stream(self) -> int:
        """The stream used where a caller names none."""

    @property
    def max_shared_memory_per_block(self) -> int:
        """Most bytes of shared memory a workgroup may use, with the opt-in where the device has one."""

    @property
    def runs_cubins(self) -> bool:
        """Whether it runs machine code, and not PTX alone."""

    def activate(self) -> AbstractContextManager[None]:
        """Makes the device the calling thread's current one within the block, as `Launch.run` needs; may be nested."""

    def owns(self, address: int) -> bool:
        """Whether `address` lies in memory of this device."""

    def supports_ptx(self, version: tuple[int, int]) -> bool:
        """Whether the device's compiler takes PTX of that ISA version."""

    def allocate(self, nbytes: int, stream: int) -> Buffer:
        """Memory of `nbytes`, usable by work queued on `stream` from now on. `DeviceError` when there is none left."""

    def trim(self) -> None:
        """Gives freed memory that is kept for reuse back to the system."""

    def write(self, address: int, data: memoryview, stream: int) -> None:
        """Copies host bytes to `address`; on return `data` may be reused."""

    def read(self, address: int, data: memoryview, stream: int) -> None:
        """Copies from `address` into writable host bytes, after all work queued on `stream`; blocks until done."""

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queues a copy between two device addresses."""

    def fill(self, address: int, pattern: bytes, nbytes: int, stream: int) -> None:
        """Queues a fill with a repeated pattern of 1, 2, 4, 8 or 16 bytes; `nbytes` is a multiple of its length."""

    def load_module(self, image: memoryview, name: str) -> Module:
        """Loads a PTX or cubin image now, not at first launch; `name` is for messages.

        Raises:
            TargetMismatchError: the image is for another architecture.
            DeviceError: the device refuses it; the message carries the compiler's log.
        """

    def prepare(self, kernel: Kernel, config: LaunchConfig, parameters: Sequence[bytes]) -> Launch:
        """Fixes geometry and parameter bytes (one item for each of the kernel's parameters) for repeated runs.

        Raises:
            InputError: a count or size differs from the kernel's layout, or the geometry is over the device's limits.
        """

    def prepare_product(self, product: Product, alignments: Sequence[int]) -> PreparedProduct:
        """Chooses how to compute a matrix product by the device's library.

        Args:
            product: what to compute.
            alignments: bytes that the addresses of target, left side, right side and addend are multiples of.

        Raises:
            DeviceError: the library is not there, or computes no such product.
        """

    def build_graph(self, nodes: Sequence[GraphNode], dependencies: Sequence[Sequence[int]]) -> Graph:
        """A graph of nodes, each of which waits for those whose numbers its dependencies are.

        Nodes are in an order that keeps to the dependencies. Those that are updated later may not be fills with a
        pattern that repeats after 8 or 16 bytes only.

        Raises:
            DeviceError: the device refuses a node, which the message names, or has no memory for the graph.
        """

    def stopwatch(self, stream: int) -> Stopwatch:
        """What measures work that is queued on `stream`, the default one or one of the caller's."""

    def order(self, first: int, then: int) -> None:
        """Makes work queued on stream `then` from now on wait for the work queued on stream `first` so far."""

    def synchronize(self, stream: int) -> None:
        """Blocks until all work queued on `stream` is done; `DeviceError` when any of it failed."""


def shortest_pattern(pattern: bytes) -> bytes:
    """The pattern, or its first 4 bytes where those give it when repeated."""
    return pattern[:4] if pattern == pattern[:4] * (len(pattern) // 4) else pattern


def check_parameters(kernel: Kernel, parameters: Sequence[bytes]) -> None:
    """Compares the number and sizes of parameter bytes with the kernel's layout.

    Raises:
        InputError: they differ.
    """
    layout = kernel.parameter_layout
    if len(parameters) != len(layout):
        raise InputError(f"kernel {kernel.name}: takes {len(layout)} parameters, {len(parameters)} were given")
    for index, (value, (_, size)) in enumerate(zip(parameters, layout, strict=True)):
        if len(value) != size:
            raise InputError(f"kernel {kernel.name}: parameter {index} has {size} bytes, {len(value)} were given")
