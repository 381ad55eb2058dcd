"""Turns changes in place into new values that a program returns, with tensors that share memory taken apart first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.export.graph_signature import OutputKind

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.decompositions.user_kernels import checked_arguments
from coilpack.compiler.capture.refusals import refuse_data_dependence
from coilpack.compiler.capture.symbols import assume_usual_sizes
from coilpack.compiler.capture.torch_overhead import composites_kept_quickly
from coilpack.runtime.errors import UnsupportedError

_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


def functionalise(program: torch.export.ExportedProgram, name: str) -> torch.export.ExportedProgram:
    """A functional copy of `program`, the function `name`; what it changes in place are additional results.

    Raises:
        UnsupportedError: torch cannot make it functional, a size depends on the values of a tensor, a kernel of the
            user's gets what a package cannot pass, or it changes memory that it also reads under another name.
    """
    assume_usual_sizes(program)
    for module in program.graph_module.modules():  # conditions have graphs of their own
        if isinstance(module, torch.fx.GraphModule):
            refuse_data_dependence(module.graph)
    apart = _apart(program)
    try:
        with torch.no_grad(), checked_arguments(), composites_kept_quickly():
            functional: torch.export.ExportedProgram = apart.run_decompositions({}, decompose_custom_triton_ops=True)
    except UnsupportedError as error:
        raise UnsupportedError(str(error).splitlines()[0]) from error  # torch adds the graph to the message
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnsupportedError(f"{name!r} cannot be made functional: {reason}") from error
    _check_aliases(functional, program, name)
    return functional


def mutated_state(functional: torch.export.ExportedProgram) -> frozenset[str]:
    """The qualified names of the buffers and parameters that a functionalised program changes."""
    return frozenset(s.target for s in functional.graph_signature.output_specs if s.kind in _STATE and s.target)


def tensors(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """All parameters, buffers and constants of a program by qualified name."""
    named = {**program.state_dict, **program.constants}
    return {name: value.detach() for name, value in named.items() if isinstance(value, torch.Tensor)}


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr() or id(tensor), storage.nbytes()  # tensors without elements have no address


def _apart(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with tensors that share memory replaced by stand-ins that do not.

    torch cannot make a program functional that changes memory with several names. Only types count there, so the
    stand-ins are never written, and take no memory.
    """
    seen: set[tuple[int, int]] = set()
    stand_ins: dict[str, torch.Tensor] = {}
    for name, value in {**program.state_dict, **program.constants}.items():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            memory = _memory(value)
            if memory in seen:
                empty = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
                wraps = isinstance(value, torch.nn.Parameter)
                stand_ins[name] = torch.nn.Parameter(empty, value.requires_grad) if wraps else empty
            seen.add(memory)
    return compat.with_tensors(program, stand_ins) if stand_ins else program


def _check_aliases(functional: torch.export.ExportedProgram, original: torch.export.ExportedProgram, name: str) -> None:
    """Refuses a change of memory that the program also uses under another name: it would not see the change."""
    mutated = mutated_state(functional)
    if not mutated:
        return
    named = tensors(original)
    users: dict[tuple[int, int], str] = {}
    for target in (*sorted(mutated), *_used(functional)):
        if target in named:
            other = users.setdefault(_memory(named[target]), target)
            if other != target and other in mutated:
                raise UnsupportedError(
                    f"{name!r} changes {other!r} in place, and uses {target!r}, which views the same memory; "
                    "use one name, or copy one of them when the model is made"
                )


def _used(functional: torch.export.ExportedProgram) -> Iterator[str]:
    """The names of the tensors that the graph uses."""
    used = {node.name for node in functional.graph.find_nodes(op="placeholder") if node.users}
    targets: Mapping[str, str | None] = {s.arg.name: s.target for s in functional.graph_signature.input_specs}
    for argument, target in targets.items():
        if argument in used and target is not None:
            yield target
