"""Rules that only programs built in memory can break; the others are in data/programs/invalid."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from program_samples import pointer, small_program, tensor
from program_strategies import programs, some_programs

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol
from coilpack.runtime.program.verify import InvalidProgramError, verify_program

F4 = tensor(DType.f32, 4)
KERNEL = ir.Kernel("k", (pointer(DType.f32, ir.Access.READ, 4), ir.ScalarParameter(DType.i32)))
X = ir.Value("x", F4)


def program(*operations: ir.Operation, kernel: ir.Kernel = KERNEL, arena: Expr = 512) -> ir.Program:
    signature = ir.Signature("main", (ir.Argument("x", F4),), ())
    body = ir.Function(signature, (X,), (*operations, ir.Return(())), arena)
    target = ir.Target("sm_80", (ir.Image(ir.ImageKind.PTX, "x.cda1"),), (kernel,), (body,))
    return ir.Program("tests", (signature,), (), (target,))


def alloc(name: str = "a", tensor_type: ir.TensorType = F4, nbytes: Expr = 16) -> ir.Alloc:
    return ir.Alloc(ir.Value(name, tensor_type), ir.AllocSpace.ARENA, nbytes)


def deep(levels: int) -> Expr:
    expr: Expr = 1
    for _ in range(levels):
        expr = Binary(ExprKind.ADD, expr, 1)
    return expr


def doubled(times: int) -> Expr:
    expr: Expr = 1
    for _ in range(times):
        expr = Binary(ExprKind.ADD, expr, expr)
    return expr


def test_valid() -> None:
    verify_program(small_program())
    verify_program(program(alloc()))


@given(programs())
@some_programs
def test_random_programs_are_valid(made: ir.Program) -> None:
    verify_program(made)


def with_alternatives(*others: ir.Kernel, known: tuple[ir.Kernel, ...] | None = None) -> ir.Program:
    """A dispatch of `KERNEL` that has those kernels as alternatives; `known` are the target's kernels."""
    alternatives = tuple(ir.Alternative(kernel, (index + 1, 1, 1)) for index, kernel in enumerate(others))
    made = program(ir.Dispatch(KERNEL, (1, 1, 1), (X, 1), alternatives))
    kernels = tuple(dict.fromkeys((KERNEL, *others))) if known is None else known
    return dataclasses.replace(made, targets=(dataclasses.replace(made.targets[0], kernels=kernels),))


def candidate(name: str, **fields: Any) -> ir.Kernel:
    return dataclasses.replace(KERNEL, export_name=name, **fields)


def test_valid_alternatives() -> None:
    verify_program(with_alternatives(*(candidate(f"c{index}") for index in range(64))))


