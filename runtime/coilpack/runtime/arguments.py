"""What a caller hands to a function, matched to its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coilpack.runtime.errors import InputError, NotFoundError
from coilpack.runtime.program import ir
from coilpack.runtime.sizes import label


def bind_arguments(signature: ir.Signature, given: Sequence[object], by_name: Mapping[str, object]) -> list[object]:
    """Puts arguments in the order of the signature's inputs.

    Raises:
        InputError: there are too many, too few, or one is given twice.
        NotFoundError: a name is none of the inputs'.
    """
    inputs = signature.inputs
    if len(given) == len(inputs) and not by_name:
        return list(given)
    if len(given) > len(inputs):
        raise InputError(f"{signature.name}: takes {len(inputs)} arguments, {len(given)} were given")
    bound: dict[int, object] = dict(enumerate(given))
    positions = {argument.name: index for index, argument in enumerate(inputs) if argument.name}
    for name, value in by_name.items():
        if name not in positions:
            raise NotFoundError("argument", name, f"function {signature.name!r}", positions)
        if positions[name] in bound:
            raise InputError(f"{label(signature, positions[name])} is given by position and by name")
        bound[positions[name]] = value
    missing = [label(signature, index) for index in range(len(inputs)) if index not in bound]
    if missing:
        raise InputError(f"missing {', '.join(missing)}; {signature.name} takes {len(inputs)} arguments")
    return [bound[index] for index in range(len(inputs))]
