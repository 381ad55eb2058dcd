"""Copies between device arrays of any strides, by a kernel that runs on every device.

The kernel moves units of 1, 2, 4 or 8 bytes and takes up to eight dimensions; more dimensions, and more than 2**31
units, are several launches. It is PTX for sm_52, which all later architectures run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from coilpack.runtime.devices.base import Device, Kernel, LaunchConfig, Module
from coilpack.runtime.layout import ArrayType

UNITS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
MAX_DIMS = 8
MAX_COUNT = 1 << 31  # units in one launch: the kernel counts them in 32 bits
BLOCK = 256


class Dim(NamedTuple):
    """One dimension of a copy: how many there are, and the bytes between neighbours on both sides."""

    size: int
    source: int
    target: int


class Piece(NamedTuple):
    """One launch: where it begins on both sides, and its dimensions, outermost first."""

    source: int
    target: int
    dims: tuple[Dim, ...]


def plan_copy(
    shape: Sequence[int], itemsize: int, source: tuple[int, Sequence[int]], target: tuple[int, Sequence[int]]
) -> tuple[int, list[Piece]]:
    """Splits a copy into launches of the kernel.

    Args:
        shape: elements along each dimension.
        itemsize: bytes of an element.
        source: address of the first element, and strides in elements.
        target: the same of where it is copied to.

    Returns:
        Bytes of a unit, and the launches.
    """
    unit = math.gcd(itemsize, 8, source[0], target[0])
    strided = zip(shape, source[1], target[1], strict=True)
    dims = [Dim(size, near * itemsize, far * itemsize) for size, near, far in strided]
    dims.append(Dim(itemsize // unit, unit, unit))
    return unit, list(_pieces(source[0], target[0], _simplify(dims)))


def _simplify(dims: Sequence[Dim]) -> list[Dim]:
    """Orders dimensions by the target's strides, and makes one of two that can be walked as one."""
    kept: list[Dim] = []
    for dim in sorted((dim for dim in dims if dim.size != 1), key=lambda dim: -abs(dim.target)):
        outer = kept[-1] if kept else None
        if outer and (outer.source, outer.target) == (dim.size * dim.source, dim.size * dim.target):
            kept[-1] = Dim(outer.size * dim.size, dim.source, dim.target)
        else:
            kept.append(dim)
    return kept


