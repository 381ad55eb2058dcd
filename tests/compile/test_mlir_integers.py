"""Integer operations of MLIR against Python's unbounded ones, over all edges of each width."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mlir_functions import NUMPY, elementwise  # noqa: E402

pytestmark = pytest.mark.compiler

WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


def edges(bits: int) -> list[int]:
    """Signed values around what matters: 0, the ends, and powers of two between."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    middle = 1 << (bits // 2)
    return [0, 1, 2, 3, 7, -1, -2, -7, low, low + 1, high, high - 1, middle, middle - 1, -middle, 0x55 % (high + 1)]


def unsigned(value: int, bits: int) -> int:
    return value % (1 << bits)


def signed(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def truncated(a: int, b: int) -> int:
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


SIGNED: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": truncated,
    "remsi": lambda a, b: a - b * truncated(a, b),
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "maxsi": max,
    "minsi": min,
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
}
UNSIGNED: dict[str, Callable[[int, int], int]] = {
    "divui": lambda a, b: a // b,
    "remui": lambda a, b: a % b,
    "ceildivui": lambda a, b: -(-a // b),
    "maxui": max,
    "minui": min,
    "shrui": lambda a, b: a >> b,
}


def pairs(operation: str, bits: int) -> list[tuple[int, int]]:
    """Those pairs of edges for which the operation is defined."""
    found = [(a, b) for a in edges(bits) for b in edges(bits)]
    if operation.startswith("sh"):
        return [(a, b) for a in edges(bits) for b in range(bits)]
    if "div" in operation or "rem" in operation:
        found = [
            (a, b) for a, b in found if b != 0 and not (a == -(1 << (bits - 1)) and b == -1 and "u" not in operation)
        ]
    return found


@pytest.mark.parametrize("element", WIDTHS)
@pytest.mark.parametrize("operation", [*SIGNED, *UNSIGNED])
def test_binary(operation: str, element: str) -> None:
    bits = WIDTHS[element]
    operands = pairs(operation, bits)
    a, b = (np.array(column, NUMPY[element]) for column in zip(*operands, strict=True))
    (found,) = elementwise(f"arith.{operation}", [(element, a), (element, b)], [element])
    if operation in SIGNED:
        expected = [signed(SIGNED[operation](x, y), bits) for x, y in operands]
    else:
        expected = [signed(UNSIGNED[operation](unsigned(x, bits), unsigned(y, bits)), bits) for x, y in operands]
    assert found.tolist() == expected


@pytest.mark.parametrize("operation", [*SIGNED, *UNSIGNED])
def test_binary_of_bits(operation: str) -> None:
    """A bit is -1 where it is signed, and arithmetic is modulo 2."""
    operands = [(a, b) for a in (0, 1) for b in (0, 1)]
    if "div" in operation or "rem" in operation:
        operands = [(a, b) for a, b in operands if b and not (a and "u" not in operation)]  # -1 / -1 overflows
    if operation.startswith("sh"):
        operands = [(a, 0) for a in (0, 1)]
    a, b = (np.array(column, bool) for column in zip(*operands, strict=True))
    (found,) = elementwise(f"arith.{operation}", [("i1", a), ("i1", b)], ["i1"])
    function, sign = (SIGNED[operation], -1) if operation in SIGNED else (UNSIGNED[operation], 1)
    assert found.tolist() == [bool(function(sign * x, sign * y) & 1) for x, y in operands]


PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("element", ["i1", "i8", "i64"])
def test_compare(element: str, number: int) -> None:
    bits, name = WIDTHS.get(element, 1), PREDICATES[number]
    values = edges(bits) if bits > 1 else [0, -1]
    operands = [(a, b) for a in values for b in values]
    a, b = (np.array(column, NUMPY[element]) for column in zip(*operands, strict=True))
    (found,) = elementwise("arith.cmpi", [(element, a), (element, b)], ["i1"], f"predicate = {number} : i64")
    if name.startswith("u"):
        operands = [(unsigned(a, bits), unsigned(b, bits)) for a, b in operands]
    assert found.tolist() == [COMPARED[name[-2:]](a, b) for a, b in operands]


@pytest.mark.parametrize("element", ["i1", "i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("sign", ["s", "u"])
def test_extended_product(element: str, sign: str) -> None:
    bits = WIDTHS.get(element, 1)
    values = edges(bits) if bits > 1 else [0, -1]
    operands = [(a, b) for a in values for b in values]
    a, b = (np.array(column, NUMPY[element]) for column in zip(*operands, strict=True))
    low, high = elementwise(f"arith.mul{sign}i_extended", [(element, a), (element, b)], [element] * 2)
    read = (lambda x: x) if sign == "s" else (lambda x: unsigned(x, bits))
    products = [read(x) * read(y) for x, y in operands]
    as_bits = (lambda x: signed(x, bits)) if bits > 1 else (lambda x: bool(x & 1))
    assert low.tolist() == [as_bits(p) for p in products]
    assert high.tolist() == [as_bits(p >> bits) for p in products]


@pytest.mark.parametrize("element", ["i1", "i8", "i32", "i64"])
def test_extended_sum(element: str) -> None:
    bits = WIDTHS.get(element, 1)
    values = edges(bits) if bits > 1 else [0, -1]
    operands = [(a, b) for a in values for b in values]
    a, b = (np.array(column, NUMPY[element]) for column in zip(*operands, strict=True))
    low, carry = elementwise("arith.addui_extended", [(element, a), (element, b)], [element, "i1"])
    sums = [unsigned(x, bits) + unsigned(y, bits) for x, y in operands]
    assert [unsigned(int(x), bits) for x in low] == [unsigned(s, bits) for s in sums]
    assert carry.tolist() == [s >> bits != 0 for s in sums]


CASTS = [(a, b) for a in ("i1", "i8", "i32", "i64") for b in ("i1", "i8", "i32", "i64")]


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_casts(source: str, target: str) -> None:
    bits, wanted = WIDTHS.get(source, 1), WIDTHS.get(target, 1)
    values = edges(bits) if bits > 1 else [0, -1]
    x = np.array(values, NUMPY[source])
    names = {"trunci": signed, "index_cast": signed} if wanted < bits else {"extsi": signed, "extui": unsigned}
    for name, read in names.items():
        if wanted == bits or name == "index_cast":
            continue
        (found,) = elementwise(f"arith.{name}", [(source, x)], [target])
        expected = [signed(read(value, bits), wanted) for value in values]
        assert [signed(int(f), wanted) for f in found] == expected, name


@pytest.mark.parametrize("element", ["i1", "i8", "i32", "i64"])
def test_index_casts(element: str) -> None:
    bits = WIDTHS.get(element, 1)
    values = edges(bits) if bits > 1 else [0, -1]
    x = np.array(values, NUMPY[element])
    (as_signed,) = elementwise("arith.index_cast", [(element, x)], ["index"])
    (as_unsigned,) = elementwise("arith.index_castui", [(element, x)], ["index"])
    assert as_signed.tolist() == values
    assert as_unsigned.tolist() == [signed(unsigned(value, bits), 64) for value in values]
    (back,) = elementwise("arith.index_cast", [("index", as_unsigned)], [element])
    assert back.tolist() == x.tolist()


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
def test_bits(element: str) -> None:
    bits = WIDTHS[element]
    values = [*edges(bits), *(signed(1 << n, bits) for n in range(bits)), *(signed(-1 << n, bits) for n in range(bits))]
    x = np.array(values, NUMPY[element])
    texts = [format(unsigned(value, bits), f"0{bits}b") for value in values]
    expected = {
        "ctpop": [text.count("1") for text in texts],
        "ctlz": [(text + "1").index("1") for text in texts],
        "cttz": [(text[::-1] + "1").index("1") for text in texts],
        "absi": [signed(abs(value), bits) for value in values],
    }
    for name, counts in expected.items():
        (found,) = elementwise(f"math.{name}", [(element, x)], [element])
        assert found.tolist() == counts, name


@pytest.mark.parametrize("element", ["i8", "i32", "i64"])
def test_integer_power(element: str) -> None:
    bits = WIDTHS[element]
    operands = [(a, b) for a in edges(bits) for b in (0, 1, 2, 3, 5, 31, 100, -1, -2) if b >= 0 or a != 0]
    a, b = (np.array(column, NUMPY[element]) for column in zip(*operands, strict=True))
    (found,) = elementwise("math.ipowi", [(element, a), (element, b)], [element])
    inverse = {1: 1, -1: -1}
    expected = [x**y if y >= 0 else inverse.get(x, 0) ** (y & 1 or 2) if x in inverse else 0 for x, y in operands]
    assert found.tolist() == [signed(e, bits) for e in expected]


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("to", ["f32", "f64"])
def test_to_float_and_back(element: str, to: str) -> None:
    bits = WIDTHS[element]
    values = [*edges(bits), (1 << (bits - 1)) - 1, -(1 << (bits - 1)) + 1]
    x = np.array(values, NUMPY[element])
    (as_signed,) = elementwise("arith.sitofp", [(element, x)], [to])
    (as_unsigned,) = elementwise("arith.uitofp", [(element, x)], [to])
    kind = NUMPY[to].type
    assert as_signed.tolist() == [float(kind(value)) for value in values]
    assert as_unsigned.tolist() == [float(kind(unsigned(value, bits))) for value in values]
    inside = [math.ldexp(1.5, n) for n in range(1, bits)] + [0.0, 0.75, 1.0]
    (found,) = elementwise("arith.fptoui", [(to, np.array(inside, NUMPY[to]))], [element])
    assert [unsigned(int(f), bits) for f in found] == [int(value) for value in inside]
    both = [*(v for v in inside if v < 2 ** (bits - 1)), -0.75, -1.0, -(2.0 ** (bits - 1))]
    (found,) = elementwise("arith.fptosi", [(to, np.array(both, NUMPY[to]))], [element])
    assert found.tolist() == [int(value) for value in both]
