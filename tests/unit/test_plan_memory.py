"""Memory plans: no two values that are live together overlap, and the arena is not much larger than it must be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilpack.compiler.passes.plan_memory import Interval, PlanMemory, pack
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Symbol


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
def test_blocks_that_are_live_together_do_not_overlap(intervals: list[Interval]) -> None:
    offsets = pack(intervals)
    assert all(offset % 256 == 0 for offset in offsets)
    for i, (a, one) in enumerate(zip(offsets, intervals, strict=True)):
        for b, other in zip(offsets[:i], intervals[:i], strict=True):
            apart = a + one.nbytes <= b or b + other.nbytes <= a
            together = any(one.first <= t <= one.last and other.first <= t <= other.last for t in range(90))
            assert apart or not together or not one.nbytes or not other.nbytes


@given(_intervals())
def test_the_arena_is_at_most_half_as_large_again_as_what_is_live_together(intervals: list[Interval]) -> None:
    offsets = pack(intervals)
    end = max((o + -(-i.nbytes // 256) * 256 for o, i in zip(offsets, intervals, strict=True)), default=0)
    assert end <= 1.5 * _peak(intervals) + 256


def _value(name: str, elements: int = 64) -> ir.Value:
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


def test_a_size_that_depends_on_the_input_is_refused_by_name() -> None:
    x = _value("x")
    dynamic = ir.Value("rows", ir.TensorType.contiguous(DType.f32, (Symbol("n"),)))
    operations = (ir.Alloc(dynamic, ir.AllocSpace.ARENA, Symbol("n")), ir.Return((x,)))
    with pytest.raises(UnsupportedError, match="%rows"):
        PlanMemory().run(_function((x,), operations))
