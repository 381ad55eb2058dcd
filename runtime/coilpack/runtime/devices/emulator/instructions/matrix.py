"""Matrix instructions of a warp: mma, ldmatrix, stmatrix, movmatrix.

Where the parts of a matrix lie in the registers of a warp: PTX ISA, "Matrix Fragments for mma". Products of f16, bf16,
tf32 and fp8 are exact, their sums are made in single precision, in an order that differs from the hardware's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coilpack.runtime.devices.emulator import floats
from coilpack.runtime.devices.emulator.builder import Builder, assign
from coilpack.runtime.devices.emulator.code import Array, Mask, Operation
from coilpack.runtime.devices.emulator.frame import WARP, Frame
from coilpack.runtime.devices.emulator.instructions.transfer import address_of, read, write
from coilpack.runtime.devices.emulator.instructions.types import Build
from coilpack.runtime.devices.emulator.instructions.warp import warps
from coilpack.runtime.devices.emulator.ptx import Instruction, Operand, Vector

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
Index = npt.NDArray[np.int64]


class _Element(NamedTuple):
    """An element type of a factor."""

    bits: int
    view: str  # numpy type of the raw bits
    value: Callable[[Array], Array]  # raw bits to numbers that numpy multiplies


def _fp8(name: str) -> Callable[[Array], Array]:
    def value(raw: Array) -> Array:
        import ml_dtypes  # only kernels with fp8 need it

        numbers: Array = raw.view(np.dtype(getattr(ml_dtypes, name))).astype(np.float32)
        return numbers

    return value


_ELEMENTS = {
    "f16": _Element(16, "f2", lambda raw: raw.astype(np.float32)),
    "bf16": _Element(16, "u2", floats.bf16_to_f32),
    "tf32": _Element(32, "u4", lambda raw: (raw & np.uint32(0xFFFFE000)).view(np.float32)),
    "f64": _Element(64, "f8", lambda raw: raw),
    # Sums of products of bytes over k stay below 2**24, so single precision has them exactly.
    "s8": _Element(8, "i1", lambda raw: raw.astype(np.float32)),
    "u8": _Element(8, "u1", lambda raw: raw.astype(np.float32)),
    "e4m3": _Element(8, "u1", _fp8("float8_e4m3fn")),
    "e5m2": _Element(8, "u1", _fp8("float8_e5m2")),
}


class _Fragment(NamedTuple):
    """How the registers of a warp make up a matrix.

    Args:
        place: index of each matrix element, row by row, among the warp's values (lane, register, part).
        shape: of the matrix.
        registers: of each thread.
    """

    place: Index
    shape: tuple[int, int]
    registers: int


def _factor(rows: int, depth: int, bits: int, *, left: bool) -> _Fragment:
    """The fragment of a left factor (rows by depth) or of a right one (depth by rows)."""
    per = max(32 // bits, 1)
    groups = rows // 8
    registers = groups * depth // (4 * per)
    lane, register, part = np.meshgrid(np.arange(WARP), np.arange(registers), np.arange(per), indexing="ij")
    row = lane // 4 + 8 * (register % groups)
    column = (lane % 4) * per + part + (register // groups) * 4 * per
    place = np.empty((rows, depth), np.int64)
    place[row, column] = (lane * registers + register) * per + part
    shape = (rows, depth) if left else (depth, rows)
    return _Fragment((place if left else place.T).ravel(), shape, registers)


def _accumulator(rows: int, columns: int) -> Index:
    """For each lane and value, the index in the matrix, row by row."""
    lane, value = np.meshgrid(np.arange(WARP), np.arange(rows * columns // WARP), indexing="ij")
    index: Index = (lane // 4 + 8 * (value // 2)) * columns + (lane % 4) * 2 + value % 2
    return index


def _gather(frame: Frame, slots: list[int], dtype: str) -> Array:
    """The registers of each warp side by side: (warp, then lane, register and part), viewed as `dtype`."""
    first = frame.slots[slots[0]]
    values = np.empty((frame.ctas, frame.lanes, len(slots)), first.dtype)
    for number, slot in enumerate(slots):
        values[..., number] = frame.slots[slot]
    return values.reshape(-1, WARP * len(slots)).view(dtype)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _multiply(builder: Builder, i: Instruction) -> Operation:
    shape = next((match for m in i.modifiers if (match := _SHAPE.fullmatch(m))), None)
    types = i.modifiers[-4:]
    known = types[1] in _ELEMENTS and types[2] in _ELEMENTS and shape is not None
    if not known or "sp" in i.modifiers or i.modifiers[-1] in ("popc", "xor", "and"):
        raise builder.unsupported("this form of mma is not implemented")
    assert shape is not None
    m, n, k = (int(part) for part in shape.groups())
    if (m, n, k, types[1]) == (8, 8, 4, "f16"):
        raise builder.unsupported("mma.m8n8k4 of f16 is not implemented; compile for sm_80")
    left, right = _ELEMENTS[types[1]], _ELEMENTS[types[2]]
    a, b = _factor(m, k, left.bits, left=True), _factor(n, k, right.bits, left=False)
    places = _accumulator(m, n)
    bits = "b64" if types[1] == "f64" else "b32"
    a_slots, b_slots, c_slots = ([builder.read(o, bits) for o in _items(group)] for group in i.operands[1:4])
    d_slots = [builder.write(o, bits) for o in _items(i.operands[0])]
    if (len(a_slots), len(b_slots)) != (a.registers, b.registers):
        raise builder.unsupported(f"{len(a_slots)} and {len(b_slots)} registers do not hold the factors of {shape[0]}")
    to_matrix = np.empty(m * n, np.int64)
    to_matrix[places.ravel()] = np.arange(m * n)
    add = _ADD[types[0]]
    saturates = "satfinite" in i.modifiers

    def run(frame: Frame, mask: Mask) -> None:
        x = left.value(_gather(frame, a_slots, left.view).take(a.place, axis=1)).reshape(-1, *a.shape)
        y = right.value(_gather(frame, b_slots, right.view).take(b.place, axis=1)).reshape(-1, *b.shape)
        addend = _gather(frame, c_slots, _RESULT[types[3]])
        product = np.matmul(x, y).reshape(-1, m * n).take(places.ravel(), axis=1)
        result = add(product, addend, saturates)
        words = np.ascontiguousarray(result).view(f"u{8 if bits == 'b64' else 4}")
        words = words.reshape(*frame.shape, len(d_slots))
        for number, slot in enumerate(d_slots):
            assign(frame.slots[slot], words[..., number], mask)

    return run


def _add_integers(product: Array, addend: Array, saturates: bool) -> Array:
    total = product.astype(np.int64) + addend
    if saturates:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return total.astype(np.uint64).astype(np.uint32)


def _add_halves(product: Array, addend: Array, _: bool) -> Array:
    return (product + addend.astype(np.float32)).astype(np.float16)


def _add_floats(product: Array, addend: Array, _: bool) -> Any:
    return product + addend


_RESULT = {"f32": "f4", "f16": "f2", "f64": "f8", "s32": "i4"}
_ADD = {"f32": _add_floats, "f64": _add_floats, "f16": _add_halves, "s32": _add_integers}


# --- matrices of 8 by 8 values of 16 bits ---


def _count(i: Instruction) -> int:
    return next((int(m[1:]) for m in i.modifiers if m in ("x1", "x2", "x4")), 1)


def _check_form(builder: Builder, i: Instruction) -> None:
    if "m8n8" not in i.modifiers or i.modifiers[-1] != "b16":
        raise builder.unsupported(f"this form of {i.opcode} needs a newer architecture; compile for sm_80")


def _row_threads(frame: Frame, mask: Mask, count: int) -> Array:
    """The threads whose addresses are used: the first eight of each warp for each matrix."""
    used = np.broadcast_to(np.arange(frame.lanes) % WARP < 8 * count, frame.shape)
    return used if mask is None else used & mask


def _load(builder: Builder, i: Instruction) -> Operation:
    _check_form(builder, i)
    count, turned = _count(i), "trans" in i.modifiers
    address = address_of(builder, i.operands[1])
    slots = [builder.write(o, "b32") for o in _items(i.operands[0])]

    def run(frame: Frame, mask: Mask) -> None:
        threads = _row_threads(frame, mask, count)
        rows = read(frame, i, "shared", address(frame, threads), 8, 2, threads)
        matrices = rows.view(np.uint16).reshape(-1, count, 8, 8)
        if turned:
            matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
        words = matrices.view(np.uint32).reshape(-1, count, WARP)
        for number, slot in enumerate(slots):
            values = words[:, number]
            frame.put(slot, values.reshape(frame.shape) if mask is None else values.ravel(), mask)

    return run


def _store(builder: Builder, i: Instruction) -> Operation:
    _check_form(builder, i)
    count, turned = _count(i), "trans" in i.modifiers
    address = address_of(builder, i.operands[0])
    slots = [builder.read(o, "b32") for o in _items(i.operands[1])]

    def run(frame: Frame, mask: Mask) -> None:
        threads = _row_threads(frame, mask, count)
        words = np.stack([warps(frame, frame.slots[slot]) for slot in slots], axis=1)
        if mask is not None:
            words = words[mask.reshape(-1, WARP)[:, 0]]
        matrices = words.view(np.uint16).reshape(-1, count, 8, 8)
        if turned:
            matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
        rows = matrices.view(np.uint64).reshape(-1, 2)
        write(frame, i, "shared", address(frame, threads), rows, threads)

    return run


def _transpose(builder: Builder, i: Instruction) -> Operation:
    source, result = builder.read(i.operands[1], "b32"), builder.write(i.operands[0], "b32")

    def run(frame: Frame, mask: Mask) -> None:
        matrices = warps(frame, frame.slots[source]).view(np.uint16).reshape(-1, 8, 8)
        words = np.ascontiguousarray(matrices.swapaxes(1, 2)).view(np.uint32)
        assign(frame.slots[result], words.reshape(frame.shape), mask)

    return run


TABLE: dict[str, Build] = {
    "mma": _multiply,
    "ldmatrix": _load,
    "stmatrix": _store,
    "movmatrix": _transpose,
}
