"""Sizes and integers of a call: how they are read off its arguments, and what is said of those that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from program_samples import tensor

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, ExprKind, Symbol, evaluate
from coilpack.runtime.sizes import as_integer, check_shapes, format_expr, solve_sizes

A, B, N = Symbol("a"), Symbol("b"), Symbol("n")


def plus(x, y):
    return Binary(ExprKind.ADD, x, y)


def times(x, y):
    return Binary(ExprKind.MUL, x, y)


def mod(x, y):
    return Binary(ExprKind.MOD, x, y)


SIGNATURE = ir.Signature(
    "main",
    (
        ir.Argument("x", tensor(DType.f32, 4, A)),
        ir.Argument("y", tensor(DType.f32, plus(times(8, B), 3))),
        ir.Argument("", ir.INTEGER_TYPE, N),
        ir.Argument("z", tensor(DType.f32, A, plus(A, B))),
    ),
    (),
    (
        ir.SizeSymbol("a", 0, 1, 2, 100),
        ir.SizeSymbol("b", 1, 0, 0, 2**63 - 1),
        ir.SizeSymbol("n", 2, None, 0, 7),
    ),
)
GIVEN = ((4, 5), (19,), 3, (5, 7))


def with_guard(kind, lhs, rhs):
    guards = (ir.Guard(ir.GuardKind[kind], lhs, rhs),)
    return ir.Signature("main", SIGNATURE.inputs, (), SIGNATURE.symbols, guards)


def test_sizes():
    sizes = solve_sizes(SIGNATURE, GIVEN)
    assert sizes == {"a": 5, "b": 2, "n": 3}
    check_shapes(SIGNATURE, GIVEN, sizes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (((4,), (19,), 3, (5, 7)), r"main: argument 0 \('x'\): has 1 dimensions \(4,\), it must have 2"),
        (((4, 1), (19,), 3, (5, 7)), r"argument 0 \('x'\): dimension 1 \(a\) is 1; it must be 2 to 100"),
        (((4, 101), (19,), 3, (5, 7)), r"dimension 1 \(a\) is 101; it must be 2 to 100"),
        (
            ((4, 5), (20,), 3, (5, 7)),
            r"main: argument 1 \('y'\): dimension 0 \(8\*b \+ 3\) is 20; it must be 8 \* n \+ 3, at least 3",
        ),
        (((4, 5), (2,), 3, (5, 7)), r"dimension 0 \(8\*b \+ 3\) is 2; it must be 8 \* n \+ 3, at least 3"),
        (((4, 5), (19,), 8, (5, 7)), r"main: argument 2 \(n\) is 8; it must be 0 to 7"),
        (((4, 5), (19,), -1, (5, 7)), r"main: argument 2 \(n\) is -1; it must be 0 to 7"),
    ],
)
def test_sizes_that_do_not_fit(given, message):
    with pytest.raises(InputError, match=message):
        solve_sizes(SIGNATURE, given)


@pytest.mark.parametrize(
    ("minimum", "maximum", "message"),
    [(1, 4, "a multiple of 8, 8 to 32"), (2, 2, "16"), (1, 2**63 - 1, "a multiple of 8, at least 8")],
)
def test_multiples(minimum, maximum, message):
    inputs = (ir.Argument("x", tensor(DType.f32, 3, times(A, 8))),)
    signature = ir.Signature("main", inputs, (), (ir.SizeSymbol("a", 0, 1, minimum, maximum),))
    assert solve_sizes(signature, ((3, 16),)) == {"a": 2}
    with pytest.raises(InputError, match=rf"argument 0 \('x'\): dimension 1 \(8\*a\) is 5; it must be {message}"):
        solve_sizes(signature, ((3, 5),))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ((4, 5), (19,), 3, (6, 7)),
            r"main: argument 3 \('z'\): has the shape \(6, 7\), it must have \(5, 7\); dimension 0 is a, where "
            r"argument 0 \('x'\): dimension 1 \(a\) is 5$",
        ),
        (
            ((4, 5), (19,), 3, (5, 8)),
            r"dimension 1 is a \+ b, where argument 0 \('x'\): dimension 1 \(a\) is 5 and argument 1 \('y'\): "
            r"dimension 0 \(8\*b \+ 3\) is 19, so b is 2$",
        ),
        (((3, 5), (19,), 3, (5, 7)), r"argument 0 \('x'\): has the shape \(3, 5\), it must have \(4, 5\)$"),
    ],
)
def test_shapes_that_do_not_agree(given, message):
    with pytest.raises(InputError, match=message):
        check_shapes(SIGNATURE, given, solve_sizes(SIGNATURE, given))


def test_an_integer_that_must_have_one_value():
    inputs = (ir.Argument("n", ir.INTEGER_TYPE, N),)
    signature = ir.Signature("main", inputs, (), (ir.SizeSymbol("n", 0, None, 4, 4),))
    assert solve_sizes(signature, (4,)) == {"n": 4}
    with pytest.raises(InputError, match=r"main: argument 0 \('n'\) \(n\) is 5; it must be 4"):
        solve_sizes(signature, (5,))


def test_a_shape_that_divides_by_zero():
    inputs = (*SIGNATURE.inputs[:3], ir.Argument("z", tensor(DType.f32, Binary(ExprKind.FLOORDIV, A, plus(N, -3)))))
    signature = ir.Signature("main", inputs, (), SIGNATURE.symbols)
    message = (
        r"main: argument 0 \('x'\): dimension 1 \(a\) is 5 and argument 2 \(n\) is 3; a // \(n - 3\) divides by zero"
    )
    with pytest.raises(InputError, match=message):
        check_shapes(signature, (*GIVEN[:3], (1,)), solve_sizes(signature, (*GIVEN[:3], (1,))))


# The values of a, b and n are 5, 2 and 3.
@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (("EQUAL", mod(A, 8), 0), r"main: argument 0 \('x'\): dimension 1 \(a\) is 5; it must be a multiple of 8$"),
        (("EQUAL", 1, mod(A, 8)), r"\(a\) is 5; it must be a multiple of 8 plus 1$"),
        (("NOT_EQUAL", mod(A, 5), 0), r"\(a\) is 5; it must not be a multiple of 5$"),
        (("EQUAL", A, 6), r"\(a\) is 5; it must be 6$"),
        (("NOT_EQUAL", A, 5), r"\(a\) is 5; it must not be 5$"),
        (("LESS_EQUAL", A, 4), r"\(a\) is 5; it must be at most 4$"),
        (("LESS_EQUAL", 6, A), r"\(a\) is 5; it must be at least 6$"),
        (("LESS_EQUAL", 4, N), r"main: argument 2 \(n\) is 3; it must be at least 4$"),
        (
            ("LESS_EQUAL", 3, B),
            r"argument 1 \('y'\): dimension 0 \(8\*b \+ 3\) is 19, so b is 2; b must be at least 3$",
        ),
        (("LESS_EQUAL", times(A, A), 24), r"\(a\) is 5; a\*a <= 24 must hold; here it is 25 <= 24$"),
        (
            ("EQUAL", A, N),
            r"main: argument 0 \('x'\): dimension 1 \(a\) is 5 and argument 2 \(n\) is 3; they must be equal$",
        ),
        (("EQUAL", A, B), r"is 19, so b is 2; a and b must be equal$"),
        (
            ("LESS_EQUAL", times(A, N), 14),
            r"\(a\) is 5 and argument 2 \(n\) is 3; a\*n <= 14 must hold; here it is 15 <= 14$",
        ),
        (("EQUAL", mod(A, plus(N, -3)), 0), r"a % \(n - 3\) == 0 must hold; here it divides by zero$"),
    ],
)
def test_guards_that_are_broken(guard, message):
    with pytest.raises(InputError, match=message):
        solve_sizes(with_guard(*guard), GIVEN)


@pytest.mark.parametrize(
    "guard", [("EQUAL", mod(A, 5), 0), ("NOT_EQUAL", A, B), ("LESS_EQUAL", A, 5), ("LESS_EQUAL", times(A, N), 15)]
)
def test_guards_that_hold(guard):
    assert solve_sizes(with_guard(*guard), GIVEN)["a"] == 5


@pytest.mark.parametrize("value", [3, np.int32(3), np.uint8(3), np.array(3), np.array(3, np.int16)])
def test_integers(value):
    integer = as_integer(value, "main: argument 0")
    assert integer == 3
    assert type(integer) is int


@pytest.mark.parametrize(
    "value", [True, np.True_, 3.0, np.float32(3), np.array([3]), np.array(True), np.array(3.0), "3", None]
)
def test_what_is_no_integer(value):
    with pytest.raises(InputError, match=r"main: argument 0: is a \w+, it must be an integer"):
        as_integer(value, "main: argument 0")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (plus(times(A, 8), 3), "8*a + 3"),
        (times(plus(A, 1), B), "(a + 1)*b"),
        (Binary(ExprKind.FLOORDIV, plus(A, -1), times(B, 2)), "(a - 1) // (2*b)"),
        (mod(mod(A, 8), 3), "a % 8 % 3"),
        (times(A, Binary(ExprKind.FLOORDIV, B, 2)), "a*(b // 2)"),
        (Binary(ExprKind.MAX, plus(A, B), Binary(ExprKind.MIN, 3, N)), "max(a + b, min(3, n))"),
        (-5, "-5"),
    ],
)
def test_expressions(expr, text):
    assert format_expr(expr) == text
    values = {"a": 17, "b": 6, "n": 2}
    assert eval(text, {"max": max, "min": min}, values) == evaluate(expr, values)
