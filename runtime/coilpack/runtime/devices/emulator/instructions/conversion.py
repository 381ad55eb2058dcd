"""mov and cvt: values between types, with all roundings and saturations; addresses between state spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coilpack.runtime.devices.emulator import floats
from coilpack.runtime.devices.emulator.builder import Builder, assign, kind_bits
from coilpack.runtime.devices.emulator.code import DTYPES, Array, Mask, Operation
from coilpack.runtime.devices.emulator.frame import LOCAL_WINDOW, SHARED_WINDOW, Frame
from coilpack.runtime.devices.emulator.instructions.types import FLOATING, Build, data_type
from coilpack.runtime.devices.emulator.ptx import Instruction, Register, Vector

_ROUND: dict[str, Callable[[Array], Any]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FP8 = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_FP8_LIMIT = {"e4m3": 448.0, "e5m2": 57344.0}


# --- mov ---


def _move(builder: Builder, i: Instruction) -> Operation:
    kind = data_type(i)
    target, source = i.operands
    if isinstance(target, Vector):
        return _unpack(builder, target, builder.read(source, kind), kind)
    if isinstance(source, Vector):
        return _pack(builder, i, source, kind)
    if kind == "pred":
        slot, negated = builder.predicate(source)
        return builder.elementwise(target, kind, np.logical_not if negated else lambda a: a, [slot])
    bits = f"b{kind_bits(kind)}"
    return builder.elementwise(target, bits, lambda a: a, [builder.read(source, bits)])


def _unpack(builder: Builder, target: Vector, source: int, kind: str) -> Operation:
    """mov.b64 {lo, hi}, value."""
    width = kind_bits(kind) // len(target.items)
    part = f"b{width}"
    slots = [None if item == Register("_") else builder.write(item, part) for item in target.items]
    full = any(builder.is_full(item) for item in target.items if item != Register("_"))

    def run(frame: Frame, mask: Mask) -> None:
        values = np.ascontiguousarray(frame.slots[source])[..., None].view(DTYPES[part])
        for index, slot in enumerate(slots):
            if slot is not None:
                assign(frame.slots[slot], values[..., index], mask if full else None)

    return run


def _pack(builder: Builder, i: Instruction, source: Vector, kind: str) -> Operation:
    """mov.b64 value, {lo, hi}."""
    width = kind_bits(kind) // len(source.items)
    bits = f"b{kind_bits(kind)}"
    dtype = DTYPES[bits]

    def run(*parts: Array) -> Any:
        result = parts[0].astype(dtype)
        for index, value in enumerate(parts[1:], 1):
            result = result | (value.astype(dtype) << dtype.type(width * index))
        return result

    return builder.elementwise(i.operands[0], bits, run, [builder.read(item, f"b{width}") for item in source.items])


# --- cvt ---


def _convert(builder: Builder, i: Instruction) -> Operation:
    modifiers = list(i.modifiers)
    if modifiers[0] == "pack":
        return _convert_pack(builder, i)
    result, source = modifiers[-2:]
    options = set(modifiers[:-2])
    if result == "tf32":
        return builder.elementwise(i.operands[0], "b32", _to_tf32(options), [builder.read(i.operands[1], "f32")])
    if result.endswith("x2") or source.endswith("x2"):
        return _convert_packed(builder, i, result, source, options)
    read = builder.read(i.operands[1], source)
    function = _conversion(builder, result, source, options)
    return builder.elementwise(i.operands[0], result, function, [read])


def _conversion(builder: Builder, result: str, source: str, options: set[str]) -> Callable[[Array], Any]:
    if source not in FLOATING:
        return _from_integer(result, source, options)
    widen: Callable[[Array], Array] = floats.bf16_to_f32 if source == "bf16" else lambda a: a
    if "ftz" in options and source == "f32":
        widen = floats.flush
    narrow = _between_floats(builder, result, options) if result in FLOATING else _to_integer(result, source, options)
    return lambda a: narrow(widen(a))


def _mode(options: set[str]) -> str:
    return next((m for m in ("rz", "rm", "rp") if m in options), "rn")


def _from_integer(result: str, source: str, options: set[str]) -> Callable[[Array], Any]:
    if result not in FLOATING:
        if "sat" not in options:
            # The result as such: its upper bits are cut and its sign is its own, also where the register is wider.
            return lambda a: a.astype(DTYPES[result], copy=False)
        limits = np.iinfo(DTYPES[result])
        low, high = max(limits.min, np.iinfo(DTYPES[source]).min), min(limits.max, np.iinfo(DTYPES[source]).max)
        return lambda a: np.clip(a, a.dtype.type(low), a.dtype.type(high))
    mode = _mode(options)
    if result == "bf16":
        return lambda a: floats.f64_to_bf16(_integer_to_odd_double(a))
    dtype = DTYPES[result]
    if mode == "rn":
        if dtype == np.float16:  # numpy goes through f32, which rounds twice
            return lambda a: _integer_to_odd_double(a).astype(dtype)
        return lambda a: a.astype(dtype)
    if dtype == np.float64 and kind_bits(source) == 64:
        return lambda a: floats.directed(a.astype(dtype), a.astype(np.longdouble), mode)
    return lambda a: floats.directed(a.astype(dtype), _integer_to_odd_double(a), mode)


def _integer_to_odd_double(a: Array) -> Array:
    """Doubles that round to every narrower type as the integers themselves do."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
    return floats.odd_sum(high, (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64))


