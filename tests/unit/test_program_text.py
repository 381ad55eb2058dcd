"""The text form: what is valid prints as it was, what is not gets the message beside it."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from program_samples import bits, large_program, small_program
from program_strategies import programs, some_programs

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.program import ir
from coilpack.runtime.program.codec import decode_program, encode_program
from coilpack.runtime.program.parser import parse_program
from coilpack.runtime.program.text import print_program

DATA = Path(__file__).parent / "data" / "programs"
VALID = sorted((DATA / "valid").glob("*.txt"))
INVALID = sorted((DATA / "invalid").glob("*.txt"))


def test_there_are_golden_files() -> None:
    assert len(VALID) >= 3
    assert len(INVALID) >= 70
    assert {path.stem for path in INVALID} == {path.stem for path in (DATA / "invalid").glob("*.expected")}


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    text = path.read_text("utf-8")
    program = parse_program(text, file=path.name)
    assert print_program(program) == text
    assert print_program(decode_program(encode_program(program))) == text


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid(path: Path) -> None:
    with pytest.raises(InvalidFileError) as caught:
        parse_program(path.read_text("utf-8"), file=path.name)
    assert str(caught.value) + "\n" == path.with_suffix(".expected").read_text("utf-8")


def test_sample_is_the_golden_file() -> None:
    assert print_program(small_program()) == (DATA / "valid" / "every_operation.txt").read_text("utf-8")


@given(programs())
@some_programs
def test_round_trip_of_random_programs(program: ir.Program) -> None:
    text = print_program(program)
    again = parse_program(text)
    assert print_program(again) == text
    assert encode_program(again) == encode_program(program)


def test_large_program() -> None:
    text = print_program(large_program(20, 40))
    assert print_program(parse_program(text)) == text


def test_comments_and_layout_are_free() -> None:
    text = 'program // a comment\n{producer = "x"} {\r\n\tstorage @w\n  {nbytes = 0x10} // another\n}'
    assert parse_program(text).storages == (ir.Storage("w", 16),)


@pytest.mark.parametrize(
    "pattern", [0x7FF8000000000001, 0xFFF0000000000000, 0x8000000000000000, 1, bits(1e22), bits(0.1)]
)
def test_every_float_is_kept(pattern: int) -> None:
    number = struct.unpack("<d", struct.pack("<Q", pattern))[0]
    kernel = ir.Kernel("k", (ir.ScalarParameter(DType.f64),))
    signature = ir.Signature("main", (), ())
    body = ir.Function(signature, (), (ir.Dispatch(kernel, (1, 1, 1), (number,)), ir.Return(())))
    target = ir.Target("sm_80", (ir.Image(ir.ImageKind.PTX, "x"),), (kernel,), (body,))
    program = parse_program(print_program(ir.Program("x", (signature,), (), (target,))))
    dispatch = decode_program(encode_program(program)).targets[0].functions[0].operations[0]
    assert isinstance(dispatch, ir.Dispatch)
    assert bits(dispatch.operands[0]) == pattern


def test_long_lines_are_shown_in_part() -> None:
    text = f'program {{producer = "{"x" * 400}" oops'
    with pytest.raises(InvalidFileError) as caught:
        parse_program(text)
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) <= 2 + 120
    assert shown[caret.index("^") :].startswith("oops")


def test_deep_parentheses_are_no_recursion_error() -> None:
    deep = "(" * 5000 + "16" + ")" * 5000
    program = parse_program(f'program {{producer = "x"}} {{\n storage @w {{nbytes = {deep}}}\n}}')
    assert program.storages == (ir.Storage("w", 16),)