def _pieces(source: int, target: int, dims: list[Dim]) -> Iterator[Piece]:
    count = math.prod(dim.size for dim in dims)
    if count == 0:
        return
    if len(dims) <= MAX_DIMS and count <= MAX_COUNT:
        yield Piece(source, target, tuple(dims))
        return
    outer, inner = dims[0], dims[1:]
    step = 1 if len(dims) > MAX_DIMS else max(1, MAX_COUNT * outer.size // count)
    for first in range(0, outer.size, step):
        part = [Dim(min(step, outer.size - first), outer.source, outer.target), *inner]
        begin = source + first * outer.source, target + first * outer.target
        yield from _pieces(*begin, [dim for dim in part if dim.size != 1])


class StridedCopier:
    """Copies arrays on a device; loads its kernels when they are first needed. May be used from several threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._module: Module | None = None
        self._kernels: dict[int, Kernel] = {}

    def copy(self, type_: ArrayType, source: int, target: int, strides: Sequence[int], stream: int) -> None:
        """Queues a copy of an array.

        Args:
            type_: what is copied, with the source's strides.
            source: address of its first element.
            target: address of the first element of the copy, which must not overlap the source.
            strides: the copy's strides, in elements; no two elements may lie in one place.
            stream: where to queue it.
        """
        unit, pieces = plan_copy(type_.shape, type_.dtype.itemsize, (source, type_.strides), (target, strides))
        for piece in pieces:
            if all(dim.source == dim.target == unit for dim in piece.dims):
                count = math.prod(dim.size for dim in piece.dims)
                self._device.copy(piece.target, piece.source, unit * count, stream)
            else:
                self._launch(unit, piece, stream)

    def _launch(self, unit: int, piece: Piece, stream: int) -> None:
        count = math.prod(dim.size for dim in piece.dims)
        dims = [*reversed(piece.dims), *[Dim(1, 0, 0)] * (MAX_DIMS - len(piece.dims))]
        values = [(piece.target, 8), (piece.source, 8), (count, 4), (len(piece.dims), 4)]
        values += [item for dim in dims for item in ((dim.size, 4), (dim.source, 8), (dim.target, 8))]
        parameters = [(value % (1 << 8 * size)).to_bytes(size, "little") for value, size in values]
        config = LaunchConfig((-(-count // BLOCK), 1, 1), (BLOCK, 1, 1), 0)
        launch = self._device.prepare(self._kernel(unit), config, parameters)
        with self._device.activate():
            launch.run(stream)

    def _kernel(self, unit: int) -> Kernel:
        with self._lock:
            if self._module is None:
                self._module = self._device.load_module(memoryview(PTX.encode()), "strided copies")
                self._kernels = {size: self._module.kernel(kernel_name(size)) for size in UNITS}
            return self._kernels[unit]

    def close(self) -> None:
        """Unloads the kernels, once the copies are done. Closing twice is harmless."""
        with self._lock:
            module, self._module, self._kernels = self._module, None, {}
        if module is not None:
            module.close()


def kernel_name(unit: int) -> str:
    """The symbol of the kernel for units of that many bytes."""
    return f"coilpack_copy_{unit}"


def _entry(size: int, kind: str) -> str:
    """The kernel for units of `size` bytes; dimension 0 is the innermost one."""
    names = [".u64 target", ".u64 source", ".u32 count", ".u32 rank"]
    body = []
    for d in range(MAX_DIMS):
        names += [f".u32 size_{d}", f".u64 source_{d}", f".u64 target_{d}"]
        body += [
            f"setp.le.u32 %p1, %r4, {d};",
            "@%p1 bra MOVE;",
            f"ld.param.u32 %r5, [size_{d}];",
            "div.u32 %r6, %r3, %r5;",
            "mul.lo.u32 %r7, %r6, %r5;",
            "sub.u32 %r7, %r3, %r7;",
            "cvt.u64.u32 %rd3, %r7;",
            f"ld.param.u64 %rd4, [source_{d}];",
            "mad.lo.s64 %rd1, %rd3, %rd4, %rd1;",
            f"ld.param.u64 %rd4, [target_{d}];",
            "mad.lo.s64 %rd2, %rd3, %rd4, %rd2;",
            "mov.u32 %r3, %r6;",
        ]
    register = {"u8": "%h1", "u16": "%h1", "u32": "%r8", "u64": "%rd5"}[kind]
    lines = [
        f".visible .entry {kernel_name(size)}({', '.join(f'.param {name}' for name in names)})",
        "{",
        ".reg .pred %p<2>;",
        ".reg .b16 %h<2>;",
        ".reg .b32 %r<9>;",
        ".reg .b64 %rd<6>;",
        "mov.u32 %r1, %ctaid.x;",
        "mov.u32 %r2, %tid.x;",
        f"mad.lo.u32 %r3, %r1, {BLOCK}, %r2;",
        "ld.param.u32 %r4, [count];",
        "setp.ge.u32 %p1, %r3, %r4;",
        "@%p1 bra DONE;",
        "ld.param.u32 %r4, [rank];",
        "ld.param.u64 %rd1, [source];",
        "ld.param.u64 %rd2, [target];",
        *body,
        "MOVE:",
        f"ld.global.{kind} {register}, [%rd1];",
        f"st.global.{kind} [%rd2], {register};",
        "DONE:",
        "ret;",
        "}",
    ]
    return "\n".join(lines)


def kernel_ptx(units: Iterable[int]) -> str:
    """A module with the kernels for units of these sizes, in bytes.

    Each takes the addresses of target and source (u64), the number of units and of dimensions (u32), and `MAX_DIMS`
    times, the innermost dimension first, its size (u32) and the bytes between neighbours in source and target (s64).
    Blocks have `BLOCK` threads, one for each unit.
    """
    entries = [_entry(unit, UNITS[unit]) for unit in units]
    return "\n".join([".version 6.0", ".target sm_52", ".address_size 64", *entries, ""])


PTX = kernel_ptx(UNITS)