def _to_integer(result: str, source: str, options: set[str]) -> Callable[[Array], Any]:
    """Out of range values become the nearest end. A NaN becomes 0, or the top bit alone where 64 bits take part."""
    rounding = next((_ROUND[m] for m in _ROUND if m in options), np.trunc)
    dtype = DTYPES[result]
    limits = np.iinfo(dtype)
    wide = kind_bits(result) == 64 or source == "f64"
    nan = (1 << (kind_bits(result) - 1)) if wide else 0
    nan = nan - (1 << 64) if dtype == np.int64 and nan else (limits.min if dtype.kind == "i" and nan else nan)
    ceiling = float(limits.max) if kind_bits(result) < 64 else float(limits.max + 1)

    def run(a: Array) -> Any:
        values = rounding(a.astype(np.float64))
        inside = (values >= limits.min) & (values < ceiling) if kind_bits(result) == 64 else None
        if inside is None:
            converted = np.clip(np.where(np.isnan(values), 0.0, values), limits.min, limits.max).astype(dtype)
        else:
            converted = np.where(inside, values, 0.0).astype(dtype)
            ends = np.where(values > 0, dtype.type(limits.max), dtype.type(limits.min))
            converted = np.where(inside, converted, ends)
        return np.where(np.isnan(values), np.array(nan).astype(dtype), converted)

    return run


def _between_floats(builder: Builder, result: str, options: set[str]) -> Callable[[Array], Any]:
    """From f16, f32 or f64 (bf16 has been widened to f32) to any type."""
    rounding = next((_ROUND[m] for m in _ROUND if m in options), None)
    mode = _mode(options)
    dtype = DTYPES[result]

    def run(a: Array) -> Any:
        values = rounding(a) if rounding else a
        if "sat" in options:
            values = floats.saturate(values)
        if result == "bf16":
            converted = _to_bf16(values, mode)
        else:
            converted = values.astype(dtype)
            if mode != "rn" and dtype.itemsize < values.dtype.itemsize:
                converted = floats.directed(converted, values, mode)
        if "ftz" in options and result == "f32":
            converted = floats.flush(converted)
        return _clamped(converted, result, options)

    if "rna" in options or "rs" in options:
        raise builder.unsupported("this rounding is not implemented for the type")
    return run


