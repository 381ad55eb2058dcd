"""Plans as explicit CUDA graphs: nodes added one by one with their dependencies, patched in the instantiated graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coilpack.runtime.devices.base import (
    CopyNode,
    FillNode,
    GraphNode,
    LaunchNode,
    ProductNode,
    shortest_pattern,
)
from coilpack.runtime.devices.cuda_driver import call, driver, failure, stream_object
from coilpack.runtime.devices.cuda_module import CudaLaunch

if TYPE_CHECKING:
    from coilpack.runtime.devices.cuda import CudaDevice

_WORD = 4  # bytes of the widest element that a memset takes


class CudaGraph:
    """An instantiated graph. What its nodes need (modules, memory) must outlive its runs.

    Args:
        device: where it runs.
        context: the device's context, which is current.
        nodes: see `Device.build_graph`.
        dependencies: numbers of the nodes that each must wait for.

    Raises:
        DeviceError: the driver refuses a node, or has no memory for the graph.
    """

    def __init__(
        self, device: CudaDevice, context: Any, nodes: Sequence[GraphNode], dependencies: Sequence[Sequence[int]]
    ) -> None:
        self._device, self._context = device, context
        self._nodes = nodes
        self._handles: list[list[Any]] = []
        self._structures: dict[int, Any] = {}  # the driver's parameters of nodes that were updated
        self._executable: Any = None
        self._graph = call("cuGraphCreate", f"creating a graph on {device.name}", 0)
        try:
            for node, others in zip(nodes, dependencies, strict=True):
                waits = [handle for other in others for handle in self._handles[other]]
                self._handles.append(_ADDERS[type(node)](self, node, waits))
            self._executable = self._instantiate()
        except BaseException:
            self.close()
            raise

    def _instantiate(self) -> Any:
        parameters = driver().CUDA_GRAPH_INSTANTIATE_PARAMS()
        what = f"instantiating a graph of {len(self._nodes)} steps on {self._device.name}"
        code, executable = driver().cuGraphInstantiateWithParams(self._graph, parameters)
        if not code:
            return executable
        wrong = int(parameters.hErrNode_out)
        for node, handles in zip(self._nodes, self._handles, strict=True):
            if wrong and wrong in map(int, handles):
                what += f": {_describe(node)} ({parameters.result_out.name})"
        raise failure(code, what)

    # --- adding nodes; each returns the handles that later nodes wait for ---

    def _add_launch(self, node: LaunchNode, waits: list[Any]) -> list[Any]:
        launch = _launch(node)
        what = f"adding {_describe(node)} to a graph"
        handle = call("cuGraphAddKernelNode", what, self._graph, waits, len(waits), launch.node_parameters())
        if launch.cooperative:
            cu = driver()
            value = cu.CUkernelNodeAttrValue()
            value.cooperative = 1
            attribute = cu.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            call("cuGraphKernelNodeSetAttribute", what, handle, attribute, value)
        return [handle]

    def _add_copy(self, node: CopyNode, waits: list[Any]) -> list[Any]:
        what, parameters = f"adding {_describe(node)} to a graph", _copy_parameters(node)
        return [call("cuGraphAddMemcpyNode", what, self._graph, waits, len(waits), parameters, self._context)]

    def _add_fill(self, node: FillNode, waits: list[Any]) -> list[Any]:
        what = f"adding {_describe(node)} to a graph"
        return [
            call("cuGraphAddMemsetNode", what, self._graph, waits, len(waits), parameters, self._context)
            for parameters in _fill_parameters(node)
        ]

    def _add_product(self, node: ProductNode, waits: list[Any]) -> list[Any]:
        what = f"adding {_describe(node)} to a graph"
        captured = self._device.capture(node.product.run)
        try:  # the node gets a copy
            return [call("cuGraphAddChildGraphNode", what, self._graph, waits, len(waits), captured)]
        finally:
            call("cuGraphDestroy", what, captured)

    # --- updates of the instantiated graph ---

    def update(self, index: int) -> None:
        """Takes over the addresses of node `index`, for the runs from now on."""
        node = self._nodes[index]
        with self._device.activate():
            _UPDATERS[type(node)](self, node, index)

    def _update_launch(self, node: LaunchNode, index: int) -> None:
        parameters = self._structures.get(index)
        if parameters is None:  # it points to the launch's own parameter bytes, so it is always up to date
            parameters = self._structures[index] = _launch(node).node_parameters()
        code = driver().cuGraphExecKernelNodeSetParams(self._executable, self._handles[index][0], parameters)[0]
        if code:
            raise failure(code, f"updating {_describe(node)} in a graph")

    def _update_copy(self, node: CopyNode, index: int) -> None:
        what, handle = f"updating {_describe(node)} in a graph", self._handles[index][0]
        parameters = _copy_parameters(node)
        call("cuGraphExecMemcpyNodeSetParams", what, self._executable, handle, parameters, self._context)

    def _update_fill(self, node: FillNode, index: int) -> None:
        what, (handle,) = f"updating {_describe(node)} in a graph", self._handles[index]
        (parameters,) = _fill_parameters(node)
        call("cuGraphExecMemsetNodeSetParams", what, self._executable, handle, parameters, self._context)

    def _update_product(self, node: ProductNode, index: int) -> None:
        what, handle = f"updating {_describe(node)} in a graph", self._handles[index][0]
        captured = self._device.capture(node.product.run)
        try:
            call("cuGraphExecChildGraphNodeSetParams", what, self._executable, handle, captured)
        finally:
            call("cuGraphDestroy", what, captured)

    # --- runs ---

    def run(self, stream: int) -> None:
        """Queues all nodes on `stream`; the device's context is current."""
        code = driver().cuGraphLaunch(self._executable, stream_object(stream))[0]
        if code:
            raise failure(code, f"launching a graph of {len(self._nodes)} steps on {self._device.name}")

    def close(self) -> None:
        """Frees it; the driver waits with that until the runs that are queued are done."""
        executable, self._executable = self._executable, None
        graph, self._graph = self._graph, None
        self._structures.clear()
        what = f"freeing a graph on {self._device.name}"
        with self._device.activate():
            if executable is not None:
                call("cuGraphExecDestroy", what, executable)
            if graph is not None:
                call("cuGraphDestroy", what, graph)

    def __del__(self) -> None:
        if getattr(self, "_graph", None) is not None and not sys.is_finalizing():
            self.close()


