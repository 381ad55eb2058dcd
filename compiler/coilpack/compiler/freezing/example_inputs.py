"""The inputs that a function is run with while it is tuned, as its compiled graph takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.array_types import tensor_type
from coilpack.runtime.errors import InputError


def exported_inputs(function: str, program: torch.export.ExportedProgram, given: Sequence[Any] | None) -> list[Any]:
    """One value for each input of the program: those given, or the export's own.

    Kernels check neither types nor strides, so tensors are given the layout that the program was exported for.

    Args:
        function: its name, for messages.
        program: the function.
        given: positional arguments; None for those in the export.

    Raises:
        InputError: there are none, or the program takes others.
        UnsupportedError: one is of a type that no kernel takes.
    """
    args, kwargs = (tuple(given), {}) if given is not None else (program.example_inputs or (None, None))
    if args is None:
        raise InputError(
            f"function {function!r} has no example inputs in its export; give some, as Inductor measures with them"
        )
    try:
        flat = compat.flat_inputs(program, args, kwargs)
    except (ValueError, TypeError, RuntimeError) as error:  # the last: of another size than the export takes
        raise InputError(f"function {function!r} does not take these example inputs: {error}") from error
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    specs = program.graph_signature.input_specs
    expected = [nodes[spec.arg.name].meta.get("val") for spec in specs if spec.kind is InputKind.USER_INPUT]
    return [
        _as_exported(f"example input {number} of function {function!r}", value, like)
        for number, (value, like) in enumerate(zip(flat, expected, strict=True))
    ]


def _as_exported(what: str, value: Any, like: Any) -> Any:
    """A tensor in the layout of the one that was exported, any other value as it is."""
    if not isinstance(value, torch.Tensor) or not isinstance(like, torch.Tensor):
        return value
    if value.dtype != like.dtype:
        raise InputError(f"{what} is {value.dtype}; the export takes {like.dtype}")
    return value.contiguous() if tensor_type(like, what).is_contiguous else value