def _to_bf16(values: Array, mode: str) -> Array:
    if values.dtype == np.float64:
        values = floats.narrow_odd(values)
    values = values.astype(np.float32)
    if mode == "rn":
        return floats.f32_to_bf16(values)
    bits = np.ascontiguousarray(values).view(np.uint32)
    cut = (bits >> np.uint32(16)).astype(np.uint16)
    inexact = (bits & np.uint32(0xFFFF)) != 0
    negative = bits >> np.uint32(31) != 0
    away = inexact & (negative if mode == "rm" else ~negative) if mode != "rz" else np.zeros_like(inexact)
    return np.where(np.isnan(values), np.uint16(0x7FFF), cut + away.astype(np.uint16))


def _clamped(values: Array, kind: str, options: set[str]) -> Array:
    """`.relu` and `.satfinite`."""
    if options.isdisjoint(("relu", "satfinite")):
        return values
    sixteen = kind == "bf16"
    wide = floats.bf16_to_f32(values) if sixteen else values
    if "satfinite" in options:
        limit = wide.dtype.type(3.3895313892515355e38 if sixteen else np.finfo(wide.dtype).max)
        wide = np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit))
    if "relu" in options:
        wide = np.where(wide > 0, wide, np.where(np.isnan(wide), wide, wide.dtype.type(0)))
    return floats.f32_to_bf16(wide) if sixteen else wide


def _to_tf32(options: set[str]) -> Callable[[Array], Any]:
    """19 bits are kept; `.rna` rounds ties away from zero, `.rn` to even, `.rz` cuts."""

    def run(a: Array) -> Any:
        bits = np.ascontiguousarray(a).view(np.uint32)
        if "rna" in options:
            rounded = bits + np.uint32(0x1000)
        elif "rn" in options:
            rounded = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        else:
            rounded = bits
        finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
        kept = np.where(finite, rounded & np.uint32(0xFFFFE000), np.where(np.isnan(a), np.uint32(0x7FFFFFFF), bits))
        if "relu" in options:
            kept = np.where((kept >> np.uint32(31)) & ~np.isnan(a), np.uint32(0), kept)
        return kept

    return run


# --- several values at once ---


def _fp8_type(name: str) -> np.dtype[Any]:
    import ml_dtypes  # only kernels with fp8 need it

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _FP8[name]))
    return found


def _to_fp8(values: Array, name: str, options: set[str]) -> Array:
    limit = np.float32(_FP8_LIMIT[name])
    clipped = np.where(np.isnan(values), values, np.clip(values, -limit, limit)).astype(np.float32)
    if "relu" in options:
        clipped = np.where(clipped > 0, clipped, np.where(np.isnan(clipped), clipped, np.float32(0)))
    bits = clipped.astype(_fp8_type(name)).view(np.uint8)
    return np.where(np.isnan(clipped), np.uint8(0x7F), bits)


def _join(low: Array, high: Array, bits: int, dtype: str) -> Array:
    wide = np.dtype(dtype)
    joined: Array = low.astype(wide) | (high.astype(wide) << wide.type(bits))
    return joined


def _convert_packed(builder: Builder, i: Instruction, result: str, source: str, options: set[str]) -> Operation:
    part = result.removesuffix("x2")
    if source == "f32":  # two sources, the first for the upper half
        sources = [builder.read(operand, "f32") for operand in i.operands[1:]]
        return _from_pair(builder, i, part, sources, options)
    if part in _FP8 and source in ("f16x2", "bf16x2"):
        halves = builder.read(i.operands[1], source)
        widen = floats.bf16_to_f32 if source == "bf16x2" else (lambda a: a.astype(np.float32))

        def narrow(a: Array) -> Any:
            bytes_ = _to_fp8(widen(a), part, options)
            return _join(bytes_[..., 0], bytes_[..., 1], 8, "u2")

        return builder.elementwise(i.operands[0], "b16", narrow, [halves])
    if source.removesuffix("x2") in _FP8 and result == "f16x2":
        eight = source.removesuffix("x2")

        def widen_bytes(a: Array) -> Any:
            raw = np.ascontiguousarray(a)[..., None].view(np.uint8)
            values = raw.view(_fp8_type(eight)).astype(np.float32).astype(np.float16)
            if "relu" in options:
                values = np.where(values > 0, values, np.where(np.isnan(values), values, np.float16(0)))
            return values

        return builder.elementwise(i.operands[0], "f16x2", widen_bytes, [builder.read(i.operands[1], "b16")])
    raise builder.unsupported(f"the conversion from {source} to {result} is not implemented")


