"""Runs a plan: bound once to a device, each call patches changed addresses and queues the steps, or a graph of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coilpack.runtime.collector import no_collections
from coilpack.runtime.dependencies import step_dependencies
from coilpack.runtime.devices.base import (
    Buffer,
    CopyNode,
    Device,
    FillNode,
    Graph,
    GraphNode,
    Kernel,
    LaunchConfig,
    LaunchNode,
    ProductNode,
    shortest_pattern,
)
from coilpack.runtime.errors import DeviceError
from coilpack.runtime.plan import Plan
from coilpack.runtime.steps import Base, CopyStep, FillStep, LaunchStep, MatmulStep, Reference, Step

_MAX_GRAPH_STEPS = 10_000  # of larger plans the edges would take too long to find
_WORD = 4  # bytes of the longest pattern whose fill can be patched in a graph


class BoundKernel:
    """A kernel of the device with the geometry that its export states: threads and dynamic shared memory of a block."""

    __slots__ = ("block", "kernel", "shared_memory_bytes")

    def __init__(self, kernel: Kernel, block: tuple[int, int, int], shared_memory_bytes: int) -> None:
        self.kernel = kernel
        self.block = block
        self.shared_memory_bytes = shared_memory_bytes


@dataclass(frozen=True, slots=True)
class Memory:
    """Addresses of what the plans of a context share; 0 for what they do not use.

    Args:
        arena: of memory of at least `Plan.arena_nbytes`.
        weights: of the weights.
        globals: of the globals.
        seeds: of memory of at least `Plan.seeds_nbytes`.
    """

    arena: int = 0
    weights: int = 0
    globals: int = 0
    seeds: int = 0


class Executor:
    """A plan bound to kernels and memory. Not thread-safe: calls must come one after another, in order on the device.

    Args:
        device: where it runs.
        plan: what to run.
        kernels: the device's kernels by export name.
        memory: what its steps work on besides the arguments and outputs of a call.
        graphs: run as a graph from the second time on. A plan of one step, one of very many, and one with a fill of 8
            or 16 bytes that moves run step by step all the same.

    Raises:
        InputError: a launch does not fit the device or its kernel.
        DeviceError: the device's library computes no such matrix product.
    """

    def __init__(
        self, device: Device, plan: Plan, kernels: Mapping[str, BoundKernel], memory: Memory, graphs: bool = True
    ) -> None:
        self.plan = plan
        self._device = device
        self._bases = {
            Base.ARENA: memory.arena,
            Base.WEIGHTS: memory.weights,
            Base.GLOBALS: memory.globals,
            Base.SEEDS: memory.seeds,
        }
        slots = len(plan.arguments) + len(plan.output_nbytes)
        self._addresses = [0] * slots  # of arguments, then outputs, in the latest call
        # For each slot: the number of a step, its operand, and bytes from the slot's address.
        self._patches: list[list[tuple[int, int, int]]] = [[] for _ in range(slots)]
        self._nodes: list[GraphNode] = []
        self._steps: list[Callable[[int], None]] = []
        self._workspace: Buffer | None = None
        with no_collections():
            for step in plan.steps:
                _BINDERS[type(step)](self, step, kernels)
        self._graphs = graphs and 1 < len(plan.steps) <= _MAX_GRAPH_STEPS and not any(map(_stays_direct, plan.steps))
        self._graph: Graph | None = None
        self._outdated: dict[int, None] = {}  # nodes whose addresses differ from those in the graph
        self._ran = False
        self._stream = device.default_stream  # of the latest run

    @property
    def has_graph(self) -> bool:
        """Whether the graph has been built."""
        return self._graph is not None

    def run(self, arguments: Sequence[int], outputs: Sequence[int], stream: int) -> None:
        """Queues all steps on `stream`, over the addresses of this call's arguments and outputs.

        An argument that is written must share no byte with another. Where a number stands for an argument, its address
        is 0.

        Raises:
            DeviceError: a step cannot be queued, or the graph cannot be built.
        """
        self._patch((*arguments, *outputs))
        with self._device.activate():
            if self._workspace is None:
                self._reserve_workspace(stream)
            if self._graphs and self._ran:
                self._current_graph().run(stream)
            else:
                for step in self._steps:
                    step(stream)
        self._ran = True
        self._stream = stream

    def _patch(self, addresses: Sequence[int]) -> None:
        for slot, address in enumerate(addresses):
            if address != self._addresses[slot]:
                self._addresses[slot] = address
                for number, operand, offset in self._patches[slot]:
                    self._nodes[number].set_address(operand, address + offset)
                    self._outdated[number] = None

    def _current_graph(self) -> Graph:
        """The graph, over the addresses of now."""
        if self._graph is None:
            self._graph = self._device.build_graph(self._nodes, step_dependencies(self.plan.steps))
        else:
            for number in self._outdated:
                self._graph.update(number)
        self._outdated.clear()
        return self._graph

    def close(self) -> None:
        """Frees what it holds on the device, once its runs are done; it must not run again.

        Closing twice is harmless.
        """
        graph, self._graph = self._graph, None
        if graph is not None:
            graph.close()
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            if workspace.nbytes:
                self._device.order(self._stream, self._device.default_stream)
            workspace.close()

    # --- binding steps ---

    def _bind_launch(self, step: LaunchStep, kernels: Mapping[str, BoundKernel]) -> None:
        bound = kernels[step.kernel.export_name]
        config = LaunchConfig(step.grid, bound.block, bound.shared_memory_bytes, step.kernel.cooperative)
        parameters = [
            self._address(value).to_bytes(8, "little") if isinstance(value, Reference) else value
            for value in step.parameters
        ]
        launch = self._device.prepare(bound.kernel, config, parameters)
        references = [(at, value) for at, value in enumerate(step.parameters) if isinstance(value, Reference)]
        self._add(LaunchNode(launch), references, launch.run)

    def _bind_copy(self, step: CopyStep, _: Mapping[str, BoundKernel]) -> None:
        node = CopyNode(self._address(step.target), self._address(step.source), step.nbytes)

        def run(stream: int) -> None:
            self._device.copy(node.target, node.source, node.nbytes, stream)

        self._add(node, [(0, step.target), (1, step.source)], run)

    def _bind_fill(self, step: FillStep, _: Mapping[str, BoundKernel]) -> None:
        node = FillNode(self._address(step.target), step.pattern, step.nbytes)

        def run(stream: int) -> None:
            self._device.fill(node.address, node.pattern, node.nbytes, stream)

        self._add(node, [(0, step.target)], run)

    def _bind_product(self, step: MatmulStep, _: Mapping[str, BoundKernel]) -> None:
        try:
            product = self._device.prepare_product(step.product, step.alignments)
        except DeviceError as error:
            where = f" (from {step.location})" if step.location else ""
            raise DeviceError(f"function {self.plan.name!r}: matmul operation{where}: {error}") from error
        for index, reference in enumerate(step.operands):
            product.set_address(index, self._address(reference))
        self._add(ProductNode(product), list(enumerate(step.operands)), product.run)

    def _add(self, node: GraphNode, operands: Sequence[tuple[int, Reference]], run: Callable[[int], None]) -> None:
        for operand, reference in operands:
            if _moves(reference):
                self._patches[self._slot(reference)].append((len(self._nodes), operand, reference.offset))
        self._nodes.append(node)
        self._steps.append(run)

    def _slot(self, reference: Reference) -> int:
        return reference.index + (len(self.plan.arguments) if reference.base is Base.OUTPUT else 0)

    def _address(self, reference: Reference) -> int:
        """Its address; of what moves, a stand-in until the first call."""
        return self._bases.get(reference.base, 0) + reference.offset

    def _reserve_workspace(self, stream: int) -> None:
        """Memory that the plan's products work in, one after another."""
        products = [node.product for node in self._nodes if isinstance(node, ProductNode)]
        nbytes = max((product.workspace_nbytes for product in products), default=0)
        # Of the default stream, as a caller's may be gone when the memory is freed.
        self._workspace = self._device.allocate(nbytes, self._device.default_stream)
        if nbytes:
            self._device.order(self._device.default_stream, stream)
        for product in products:
            product.set_workspace(self._workspace.address)


def _moves(reference: Reference) -> bool:
    """Whether its address may differ from call to call."""
    return reference.base is Base.ARGUMENT or reference.base is Base.OUTPUT


def _stays_direct(step: Step) -> bool:
    """Whether it cannot be patched in a graph, as it must be."""
    return isinstance(step, FillStep) and len(shortest_pattern(step.pattern)) > _WORD and _moves(step.target)


_BINDERS: dict[type[Step], Callable[[Executor, Any, Mapping[str, BoundKernel]], None]] = {
    LaunchStep: Executor._bind_launch,
    CopyStep: Executor._bind_copy,
    FillStep: Executor._bind_fill,
    MatmulStep: Executor._bind_product,
}
