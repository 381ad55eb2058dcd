"""Floating-point arithmetic.

`.approx` functions are computed better than the hardware's bounds ask for. NaNs keep numpy's payloads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coilpack.runtime.devices.emulator import floats
from coilpack.runtime.devices.emulator.builder import Builder
from coilpack.runtime.devices.emulator.code import Array, Operation
from coilpack.runtime.devices.emulator.instructions.types import FLOATING, Build, data_type
from coilpack.runtime.devices.emulator.ptx import Instruction

Function = Callable[..., Any]
_DIRECTED = ("rz", "rm", "rp")
_ROUNDINGS = frozenset(_DIRECTED)


def is_floating(i: Instruction) -> bool:
    """Whether an instruction works on floating-point numbers."""
    return data_type(i) in FLOATING


def _kind(i: Instruction) -> str:
    return data_type(i)


def _build(builder: Builder, i: Instruction, function: Function) -> Operation:
    """Builds `function` of f32, f64 or f16 values with the instruction's modifiers; bf16 is computed as f32."""
    kind = _kind(i)
    sources = [builder.read(operand, kind) for operand in i.operands[1:]]
    ftz = "ftz" in i.modifiers and kind == "f32"
    wrapped = function
    if kind.startswith("bf16"):
        wrapped = _in_f32(function)
    elif "sat" in i.modifiers:
        wrapped = _saturated(function)
    if "relu" in i.modifiers:
        wrapped = _positive(wrapped, kind)
    if ftz:
        wrapped = _flushed(wrapped)
    if isinstance(wrapped, np.ufunc):
        return builder.ufunc(i.operands[0], kind, wrapped, sources)
    return builder.elementwise(i.operands[0], kind, wrapped, sources)


def _in_f32(function: Function) -> Function:
    return lambda *values: floats.f32_to_bf16(function(*[floats.bf16_to_f32(v) for v in values]))


def _saturated(function: Function) -> Function:
    return lambda *values: floats.saturate(function(*values))


def _flushed(function: Function) -> Function:
    return lambda *values: floats.flush(function(*[floats.flush(v) for v in values]))


def _positive(function: Function, kind: str) -> Function:
    """`.relu`: negative results and -0 become 0, NaNs the canonical one."""
    if kind.startswith("bf16"):

        def clamp(values: Array) -> Array:
            nan = (values & np.uint16(0x7FFF)) > np.uint16(0x7F80)
            return np.where(nan, np.uint16(0x7FFF), np.where(values & np.uint16(0x8000), np.uint16(0), values))
    else:

        def clamp(values: Array) -> Array:
            return np.where(values > 0, values, np.where(np.isnan(values), values, values.dtype.type(0)))

    return lambda *values: clamp(function(*values))


def _plain(function: Function) -> Build:
    return lambda builder, i: _build(builder, i, function)


def _arithmetic(function: np.ufunc) -> Build:
    """add, sub and mul: to nearest in place, in other directions by the error of the sum or product."""

    def build(builder: Builder, i: Instruction) -> Operation:
        mode = next((m for m in i.modifiers if m in _ROUNDINGS), "rn")
        if mode == "rn":
            return _build(builder, i, function)
        if _kind(i) != "f32":
            raise builder.unsupported(f"the rounding .{mode} is implemented for f32 alone")

        def run(a: Array, b: Array) -> Array:
            wide = a.astype(np.float64)
            exact = floats.odd_sum(wide, b if function is np.add else -b) if function is not np.multiply else wide * b
            return floats.directed(exact.astype(np.float32), exact, mode)

        return _build(builder, i, run)

    return build


_FUSED: dict[str, Function] = {"f32": floats.fma_f32, "f64": floats.fma_f64, "f16": floats.fma_f16}


def _fused(builder: Builder, i: Instruction) -> Operation:
    kind = _kind(i)
    mode = next((m for m in i.modifiers if m in _ROUNDINGS), "rn")
    if mode != "rn":
        if kind != "f32":
            raise builder.unsupported(f"the rounding .{mode} is implemented for f32 alone")

        def run(a: Array, b: Array, c: Array) -> Array:
            exact = floats.odd_sum(np.multiply(a, b, dtype=np.float64), c.astype(np.float64))
            return floats.directed(exact.astype(np.float32), exact, mode)

        return _build(builder, i, run)
    if not kind.startswith("bf16"):
        return _build(builder, i, _FUSED[kind.removesuffix("x2")])
    sources = [builder.read(operand, kind) for operand in i.operands[1:]]
    function: Function = _positive(floats.fma_bf16, kind) if "relu" in i.modifiers else floats.fma_bf16
    return builder.elementwise(i.operands[0], kind, function, sources)