def _from_pair(builder: Builder, i: Instruction, part: str, sources: list[int], options: set[str]) -> Operation:
    if part in _FP8:
        return builder.elementwise(
            i.operands[0],
            "b16",
            lambda high, low: _join(_to_fp8(low, part, options), _to_fp8(high, part, options), 8, "u2"),
            sources,
        )
    if part not in ("f16", "bf16"):
        raise builder.unsupported(f"the conversion to {part}x2 is not implemented")
    narrow = _conversion(builder, part, "f32", options)

    def run(high: Array, low: Array) -> Any:
        low_bits, high_bits = (np.ascontiguousarray(narrow(v)).view(np.uint16) for v in (low, high))
        return _join(low_bits, high_bits, 16, "u4")

    return builder.elementwise(i.operands[0], "b32", run, sources)


def _convert_pack(builder: Builder, i: Instruction) -> Operation:
    """cvt.pack.sat: two integers, saturated, into the low part; the third operand's low part moves up."""
    small = i.modifiers[2]
    limits = np.iinfo(DTYPES[small]) if small in DTYPES else None
    if limits is None:
        raise builder.unsupported("cvt.pack of 2 or 4 bits is not implemented")
    bits = kind_bits(small)
    keep = np.uint32((1 << bits) - 1)

    def run(a: Array, b: Array, *c: Array) -> Any:
        high, low = (np.clip(v, limits.min, limits.max).astype(np.int64).astype(np.uint32) & keep for v in (a, b))
        packed = low | (high << np.uint32(bits))
        return packed | (c[0] << np.uint32(2 * bits)) if c else packed

    sources = [builder.read(o, "s32") for o in i.operands[1:3]] + [builder.read(o, "b32") for o in i.operands[3:]]
    return builder.elementwise(i.operands[0], "b32", run, sources)


# --- addresses ---

_WINDOWS = {"shared": SHARED_WINDOW, "shared::cta": SHARED_WINDOW, "local": LOCAL_WINDOW}


def _address(builder: Builder, i: Instruction) -> Operation:
    """cvta: shared and local memory lie in windows of the generic address space; global addresses are generic."""
    window = next((_WINDOWS[m] for m in i.modifiers if m in _WINDOWS), 0)
    kind = data_type(i)
    shift = np.uint64(window)
    back = "to" in i.modifiers

    def run(a: Array) -> Any:
        return a - shift if back else a + shift

    if kind != "u64":
        raise builder.unsupported("addresses of 32 bits are not implemented")
    return builder.elementwise(i.operands[0], kind, run if window else lambda a: a, [builder.read(i.operands[1], kind)])


def _in_space(builder: Builder, i: Instruction) -> Operation:
    window = _WINDOWS.get(i.modifiers[-1], 0) >> 56
    source = builder.read(i.operands[1], "u64")
    return builder.elementwise(i.operands[0], "pred", lambda a: (a >> np.uint64(56)) == np.uint64(window), [source])


def _policy(builder: Builder, i: Instruction) -> Operation:
    """createpolicy: a hint to a cache that is not emulated."""
    return builder.elementwise(i.operands[0], "b64", lambda a: a, [builder.constant(0, "b64")])


TABLE: dict[str, Build] = {
    "mov": _move,
    "cvt": _convert,
    "cvta": _address,
    "isspacep": _in_space,
    "createpolicy": _policy,
}
