"""Arguments brought into the layout of the kernels: uploaded, copied where they lie otherwise, and copied back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coilpack.runtime.arrays import DeviceArray, HostArray, host_type, upload
from coilpack.runtime.devices.base import Device
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.plan import Plan
from coilpack.runtime.strided import StridedCopier

_OVERLAP_WORK = 10_000  # candidates that are tried before two arrays count as overlapping


@dataclass(slots=True)
class StagedArgument:
    """An argument as kernels see it.

    Args:
        array: device memory in the expected layout: the caller's own, or a copy.
        origin: what a copy was made of and must be written back to; None where there is nothing to write back.
    """

    array: DeviceArray
    origin: DeviceArray | HostArray | None


class Stager:
    """Stages the arguments of calls on one device.

    Args:
        device: where they are wanted.
        copier: copies those that lie there in another layout.
    """

    def __init__(self, device: Device, copier: StridedCopier) -> None:
        self._device = device
        self._copier = copier

    def stage(
        self, views: Sequence[DeviceArray | HostArray | int], plan: Plan, stream: int, labels: Sequence[str]
    ) -> list[StagedArgument | None]:
        """Checks the arguments of a call and makes them fit for the plan's kernels; None stands for an integer.

        A host array is uploaded. A device array that has other strides than the kernels were compiled for, or is less
        aligned, is copied, and so is one that shares memory with an array that is written: what a function reads are
        the contents from before the call.

        Args:
            views: arrays of the shapes that the plan is for, and integers.
            plan: what will run.
            stream: where copies are queued.
            labels: what messages call the arguments.

        Raises:
            InputError: an element type differs; one is written and must not be; or two that are written share memory.
            DeviceError: there is no memory for a copy.
        """
        staged = [
            None if isinstance(view, int) else self._stage(view, plan, index, stream, labels[index])
            for index, view in enumerate(views)
        ]
        if plan.written:
            self._separate(views, staged, plan, stream, labels)
        return staged

    def _stage(self, view: DeviceArray | HostArray, plan: Plan, index: int, stream: int, what: str) -> StagedArgument:
        expected, written = plan.arguments[index], index in plan.written
        if isinstance(view, DeviceArray):
            type_, read_only = view.type, view.read_only
        else:
            type_, read_only = host_type(view, what), not view.flags.writeable
        if type_.dtype is not expected.dtype:
            found, wanted = type_.dtype.name, expected.dtype.name
            raise InputError(f"{what}: is of type {found}, it must be of {wanted}; convert it first")
        if written:
            _check_writable(view, read_only, what)
        if not isinstance(view, DeviceArray):
            return StagedArgument(upload(view, expected, self._device, stream), view if written else None)
        aligned = view.address % plan.alignments[index] == 0 or not view.size
        if aligned and (type_ == expected or expected.same_places(type_.strides)):
            return StagedArgument(view, None)
        return StagedArgument(self._copy(view, expected, stream), view if written else None)

    def _copy(self, view: DeviceArray, expected: ArrayType, stream: int) -> DeviceArray:
        buffer = self._device.allocate(expected.span_nbytes, stream)
        low = expected.extent[0] * expected.dtype.itemsize
        copied = DeviceArray(self._device, buffer, buffer.address - low, expected, stream)
        self._copier.copy(view.type, view.address, copied.address, expected.strides, stream)
        return copied

    def _separate(
        self,
        views: Sequence[DeviceArray | HostArray | int],
        staged: list[StagedArgument | None],
        plan: Plan,
        stream: int,
        labels: Sequence[str],
    ) -> None:
        """Copies arrays that share memory with one that is written; refuses two such that are both written."""
        spans = []
        for index, view in enumerate(views):
            if isinstance(view, DeviceArray) or (not isinstance(view, int) and index in plan.written):
                spans.append((*_span(view), index))
        spans.sort()
        for position, (_, end, first) in enumerate(spans):
            for begin, _, second in spans[position + 1 :]:
                if begin >= end:
                    break
                if first not in plan.written and second not in plan.written:
                    continue
                if not _share_memory(views[first], views[second]):
                    continue
                if first in plan.written and second in plan.written:
                    one, other = labels[min(first, second)], labels[max(first, second)]
                    raise InputError(
                        f"{one} and {other.removeprefix(plan.name + ': ')} share memory, and the function writes to "
                        "both; pass a copy of one"
                    )
                self._detach(staged, views, plan, second if first in plan.written else first, stream)

    def _detach(
        self,
        staged: list[StagedArgument | None],
        views: Sequence[DeviceArray | HostArray | int],
        plan: Plan,
        index: int,
        stream: int,
    ) -> None:
        view, argument = views[index], staged[index]
        if argument is not None and argument.array is view:
            staged[index] = StagedArgument(self._copy(argument.array, plan.arguments[index], stream), None)

    def write_back(self, argument: StagedArgument) -> None:
        """Copies what the function wrote to where the caller's data lies. A host array is ready on return."""
        array, origin = argument.array, argument.origin
        if isinstance(origin, DeviceArray):
            self._copier.copy(array.type, array.address, origin.address, origin.strides, array.stream)
        elif origin is not None:
            origin[...] = array.numpy()


def _check_writable(view: DeviceArray | HostArray, read_only: bool, what: str) -> None:
    if read_only:
        raise InputError(f"{what}: is read-only, and the function writes to it; pass a copy")
    if not view.size:
        return
    itemsize = view.dtype.itemsize
    unit = itemsize if isinstance(view, DeviceArray) else 1  # numpy's strides are in bytes
    reach = itemsize
    for stride, size in sorted(
        (abs(stride) * unit, size) for size, stride in zip(view.shape, view.strides, strict=True)
    ):
        if size > 1 and stride < reach:
            raise InputError(
                f"{what}: several of its elements may lie in one place (shape {view.shape}, strides "
                f"{tuple(view.strides)}), and the function writes to it; pass a copy"
            )
        reach += (size - 1) * stride


def _span(view: DeviceArray | HostArray) -> tuple[int, int]:
    """The first address of an array, and the one after its last byte."""
    if isinstance(view, DeviceArray):
        low, high = view.type.extent
        return view.address + low * view.dtype.itemsize, view.address + high * view.dtype.itemsize
    begin, end = np.lib.array_utils.byte_bounds(view)
    return begin, end if view.size else begin


class _Addresses:
    """Device memory as numpy takes it, for its arithmetic on addresses alone."""

    def __init__(self, view: DeviceArray) -> None:
        itemsize = view.dtype.itemsize
        strides = tuple(stride * itemsize for stride in view.strides)
        self.__array_interface__ = {
            "version": 3,
            "shape": view.shape,
            "typestr": f"|V{itemsize}",
            "strides": strides,
            "data": (view.address, True),
        }


def _share_memory(first: DeviceArray | HostArray | int, second: DeviceArray | HostArray | int) -> bool:
    """Whether two arrays have a byte in common; True where that is too hard to find out."""
    one, other = (np.asarray(_Addresses(view)) if isinstance(view, DeviceArray) else view for view in (first, second))
    try:
        return np.shares_memory(one, other, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]  # numpy takes any
    except np.exceptions.TooHardError:
        return True