_ADDERS: dict[type[GraphNode], Callable[[CudaGraph, Any, list[Any]], list[Any]]] = {
    LaunchNode: CudaGraph._add_launch,
    CopyNode: CudaGraph._add_copy,
    FillNode: CudaGraph._add_fill,
    ProductNode: CudaGraph._add_product,
}
_UPDATERS: dict[type[GraphNode], Callable[[CudaGraph, Any, int], None]] = {
    LaunchNode: CudaGraph._update_launch,
    CopyNode: CudaGraph._update_copy,
    FillNode: CudaGraph._update_fill,
    ProductNode: CudaGraph._update_product,
}


def _launch(node: LaunchNode) -> CudaLaunch:
    assert isinstance(node.launch, CudaLaunch), "a launch of another device, or one that does nothing"
    return node.launch


def _describe(node: GraphNode) -> str:
    if isinstance(node, LaunchNode):
        return f"kernel {_launch(node).kernel_name}"
    if isinstance(node, ProductNode):
        return f"the {node.product}"
    return f"a {'copy' if isinstance(node, CopyNode) else 'fill'} of {node.nbytes} bytes"


def _copy_parameters(node: CopyNode) -> Any:
    cu = driver()
    parameters = cu.CUDA_MEMCPY3D()
    parameters.srcMemoryType = parameters.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    parameters.srcDevice, parameters.dstDevice = node.source, node.target
    parameters.WidthInBytes, parameters.Height, parameters.Depth = node.nbytes, 1, 1
    return parameters


def _fill_parameters(node: FillNode) -> list[Any]:
    """One memset, or as memsets end at 4 bytes, a strided one for each word of the pattern."""
    unit = shortest_pattern(node.pattern)
    count = node.nbytes // len(unit)
    if len(unit) <= _WORD:
        return [_memset(node.address, unit, len(unit), count, 1, 0)]
    return [
        _memset(node.address + at, unit[at : at + _WORD], _WORD, 1, count, len(unit))
        for at in range(0, len(unit), _WORD)
    ]


def _memset(address: int, value: bytes, size: int, width: int, height: int, pitch: int) -> Any:
    parameters = driver().CUDA_MEMSET_NODE_PARAMS()
    parameters.dst, parameters.value = address, int.from_bytes(value, "little")
    parameters.elementSize, parameters.width, parameters.height, parameters.pitch = size, width, height, pitch
    return parameters