_ONE = alloc()
_OTHER_KERNEL = dataclasses.replace(KERNEL, parameters=())
_CASES: dict[str, tuple[ir.Program, str]] = {
    "one operation twice": (program(_ONE, _ONE), "two values are named %a"),
    "name twice": (program(alloc(), alloc()), "function 'main': two values are named %a"),
    "empty name": (program(alloc("")), "the name of a value is empty"),
    "NUL in a name": (program(alloc("a\0")), r"the name 'a\\x00' holds a NUL"),
    "NUL in a location": (
        program(dataclasses.replace(alloc(), location="f\0")),
        r"the location 'f\\x00' holds a NUL",
    ),
    "use before definition": (
        program(ir.View(ir.Value("v", F4), ir.Value("ghost", F4))),
        "%ghost is used before it is defined",
    ),
    "kernel of the same name": (
        program(ir.Dispatch(_OTHER_KERNEL, (1, 1, 1), ())),
        "kernel 'k' is not one of the target's",
    ),
    "storage of another program": (
        program(ir.Parameter(ir.Value("w", F4), ir.Storage("w", 16))),
        "storage 'w' of 16 bytes is not one of the program's",
    ),
    "deep expression": (program(alloc(nbytes=deep(5000))), "nested deeper than the limit of 64"),
    "large expression": (program(alloc(nbytes=doubled(60))), "more operands than the limit of 1024"),
    "wide constant": (program(alloc(nbytes=2**63)), "9223372036854775808, which does not fit"),
    "wide value": (
        program(alloc(nbytes=Binary(ExprKind.MUL, 2**62, 2))),
        "9223372036854775808, which does not fit",
    ),
    "boolean as a number": (program(alloc(nbytes=True)), "True is not an integer expression"),
    "symbol of another function": (program(alloc(nbytes=Symbol("s0"))), "no symbol 's0'; known: none"),
    "negative arena": (program(arena=-1), "arena_nbytes is -1"),
    "long grid": (program(ir.Dispatch(KERNEL, (1, 1), (X, 1))), "the grid has 2 sizes"),  # type: ignore[arg-type]
    "alternative that the target lacks": (
        with_alternatives(candidate("a"), candidate("b"), known=(KERNEL, candidate("a"))),
        r"operation 0 \(dispatch\): alternative 1: kernel 'b' is not one of the target's",
    ),
    "alternative of other parameters": (
        with_alternatives(candidate("a", parameters=KERNEL.parameters[::-1])),
        "alternative 0: kernel 'a' has other parameters than 'k'",
    ),
    "cooperative alternative": (
        with_alternatives(candidate("a", cooperative=True)),
        "alternative 0: kernel 'a' is cooperative, but kernel 'k' is not cooperative",
    ),
    "alternative twice": (
        with_alternatives(candidate("a"), candidate("a")),
        "alternative 1: kernel 'a' is there already; kernels of a dispatch must differ",
    ),
    "itself as an alternative": (with_alternatives(KERNEL), "alternative 0: kernel 'k' is there already"),
    "too many alternatives": (
        with_alternatives(*(candidate(f"c{index}") for index in range(65))),
        "it has 65 alternatives; the limit is 64",
    ),
    "grid of an alternative": (
        program(ir.Dispatch(KERNEL, (1, 1, 1), (X, 1), (ir.Alternative(KERNEL, (1, 65536, 1)),))),
        "alternative 0: the grid has 65536 workgroups along y; the limit is 65535",
    ),
    "symbol in the grid of an alternative": (
        program(ir.Dispatch(KERNEL, (1, 1, 1), (X, 1), (ir.Alternative(KERNEL, (Symbol("n"), 1, 1)),))),
        "no symbol 'n'; known: none",
    ),
    "NUL in a configuration": (
        program(kernel=dataclasses.replace(KERNEL, configuration="a\0")),
        r"kernel 'k': configuration: 'a\\x00' holds a NUL",
    ),
    "half a surrogate pair in a source": (
        program(kernel=dataclasses.replace(KERNEL, source="\ud800")),
        "kernel 'k': source: .* half of a surrogate pair",
    ),
    "unknown operation": (program(ir.Operation()), "Operation is not an operation of the IR"),
    "too many dimensions": (program(alloc(tensor_type=tensor(DType.f32, *[1] * 65))), "65 dimensions; the limit is 64"),
    "no access": (
        program(kernel=ir.Kernel("k", (pointer(DType.f32, ir.Access(0)),))),
        "kernel 'k': parameter 0: its access is neither",
    ),
    "complex scalar": (
        program(kernel=ir.Kernel("k", (ir.ScalarParameter(DType.complex64),))),
        "a scalar of type complex64",
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_refused(case: str) -> None:
    made, message = _CASES[case]
    with pytest.raises(InvalidFileError, match=message):
        verify_program(made)


def test_constant_expressions_are_checked_as_numbers() -> None:
    """Sums of constants must not hide a range from the checks."""
    view = ir.View(ir.Value("v", F4), X, Binary(ExprKind.ADD, 1, 0))
    with pytest.raises(InvalidFileError, match="%v takes bytes 4 to 20 of an argument of 16 bytes"):
        verify_program(program(view))


def test_message_names_file_and_place() -> None:
    operation = dataclasses.replace(alloc(nbytes=8), location="model.py:12")
    with pytest.raises(InvalidProgramError) as caught:
        verify_program(program(operation), file="x.fb")
    assert str(caught.value) == (
        "x.fb: target sm_80: function 'main': operation 0 (alloc at model.py:12): "
        "%a reaches over 16 bytes, but nbytes is 8"
    )
    assert caught.value.subject is operation
