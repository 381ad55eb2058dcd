"""`func`: calls, which are inlined, and the function as a module of torch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from coilpack.compiler.mlir.functions import body_of, function_name
from coilpack.compiler.mlir.lower.constants import constant_operations, contents
from coilpack.compiler.mlir.lower.context import Context, Data, Handler, Size
from coilpack.compiler.mlir.syntax import Module, Operation, SymbolRefAttr
from coilpack.runtime.errors import NotFoundError


def call_function(context: Context, at: Operation, function: Operation, arguments: Sequence[Data]) -> Sequence[Data]:
    """Executes a function for an operation that calls it, or that is itself."""
    name, body = function_name(function), body_of(function)
    if body is None:
        raise context.unsupported(at, f"{at.name}: @{name} has no body")
    if len(function.regions[0].blocks) > 1:
        raise context.unsupported(function, f"@{name} has several blocks; only straight-line code is covered")
    with context.calling(at, name):
        return context.run(body, arguments)


def _call(context: Context, operation: Operation) -> Sequence[Data]:
    callee = operation.attributes["callee"]
    assert isinstance(callee, SymbolRefAttr)
    functions = context.functions
    if callee.path[-1] not in functions:
        raise NotFoundError("function", callee.path[-1], context.module.source.file, functions)
    arguments = [context.data(operand) for operand in operation.operands]
    return call_function(context, operation, functions[callee.path[-1]], arguments)


OPERATIONS: Mapping[str, Handler] = {"func.call": _call}


class FunctionModule(torch.nn.Module):
    """A function of an MLIR module that torch can call and export.

    Its arguments and results are tensors, also for scalars, and integers for `index`; its constants are its buffers.
    """

    def __init__(self, module: Module, name: str, table: Mapping[str, Handler]) -> None:
        super().__init__()
        self._module, self._table = module, table
        self._function = next(f for f in module.functions() if function_name(f) == name)
        reached = _reached(module, self._function)
        self._constants = list(constant_operations(reached))
        for number, operation in enumerate(self._constants):
            self.register_buffer(f"constant_{number}", contents(operation))

    def forward(self, *arguments: Data) -> tuple[Data, ...]:
        """Executes the function."""
        constants = {o: getattr(self, f"constant_{number}") for number, o in enumerate(self._constants)}
        context = Context(self._module, self._table, constants)
        results = call_function(context, self._function, self._function, arguments)
        return tuple(_dense(result) if isinstance(result, torch.Tensor) else result for result in results)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied where it is not surely row-major; asking torch would make that a condition on sizes."""
    expected: Size = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if not guard_or_false(stride == expected):
            return tensor.clone(memory_format=torch.contiguous_format)
        expected = expected * size
    return tensor


def _reached(module: Module, function: Operation) -> list[Operation]:
    """A function and those that it calls, directly or not."""
    functions = {function_name(f): f for f in module.functions()}
    found = {function_name(function): function}
    stack = [function]
    while stack:
        operation = stack.pop()
        stack.extend(o for region in operation.regions for block in region.blocks for o in block.operations)
        callee = operation.attributes.get("callee")
        if operation.name == "func.call" and isinstance(callee, SymbolRefAttr):
            name = callee.path[-1]
            if name in functions and name not in found:
                found[name] = functions[name]
                stack.append(functions[name])
    return list(found.values())
