"""Turns a captured host graph into a function of the program IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from coilpack.compiler.capture.array_types import array_type, span_nbytes, tensor_type
from coilpack.compiler.capture.bindings import Binding, GlobalRef, WeightRef
from coilpack.compiler.capture.host_graph import HostGraph, dispatch, random_seeds
from coilpack.compiler.capture.library_calls import library_product
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir

_PHILOX_STEP = 4  # 32-bit words by which torch's generator moves on when it draws a row of seeds


@dataclass(frozen=True)
class BoundKernel:
    """A kernel of the program, with the captured argument name behind each of its parameters, in the image's order.

    `alternatives` are the kernels that can take its place, by their captured names, in the order of preference.
    """

    kernel: ir.Kernel
    argument_names: tuple[str, ...]
    alternatives: Mapping[str, ir.Kernel] = field(default_factory=dict)


def build_function(
    signature: ir.Signature,
    host: HostGraph[Any],
    bindings: Sequence[Binding | None],
    constants: Mapping[str, WeightRef],
    kernels: Mapping[str, BoundKernel],
) -> ir.Function:
    """The body of `signature` from its host graph, with the signature's outputs laid out as the body returns them.

    Args:
        signature: what callers see.
        host: the captured graph.
        bindings: for each placeholder of the graph, the weight or state it is or the number of the input it is; None
            for an input that is always None.
        constants: for each tensor that Inductor added, where it lies.
        kernels: for each captured kernel, the kernel of the program.

    Raises:
        UnsupportedError: the graph does something that the IR cannot express; names it.
    """
    arguments = tuple(
        ir.Value(argument.name or f"arg{i}", argument.type) for i, argument in enumerate(signature.inputs)
    )
    builder = _Builder(arguments, bindings, constants, kernels)
    for node in host.graph.nodes:
        builder.add(node)
    returned = builder.operations[-1]
    assert isinstance(returned, ir.Return)
    # The device may lay out a result otherwise than the CPU did when the model was exported: the code decides.
    types = iter([value.type for value in returned.values])
    outputs = tuple(a if a.value is not None else replace(a, type=next(types)) for a in signature.outputs)
    for number, (exported, built) in enumerate(zip(signature.outputs, outputs, strict=True)):
        if exported.type.dtype is not built.type.dtype:
            raise UnsupportedError(
                f"output {number} of {signature.name!r} is of type {built.type.dtype.name} on a GPU, and "
                f"{exported.type.dtype.name} in the export; convert it in the model"
            )
    random = any(isinstance(operation, ir.RandomSeeds) for operation in builder.operations)
    return ir.Function(replace(signature, outputs=outputs, random=random), arguments, tuple(builder.operations))


@dataclass
class _Builder:
    arguments: tuple[ir.Value, ...]
    bindings: Sequence[Binding | None]
    constants: Mapping[str, WeightRef]
    kernels: Mapping[str, BoundKernel]
    operations: list[ir.Operation] = field(default_factory=list)
    values: dict[torch.fx.Node, ir.Value] = field(default_factory=dict)
    placeholders: int = 0

    def add(self, node: torch.fx.Node) -> None:
        key = node.target if node.op == "call_function" else node.op
        handler = _HANDLERS.get(key)
        if handler is None:
            raise UnsupportedError(f"Inductor's host program calls {node.target}, which has no counterpart in the IR")
        start = len(self.operations)
        handler(self, node)
        if location := node.meta.get("location"):
            self.operations[start:] = [replace(operation, location=location) for operation in self.operations[start:]]

    def define(self, node: torch.fx.Node, value: ir.Value) -> None:
        self.values[node] = value

    def placeholder(self, node: torch.fx.Node) -> None:
        binding = self.bindings[self.placeholders]
        self.placeholders += 1
        if isinstance(binding, int):
            self.define(node, self.arguments[binding])
        elif binding is not None and node.users:
            self.tensor(node, binding, node.meta["val"])

    def get_attr(self, node: torch.fx.Node) -> None:
        name = str(node.target)
        if node.users:
            self.tensor(node, self.constants[name], node.meta["val"])

    def tensor(self, node: torch.fx.Node, place: WeightRef | GlobalRef, tensor: Any) -> None:
        name = place.storage.name if isinstance(place, WeightRef) else place.global_.name
        value = ir.Value(node.name, tensor_type(tensor, f"tensor {name!r}"))
        if isinstance(place, WeightRef):
            self.operations.append(ir.Parameter(value, place.storage, place.byte_offset))
        else:
            self.operations.append(ir.GetGlobal(value, place.global_, place.byte_offset))
        self.define(node, value)

    def empty_strided(self, node: torch.fx.Node) -> None:
        shape, strides = node.args[:2]
        dtype = DType.from_numpy_name(str(node.kwargs["dtype"]).removeprefix("torch."))
        value = ir.Value(node.name, array_type(dtype, shape, strides))  # type: ignore[arg-type]
        self.operations.append(ir.Alloc(value, ir.AllocSpace.ARENA, span_nbytes(value.type)))
        self.define(node, value)

    def as_strided(self, node: torch.fx.Node) -> None:
        # The offset counts from the buffer that Inductor names, which may itself lie inside another one (a part of a
        # concatenation), and not from the start of the memory as torch's does.
        source, shape, strides, offset = node.args
        assert isinstance(source, torch.fx.Node)
        value = ir.Value(node.name, array_type(self.values[source].type.dtype, shape, strides))  # type: ignore[arg-type]
        self.operations.append(ir.View(value, self.values[source], offset))  # type: ignore[arg-type]
        self.define(node, value)

    def zero(self, node: torch.fx.Node) -> None:
        target = node.args[0]
        assert isinstance(target, torch.fx.Node)
        self.operations.append(ir.Fill(self.values[target], 0))
        self.values[node] = self.values[target]

    def random_seeds(self, node: torch.fx.Node) -> None:
        (count,) = node.args
        assert isinstance(count, int)
        value = ir.Value(node.name, ir.TensorType.contiguous(DType.i64, (count,)))
        drawn = sum(isinstance(operation, ir.RandomSeeds) for operation in self.operations)
        self.operations.append(ir.RandomSeeds(value, drawn * _PHILOX_STEP))
        self.define(node, value)

    def product(self, node: torch.fx.Node) -> None:
        target, lhs, rhs = (self.values[n] for n in node.args[:3])  # type: ignore[index]
        source, alpha, beta, tf32 = node.args[3:]
        addend = self.broadcast(self.values[source], target) if isinstance(source, torch.fx.Node) else None
        numbers: Any = {"alpha": alpha, "beta": beta, "tf32": tf32}
        self.operations.append(ir.Matmul(target, lhs, rhs, addend, **numbers))

    def broadcast(self, source: ir.Value, target: ir.Value) -> ir.Value:
        """`source` with the shape of `target`, along whose other dimensions it does not move."""
        if source.type.shape == target.type.shape:
            return source
        shape, strides = source.type.shape, source.type.strides
        missing = len(target.type.shape) - len(shape)
        moves = [
            0 if old == 1 and new != 1 else stride
            for old, new, stride in zip(shape, target.type.shape[missing:], strides, strict=True)
        ]
        wide = ir.TensorType(source.type.dtype, target.type.shape, (0,) * missing + tuple(moves))
        value = ir.Value(f"{target.name}_addend", wide)
        self.operations.append(ir.View(value, source))
        return value

    def launch(self, node: torch.fx.Node) -> None:
        name, grid, operands, *others = node.args
        grids: Mapping[str, Any] = dict(*others)
        bound = self.kernels[str(name)]
        assert isinstance(operands, Mapping)
        resolved = tuple(self.operand(bound, operands, argument) for argument in bound.argument_names)
        alternatives = tuple(ir.Alternative(k, grids[n]) for n, k in bound.alternatives.items() if n in grids)
        self.operations.append(ir.Dispatch(bound.kernel, grid, resolved, alternatives))  # type: ignore[arg-type]

    def operand(self, bound: BoundKernel, operands: Mapping[str, Any], argument: str) -> ir.Operand:
        if argument not in operands:
            raise UnsupportedError(
                f"kernel {bound.kernel.export_name!r}: its image takes {argument!r}, which the launch does not pass; "
                f"it passes {sorted(operands)}"
            )
        operand = operands[argument]
        if isinstance(operand, torch.fx.Node):
            return self.values[operand]
        return int(operand) if isinstance(operand, bool) else operand

    def output(self, node: torch.fx.Node) -> None:
        values = node.args[0]
        assert isinstance(values, tuple)
        for number, value in enumerate(values):
            if not isinstance(value, torch.fx.Node):
                raise UnsupportedError(f"output {number} of the model is {value!r}, not a tensor; return tensors only")
        self.operations.append(ir.Return(tuple(self.values[v] for v in values if isinstance(v, torch.fx.Node))))


_HANDLERS: Mapping[Any, Callable[[_Builder, torch.fx.Node], None]] = {
    "placeholder": _Builder.placeholder,
    "get_attr": _Builder.get_attr,
    "output": _Builder.output,
    torch.empty_strided: _Builder.empty_strided,
    torch.as_strided: _Builder.as_strided,
    torch.ops.aten.zero_.default: _Builder.zero,
    dispatch: _Builder.launch,
    random_seeds: _Builder.random_seeds,
    library_product: _Builder.product,
}
