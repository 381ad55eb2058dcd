"""Graphs on the emulator: each run takes the nodes in another order that their dependencies allow."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from coilpack.runtime.devices.base import CopyNode, FillNode, GraphNode, LaunchNode

if TYPE_CHECKING:
    from coilpack.runtime.devices.emulator.device import Emulator


@runtime_checkable
class Fixable(Protocol):
    """A launch or product of the emulator."""

    def fixed(self) -> Callable[[], None]:
        """Its work with the addresses of now, whatever they become."""


class EmulatorGraph:
    """Nodes with the addresses that they had when the graph was made or updated.

    The order of each run is drawn anew, from a seed, so that a dependency that is missing shows as a wrong result.

    Args:
        device: where it runs.
        nodes: see `Device.build_graph`.
        dependencies: numbers of the nodes that each must wait for.
        seed: of the orders.
    """

    def __init__(
        self, device: Emulator, nodes: Sequence[GraphNode], dependencies: Sequence[Sequence[int]], seed: int
    ) -> None:
        self._device, self._nodes = device, nodes
        self._random = random.Random(seed)  # noqa: S311 (an order, no secret)
        self._waits = [len(others) for others in dependencies]
        self._followers: list[list[int]] = [[] for _ in nodes]
        for number, others in enumerate(dependencies):
            for other in others:
                self._followers[other].append(number)
        self._work = [self._fixed(node) for node in nodes]

    def _fixed(self, node: GraphNode) -> Callable[[], None]:
        """The node's work with the addresses of now."""
        device = self._device
        if isinstance(node, LaunchNode):
            assert isinstance(node.launch, Fixable), "a launch of another device"
            return node.launch.fixed()
        if isinstance(node, CopyNode):
            target, source, nbytes = node.target, node.source, node.nbytes
            return lambda: device.copy(target, source, nbytes, device.default_stream)
        if isinstance(node, FillNode):
            address, pattern, size = node.address, node.pattern, node.nbytes
            return lambda: device.fill(address, pattern, size, device.default_stream)
        assert isinstance(node.product, Fixable), "a product of another device"
        return node.product.fixed()

    def update(self, index: int) -> None:
        """Takes over the addresses of node `index`, for the runs from now on."""
        self._work[index] = self._fixed(self._nodes[index])

    def run(self, stream: int) -> None:
        """Executes all nodes; they are done on return."""
        del stream
        waits = self._waits.copy()
        ready = [number for number, count in enumerate(waits) if not count]
        while ready:
            at = self._random.randrange(len(ready))
            ready[at], ready[-1] = ready[-1], ready[at]
            number = ready.pop()
            self._work[number]()
            for follower in self._followers[number]:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)

    def close(self) -> None:
        """Forgets the nodes. Closing twice is harmless."""
        self._work.clear()
