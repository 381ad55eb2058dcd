"""Programs that choose among the candidates of their dispatches."""

from __future__ import annotations

import dataclasses

import pytest
from candidate_samples import KERNELS, NARROW, WIDE, candidate_program
from runtime_samples import ADD, SCALE, program

from coilpack.runtime.errors import NotFoundError
from coilpack.runtime.program import ir
from coilpack.runtime.program.select import dispatches, launched_kernels, select
from coilpack.runtime.program.text import print_program
from coilpack.runtime.program.verify import verify_program


def launches(made: ir.Program, target: int = 0) -> list[tuple[str, tuple[object, ...]]]:
    return [(d.kernel.export_name, d.grid) for d in dispatches(made.targets[target])]


def test_the_chosen_kernel_takes_the_place_of_the_first_everywhere():
    before = candidate_program()
    made = select(before, "sm_80", {SCALE.export_name: NARROW.export_name})
    verify_program(made)
    assert made.targets[0].kernels == (ADD, NARROW)
    expected = [
        (NARROW.export_name, (d.operands[3], 1, 1)) if d.kernel is SCALE else (ADD.export_name, d.grid)
        for d in dispatches(before.targets[0])
    ]
    assert launches(made) == expected
    assert not any(d.alternatives for d in dispatches(made.targets[0]))


@pytest.mark.parametrize("choices", [{}, {SCALE.export_name: SCALE.export_name}], ids=["none", "the first"])
def test_without_another_choice_the_program_is_that_without_candidates(choices):
    assert print_program(select(candidate_program(), "sm_80", choices)) == print_program(program())


def test_other_targets_stay_as_they_are():
    before = candidate_program("sm_80", "sm_90")
    made = select(before, "sm_90", {SCALE.export_name: WIDE.export_name})
    assert made.targets[0] is before.targets[0]
    assert made.targets[1].kernels == (ADD, WIDE)


def test_kernels_without_functions_stay():
    target = ir.Target("sm_80", (ir.Image(ir.ImageKind.PTX, "x"),), KERNELS, ())
    made = ir.Program("tests", (), (), (target,))
    assert launched_kernels(target) == KERNELS
    assert select(made, "sm_80", {}) == made


def test_kernels_that_are_launched():
    (target,) = candidate_program().targets
    assert launched_kernels(target) == (SCALE, ADD)
    (plain,) = program().targets
    assert launched_kernels(plain) is plain.kernels
    idle = dataclasses.replace(plain, functions=(dataclasses.replace(plain.functions[0], operations=()),))
    assert launched_kernels(idle) == ()


@pytest.mark.parametrize(
    ("target", "choices", "message"),
    [
        ("sm_90", {}, "the program has no target named 'sm_90'; nearest: 'sm_80'"),
        ("sm_80", {"scale": "add"}, "target sm_80 has no launched kernel named 'scale'; nearest: "),
        ("sm_80", {"scale$1.c1": "add"}, "target sm_80 has no launched kernel named"),
        ("sm_80", {"add": "scale$1.c1"}, "the dispatches of kernel 'add' has no candidate named 'scale$1.c1'"),
        ("sm_80", {"scale$1": "scale$1.c3"}, "no candidate named 'scale$1.c3'; nearest: 'scale$1.c2', 'scale$1.c1'"),
    ],
)
def test_refused(target, choices, message):
    with pytest.raises(NotFoundError) as caught:
        select(candidate_program(), target, choices)
    assert message in str(caught.value)
