"""Bits, comparisons and selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coilpack.runtime.devices.emulator.builder import Builder, assign
from coilpack.runtime.devices.emulator.code import DTYPES, FULL, Array, Mask, Operation
from coilpack.runtime.devices.emulator.floats import bf16_to_f32, flush
from coilpack.runtime.devices.emulator.frame import Frame
from coilpack.runtime.devices.emulator.instructions.types import FLOATING, Build, data_type
from coilpack.runtime.devices.emulator.ptx import Immediate, Instruction, Pair, Register

_AMOUNT = "u32"  # shifts and positions, whatever the type


def _bitwise(function: np.ufunc) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        kind = data_type(i)
        return builder.ufunc(i.operands[0], kind, function, [builder.read(operand, kind) for operand in i.operands[1:]])

    return build


def _shift(function: np.ufunc) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        kind = data_type(i)
        # numpy, too, gives 0 or the sign for amounts over the width.
        amount = i.operands[2]
        if isinstance(amount, Immediate):
            limit = DTYPES[kind].itemsize * 8
            slot = builder.constant(min(int(amount.value) % (1 << 32), limit), kind)
            return builder.ufunc(i.operands[0], kind, function, [builder.read(i.operands[1], kind), slot])
        sources = [builder.read(i.operands[1], kind), builder.read(amount, _AMOUNT)]

        def run(a: Array, n: Array) -> Any:
            return function(a, np.minimum(n, np.uint32(a.dtype.itemsize * 8)).astype(a.dtype))

        return builder.elementwise(i.operands[0], kind, run, sources)

    return build


def _funnel(builder: Builder, i: Instruction) -> Operation:
    left, wrap = "l" in i.modifiers, "wrap" in i.modifiers

    def run(low: Array, high: Array, amount: Array) -> Any:
        both = (high.astype(np.uint64) << np.uint64(32)) | low
        n = (amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        shifted = (both << n) >> np.uint64(32) if left else both >> n
        return shifted.astype(np.uint32)

    return builder.elementwise(i.operands[0], "b32", run, [builder.read(o, "u32") for o in i.operands[1:]])


def _permute(builder: Builder, i: Instruction) -> Operation:
    if i.modifiers != ("b32",):
        return _permute_mode(builder, i)

    def run(a: Array, b: Array, selector: Array) -> Any:
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        result: Any = np.uint32(0)
        for byte in range(4):
            choice = (selector >> np.uint32(4 * byte)) & np.uint32(15)
            value = ((both >> ((choice & np.uint32(7)) * np.uint32(8)).astype(np.uint64)) & np.uint64(0xFF)).astype(
                "u4"
            )
            signs = np.where(value & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
            value = np.where(choice & np.uint32(8), signs, value)
            result = result | (value << np.uint32(8 * byte))
        return result

    return builder.elementwise(i.operands[0], "b32", run, [builder.read(o, "u32") for o in i.operands[1:]])


# Bytes chosen for each value of the last operand's two low bits (PTX ISA, prmt).
_PERMUTE_MODES = {
    "f4e": ((3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)),
    "b4e": ((5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)),
    "rc16": ((1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)),
}


def _permute_mode(builder: Builder, i: Instruction) -> Operation:
    table = np.array(_PERMUTE_MODES[data_type(i)], np.uint64)[:, ::-1] * np.uint64(8)

    def run(a: Array, b: Array, selector: Array) -> Any:
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        shifts = table[selector & np.uint32(3)]
        values = (both[..., None] >> shifts) & np.uint64(0xFF)
        return (values << (np.arange(4, dtype=np.uint64) * np.uint64(8))).sum(axis=-1, dtype=np.uint64).astype("u4")

    return builder.elementwise(i.operands[0], "b32", run, [builder.read(o, "u32") for o in i.operands[1:]])


def _extract(builder: Builder, i: Instruction) -> Operation:
    kind = data_type(i)
    signed = kind[0] == "s"

    def run(a: Array, position: Array, length: Array) -> Any:
        p, n = ((v & np.uint32(0xFF)).astype(np.int64) for v in (position, length))
        if signed:
            wide = a.astype(np.int64) >> np.minimum(p, 63)
            drop = np.clip(64 - n, 0, 63)
            return np.where(n == 0, 0, (wide << drop) >> drop)
        keep = (np.uint64(1) << np.minimum(n, 64).astype(np.uint64)) - np.uint64(1)
        keep = np.where(n >= 64, np.uint64(0xFFFFFFFFFFFFFFFF), keep)
        return (a.astype(np.uint64) >> np.minimum(p, 64).astype(np.uint64)) & keep

    sources = [builder.read(o, k) for o, k in zip(i.operands[1:], (kind, _AMOUNT, _AMOUNT), strict=True)]
    return builder.elementwise(i.operands[0], kind, run, sources)


def _insert(builder: Builder, i: Instruction) -> Operation:
    kind = data_type(i)
    bits = DTYPES[kind].itemsize * 8
    one = DTYPES[kind].type(1)

    def run(a: Array, b: Array, position: Array, length: Array) -> Any:
        p, n = (np.minimum(v & np.uint32(0xFF), np.uint32(bits)).astype(a.dtype) for v in (position, length))
        ones = np.where(n >= bits, ~a.dtype.type(0), (one << n) - one)
        keep = ones << p
        return (b & ~keep) | ((a << p) & keep)

    kinds = (kind, kind, _AMOUNT, _AMOUNT)
    return builder.elementwise(
        i.operands[0], kind, run, [builder.read(o, k) for o, k in zip(i.operands[1:], kinds, strict=True)]
    )


_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


def _reverse(a: Array) -> Array:
    return _REVERSED[np.ascontiguousarray(a)[..., None].view(np.uint8)].view(a.dtype)[..., 0].byteswap()


def _unary(function: Callable[[Array], Any]) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        kind = data_type(i)
        return builder.elementwise(i.operands[0], kind, function, [builder.read(i.operands[1], kind)])

    return build


def _leading_zeros(a: Array) -> Array:
    """Counts from the top; 32 or 64 for 0."""
    bits = a.dtype.itemsize * 8
    if bits == 32:
        return np.uint32(32) - np.frexp(a.astype(np.float64))[1].astype(np.uint32)
    high, low = (a >> np.uint64(32)).astype(np.uint32), a.astype(np.uint32)
    return np.where(high, _leading_zeros(high), np.uint32(32) + _leading_zeros(low))


def _find_top(builder: Builder, i: Instruction) -> Operation:
    kind, shift = data_type(i), "shiftamt" in i.modifiers
    unsigned = "u" + kind[1:]
    bits = int(kind[1:])

    def run(a: Array) -> Any:
        values = np.where(a < 0, ~a, a).astype(DTYPES[unsigned]) if kind[0] == "s" else a
        zeros = _leading_zeros(values)
        found = zeros if shift else np.uint32(bits - 1) - zeros
        return np.where(values == 0, np.uint32(0xFFFFFFFF), found)

    return builder.elementwise(i.operands[0], "u32", run, [builder.read(i.operands[1], kind)])


def _to_u32(function: Callable[[Array], Array]) -> Build:
    def build(builder: Builder, i: Instruction) -> Operation:
        source = builder.read(i.operands[1], data_type(i))
        return builder.elementwise(i.operands[0], "u32", function, [source])

    return build


def _lookup(builder: Builder, i: Instruction) -> Operation:
    """lop3: any function of three bits, from its table of truth."""
    table = i.operands[4]
    if not isinstance(table, Immediate) or len(i.modifiers) != 1:
        raise builder.unsupported("lop3 with a predicate or a table in a register is not implemented")
    truth = int(table.value)

    def run(a: Array, b: Array, c: Array) -> Any:
        result: Any = np.uint32(0)
        for term in range(8):
            if truth >> term & 1:
                x, y, z = a if term & 4 else ~a, b if term & 2 else ~b, c if term & 1 else ~c
                result = result | (x & y & z)
        return result

    return builder.elementwise(i.operands[0], "b32", run, [builder.read(o, "b32") for o in i.operands[1:4]])


def _bit_mask(builder: Builder, i: Instruction) -> Operation:
    wrap = "wrap" in i.modifiers

    def run(position: Array, length: Array) -> Any:
        both = (position, length)
        p, n = ((v & np.uint32(31) if wrap else np.minimum(v, np.uint32(32))).astype(np.uint64) for v in both)
        return (((np.uint64(1) << n) - np.uint64(1)) << p).astype(np.uint32)

    return builder.elementwise(i.operands[0], "b32", run, [builder.read(o, "u32") for o in i.operands[1:]])


# --- comparisons ---

_COMPARE: dict[str, Callable[[Array, Array], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def _opposite(compare: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    return lambda a, b: ~compare(a, b)


_OPPOSITE = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}
_FLOATING: dict[str, Callable[[Array, Array], Any]] = {
    **_COMPARE,
    "ne": lambda a, b: (a < b) | (a > b),
    "equ": lambda a, b: ~((a < b) | (a > b)),
    **{name: _opposite(_COMPARE[other]) for name, other in _OPPOSITE.items() if name != "equ"},
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(i: Instruction, kind: str) -> Callable[[Array, Array], Any]:
    name = i.modifiers[0]
    if kind not in FLOATING:
        return _COMPARE[name]
    compare = _FLOATING[name]
    if kind.startswith("bf16"):
        return lambda a, b: compare(bf16_to_f32(a), bf16_to_f32(b))
    if "ftz" in i.modifiers and kind == "f32":
        return lambda a, b: compare(flush(a), flush(b))
    return compare


def _set_predicate(builder: Builder, i: Instruction) -> Operation:
    kind, target = data_type(i), i.operands[0]
    if kind.endswith("x2"):
        return _set_two(builder, i)
    first = target.first if isinstance(target, Pair) else target
    sources = [builder.read(o, kind) for o in i.operands[1:3]]
    combine = next((_COMBINE[m] for m in i.modifiers[1:] if m in _COMBINE), None)
    compare = _comparison(i, kind)
    if combine is None and isinstance(compare, np.ufunc) and isinstance(target, Register):
        return builder.ufunc(first, "pred", compare, sources)
    other, negated = builder.predicate(i.operands[3]) if combine else (None, False)
    one = builder.write(first, "pred")
    two = builder.write(target.second, "pred") if isinstance(target, Pair) and target.second.name != "_" else None
    full = builder.dims.get(first.name if isinstance(first, Register) else "", FULL) == FULL

    def run(frame: Frame, mask: Mask) -> None:
        slots = frame.slots
        result = compare(*[slots[s] for s in sources])
        opposite = ~result
        if combine is not None and other is not None:
            given = ~slots[other] if negated else slots[other]
            result, opposite = combine(result, given), combine(opposite, given)
        heed = mask if full else None
        assign(slots[one], result, heed)
        if two is not None:
            assign(slots[two], opposite, heed)

    return run


def _set_two(builder: Builder, i: Instruction) -> Operation:
    """Setp of two packed values: one predicate for each."""
    kind, target = data_type(i), i.operands[0]
    if not isinstance(target, Pair) or any(m in _COMBINE for m in i.modifiers[1:]):
        raise builder.unsupported("a packed comparison needs two predicates and combines with none")
    sources = [builder.read(o, kind) for o in i.operands[1:3]]
    slots_of = [builder.write(target.first, "pred"), builder.write(target.second, "pred")]
    full = builder.is_full(target.first)
    compare = _comparison(i, kind)

    def run(frame: Frame, mask: Mask) -> None:
        result = compare(*[frame.slots[s] for s in sources])
        for lane, slot in enumerate(slots_of):
            assign(frame.slots[slot], result[..., lane], mask if full else None)

    return run


def _set(builder: Builder, i: Instruction) -> Operation:
    """set: the result of a comparison as a number."""
    result, kind = i.modifiers[-2:]
    compare = _comparison(i, kind)
    if any(m in _COMBINE for m in i.modifiers[1:-2]):
        raise builder.unsupported("set that combines with a predicate is not implemented")
    dtype = DTYPES[result]
    true = {"f16": 1, "f16x2": 1, "f32": 1, "bf16": 0x3F80, "bf16x2": 0x3F80}.get(result, -1)
    value = np.array(true).astype(dtype)

    def run(a: Array, b: Array) -> Any:
        return np.where(compare(a, b), value, dtype.type(0))

    return builder.elementwise(i.operands[0], result, run, [builder.read(o, kind) for o in i.operands[1:3]])


def _select(builder: Builder, i: Instruction) -> Operation:
    kind = "b" + data_type(i)[1:]
    condition, negated = builder.predicate(i.operands[3])
    yes, no = (builder.read(o, kind) for o in i.operands[1:3])
    if negated:
        yes, no = no, yes

    def run(p: Array, a: Array, b: Array) -> Any:
        return np.where(p, a, b)

    return builder.elementwise(i.operands[0], kind, run, [condition, yes, no])


def _select_by_sign(builder: Builder, i: Instruction) -> Operation:
    """slct: by the sign of the last operand."""
    result, sign = i.modifiers[-2:]
    kind = "b" + result[1:]
    ftz = "ftz" in i.modifiers

    def run(a: Array, b: Array, c: Array) -> Any:
        return np.where((flush(c) if ftz else c) >= 0, a, b)

    kinds = (kind, kind, sign)
    return builder.elementwise(
        i.operands[0], kind, run, [builder.read(o, k) for o, k in zip(i.operands[1:], kinds, strict=True)]
    )


TABLE: dict[str, Build] = {
    "and": _bitwise(np.bitwise_and),
    "or": _bitwise(np.bitwise_or),
    "xor": _bitwise(np.bitwise_xor),
    "not": _unary(np.invert),
    "cnot": _unary(lambda a: (a == 0).astype(a.dtype)),
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
    "shf": _funnel,
    "prmt": _permute,
    "bfe": _extract,
    "bfi": _insert,
    "brev": _unary(_reverse),
    "clz": _to_u32(_leading_zeros),
    "popc": _to_u32(lambda a: np.bitwise_count(a)),
    "bfind": _find_top,
    "lop3": _lookup,
    "bmsk": _bit_mask,
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
}
