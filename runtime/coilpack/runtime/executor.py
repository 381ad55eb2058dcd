"""Runs a plan as direct launches: bound once to a device; each call patches changed addresses and queues the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coilpack.runtime.collector import no_collections
from coilpack.runtime.devices.base import Device, Kernel, Launch, LaunchConfig
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.plan import Plan
from coilpack.runtime.steps import Base, CopyStep, FillStep, LaunchStep, MatmulStep, Reference, Step


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
        graphs: run as a graph from the second time on.

    Raises:
        InputError: a launch does not fit the device or its kernel.
    """

    def __init__(
        self, device: Device, plan: Plan, kernels: Mapping[str, BoundKernel], memory: Memory, graphs: bool = True
    ) -> None:
        self.plan = plan
        self._device = device
        self._graphs = graphs
        self._bases = {
            Base.ARENA: memory.arena,
            Base.WEIGHTS: memory.weights,
            Base.GLOBALS: memory.globals,
            Base.SEEDS: memory.seeds,
        }
        slots = len(plan.arguments) + len(plan.output_nbytes)
        self._addresses = [0] * slots  # of arguments, then outputs, in the latest call
        self._patches: list[list[tuple[Launch, int, int]]] = [[] for _ in range(slots)]
        with no_collections():
            self._steps: list[Callable[[int], None]] = [self._bind(step, kernels) for step in plan.steps]

    def run(self, arguments: Sequence[int], outputs: Sequence[int], stream: int) -> None:
        """Queues all steps on `stream`, over the addresses of this call's arguments and outputs."""
        for slot, address in enumerate((*arguments, *outputs)):
            if address != self._addresses[slot]:
                self._addresses[slot] = address
                for launch, parameter, offset in self._patches[slot]:
                    launch.set_parameter(parameter, (address + offset).to_bytes(8, "little"))
        with self._device.activate():
            for step in self._steps:
                step(stream)

    def close(self) -> None:
        """Frees what it holds on the device; it must not run again. Closing twice is harmless."""

    def _bind(self, step: Step, kernels: Mapping[str, BoundKernel]) -> Callable[[int], None]:
        if isinstance(step, LaunchStep):
            return self._bind_launch(step, kernels[step.kernel.export_name])
        if isinstance(step, CopyStep):
            return self._bind_copy(step)
        if isinstance(step, MatmulStep):
            raise UnsupportedError(f"matmul ({step.location}): matrix products by a library are not there yet")
        return self._bind_fill(step)

    def _bind_launch(self, step: LaunchStep, bound: BoundKernel) -> Callable[[int], None]:
        config = LaunchConfig(step.grid, bound.block, bound.shared_memory_bytes, step.kernel.cooperative)
        parameters = [
            self._address(value).to_bytes(8, "little") if isinstance(value, Reference) else value
            for value in step.parameters
        ]
        launch = self._device.prepare(bound.kernel, config, parameters)
        for index, value in enumerate(step.parameters):
            if isinstance(value, Reference) and value.base not in self._bases:
                self._patches[self._slot(value)].append((launch, index, value.offset))
        return launch.run

    def _bind_copy(self, step: CopyStep) -> Callable[[int], None]:
        def run(stream: int) -> None:
            self._device.copy(self._address(step.target), self._address(step.source), step.nbytes, stream)

        return run

    def _bind_fill(self, step: FillStep) -> Callable[[int], None]:
        def run(stream: int) -> None:
            self._device.fill(self._address(step.target), step.pattern, step.nbytes, stream)

        return run

    def _slot(self, reference: Reference) -> int:
        return reference.index + (len(self.plan.arguments) if reference.base is Base.OUTPUT else 0)

    def _address(self, reference: Reference) -> int:
        base = self._bases.get(reference.base)
        if base is not None:
            return base + reference.offset
        return self._addresses[self._slot(reference)] + reference.offset
