"""Reductions that `linalg.generic` writes out, against the same loops in Python."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mlir_functions import NUMPY, call_module, reduction  # noqa: E402

from coilpack.compiler.mlir.lower.export import lower_function  # noqa: E402
from coilpack.compiler.mlir.parser import parse_module  # noqa: E402
from coilpack.runtime.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.compiler

NAN, INF = math.nan, math.inf
ROWS = np.array(
    [
        [1.0, 3.0, 3.0, -2.0, 0.5],
        [NAN, 2.0, 7.0, NAN, 1.0],
        [4.0, NAN, 2.0, 1.0, 1.0],
        [-INF, -INF, -INF, -INF, -INF],
        [5.0, 1.0, 2.0, 3.0, NAN],
        [NAN, NAN, NAN, NAN, NAN],
    ],
    np.float32,
)
INITS = np.array([0.0, 0.0, NAN, -INF, -INF, 1.0], np.float32)


def yields(operation: str, element: str, values: str = "%o0, %x0", properties: str = "") -> str:
    return f"""%y = "{operation}"({values}) {properties} : ({element}, {element}) -> {element}
        "linalg.yield"(%y) : ({element}) -> ()"""


@pytest.mark.parametrize("operation", ["maximumf", "minimumf", "maxnumf", "minnumf"])
def test_extremes_of_floats(operation: str) -> None:
    (found,) = reduction(yields(f"arith.{operation}", "f32"), [("f32", ROWS)], [("f32", INITS)])
    of_two = {"maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin}[operation]
    expected = [functools.reduce(of_two, row, init) for row, init in zip(ROWS, INITS, strict=True)]
    np.testing.assert_array_equal(found, expected)


INTEGERS = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "maxsi": max,
    "minsi": min,
    "maxui": lambda a, b: max(a, b, key=lambda v: v % 2**64),
    "minui": lambda a, b: min(a, b, key=lambda v: v % 2**64),
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("element", ["i1", "i8", "i32", "i64"])
@pytest.mark.parametrize("operation", INTEGERS)
def test_integers(operation: str, element: str) -> None:
    kind, random = NUMPY[element], np.random.default_rng(3)
    if element == "i1":
        rows, inits = random.integers(0, 2, (9, 3)).astype(bool), random.integers(0, 2, 9).astype(bool)
    else:
        limits = np.iinfo(kind)
        rows = random.integers(limits.min, limits.max, (4, 7), kind, endpoint=True)
        inits = random.integers(limits.min, limits.max, 4, kind, endpoint=True)
    (found,) = reduction(yields(f"arith.{operation}", element), [(element, rows)], [(element, inits)])
    bits = 1 if element == "i1" else kind.itemsize * 8
    expected = []
    for row, init in zip(rows.tolist(), inits.tolist(), strict=True):
        value = functools.reduce(
            INTEGERS[operation], [-v if bits == 1 else v for v in row], -init if bits == 1 else init
        )
        expected.append(bool(value & 1) if bits == 1 else (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))
    assert found.tolist() == expected


def test_a_sum_of_several_terms() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32) * 2
    body = """%p = "arith.mulf"(%x0, %x1) : (f32, f32) -> f32
        %s = "arith.subf"(%o0, %p) : (f32, f32) -> f32
        %y = "arith.addf"(%x0, %s) : (f32, f32) -> f32
        "linalg.yield"(%y) : (f32) -> ()"""
    (found,) = reduction(body, [("f32", x), ("f32", y)], [("f32", np.array([1.0, 2.0, 3.0], np.float32))])
    assert found.tolist() == (np.array([1.0, 2.0, 3.0]) + (x - x * y).sum(1)).tolist()


PREDICATES = {"ogt": 2, "oge": 3, "olt": 4, "ole": 5, "ugt": 9, "uge": 10, "ult": 11, "ule": 12}


def holds(predicate: str, a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return predicate[0] == "u"
    return {"gt": a > b, "ge": a >= b, "lt": a < b, "le": a <= b}[predicate[1:]]


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("element_first", [True, False])
@pytest.mark.parametrize("predicate", PREDICATES)
def test_winner_and_its_place(predicate: str, element_first: bool, replaces: bool) -> None:
    """An argmax or argmin by any predicate, either order of its operands and of the select's."""
    compared = "%x0, %o0" if element_first else "%o0, %x0"
    pick = (lambda new, old: f"%c, {new}, {old}") if replaces else (lambda new, old: f"%c, {old}, {new}")
    body = f"""%i = "linalg.index"() <{{dim = 1 : i64}}> : () -> index
        %k = "arith.index_cast"(%i) : (index) -> i32
        %c = "arith.cmpf"({compared}) <{{predicate = {PREDICATES[predicate]} : i64}}> : (f32, f32) -> i1
        %v = "arith.select"({pick("%x0", "%o0")}) : (i1, f32, f32) -> f32
        %p = "arith.select"({pick("%k", "%o1")}) : (i1, i32, i32) -> i32
        "linalg.yield"(%v, %p) : (f32, i32) -> ()"""
    places = np.full(len(ROWS), -5, np.int32)
    value, place = reduction(body, [("f32", ROWS)], [("f32", INITS), ("i32", places)])
    expected = []
    for row, init in zip(ROWS.tolist(), INITS.tolist(), strict=True):
        best, at = init, -5
        for index, x in enumerate(row):
            if holds(predicate, *((x, best) if element_first else (best, x))) == replaces:
                best, at = x, index
        expected.append((best, at))
    np.testing.assert_array_equal(value, np.array([best for best, _ in expected], np.float32))
    assert place.tolist() == [at for _, at in expected]


