"""The run-time arguments of a Triton kernel: what is left of its signature, in the order of the PTX parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, UnsupportedError

_POINTER_BYTES = 8
_DIVISIBILITY = "tt.divisibility"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a compiled kernel.

    Attributes:
        name: the argument of the Triton function.
        type: as Triton's signatures write it: `*fp16`, `i32`.
        divisibility: what the code relies on: an address or integer is a multiple of this.
    """

    name: str
    type: str
    divisibility: int = 1

    @property
    def is_pointer(self) -> bool:
        """Whether it is an address in device memory."""
        return self.type.startswith("*")

    @property
    def dtype(self) -> DType:
        """The type of the scalar, or of the elements that the pointer leads to."""
        return DType.from_triton(self.type.removeprefix("*"))

    @property
    def size(self) -> int:
        """Bytes of the parameter itself."""
        return _POINTER_BYTES if self.is_pointer else self.dtype.itemsize

    @property
    def alignment(self) -> int:
        """Bytes that the address must be a multiple of; for a scalar, its own alignment."""
        return max(self.divisibility, self.dtype.itemsize) if self.is_pointer else self.size


def runtime_parameters(
    argument_names: Sequence[str],
    signature: Mapping[str, str],
    constants: Mapping[str | tuple[int, ...], object],
    attributes: Mapping[tuple[int, ...], Sequence[Sequence[object]]],
) -> tuple[Parameter, ...]:
    """The arguments that remain at run time: those that are neither `constexpr` nor given by `constants`.

    None and equal-to-1 arguments are among the constants, wherever they stand.

    Args:
        argument_names: all arguments of the function, in order.
        signature: the type of each, by name.
        constants: values by name or by index path.
        attributes: `[["tt.divisibility", 16]]` by index path.

    Raises:
        InputError: an argument has no type, or a name is not an argument.
        UnsupportedError: an argument is of a type that the runtime cannot pass, as a tensor descriptor.
    """
    known = set(argument_names)
    unknown = [n for n in (*signature, *constants) if isinstance(n, str) and n not in known]
    if unknown:
        raise InputError(
            f"the signature names {unknown[0]!r}, which is not an argument; there are {list(argument_names)}"
        )
    parameters = []
    for index, name in enumerate(argument_names):
        if name in constants or (index,) in constants or signature.get(name) == "constexpr":
            continue
        if name not in signature:
            raise InputError(f"the signature gives no type for the argument {name!r}")
        parameters.append(
            Parameter(name, _supported(name, signature[name]), _divisibility(attributes.get((index,), ())))
        )
    return tuple(parameters)


def _supported(name: str, type_name: object) -> str:
    if isinstance(type_name, str):
        try:
            DType.from_triton(type_name.removeprefix("*"))
        except KeyError:
            pass
        else:
            return type_name
    raise UnsupportedError(
        f"the argument {name!r} is of type {type_name!r}, which cannot be passed at run time; "
        "pass tensors as pointers with their sizes and strides as integers"
    )


def _divisibility(attributes: Sequence[Sequence[object]]) -> int:
    for attribute in attributes:
        if attribute[0] == _DIVISIBILITY:
            return int(str(attribute[1]))
    return 1


def is_iree_compatible(parameters: Sequence[Parameter]) -> bool:
    """Whether IREE's runtime can pass them: at most 16 pointers, then at most 64 scalars of 32 bits.

    Source: the parameter order and limits of IREE's CUDA HAL driver (`executable_def.fbs`, `pipeline_layout`).
    """
    pointers = sum(p.is_pointer for p in parameters)
    in_order = all(p.is_pointer == (i < pointers) for i, p in enumerate(parameters))
    scalars = [p for p in parameters if not p.is_pointer]
    return in_order and pointers <= 16 and len(scalars) <= 64 and all(p.size == 4 for p in scalars)
