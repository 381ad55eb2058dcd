"""The edges of a plan's graph: all that memory asks for, and no more than is needed."""

from __future__ import annotations

import random

import pytest
from program_samples import tensor

from coilpack.runtime.dependencies import MAX_WIDTH, step_dependencies
from coilpack.runtime.dtypes import DType
from coilpack.runtime.plan import build_plan
from coilpack.runtime.program import ir
from coilpack.runtime.steps import Base, LaunchStep, Range

KERNEL = ir.Kernel("k", ())


def arena(begin, end):
    return Range(Base.ARENA, 0, begin, end)


def step(reads=(), writes=()):
    return LaunchStep(KERNEL, (1, 1, 1), (), tuple(reads), tuple(writes))


A, B = arena(0, 16), arena(16, 32)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([step(writes=[A]), step(reads=[A])], [(), (0,)], id="read after write"),
        pytest.param([step(reads=[A]), step(writes=[A])], [(), (0,)], id="write after read"),
        pytest.param([step(writes=[A]), step(writes=[A])], [(), (0,)], id="write after write"),
        pytest.param([step(reads=[A]), step(reads=[A])], [(), ()], id="two readers"),
        pytest.param([step(writes=[A]), step(writes=[B])], [(), ()], id="apart"),
        pytest.param([step(writes=[arena(0, 17)]), step(reads=[B])], [(), (0,)], id="by one byte"),
        pytest.param(
            [step(writes=[A]), step(writes=[B]), step(reads=[arena(0, 32)])], [(), (), (1, 0)], id="both halves"
        ),
        pytest.param(
            [step(writes=[arena(0, 32)]), step(writes=[A]), step(reads=[B]), step(reads=[A])],
            [(), (0,), (0,), (1,)],
            id="what a smaller write leaves",
        ),
        pytest.param(
            [step(writes=[A]), step(reads=[A], writes=[B]), step(reads=[A, B])], [(), (0,), (1,)], id="implied"
        ),
        pytest.param([step(writes=[A])] + [step(reads=[A], writes=[A])] * 3, [(), (0,), (1,), (2,)], id="in place"),
    ],
)
def test_edges(steps, expected):
    assert step_dependencies(steps) == expected


def test_bases_are_apart_and_weights_are_never_written():
    bases = [Range(base, index, 0, 16) for base in Base for index in (0, 1)]
    steps = [step(writes=[place]) for place in bases]
    assert step_dependencies(steps, width=len(steps)) == [()] * len(steps)
    weights = Range(Base.WEIGHTS, 0, 0, 16)
    assert step_dependencies([step(reads=[weights], writes=[A]), step(reads=[weights], writes=[B])]) == [(), ()]


def conflict(first, second):
    def overlap(places, others):
        return any(
            (a.base, a.index) == (b.base, b.index) and a.begin < b.end and b.begin < a.end
            for a in places
            for b in others
        )

    return (
        overlap(first.writes, second.reads)
        or overlap(first.reads, second.writes)
        or overlap(first.writes, second.writes)
    )


def before(dependencies):
    """For each step all that it waits for, directly or not."""
    reached: list[set[int]] = []
    for others in dependencies:
        reached.append(set(others).union(*(reached[other] for other in others)))
    return reached


@pytest.mark.parametrize("seed", range(20))
def test_random_steps(seed):
    draw = random.Random(seed)

    def place():
        begin = draw.randrange(8)
        return Range(draw.choice([Base.ARENA, Base.OUTPUT]), 0, begin, draw.randint(begin + 1, 10))

    steps = [
        step([place() for _ in range(draw.randrange(3))], [place() for _ in range(draw.randrange(1, 3))])
        for _ in range(40)
    ]
    dependencies = step_dependencies(steps, width=len(steps))
    reached = before(dependencies)
    needed: list[set[int]] = []
    for number, last in enumerate(steps):
        direct = {other for other in range(number) if conflict(steps[other], last)}
        needed.append(direct.union(*(needed[other] for other in direct)))
    assert reached == needed  # all that is needed, nothing else
    for others in dependencies:
        assert not any(a in reached[b] for a in others for b in others)  # and nothing twice


@pytest.mark.parametrize("width", [1, 3, MAX_WIDTH])
def test_no_more_than_so_many_at_once(width):
    places = [arena(16 * i, 16 * i + 16) for i in range(50)]
    steps = [step(writes=[place]) for place in places] + [step(reads=[place], writes=[place]) for place in places]
    reached = before(step_dependencies(steps, width))
    for number in range(50):
        assert number in reached[50 + number]
    # That many sequences, each of steps that wait for one another, hold all of them.
    apart, last = 0, []
    for number in range(100):
        if (found := next((i for i, other in enumerate(last) if other in reached[number]), None)) is None:
            last.append(number)
            apart += 1
        else:
            last[found] = number
    assert apart == width


def test_products_share_a_workspace():
    operands = [ir.Value(name, tensor(DType.f32, 4, 4)) for name in "abcd"]
    signature = ir.Signature("f", tuple(ir.Argument(v.name, v.type) for v in operands), ())
    a, b, c, d = operands
    body = ir.Function(signature, tuple(operands), (ir.Matmul(c, a, b), ir.Matmul(d, a, b), ir.Return(())))
    assert step_dependencies(build_plan(body, {}, {}).steps) == [(), (0,)]