def test_maximum_and_its_place() -> None:
    """As other frontends write an argmax: a maximum, which keeps NaN, and a select."""
    body = """%i = "linalg.index"() <{dim = 1 : i64}> : () -> index
        %k = "arith.index_cast"(%i) : (index) -> i64
        %v = "arith.maximumf"(%x0, %o0) : (f32, f32) -> f32
        %c = "arith.cmpf"(%x0, %o0) <{predicate = 2 : i64}> : (f32, f32) -> i1
        %p = "arith.select"(%c, %k, %o1) : (i1, i64, i64) -> i64
        "linalg.yield"(%v, %p) : (f32, i64) -> ()"""
    value, place = reduction(body, [("f32", ROWS)], [("f32", INITS), ("i64", np.zeros(len(ROWS), np.int64))])
    expected = []
    for row, init in zip(ROWS, INITS, strict=True):
        best, at = init, 0
        for index, x in enumerate(row):
            at = index if x > best else at
            best = np.maximum(best, x)
        expected.append((best, at))
    np.testing.assert_array_equal(value, [best for best, _ in expected])
    assert place.tolist() == [at for _, at in expected]


def test_integer_winner() -> None:
    rows = np.array([[3, 9, 9, -1], [-3, -9, -9, 1]], np.int64)
    body = """%i = "linalg.index"() <{dim = 1 : i64}> : () -> index
        %c = "arith.cmpi"(%x0, %o0) <{predicate = 8 : i64}> : (i64, i64) -> i1
        %v = "arith.select"(%c, %x0, %o0) : (i1, i64, i64) -> i64
        %p = "arith.select"(%c, %i, %o1) : (i1, index, index) -> index
        "linalg.yield"(%v, %p) : (i64, index) -> ()"""
    zeros = np.zeros(2, np.int64)
    value, place = reduction(body, [("i64", rows)], [("i64", zeros), ("index", zeros)])
    assert (value.tolist(), place.tolist()) == ([-1, -3], [3, 0])  # unsigned, -1 is the largest


def test_step_by_step() -> None:
    """What is no reduction that is known is executed for each step."""
    half = """%h = "arith.constant"() <{value = 0.5 : f32}> : () -> f32
        %s = "arith.mulf"(%o0, %h) : (f32, f32) -> f32
        %y = "arith.addf"(%s, %x0) : (f32, f32) -> f32
        "linalg.yield"(%y) : (f32) -> ()"""
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    (found,) = reduction(half, [("f32", x)], [("f32", np.array([1.0, 2.0], np.float32))])
    expected = [
        functools.reduce(lambda old, v: old * 0.5 + v, row, init) for row, init in zip(x.tolist(), (1, 2), strict=True)
    ]
    assert found.tolist() == expected
    with pytest.raises(UnsupportedError, match=r"line \d+, column \d+: linalg.generic: .* more than 256 steps"):
        reduction(half, [("f32", np.zeros((2, 300), np.float32))], [("f32", np.zeros(2, np.float32))])


