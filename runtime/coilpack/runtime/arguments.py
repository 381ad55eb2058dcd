"""What a caller hands to a function: matched to its inputs, checked, and brought into the layout of the kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coilpack.runtime.arrays import DeviceArray, HostArray, host_type, upload
from coilpack.runtime.devices.base import Device
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, NotFoundError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.plan import Plan
from coilpack.runtime.program import ir


def label(signature: ir.Signature, index: int) -> str:
    """What messages call input `index` of a function."""
    name = signature.inputs[index].name
    return f"{signature.name}: argument {index}" + (f" ({name!r})" if name else "")


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


def solve_sizes(signature: ir.Signature, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The value of each of the signature's symbols, read off the shapes of the arguments.

    Raises:
        InputError: an argument has another number of dimensions, or a size is outside the symbol's range.
    """
    for index, (argument, shape) in enumerate(zip(signature.inputs, shapes, strict=True)):
        if len(argument.type.shape) != len(shape):
            rank = len(argument.type.shape)
            raise InputError(f"{label(signature, index)}: has {len(shape)} dimensions {shape}, it must have {rank}")
    sizes = {}
    for symbol in signature.symbols:
        size = shapes[symbol.input][symbol.dim]
        if not symbol.minimum <= size <= symbol.maximum:
            raise InputError(
                f"{label(signature, symbol.input)}: dimension {symbol.dim} ({symbol.name}) is {size}; "
                f"it must be {symbol.minimum} to {symbol.maximum}"
            )
        sizes[symbol.name] = size
    return sizes


def check_type(what: str, expected: ArrayType, dtype: DType, shape: tuple[int, ...]) -> None:
    """Compares an argument's element type and shape with those expected.

    Raises:
        InputError: they differ; there are no conversions behind the caller's back.
    """
    if dtype is not expected.dtype:
        raise InputError(f"{what}: is of type {dtype.name}, it must be of {expected.dtype.name}; convert it first")
    if shape != expected.shape:
        raise InputError(f"{what}: has the shape {shape}, it must have {expected.shape}")


def check_layout(what: str, expected: ArrayType, strides: tuple[int, ...]) -> None:
    """Compares a device array's strides with those that the kernels were compiled for.

    Raises:
        InputError: an element lies elsewhere.
    """
    if not expected.same_places(strides):
        how = "make it contiguous" if expected.is_contiguous else "bring it into that layout"
        raise InputError(f"{what}: has strides {strides} (in elements), it must have {expected.strides}; {how}")


@dataclass(slots=True)
class StagedArgument:
    """An argument as kernels see it.

    Args:
        array: device memory in the expected layout: the caller's own, or a copy.
        origin: what a copy was made of and must be written back to; None where there is nothing to write back.
    """

    array: DeviceArray
    origin: DeviceArray | HostArray | None

    def write_back(self) -> None:
        """Copies what the function wrote to where the caller's data lies. A host array is ready on return."""
        if isinstance(self.origin, DeviceArray):
            _copy(self.array, self.origin, self.array.stream)
        elif self.origin is not None:
            self.origin[...] = self.array.numpy()


def _copy(source: DeviceArray, target: DeviceArray, stream: int) -> None:
    nbytes, low = source.type.span_nbytes, source.type.extent[0] * source.dtype.itemsize
    source.device.copy(target.address + low, source.address + low, nbytes, stream)


def stage(
    view: DeviceArray | HostArray, plan: Plan, index: int, device: Device, stream: int, what: str
) -> StagedArgument:
    """Checks one argument and makes it fit for the plan's kernels.

    A host array is uploaded. A device array that is less aligned than the kernels assume is copied.

    Raises:
        InputError: element type, shape or layout differ, or it is written and must not be.
        DeviceError: there is no memory for the copy.
    """
    expected, written = plan.arguments[index], index in plan.written
    if not isinstance(view, DeviceArray):
        check_type(what, expected, host_type(view, what).dtype, view.shape)
        if written and not view.flags.writeable:
            raise InputError(f"{what}: is read-only, and the function writes to it; pass a copy")
        return StagedArgument(upload(view, expected, device, stream), view if written else None)
    if view.type != expected:  # equal types, the usual case, need no closer look
        check_type(what, expected, view.dtype, view.shape)
        check_layout(what, expected, view.strides)
    if written and view.read_only:
        raise InputError(f"{what}: is read-only, and the function writes to it; pass a copy")
    if view.address % plan.alignments[index] == 0 or not view.size:
        return StagedArgument(view, None)
    buffer = device.allocate(expected.span_nbytes, stream)
    low = expected.extent[0] * expected.dtype.itemsize
    copied = DeviceArray(device, buffer, buffer.address - low, expected, stream)
    _copy(view, copied, stream)
    return StagedArgument(copied, view if written else None)