def _divide(builder: Builder, i: Instruction) -> Operation:
    """div, and rcp, whose dividend is 1."""
    mode = next((m for m in i.modifiers if m in _ROUNDINGS), "rn")
    if mode != "rn" and _kind(i) != "f32":
        raise builder.unsupported(f"the rounding .{mode} is implemented for f32 alone")

    def quotient(a: Array, b: Array) -> Array:
        near: Array = np.divide(a, b)
        if mode == "rn":
            return near
        # The quotient in double precision lies on the right side of `near`, save where both are equal: there the
        # error has the sign of the exact remainder over the divisor.
        wide = near.astype(np.float64)
        exact = np.divide(a, b, dtype=np.float64)
        rest = a.astype(np.float64) - wide * b
        shifted = wide + np.sign(rest) * np.sign(b) * np.abs(wide) * 2.0**-40
        return floats.directed(near, np.where((exact == wide) & np.isfinite(wide), shifted, exact), mode)

    if len(i.operands) == 2:
        return _build(builder, i, lambda b: quotient(np.ones_like(b), b))
    return _build(builder, i, np.divide if mode == "rn" else quotient)


def _extreme(quiet: np.ufunc, spreading: np.ufunc, *, greatest: bool) -> Build:
    """Min and max: a number wins over a NaN, unless `.NaN` says that it spreads."""

    def build(builder: Builder, i: Instruction) -> Operation:
        function = floats.zero_aware(spreading if "NaN" in i.modifiers else quiet, greatest=greatest)
        if "xorsign" in i.modifiers:
            raise builder.unsupported("the modifier .xorsign.abs is not implemented")
        if len(i.operands) == 4:
            return _build(builder, i, lambda a, b, c: function(function(a, b), c))
        return _build(builder, i, function)

    return build


def _sign_bit(clear: int) -> Build:
    """Abs and neg of any value, NaNs included, by the sign bit."""

    def build(builder: Builder, i: Instruction) -> Operation:
        kind = _kind(i)
        if "ftz" in i.modifiers and kind == "f32":
            return _build(builder, i, np.abs if clear else np.negative)
        bits = kind.replace("bf16", "f16").replace("f", "u")
        width = int(bits.removesuffix("x2")[1:])
        top = 1 << (width - 1)

        def run(a: Array) -> Any:
            return a & a.dtype.type(top - 1) if clear else a ^ a.dtype.type(top)

        return builder.elementwise(i.operands[0], bits, run, [builder.read(i.operands[1], bits)])

    return build


def _in_double(function: Callable[[Array], Any]) -> Function:
    """A function of f32 and f16 computed in double precision and rounded once."""
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


def _rounded_root(builder: Builder, i: Instruction) -> Operation:
    mode = next((m for m in i.modifiers if m in _ROUNDINGS), "rn")
    if mode != "rn":
        if _kind(i) != "f32":
            raise builder.unsupported(f"the rounding .{mode} is implemented for f32 alone")
        return _build(builder, i, lambda a: floats.directed(np.sqrt(a), np.sqrt(a.astype(np.float64)), mode))
    return _build(builder, i, np.sqrt)


def _copy_sign(builder: Builder, i: Instruction) -> Operation:
    kind = _kind(i)
    sources = [builder.read(operand, kind) for operand in i.operands[1:]]
    # PTX gives the sign first.
    return builder.elementwise(i.operands[0], kind, lambda sign, value: np.copysign(value, sign), sources)


_TESTS: dict[str, Callable[[Array], Any]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
    "subnormal": lambda a: np.isfinite(a) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


def _test(builder: Builder, i: Instruction) -> Operation:
    source = builder.read(i.operands[1], _kind(i))
    return builder.elementwise(i.operands[0], "pred", _TESTS[i.modifiers[0]], [source])


TABLE: dict[str, Build] = {
    "add": _arithmetic(np.add),
    "sub": _arithmetic(np.subtract),
    "mul": _arithmetic(np.multiply),
    "fma": _fused,
    "mad": _fused,
    "div": _divide,
    "min": _extreme(np.fmin, np.minimum, greatest=False),
    "max": _extreme(np.fmax, np.maximum, greatest=True),
    "abs": _sign_bit(1),
    "neg": _sign_bit(0),
    "sqrt": _rounded_root,
    "rcp": _divide,
    "rsqrt": _plain(_in_double(lambda a: 1.0 / np.sqrt(a))),
    "ex2": _plain(np.exp2),
    "lg2": _plain(np.log2),
    "sin": _plain(_in_double(np.sin)),
    "cos": _plain(_in_double(np.cos)),
    "tanh": _plain(np.tanh),
    "copysign": _copy_sign,
    "testp": _test,
}