def test_the_last_step_and_no_step() -> None:
    (found,) = reduction('"linalg.yield"(%x0) : (f32) -> ()', [("f32", ROWS)], [("f32", INITS)])
    np.testing.assert_array_equal(found, ROWS[:, -1])
    empty = np.zeros((6, 0), np.float32)
    (found,) = reduction(yields("arith.maximumf", "f32"), [("f32", empty)], [("f32", INITS)])
    np.testing.assert_array_equal(found, INITS)


def contraction(left: str, right: str, out: str, shapes: list[str], element: str, convert: str = "") -> str:
    made = "f32"
    casts = "".join(f'%w{n} = "{convert}"(%x{n}) : ({element}) -> f32\n' for n in range(2)) if convert else ""
    a, b = ("%w0", "%w1") if convert else ("%x0", "%x1")
    types = f"tensor<{shapes[0]}x{element}>, tensor<{shapes[1]}x{element}>, tensor<{shapes[2]}x{made}>"
    arguments = ", ".join(f"%a{n}: {t}" for n, t in enumerate(types.split(", ")))
    return f"""
    func.func @f({arguments}) -> tensor<{shapes[2]}x{made}> {{
      %r = "linalg.generic"(%a0, %a1, %a2) <{{
          indexing_maps = [affine_map<(d0, d1, d2, d3) -> ({left})>, affine_map<(d0, d1, d2, d3) -> ({right})>,
                           affine_map<(d0, d1, d2, d3) -> ({out})>],
          iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>,
                            #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>],
          operandSegmentSizes = array<i32: 2, 1>}}> ({{
      ^bb0(%x0: {element}, %x1: {element}, %o: f32):
        {casts}
        %p = "arith.mulf"({a}, {b}) : (f32, f32) -> f32
        %s = "arith.addf"(%o, %p) : (f32, f32) -> f32
        "linalg.yield"(%s) : (f32) -> ()
      }}) : ({types}) -> tensor<{shapes[2]}x{made}>
      "func.return"(%r) : (tensor<{shapes[2]}x{made}>) -> ()
    }}"""


@pytest.mark.parametrize(
    ("left", "right", "out", "einsum"),
    [
        ("d0, d1, d3", "d0, d3, d2", "d0, d1, d2", "bik,bkj->bij"),
        ("d3, d1, d0", "d2, d0, d3", "d2, d0, d1", "kib,jbk->jbi"),
        ("d1, d3, d0", "d3, d2", "d1, d0, d2", "ikb,kj->ibj"),
    ],
)
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_contractions_are_products_of_matrices(left: str, right: str, out: str, einsum: str, element: str) -> None:
    sizes = {"d0": 2, "d1": 3, "d2": 5, "d3": 7}
    operands = [tuple(sizes[d] for d in dims.split(", ")) for dims in (left, right, out)]
    shapes = ["x".join(map(str, shape)) for shape in operands]
    text = contraction(left, right, out, shapes, element, "" if element == "f32" else "arith.extf")
    random = np.random.default_rng(5)
    a, b = (random.integers(-9, 9, shape).astype(NUMPY[element]) for shape in operands[:2])
    init = random.integers(-9, 9, operands[2]).astype(np.float32)
    (found,) = call_module(text, "f", a, b, init)
    np.testing.assert_array_equal(found, init + np.einsum(einsum, a.astype(np.float32), b.astype(np.float32)))
    module = lower_function(parse_module(text), "f")
    traced = torch.export.export(module, tuple(torch.from_numpy(x) for x in (a, b, init)))
    assert any(str(node.target) in ("aten.mm.default", "aten.bmm.default") for node in traced.graph.nodes)
