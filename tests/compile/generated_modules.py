"""Modules that Inductor generates for whole graphs, made without a GPU, beside the host graphs captured of the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch._inductor.graph import GraphLowering

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.choices import StaticChoices
from coilpack.compiler.capture.host_graph import SETTINGS, HostGraph, dispatch, random_seeds, run_inductor
from coilpack.compiler.capture.inductor_run import compile_graph
from coilpack.compiler.capture.library_calls import library_product, sums_apart
from coilpack.compiler.capture.offline import target_device
from coilpack.compiler.capture.size_expressions import expression
from coilpack.compiler.freezing.kernel_bundle import CompiledConfiguration
from coilpack.compiler.freezing.size_inputs import add_size_inputs
from coilpack.compiler.function_source import function_sources
from coilpack.compiler.targets import parse_target
from coilpack.compiler.weights import Weights
from coilpack.runtime.program.expr import Binary, Symbol, evaluate, symbols

_CASES = 8  # of random sizes


@dataclass(frozen=True)
class Generated:
    """A graph twice: as it was captured, and as the module that Inductor writes for it in Python.

    Attributes:
        captured: the host graph.
        source: the module; empty for a graph without operations, for which Inductor writes none.
        placeholder_values: what the module's arguments were compiled for.
        constants: tensors that Inductor added to it.
        size_inputs: the last of its arguments, which the captured graph does not have.
    """

    captured: HostGraph[Any]
    source: str
    placeholder_values: list[Any]
    constants: Mapping[str, torch.Tensor]
    size_inputs: list[torch.SymInt]

    @property
    def chosen(self) -> dict[str, CompiledConfiguration]:
        """The configuration of each kernel, as one that was compiled."""
        return {
            name: CompiledConfiguration("", name, dict(k.config.kwargs), k.config.num_warps, k.config.num_stages)
            for name, k in self.captured.kernels.items()
        }


@contextmanager
def _written_modules(found: list[tuple[str, dict[str, torch.Tensor]]]) -> Iterator[None]:
    """Within it, modules are kept as text where torch would load them, and with them their kernels."""

    def keep(graph: Any, written: Any) -> Any:
        found.append((written.value, dict(graph.constants)))
        return SimpleNamespace(__file__="", call=lambda args: None)  # noqa: ARG005

    before = GraphLowering._compile_to_module_lines
    GraphLowering._compile_to_module_lines = keep
    try:
        yield
    finally:
        GraphLowering._compile_to_module_lines = before


def generate(
    program: torch.export.ExportedProgram, target: str, *, library_products: bool = False, **settings: object
) -> Generated:
    """Captures a program, and lets Inductor write its module; `settings` are Inductor's, of the module."""
    device = parse_target(target)
    choices = StaticChoices(device, device.shared_memory_per_block_optin, library_products=library_products)
    with target_device(device):
        (source,) = function_sources({"main": program}, Weights(frozenset())).values()
        options = {"fuse_attention": True, "library_products": library_products}
        captured = run_inductor(source.trace(**options).retraced, choices)
        retraced = source.trace(**options).retraced
        size_inputs = add_size_inputs(retraced)
        found: list[tuple[str, dict[str, torch.Tensor]]] = []
        wanted = {**SETTINGS, "fx_wrapper": False, "graph_partition": False, **settings}
        if library_products:
            wanted["max_autotune_gemm_backends"] = "ATEN,TRITON"
        apart = sums_apart() if library_products else nullcontext()
        with apart, compat.V.set_choices_handler(choices), _written_modules(found):
            compile_graph(retraced, wanted)
    module, constants = found[0] if found else ("", {})
    return Generated(captured, module, retraced.inputs, constants, size_inputs)


def operations(host: HostGraph[Any]) -> list[tuple[Any, ...]]:
    """What a host graph does, in order, as plain values that compare.

    A tensor is the memory that it lies in with its layout there, and a size its values at some random sizes.
    """
    return _Operations().of(host.graph)


class _Operations:
    def __init__(self) -> None:
        self._tensors: dict[torch.fx.Node, tuple[Any, ...]] = {}  # memory, shape, strides, offset
        self._done: list[tuple[Any, ...]] = []
        self._buffers = 0

    def of(self, graph: torch.fx.Graph) -> list[tuple[Any, ...]]:
        for number, node in enumerate(graph.find_nodes(op="placeholder")):
            if isinstance(node.meta.get("val"), torch.Tensor):
                self._tensors[node] = self._given(("argument", number), node.meta["val"])
        for node in graph.nodes:
            if node.op == "get_attr":
                self._tensors[node] = self._given(("constant", node.target), node.meta["val"])
            elif node.op != "placeholder":
                _READ[node.target if node.op == "call_function" else node.op](self, node)
        return self._done

    def _given(self, memory: tuple[Any, ...], tensor: torch.Tensor) -> tuple[Any, ...]:
        shape, strides = ([expression(size) for size in sizes] for sizes in (tensor.shape, tensor.stride()))
        return memory, self._value(shape), self._value(strides), 0

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self._tensors[value]
        if isinstance(value, Symbol | Binary) or type(value) is int:
            return _at_random_sizes(value)
        if isinstance(value, tuple | list):
            return tuple(map(self._value, value))
        if isinstance(value, Mapping):
            return {name: self._value(item) for name, item in value.items()}
        return repr(value)

    def _does(self, node: torch.fx.Node) -> None:
        self._done.append((getattr(node.target, "__name__", node.target), self._value(node.args)))

    def _launches(self, node: torch.fx.Node) -> None:
        self._done.append(("dispatch", self._value(node.args[:3])))  # without what could take the kernel's place

    def _allocates(self, node: torch.fx.Node) -> None:
        memory = ("buffer", self._buffers)
        self._buffers += 1
        shape, strides = node.args if len(node.args) == 2 else (node.args, (1,))
        self._tensors[node] = memory, self._value(shape), self._value(strides), 0
        self._done.append((node.target.__name__, self._tensors[node], str(node.kwargs.get("dtype"))))

    def _views(self, node: torch.fx.Node) -> None:
        source, shape, strides, offset = node.args
        memory, *_, start = self._tensors[source]
        at = tuple(x + y for x, y in zip(self._value(offset), start or (0,) * _CASES, strict=True))
        self._tensors[node] = memory, self._value(shape), self._value(strides), at if any(at) else 0


_READ = {
    torch.empty_strided: _Operations._allocates,
    random_seeds: _Operations._allocates,
    torch.as_strided: _Operations._views,
    torch.ops.aten.zero_.default: _Operations._does,
    dispatch: _Operations._launches,
    library_product: _Operations._does,
    "output": _Operations._does,
}


def _at_random_sizes(size: Any) -> tuple[int, ...]:
    names = set(symbols(size))
    return tuple(
        evaluate(size, {name: random.Random(f"{name} {case}").randint(0, 300) for name in names})
        for case in range(_CASES)
    )
