"""Memory plans: no two values that are live together overlap, and the arena is not much larger than it must be."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from coilpack.compiler.arithmetic import add, maximum, multiply
from coilpack.compiler.passes.plan_memory import Interval, PlanMemory, pack
from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr, Symbol, evaluate
from coilpack.runtime.program.verify import verify_program


@st.composite
def _intervals(draw: st.DrawFn) -> list[Interval]:
    count = draw(st.integers(0, 40))
    made = []
    for _ in range(count):
        first = draw(st.integers(0, 60))
        made.append(Interval(draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 20))))
    return made


def _peak(intervals: list[Interval]) -> int:
    """Bytes that are live together at the worst moment: no plan is smaller."""
    moments = range(max((i.last for i in intervals), default=0) + 1)
    return max(sum(-(-i.nbytes // 256) * 256 for i in intervals if i.first <= t <= i.last) for t in moments)


@given(_intervals())
@settings(deadline=None, database=None)
def test_blocks_that_are_live_together_do_not_overlap(intervals: list[Interval]) -> None:
    offsets = pack(intervals)
    assert all(offset % 256 == 0 for offset in offsets)
    for i, (a, one) in enumerate(zip(offsets, intervals, strict=True)):
        for b, other in zip(offsets[:i], intervals[:i], strict=True):
            apart = a + one.nbytes <= b or b + other.nbytes <= a
            together = any(one.first <= t <= one.last and other.first <= t <= other.last for t in range(90))
            assert apart or not together or not one.nbytes or not other.nbytes


@given(_intervals())
@settings(deadline=None, database=None)
def test_the_arena_is_at_most_half_as_large_again_as_what_is_live_together(intervals: list[Interval]) -> None:
    offsets = pack(intervals)
    end = max((o + -(-i.nbytes // 256) * 256 for o, i in zip(offsets, intervals, strict=True)), default=0)
    assert end <= 1.5 * _peak(intervals) + 256


_CONSTANT: tuple[Expr, ...] = (1, 64, 65, 200, 1000, 5000)
_N, _M = Symbol("n"), Symbol("m")
_SYMBOLIC: tuple[Expr, ...] = (
    _N,
    multiply(_N, 64),
    multiply(_N, 1000),
    multiply(_N, 2048),
    multiply(_M, _N, 1024),
    multiply(_N, _M, 512),
    multiply(add(_N, 1), 256),
    maximum(_N, _M),
)


def _random_function(rng: random.Random, sizes: tuple[Expr, ...] = _CONSTANT) -> ir.Function:
    """A function with offsets that mean nothing yet, views of views, and reads of any value that was written."""
    x = _value("x")
    written: list[ir.Value] = [x]
    operations: list[ir.Operation] = []
    for index in range(rng.randrange(3, 60)):
        made = _value(f"t{index}", rng.choice(sizes))
        nbytes = multiply(made.type.shape[0], 4)
        operations.append(ir.Alloc(made, ir.AllocSpace.ARENA, nbytes, rng.randrange(10_000)))
        target = made
        for level in range(rng.choice((0, 0, 1, 2))):
            view = ir.Value(f"v{index}_{level}", made.type)
            operations.append(ir.View(view, target))
            target = view
        recent = written[-rng.choice((1, 3, 10, 100)) :]
        sources = rng.choices(recent, k=rng.randrange(4))
        reads = tuple(ir.PointerParameter(DType.f32, ir.Access.READ, 4) for _ in sources)
        write = ir.PointerParameter(DType.f32, ir.Access.WRITE, 4)
        kernel = ir.Kernel(f"k{index}", (*reads, write))
        operations.append(ir.Dispatch(kernel, (1, 1, 1), (*sources, target)))
        if rng.random() < 0.1:
            operations.append(ir.Fill(target, 0))
        written += [made, target]
    result = rng.choice([value for value in written if value is not x])
    outputs = (ir.Argument("", result.type),)
    return ir.Function(
        ir.Signature("f", (ir.Argument("x", x.type),), outputs), (x,), (*operations, ir.Return((result,)))
    )


def _replay(function: ir.Function) -> int:
    """Runs a plan on a model of the arena that knows whose each 4 bytes are; gives the bytes of the arena.

    A read must find the bytes as the last write of the same allocation left them.
    """
    owner: list[ir.Value | None] = [None] * (function.arena_nbytes // 4)
    place: dict[ir.Value, ir.Alloc] = {}
    for operation in function.operations:
        if isinstance(operation, ir.Alloc) and operation.space is ir.AllocSpace.ARENA:
            assert operation.offset % 256 == 0
            assert operation.offset + operation.nbytes <= function.arena_nbytes
            place[operation.result] = operation
        elif isinstance(operation, ir.View) and operation.source in place:
            place[operation.result] = place[operation.source]
        elif isinstance(operation, ir.Dispatch):
            *sources, target = (place.get(value) for value in operation.operands)
            for alloc in sources:
                assert alloc is None or set(owner[_words(alloc)]) <= {alloc.result}, f"%{alloc.result.name} is lost"
            if target is not None:
                owner[_words(target)] = [target.result] * (target.nbytes // 4)
            for alloc in sources:
                kept = alloc is None or alloc is target or set(owner[_words(alloc)]) <= {alloc.result}
                assert kept, "an operand is overwritten while it is read"
        elif isinstance(operation, ir.Fill) and operation.target in place:
            alloc = place[operation.target]
            owner[_words(alloc)] = [alloc.result] * (alloc.nbytes // 4)
        elif isinstance(operation, ir.Return):
            assert not any(value in place for value in operation.values)
    return len(owner) * 4


def _words(alloc: ir.Alloc) -> slice:
    return slice(alloc.offset // 4, (alloc.offset + alloc.nbytes) // 4)


def _live_bytes(function: ir.Function) -> int:
    """The most bytes that a plan of that function must hold at once, counted operation by operation."""
    root: dict[ir.Value, ir.Alloc] = {}
    touched: dict[str, list[int]] = {}
    for position, operation in enumerate(function.operations):
        if isinstance(operation, ir.Alloc) and operation.space is ir.AllocSpace.ARENA:
            root[operation.result] = operation
            touched[operation.result.name] = [position]
        elif isinstance(operation, ir.View) and operation.source in root:
            root[operation.result] = root[operation.source]
        for value in ir.operands(operation):
            if value in root:
                touched[root[value].result.name].append(position)
    sizes = {alloc.result.name: -(-alloc.nbytes // 256) * 256 for alloc in root.values()}
    return max(
        (
            sum(sizes[name] for name, uses in touched.items() if uses[0] <= at <= uses[-1])
            for at in range(len(function.operations))
        ),
        default=0,
    )


def test_random_functions_read_what_they_wrote_in_an_arena_near_the_least() -> None:
    rng = random.Random(0)
    ratios = []
    for _ in range(150):
        planned = PlanMemory().run(_random_function(rng))
        arena, least = _replay(planned), _live_bytes(planned)
        assert least <= arena <= 1.5 * least
        ratios.append(arena / least if least else 1.0)
    assert sum(ratios) / len(ratios) < 1.05


def test_a_planned_function_is_valid_and_planning_twice_changes_nothing() -> None:
    planned = PlanMemory().run(_random_function(random.Random(1)))
    kernels = tuple(op.kernel for op in planned.operations if isinstance(op, ir.Dispatch))
    target = ir.Target("sm_80", (ir.Image(ir.ImageKind.PTX, "x.cda1"),), kernels, (planned,))
    verify_program(ir.Program("tests", (planned.signature,), (), (target,)))
    assert PlanMemory().run(planned) == planned


def _for_sizes(function: ir.Function, sizes: dict[str, int]) -> ir.Function:
    """The function with its memory evaluated for sizes."""
    operations = tuple(
        replace(op, nbytes=evaluate(op.nbytes, sizes), offset=evaluate(op.offset, sizes))
        if isinstance(op, ir.Alloc)
        else op
        for op in function.operations
    )
    return replace(function, operations=operations, arena_nbytes=evaluate(function.arena_nbytes, sizes))


def test_values_of_dynamic_sizes_keep_what_was_written_whatever_the_sizes_are() -> None:
    rng = random.Random(0)
    ratios = []
    for _ in range(30):
        planned = PlanMemory().run(_random_function(rng, _SYMBOLIC + _CONSTANT))
        for sizes in ({"n": 0, "m": 5}, {"n": 1, "m": 1}, {"n": 7, "m": 0}, {"n": rng.randrange(9), "m": 6}):
            function = _for_sizes(planned, sizes)
            arena, least = _replay(function), _live_bytes(function)
            assert least <= arena
            ratios.append(arena / least if least else 1.0)
    assert sum(ratios) / len(ratios) < 2


def test_multiples_of_one_expression_are_placed_as_well_as_constants() -> None:
    sizes = tuple(multiply(_N, count) for count in (64, 128, 256, 4096, 1024))
    for seed in range(20):
        planned = _for_sizes(PlanMemory().run(_random_function(random.Random(seed), sizes)), {"n": 3})
        assert _replay(planned) <= 1.5 * _live_bytes(planned)


def _value(name: str, elements: Expr = 64) -> ir.Value:
    return ir.Value(name, ir.TensorType.contiguous(DType.f32, (elements,)))


def _function(arguments: tuple[ir.Value, ...], operations: tuple[ir.Operation, ...]) -> ir.Function:
    (result,) = operations[-1].values
    inputs = tuple(ir.Argument(a.name, a.type) for a in arguments)
    return ir.Function(ir.Signature("f", inputs, (ir.Argument("", result.type),)), arguments, operations)


def _alloc(value: ir.Value) -> ir.Alloc:
    return ir.Alloc(value, ir.AllocSpace.ARENA, value.type.shape[0] * 4)


def test_a_chain_takes_two_places_in_turn_and_the_result_has_its_own_memory() -> None:
    x = _value("x")
    steps = [_value(f"t{i}") for i in range(5)]
    operations: list[ir.Operation] = []
    for source, target in zip([x, *steps], steps, strict=False):
        operations += [_alloc(target), ir.Copy(source, target)]
    planned = PlanMemory().run(_function((x,), (*operations, ir.Return((steps[-1],)))))
    allocs = [o for o in planned.operations if isinstance(o, ir.Alloc)]
    assert [a.space for a in allocs] == [ir.AllocSpace.ARENA] * 4 + [ir.AllocSpace.OUTPUT]
    assert [a.offset for a in allocs] == [0, 256, 0, 256, 0]
    assert planned.arena_nbytes == 512


def test_a_view_keeps_its_source_alive_and_a_returned_view_makes_its_source_an_output() -> None:
    x, base, late, out, seen = _value("x"), _value("base"), _value("late"), _value("out"), _value("seen", 8)
    view = _value("view")
    operations = (
        _alloc(base),
        ir.Copy(x, base),
        ir.View(view, base),
        _alloc(late),
        ir.Copy(x, late),
        _alloc(out),
        ir.Copy(view, out),
        ir.View(seen, out, 8),
        ir.Return((seen,)),
    )
    planned = PlanMemory().run(_function((x,), operations))
    places = {o.result.name: o for o in planned.operations if isinstance(o, ir.Alloc)}
    assert places["base"].offset != places["late"].offset
    assert places["out"].space is ir.AllocSpace.OUTPUT
