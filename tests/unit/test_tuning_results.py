"""What counts as a result of a candidate, and when two results are the same."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_samples import SCALE

from coilpack.runtime.dtypes import DType
from coilpack.runtime.steps import Base, FillStep, LaunchStep, Range, Reference
from coilpack.runtime.tuning.bench import merged, needed_after
from coilpack.runtime.tuning.compare import difference

ARENA = Range(Base.ARENA, 0, 0, 256)
LATER = Range(Base.ARENA, 0, 128, 256)


def launch(reads=(), writes=()):
    return LaunchStep(SCALE, (1, 1, 1), (), tuple(reads), tuple(writes))


def fill(place, nbytes):
    return FillStep(Reference(Base.ARENA, 0, place.begin), bytes(1), nbytes, (place,))


@pytest.mark.parametrize(
    ("steps", "needed"),
    [
        ([], False),
        ([launch(reads=[ARENA])], True),
        ([launch(reads=[LATER])], False),  # memory of another value by then
        ([launch(writes=[LATER]), launch(reads=[ARENA])], False),
        ([launch(writes=[ARENA]), launch(reads=[ARENA])], True),  # it may have written a part
        ([fill(ARENA, 256), launch(reads=[ARENA])], False),
        ([fill(ARENA, 128), launch(reads=[ARENA])], True),
        ([launch(reads=[Range(Base.ARENA, 0, 256, 512)])], False),
    ],
)
def test_what_a_later_step_may_read_is_a_result(steps, needed):
    assert needed_after([launch(writes=[ARENA]), *steps], 0, ARENA) is needed


def test_what_outlives_the_call_is_a_result():
    for base in (Base.OUTPUT, Base.ARGUMENT, Base.GLOBALS):
        assert needed_after([launch()], 0, Range(base, 0, 0, 16))


def test_ranges_that_overlap_are_merged():
    other = Range(Base.OUTPUT, 1, 0, 16)
    assert merged([LATER, other, ARENA, Range(Base.OUTPUT, 0, 5, 5)]) == [ARENA, other]


REFERENCE = np.float64([1, -1, 0, 1000, np.inf, np.nan, 1e-9, 3])


@pytest.mark.parametrize("dtype", [DType.f64, DType.f32, DType.f16, DType.bf16, DType.complex64])
def test_other_roundings_are_the_same_result(dtype):
    kind = dtype.numpy
    expected = REFERENCE.astype(kind)
    eps = {DType.f64: 2e-16, DType.f32: 1e-6, DType.f16: 2e-3, DType.bf16: 1e-2, DType.complex64: 1e-6}[dtype]
    found = (REFERENCE * (1 + eps)).astype(kind)
    assert difference(expected.tobytes(), found.tobytes(), dtype) == ""
    for index, value in ((3, 1100), (4, 0), (5, 0), (4, -np.inf), (0, np.nan)):
        wrong = expected.copy()
        wrong[index] = value
        assert difference(expected.tobytes(), wrong.tobytes(), dtype).startswith("element")


def test_integers_and_what_is_behind_the_last_element_are_exact():
    expected = np.arange(4, dtype=np.int32).tobytes()
    wrong = np.int32([0, 1, 2, 4]).tobytes()
    assert difference(expected, wrong, DType.i32) == "element 3 is 4, not 3"
    assert difference(expected + b"\1", expected + b"\2", DType.i32) == "the bytes after its last element differ"
    assert difference(expected, expected, DType.i32) == ""


def test_booleans_that_were_not_written_are_no_results():
    assert difference(b"\1\0", b"\1\xff", DType.i1) == "element 1 is 255, not 0"
    assert difference(b"\1\1", b"\1\xff", DType.i1) == "element 1 is 255, not 1"
