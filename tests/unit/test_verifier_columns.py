"""Checks by the column against checks one by one: what the columns accept, the others must accept too."""

from __future__ import annotations

import random

import pytest
from program_samples import large_program

from coilpack.runtime import verifier
from coilpack.runtime.program.encode import encode_program
from coilpack.runtime.verifier import DEFAULT_LIMITS, Limits, Schema
from coilpack.runtime.verifier_checks import Invalid, Run
from coilpack.runtime.verifier_columns import ColumnRun

SCHEMA = Schema.load("program_def")


@pytest.fixture(scope="module")
def program() -> bytes:
    return encode_program(large_program(kernels=20, dispatches=40))


def passes(kind: type[Run], data: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
    run = kind(memoryview(data), limits)
    try:
        SCHEMA.check(run, run.follow(0), 0)
    except Invalid:
        return False
    return True


def spans(data: bytes, size: int) -> list[tuple[int, int]]:
    """Where values of `size` bytes may be, in an order that is the same in every run."""
    starts = list(range(0, len(data) - size + 1, size))
    random.Random(1).shuffle(starts)
    return [(start, start + size) for start in starts]


def test_a_valid_program_is_proved_by_columns_alone(program: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []

    class Checked(Run):
        def __init__(self, buffer: memoryview, limits: Limits) -> None:
            checked.append(len(buffer))
            super().__init__(buffer, limits)

    monkeypatch.setattr(verifier, "Run", Checked)
    verifier.verify(program, SCHEMA, file="program.fb")
    assert len(program) >= verifier._LARGE
    assert not checked


def test_both_count_the_same_work(program: bytes) -> None:
    runs = [kind(memoryview(program), DEFAULT_LIMITS) for kind in (Run, ColumnRun)]
    for run in runs:
        SCHEMA.check(run, run.follow(0), 0)
    assert runs[0].tables == runs[1].tables
    assert runs[0].budget == runs[1].budget
    assert runs[0].seen == runs[1].seen


@pytest.mark.parametrize("size", [1, 2, 4])
def test_columns_and_single_checks_agree_on_damaged_programs(program: bytes, size: int) -> None:
    refused = 0
    generator = random.Random(size)
    for start, end in spans(program, size)[:150]:
        damaged = bytearray(program)
        if generator.random() < 0.5:
            damaged[start:end] = generator.randbytes(size)
        else:  # near misses: fields and offsets that lead a little too far
            old = int.from_bytes(program[start:end], "little")
            damaged[start:end] = ((old + generator.choice([-8, -4, -2, -1, 1, 2, 4, 8])) % 256**size).to_bytes(
                size, "little"
            )
        one_by_one, by_columns = passes(Run, bytes(damaged)), passes(ColumnRun, bytes(damaged))
        assert one_by_one == by_columns, f"bytes {start} to {end}: {damaged[start:end].hex()}"
        refused += not one_by_one
    assert refused > 10


def test_every_truncation_that_columns_accept_is_accepted(program: bytes) -> None:
    for size in range(8, len(program), 997):
        assert passes(ColumnRun, program[:size]) == passes(Run, program[:size])


@pytest.mark.parametrize("limits", [Limits(max_depth=4), Limits(max_tables=100)])
def test_limits_hold_for_columns(program: bytes, limits: Limits) -> None:
    assert not passes(Run, program, limits)
    assert not passes(ColumnRun, program, limits)
