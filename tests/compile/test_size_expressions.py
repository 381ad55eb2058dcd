"""Sizes and relations of torch's as those of the IR: the same values, and the same truth, for all sizes."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")
sympy = pytest.importorskip("sympy")

from torch._inductor.runtime.triton_heuristics import GridExpr  # noqa: E402
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext  # noqa: E402
from torch.utils._sympy.functions import CeilDiv, FloorDiv, Max, Min, Mod, ModularIndexing, PowByNatural, Where  # noqa: E402  # noqa: E402

from coilpack.compiler._torch_compat import FakeTensorMode  # noqa: E402
from coilpack.compiler.capture.grid import launch_grid  # noqa: E402
from coilpack.compiler.capture.size_expressions import conditions, expression, flag  # noqa: E402
from coilpack.compiler.capture.symbols import _parsed, input_symbols, size_guards  # noqa: E402
from coilpack.runtime.errors import UnsupportedError  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402
from coilpack.runtime.program.expr import Symbol, evaluate  # noqa: E402

A, B, C = (sympy.Symbol(name, integer=True, positive=True) for name in ("a", "b", "c"))
_COMPARE = {
    ir.GuardKind.EQUAL: lambda a, b: a == b,
    ir.GuardKind.NOT_EQUAL: lambda a, b: a != b,
    ir.GuardKind.LESS_EQUAL: lambda a, b: a <= b,
}


def _sizes(rng: random.Random) -> dict[Any, int]:
    return {symbol: rng.choice((1, 2, 3, 5, 8, 64, 1000)) for symbol in (A, B, C)}


def _random_size(rng: random.Random, depth: int = 0) -> Any:
    if depth > 3 or rng.random() < 0.2:
        return rng.choice((A, B, C, sympy.Integer(rng.randrange(1, 9))))
    first, second = _random_size(rng, depth + 1), _random_size(rng, depth + 1)
    kind = rng.randrange(8)
    if kind == 0:
        return first + second
    if kind == 1:
        return first - second
    if kind == 2:
        return first * second
    if kind == 3:
        return FloorDiv(first, rng.choice((A, B, sympy.Integer(3))))
    if kind == 4:
        return Mod(Max(first, 0), rng.choice((C, sympy.Integer(7))))
    if kind == 5:
        return Max(first, second)
    if kind == 6:
        return Min(first, second)
    return ModularIndexing(Max(first, 0), rng.choice((B, sympy.Integer(2))), rng.choice((C, sympy.Integer(5))))


def _random_relation(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9)
    if kind >= 6 and depth < 2:
        parts = [_random_relation(rng, depth + 1) for _ in range(2)]
        return (sympy.And(*parts), sympy.Or(*parts), sympy.Not(parts[0]))[kind - 6]
    relation = (sympy.Eq, sympy.Ne, sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)[kind % 6]
    return relation(_random_size(rng, 2), _random_size(rng, 2))


def _holds(guards: tuple[ir.Guard, ...], sizes: dict[str, int]) -> bool:
    return all(_COMPARE[g.kind](evaluate(g.lhs, sizes), evaluate(g.rhs, sizes)) for g in guards)


def test_random_sizes_have_the_values_that_sympy_gives_them() -> None:
    rng = random.Random(0)
    for _ in range(150):
        size = _random_size(rng)
        converted = expression(size)
        for _ in range(3):
            sizes = _sizes(rng)
            assert evaluate(converted, {s.name: v for s, v in sizes.items()}) == size.xreplace(
                {s: sympy.Integer(v) for s, v in sizes.items()}
            ), size


def test_random_relations_hold_where_sympy_says_so() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(100):
        relation = _random_relation(rng)
        if relation in (sympy.true, sympy.false):
            continue
        guards, flagged = conditions(relation), flag(relation)
        for _ in range(4):
            sizes = _sizes(rng)
            values = {s.name: v for s, v in sizes.items()}
            want = relation.subs(sizes) == sympy.true
            assert _holds(guards, values) == want, relation
            assert evaluate(flagged, values) == int(want), relation
            seen.add(want)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("size", "want"),
    [
        (A * (A + 1) / 2, lambda a, _: a * (a + 1) // 2),
        (A * B / A, lambda _, b: b),
        (PowByNatural(A, sympy.Integer(3)), lambda a, _: a**3),
        (CeilDiv(A, 7), lambda a, _: -(-a // 7)),
        (sympy.floor(A / 4), lambda a, _: a // 4),
        (sympy.ceiling(A / B), lambda a, b: -(-a // b)),
        (sympy.Abs(A - B), lambda a, b: abs(a - b)),
        (Where(A > B, A, 2 * B), lambda a, b: a if a > b else 2 * b),
        (sympy.Piecewise((A, sympy.Eq(B, 3)), (B, A > 5), (7, True)), lambda a, b: a if b == 3 else b if a > 5 else 7),
    ],
)
def test_other_functions_of_sizes(size: Any, want: Any) -> None:
    for a, b in ((1, 1), (6, 3), (12, 8), (1000, 7)):
        assert evaluate(expression(size), {"a": a, "b": b}) == want(a, b)


def test_relations_between_fractions_are_exact() -> None:
    guards = conditions(sympy.Ge(A / 3, B))
    for a in range(1, 13):
        for b in range(1, 5):
            assert _holds(guards, {"a": a, "b": b}) == (a >= 3 * b)


@pytest.mark.parametrize("size", [sympy.log(A), sympy.sqrt(A), sympy.Symbol("x") ** A])
def test_a_function_without_counterpart_is_refused_by_name(size: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"uses {type(size).__name__}|Pow"):
        expression(size)


def test_a_quotient_by_a_size_that_is_zero_has_a_value() -> None:
    assert evaluate(expression(FloorDiv(A, B) + Mod(A, B)), {"a": 5, "b": 0}) == 5


_GRIDS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "Grid1D": ({}, {"XBLOCK": 128}),
    "Grid2D": ({}, {"XBLOCK": 32, "YBLOCK": 64}),
    "Grid3D": ({}, {"XBLOCK": 8, "YBLOCK": 4, "ZBLOCK": 2}),
    "BatchMatmulGrid3D": ({}, {"XBLOCK": 1, "YBLOCK": 4, "ZBLOCK": 2}),
    "Grid2DWithYZOverflow": ({}, {"XBLOCK": 32, "YBLOCK": 2}),
    "CooperativeReductionGrid": ({}, {"RSPLIT": 16, "XBLOCK": 4}),
    "SplitScanGrid": ({}, {"R0_BLOCK": 512}),
    "MixOrderReductionGrid": ({}, {"RSPLIT_SIZE": 64, "XBLOCK": 1}),
    "FixedGrid": ({"fixed_grid": ["xnumel", "max(1, ynumel - 5)", 3]}, {}),
    "PrecomputedGrid": (
        {"precomputed_grids": [{"config": {}, "python": ["-1*((-1*xnumel*ynumel)//512)", "znumel % 3 + 1", "1"]}]},
        {},
    ),
}


@pytest.mark.parametrize("kind", _GRIDS)
def test_grids_over_expressions_are_those_over_numbers(kind: str) -> None:
    meta, config = _GRIDS[kind]
    meta = {"grid_type": kind, **meta}
    names = ("xnumel", "ynumel", "znumel", "r0_numel")
    grid = launch_grid(meta, config, {name: Symbol(name) for name in names})
    rng = random.Random(2)
    for _ in range(40):
        sizes = {name: rng.choice((0, 1, 63, 64, 65, 1000, 131071, 10_000_000)) for name in names}
        if kind == "Grid2DWithYZOverflow":
            sizes["ynumel"] = max(sizes["ynumel"], 1)  # torch 2.11 divides by it
        assert tuple(evaluate(size, sizes) for size in grid) == GridExpr.from_meta(meta, config).eval_slow(sizes)


def test_a_grid_that_is_no_arithmetic_is_refused() -> None:
    meta = {"grid_type": "FixedGrid", "fixed_grid": ["len(str(xnumel))", 1, 1]}
    with pytest.raises(UnsupportedError, match=r"`len\(str\(xnumel\)\)` cannot be evaluated"):
        launch_grid(meta, {}, {"xnumel": Symbol("n")})


def _tensor(mode: Any, *shape: int) -> Any:
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * len(shape))
    return mode.from_tensor(torch.empty(shape), symbolic_context=context)


def test_relations_in_source_are_those_that_they_state() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = _tensor(mode, 6, 4)
    first, second = (str(size.node.expr) for size in x.shape)
    for code in (
        "(L['x'].size()[1] % 4) == 0",
        "L['x'].size()[0]*(L['x'].size()[1] // 4) >= 2",
        "max(1, L['x'].size()[1] // 4) == (L['x'].size()[1] // 4)",
        "L['n'] >= 0 and L['n'] <= L['x'].size()[0]",
        "not (L['x'].size()[0] == 3 or (-1)*L['x'].size()[1] + 5 < 2)",
    ):
        guards = conditions(_parsed(code, {"x": x, "n": 3}))
        for a in range(1, 7):
            for b in range(1, 7):
                values = {"x": SimpleNamespace(size=lambda a=a, b=b: (a, b)), "n": 3}
                assert _holds(guards, {first: a, second: b}) == eval(code, {"L": values}), code
    with pytest.raises(UnsupportedError, match="names no input"):
        _parsed("L['z'].size()[0] == 1", {"x": x})


def test_symbols_are_read_off_the_first_input_that_gives_them() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x, y = _tensor(mode, 6, 4), _tensor(mode, 5)
    with mode:
        rows, columns = x.shape
        (other,) = y.shape
        found = input_symbols([x.new_empty(2 * rows + 1, columns * other), y, x.new_empty(columns, other)], {})
        places = {symbol.name: (symbol.input, symbol.dim) for symbol in found}
        assert [places[str(size.node.expr)] for size in (rows, columns, other)] == [(0, 0), (2, 0), (1, 0)]
        with pytest.raises(UnsupportedError, match=r"dimension 0 of input 0 is .* cannot be computed"):
            input_symbols([x.new_empty(rows * columns)], {})


def test_guards_that_follow_from_the_ranges_are_left_out_and_the_others_kept_once() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = _tensor(mode, 6, 4)
    rows, columns = x.shape
    shape_env = mode.shape_env
    assert rows * columns <= 2**31 - 1
    assert 2 * rows < 2**20
    assert rows <= 1000
    assert 64 * rows * columns <= 2**31 + 7
    symbols = [
        ir.SizeSymbol(str(size.node.expr), 0, dim, 0, maximum)
        for dim, (size, maximum) in enumerate(((rows, 100), (columns, 2**40)))
    ]
    program: Any = SimpleNamespace(_guards_code=["L['x'].size()[1]*L['x'].size()[0] <= 2147483647"])
    (guard,) = size_guards(program, shape_env, {"x": x}, symbols)
    assert guard.kind is ir.GuardKind.LESS_EQUAL
    assert guard.rhs == 2**25
