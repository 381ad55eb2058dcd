"""Integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coilpack.runtime.devices.emulator.builder import CARRY, Builder, assign
from coilpack.runtime.devices.emulator.code import DTYPES, Array, Mask, Operation
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.instructions.types import Build, data_type
from coilpack.runtime.devices.emulator.ptx import Instruction, Register

_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _sources(builder: Builder, i: Instruction, *kinds: str) -> list[int]:
    return [builder.read(operand, kind) for operand, kind in zip(i.operands[1:], kinds, strict=True)]


def _simple(function: np.ufunc) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        kind = data_type(i)
        if "sat" in i.modifiers:
            return _saturating(builder, i, function)
        if "cc" in i.modifiers:
            return _with_carry(builder, i)
        return builder.ufunc(i.operands[0], kind, function, _sources(builder, i, kind, kind))

    return build


def _saturating(builder: Builder, i: Instruction, function: np.ufunc) -> Operation:
    kind = data_type(i)
    wide = np.dtype(DTYPES[_WIDER[kind]])
    limits = np.iinfo(DTYPES[kind])

    def run(a: Array, b: Array) -> Any:
        return np.clip(function(a.astype(wide), b), limits.min, limits.max)

    return builder.elementwise(i.operands[0], kind, run, _sources(builder, i, kind, kind))


def _high(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        product: Array = (a.astype(wide) * b) >> (a.dtype.itemsize * 8)
        return product
    x, y = a.view(np.uint64), b.view(np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    high: Array = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & mask)) >> half)
    if a.dtype.kind == "i":  # the unsigned product counts a negative factor as 2**64 more
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high


def _product(mode: str, kind: str) -> Callable[[Array, Array], Array]:
    if mode == "wide":
        wide = DTYPES[_WIDER[kind]]
        return lambda a, b: np.multiply(a, b, dtype=wide)
    return _high if mode == "hi" else np.multiply


def _multiply(builder: Builder, i: Instruction) -> Operation:
    kind, mode = data_type(i), i.modifiers[0]
    result = _WIDER[kind] if mode == "wide" else kind
    sources = _sources(builder, i, kind, kind)
    if mode == "lo":
        return builder.ufunc(i.operands[0], kind, np.multiply, sources)
    return builder.elementwise(i.operands[0], result, _product(mode, kind), sources)


def _multiply_add(builder: Builder, i: Instruction) -> Operation:
    kind, mode = data_type(i), i.modifiers[0]
    if "cc" in i.modifiers:
        return _with_carry(builder, i)
    if "sat" in i.modifiers:
        raise builder.unsupported("mad that saturates is not implemented")
    result = _WIDER[kind] if mode == "wide" else kind
    product = _product(mode, kind)

    def run(a: Array, b: Array, c: Array) -> Any:
        return product(a, b).astype(c.dtype, copy=False) + c

    return builder.elementwise(i.operands[0], result, run, _sources(builder, i, kind, kind, result))


def _with_carry(builder: Builder, i: Instruction) -> Operation:
    """Extended precision: `.cc` writes the carry (of a subtraction, the borrow); addc, subc and madc read it."""
    bits = int(data_type(i)[1:])
    kind = f"u{bits}"
    dtype = DTYPES[kind].type
    sources = [builder.read(operand, kind) for operand in i.operands[1:]]
    flag = Register(CARRY)
    old = builder.read(flag, "pred")
    new = builder.write(flag, "pred") if "cc" in i.modifiers else None
    result = builder.write(i.operands[0], kind)
    reads, subtracts = i.opcode.endswith("c"), i.opcode.startswith("sub")
    product = _product(i.modifiers[0], kind) if i.opcode.startswith("mad") else None

    def run(frame: Frame, mask: Mask) -> None:
        a, b, *c = (frame.slots[slot] for slot in sources)
        carry = frame.slots[old].astype(dtype) if reads else dtype(0)
        if product is not None:
            a, b = product(a, b).astype(dtype), c[0]
        if subtracts:
            total = a - b - carry
            over = (a < b) | ((a == b) & (carry != 0))
        else:
            total = a + b + carry
            over = (total < a) | ((total == a) & (carry != 0) & (b != 0))
        assign(frame.slots[result], total, mask)
        if new is not None:
            assign(frame.slots[new], over, mask)

    return run


def _multiply_24(builder: Builder, i: Instruction) -> Operation:
    kind, high = data_type(i), "hi" in i.modifiers
    add = i.opcode == "mad24"
    drop = 40  # bits of 64 above the 24 that count

    def run(a: Array, b: Array, *c: Array) -> Any:
        wide = np.int64 if kind == "s32" else np.uint64
        x, y = ((v.astype(wide) << wide(drop)) >> wide(drop) for v in (a, b))
        product = (x * y) >> wide(16 if high else 0)
        return (product + c[0] if add else product).astype(np.uint64).astype(np.uint32)

    return builder.elementwise(i.operands[0], kind, run, _sources(builder, i, *[kind] * (2 + add)))


def _quotient(a: Array, b: Array) -> Array:
    """Truncated; of a division by zero all ones, as the hardware gives."""
    exact = a if a.dtype.kind == "u" else a - np.fmod(a, b)
    result = np.floor_divide(exact, b)
    return np.where(b == 0, a.dtype.type(-1 if a.dtype.kind == "i" else np.iinfo(a.dtype).max), result)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, np.fmod(a, b))


def _binary(function: Callable[[Array, Array], Any]) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        kind = data_type(i)
        return builder.elementwise(i.operands[0], kind, function, _sources(builder, i, kind, kind))

    return build


def _unary(function: Callable[[Array], Any]) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        kind = data_type(i)
        return builder.elementwise(i.operands[0], kind, function, _sources(builder, i, kind))

    return build


def _extreme(function: np.ufunc) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        kind = data_type(i)
        if "relu" in i.modifiers:
            return builder.elementwise(
                i.operands[0], kind, lambda a, b: np.maximum(function(a, b), 0), _sources(builder, i, kind, kind)
            )
        return builder.ufunc(i.operands[0], kind, function, _sources(builder, i, kind, kind))

    return build


def _sum_of_differences(builder: Builder, i: Instruction) -> Operation:
    kind = data_type(i)
    unsigned = "u" + kind[1:]

    def run(a: Array, b: Array, c: Array) -> Array:
        return (np.maximum(a, b) - np.minimum(a, b)).view(DTYPES[unsigned]) + c

    return builder.elementwise(i.operands[0], kind, run, _sources(builder, i, kind, kind, unsigned))


def _dot(builder: Builder, i: Instruction) -> Operation:
    """dp4a and dp2a: dot products of bytes, added."""
    left, right = i.modifiers[-2:]
    four = i.opcode == "dp4a"
    a_kind = f"{left[0]}8x4" if four else f"{left[0]}16x2"
    result = "s32" if "s32" in (left, right) else "u32"
    part = slice(2, 4) if "hi" in i.modifiers else slice(0, 4 if four else 2)

    def run(a: Array, b: Array, c: Array) -> Any:
        products = a.astype(np.int64) * b[..., part].astype(np.int64)
        return (products.sum(axis=-1) + c).astype(np.uint64).astype(np.uint32)

    sources = _sources(builder, i, a_kind, f"{right[0]}8x4", result)
    return builder.elementwise(i.operands[0], result, run, sources)


TABLE: dict[str, Build] = {
    "add": _simple(np.add),
    "sub": _simple(np.subtract),
    "mul": _multiply,
    "mad": _multiply_add,
    "addc": _with_carry,
    "subc": _with_carry,
    "madc": _with_carry,
    "mul24": _multiply_24,
    "mad24": _multiply_24,
    "div": _binary(_quotient),
    "rem": _binary(_remainder),
    "min": _extreme(np.minimum),
    "max": _extreme(np.maximum),
    "abs": _unary(np.abs),
    "neg": _unary(np.negative),
    "sad": _sum_of_differences,
    "dp4a": _dot,
    "dp2a": _dot,
}
