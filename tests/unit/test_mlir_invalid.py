"""Text that is refused, with the message and its place (`data/mlir_invalid.txt`), and text that would cost much."""

import random
import re
import time
from pathlib import Path

import pytest

from coilpack.compiler.mlir import parser
from coilpack.compiler.mlir.parser import parse_module
from coilpack.compiler.mlir.text import lexer
from coilpack.runtime.errors import CoilpackError, InvalidFileError, UnsupportedError

_FILE = Path(__file__).parent / "data" / "mlir_invalid.txt"
_SECTIONS = [part.rstrip() + "\n" for part in re.split(r"(?m)^(?=// -----)", _FILE.read_text("utf-8"))[1:]]
_EXPECTED = re.compile(r"(?m)^// expected-(error|unsupported) @\+([12]) \{\{(.*)\}\}\n(?://( *)v\n)?")
_KINDS = {"error": InvalidFileError, "unsupported": UnsupportedError}


@pytest.mark.parametrize("text", _SECTIONS)
def test_the_message_names_the_place_and_the_problem(text):
    (expected,) = _EXPECTED.finditer(text)
    kind, below, message, spaces = expected.groups()
    line = text.count("\n", 0, expected.start()) + 1 + int(below)
    with pytest.raises(_KINDS[kind]) as caught:
        parse_module(text, file="m.mlir")
    first, shown, caret = str(caught.value).split("\n")
    column = 1 if spaces is None else len("//") + len(spaces) + 1
    assert first == f"m.mlir: line {line}, column {column}: {message}"
    assert shown.strip() == (text.split("\n")[line - 1]).strip()
    assert caret == "  " + " " * (column - 1) + "^"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("module {" * 101, "nested deeper than the limit of 100"),
        ('"a"() {x = ' + "[" * 100_000, "nested deeper than the limit of 100"),
        ("func.func @f(%a: " + "tensor<" * 100_000, "nested deeper than the limit of 100"),
        ('"a"() {x = affine_map<(d0) -> (' + "d0 + " * 200 + "d0)>} : () -> ()", "deeper than the limit of 64"),
        ('"a"() {x = dense<[]> : tensor<1000000000x0xi32>} : () -> ()', "the lists of this literal"),
        ('"a"() {x = ' + "1" * 100_000 + "} : () -> ()", "the limit is 4300"),
        ('"a"() {x = -1 : ui20000} : () -> ()', "-1 does not fit ui20000"),
        ('"a"(%' + "a" * 100_000 + ") : (f32) -> ()", "there is no value"),
        ('"' + "\\\\" * 1_000_000, "does not end on its line"),
        ("// " * 1_000_000 + "\nx", "operation 'x' is not covered"),
    ],
    ids=lambda text: text[:12].strip(),
)
def test_what_would_cost_much_ends_soon(text, problem):
    started = time.process_time()
    with pytest.raises(CoilpackError, match=re.escape(problem)):
        parse_module(text)
    assert time.process_time() - started < 5


def test_the_deepest_nesting_is_read():
    assert parse_module("module {" * lexer.MAX_DEPTH + "}" * lexer.MAX_DEPTH).operations


def test_limits_of_size(monkeypatch):
    monkeypatch.setattr(lexer, "MAX_TOKENS", 10)
    with pytest.raises(InvalidFileError, match="more than 10 tokens, the limit"):
        parse_module('"test.op"() : () -> ()\n' * 3)
    monkeypatch.setattr(parser, "MAX_CHARACTERS", 10)
    with pytest.raises(InvalidFileError, match="a text of 11 characters; the limit is 10"):
        parse_module(" " * 11)


_SAMPLE = """
#map = affine_map<(d0, d1)[s0] -> (d0 + s0 * 2, d1 mod 3)>
!t = tensor<?x4xf32>
func.func @"a b"(%a: !t {x.y = [1, "s\\22", unit]}, %i: index) -> (!t, i1) attributes {z} {
  %c = arith.constant dense<[[1.5, -2.0], [0x7FC00000, 0.0]]> : tensor<2x2xf32> loc("f":1:2)
  %n = affine.apply affine_map<(d0) -> (d0 floordiv 2)>(%i)
  %r:2 = "test.op"(%a) <{p = @s::@t}> ({
  ^bb0(%x: f32):
    %y = arith.addf %x, %x fastmath<fast> : f32
    "test.end"(%y) {m = #map, d = {a = 1 : i8}} : (f32) -> ()
  }) {t = (f32) -> (), l = array<i64: 1, 2>} : (!t) -> (!t, i1)
  return %r#0, %r#1 : !t, i1
}
"""


def test_a_text_cut_anywhere_is_read_or_refused():
    whole = parse_module(_SAMPLE)
    assert len(whole.operations) == 1
    refused = 0
    for end in range(0, len(_SAMPLE), 3):
        try:
            parse_module(_SAMPLE[:end])
        except CoilpackError:
            refused += 1
    assert refused > len(_SAMPLE) / 6


def test_a_text_with_tokens_missing_or_moved_is_read_or_refused():
    chance = random.Random(5)
    tokens = re.findall(r"\s+|[%@#^!]?[\w.$]+|.", _SAMPLE)
    refused = 0
    for _ in range(400):
        damaged = list(tokens)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(damaged))
            damaged[at : at + 1] = chance.choice([[], [chance.choice(tokens)], [damaged[at]] * 2])
        try:
            parse_module("".join(damaged))
        except CoilpackError:
            refused += 1
    assert refused > 100
