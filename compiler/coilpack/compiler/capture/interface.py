"""The outside of an exported program: inputs, outputs, what its placeholders stand for, and what it changes.

A functionalised program returns more than the model does: first the new values of what it changes in place, then the
model's own results. `Interface` tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from coilpack.compiler.capture.array_types import tensor_type
from coilpack.compiler.capture.bindings import Binding, Mutation
from coilpack.compiler.capture.mutations import order_mutations
from coilpack.compiler.capture.size_expressions import expression
from coilpack.compiler.capture.source_location import source_location
from coilpack.compiler.capture.symbols import symbol_of
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr, Symbol

_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclass(frozen=True)
class Interface:
    """The outside of one functionalised program.

    Attributes:
        inputs: what callers hand in. A model's None inputs are none of them.
        outputs: what callers get. A model's None outputs are none of them.
        bindings: for each placeholder of the graph, the weight or state it is, or the number of the input.
        results: for each output that is an array, the number of the graph's result.
        mutations: what the program changes in place, in the order in which it must.
        symbols: those of integer inputs that the export fixed to a value.
    """

    inputs: tuple[ir.Argument, ...]
    outputs: tuple[ir.Argument, ...]
    bindings: tuple[Binding | None, ...]
    results: tuple[int, ...]
    mutations: tuple[Mutation, ...]
    symbols: tuple[ir.SizeSymbol, ...] = ()

    def signature(self, name: str) -> ir.Signature:
        """The signature of the function `name`."""
        return ir.Signature(name, self.inputs, self.outputs, self.symbols)


def read_interface(program: torch.export.ExportedProgram, name: str, tensors: Mapping[str, Binding]) -> Interface:
    """The interface of a functionalised program.

    Args:
        program: the program.
        name: of the function, for messages.
        tensors: where parameters, buffers and constants lie, by qualified name.

    Raises:
        UnsupportedError: an input or output is of a kind that a package cannot hold; names it.
    """
    placeholders = program.graph.find_nodes(op="placeholder")
    reader = _InputReader(name, tensors)
    for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        reader.add(spec, node.meta.get("val"))
    positions = {node.name: number for number, node in enumerate(placeholders)}
    targets = {s.target: positions[s.arg.name] for s in program.graph_signature.input_specs if s.target is not None}
    (output,) = program.graph.find_nodes(op="output")
    values = [node.meta.get("val") if isinstance(node, torch.fx.Node) else node for node in output.args[0]]
    mutations: list[Mutation] = []
    results: list[int] = []
    outputs: list[ir.Argument] = []
    for number, (spec, value) in enumerate(zip(program.graph_signature.output_specs, values, strict=True)):
        if spec.kind in _MUTATIONS:
            user = spec.kind is OutputKind.USER_INPUT_MUTATION
            mutations.append(Mutation(number, (positions if user else targets)[str(spec.target)]))
        elif spec.kind is not OutputKind.USER_OUTPUT:
            raise UnsupportedError(f"{name!r} has a {spec.kind.name.lower()} {spec.target!r}; return tensors only")
        elif isinstance(value, torch.Tensor):
            results.append(number)
            made = output.args[0][number]
            what = f"output {len(outputs)}, of {made.target} at {source_location(made)},"
            outputs.append(ir.Argument("", tensor_type(value, what)))
        elif value is not None:
            what = f"output {len(outputs)} of {name!r}"
            outputs.append(ir.Argument("", ir.INTEGER_TYPE, _integer(value, what)))
    return Interface(
        tuple(reader.inputs),
        tuple(outputs),
        tuple(reader.bindings),
        tuple(results),
        order_mutations(program.graph, mutations),
        tuple(reader.symbols),
    )


def _integer(value: Any, what: str) -> Expr:
    if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
        return expression(value)
    raise UnsupportedError(f"{what} is {value!r}; a model returns tensors and integers only")


class _InputReader:
    """Collects inputs and bindings, placeholder by placeholder."""

    def __init__(self, function: str, tensors: Mapping[str, Binding]) -> None:
        self.function, self.tensors = function, tensors
        self.inputs: list[ir.Argument] = []
        self.bindings: list[Binding | None] = []
        self.symbols: list[ir.SizeSymbol] = []

    def add(self, spec: InputSpec, value: Any) -> None:
        if spec.kind is InputKind.USER_INPUT:
            self.bindings.append(self._user_input(spec.arg.name, value))
        elif spec.target is not None and spec.target in self.tensors:
            self.bindings.append(self.tensors[spec.target])
        else:
            raise UnsupportedError(
                f"input {spec.arg.name!r} of {self.function!r} is a {spec.kind.name.lower()}, not a tensor"
            )

    def _user_input(self, name: str, value: Any) -> int | None:
        """The number of the input; None for one that is always None."""
        if value is None:
            return None
        number = len(self.inputs)
        if isinstance(value, torch.Tensor):
            self.inputs.append(ir.Argument(name, tensor_type(value, f"input {name!r}")))
        elif isinstance(value, torch.SymInt):
            self.inputs.append(ir.Argument(name, ir.INTEGER_TYPE, symbol_of(value)))
        elif isinstance(value, int) and not isinstance(value, bool):
            # The export computed with this value: the only one that a call may give.
            symbol = ir.SizeSymbol(f"i{number}", number, None, value, value)
            self.symbols.append(symbol)
            self.inputs.append(ir.Argument(name, ir.INTEGER_TYPE, Symbol(symbol.name)))
        else:
            raise UnsupportedError(
                f"input {name!r} of {self.function!r} is {value!r}, neither a tensor nor an integer; "
                "make it a constant of the model"
            )
        return number
