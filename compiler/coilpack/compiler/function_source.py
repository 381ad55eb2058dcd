"""What is the same however the kernels of a program come about: functions before, and the program after.

Before: exported programs made functional, their tensors as weights and state, traced for CUDA. After: functions built
from host graphs, and the program of one target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from coilpack.compiler import PRODUCER
from coilpack.compiler.bundle import TargetBundle
from coilpack.compiler.capture.bindings import Binding
from coilpack.compiler.capture.build_function import BoundKernel, build_function
from coilpack.compiler.capture.functionalise import functionalise, mutated_state, tensors
from coilpack.compiler.capture.host_graph import HostGraph
from coilpack.compiler.capture.interface import read_interface
from coilpack.compiler.capture.retrace import Retraced, retrace
from coilpack.compiler.capture.symbols import with_sizes
from coilpack.compiler.passes.plan_memory import PlanMemory
from coilpack.compiler.program_kernels import WrittenKernel, write_images
from coilpack.compiler.state import State, state_names
from coilpack.compiler.targets import Target
from coilpack.compiler.weights import Weights
from coilpack.runtime.program import ir


@dataclass(frozen=True)
class TracedFunction:
    """A function whose graph Inductor is to compile.

    Attributes:
        name: of the function.
        program: what was exported.
        functional: the same, functional.
        places: where its parameters, buffers and constants lie, by qualified name.
        retraced: the graph.
    """

    name: str
    program: torch.export.ExportedProgram
    functional: torch.export.ExportedProgram
    places: Mapping[str, Binding]
    retraced: Retraced

    def outside(self) -> tuple[ir.Signature, tuple[Binding | None, ...]]:
        """The signature, and what each placeholder stands for.

        Ask when Inductor has compiled the graph: what it assumed about sizes counts, and sizes that turned out equal
        are one by then.
        """
        interface = read_interface(self.functional, self.name, self.places)
        sizes = self.retraced.fake_mode.shape_env
        signature = with_sizes(interface.signature(self.name), self.program, self.retraced.named_inputs, sizes)
        return signature, interface.bindings


@dataclass
class FunctionSource:
    """A function to compile.

    Attributes:
        name: of the function.
        program: what was exported.
        places: where its parameters, buffers and constants lie, by qualified name.
    """

    name: str
    program: torch.export.ExportedProgram
    places: Mapping[str, Binding]
    _functional: torch.export.ExportedProgram | None  # made already, for the first trace, which uses it up

    def trace(self, *, fuse_attention: bool, library_products: bool = False) -> TracedFunction:
        """Traces it for CUDA; for the arguments and errors see `retrace`."""
        functional, self._functional = self._functional or functionalise(self.program, self.name), None
        interface = read_interface(functional, self.name, self.places)
        retraced = retrace(
            functional,
            mutations=interface.mutations,
            results=interface.results,
            fuse_attention=fuse_attention,
            library_products=library_products,
        )
        return TracedFunction(self.name, self.program, functional, self.places, retraced)


def function_sources(
    programs: Mapping[str, torch.export.ExportedProgram], weights: Weights
) -> Mapping[str, FunctionSource]:
    """The functions `programs`, with their tensors among `weights` and the state that they share.

    Raises:
        UnsupportedError: one cannot be made functional, or has a tensor that no package holds.
        InputError: functions disagree about the state that they share.
    """
    functional = {name: functionalise(program, name) for name, program in programs.items()}
    mutated = frozenset().union(*map(mutated_state, functional.values()))
    state = State(state_names(mutated, map(tensors, programs.values())), weights)
    places = {name: _places(name, program, weights, state) for name, program in programs.items()}
    return {
        name: FunctionSource(name, program, places[name], functional.pop(name)) for name, program in programs.items()
    }


def _places(name: str, program: torch.export.ExportedProgram, weights: Weights, state: State) -> Mapping[str, Binding]:
    """Where the parameters, buffers and constants of the function `name` lie, by qualified name."""
    named = tensors(program)
    kept = state.add(name, named)
    return {n: kept[n] if n in kept else weights.add(n, tensor) for n, tensor in named.items()}


def finished_function(
    signature: ir.Signature,
    bindings: Sequence[Binding | None],
    host: HostGraph[Any],
    kernels: Mapping[str, BoundKernel],
    weights: Weights,
) -> ir.Function:
    """The function of a host graph, its memory planned; for the arguments and errors see `build_function`."""
    constants = {n: weights.add(f"{signature.name}.{n}", t.detach().cpu()) for n, t in host.constants.items()}
    return PlanMemory().run(build_function(signature, host, bindings, constants, kernels))


def target_bundle(
    target: Target,
    image_kinds: Sequence[ir.ImageKind],
    functions: Sequence[ir.Function],
    kernels: Sequence[WrittenKernel],
    weights: Weights,
) -> TargetBundle:
    """The program of one target, with its executables and the weights and state that its functions use."""
    images, executables = write_images(target, image_kinds, kernels)
    operations = [operation for function in functions for operation in function.operations]
    globals_ = {op.global_ for op in operations if isinstance(op, ir.GetGlobal)}
    used = {op.storage for op in operations if isinstance(op, ir.Parameter)}
    used |= {global_.initial for global_ in globals_ if global_.initial is not None}
    program = ir.Program(
        producer=PRODUCER,
        signatures=tuple(f.signature for f in functions),
        storages=tuple(sorted(used, key=lambda s: s.name)),
        targets=(ir.Target(target.ptx_name, images, tuple(k.kernel for k in kernels), tuple(functions)),),
        globals=tuple(sorted(globals_, key=lambda g: g.name)),
    )
    return TargetBundle(program, executables, {s.name: weights.storages[s.name] for s in program.storages})
