"""What a parsed module holds: names, places, values, types and attributes."""

import subprocess
import sys

import pytest

from coilpack.compiler.mlir import syntax
from coilpack.compiler.mlir.parser import parse_module
from coilpack.compiler.mlir.syntax import ScalarType, TensorType
from coilpack.runtime.errors import UnsupportedError

_F32 = ScalarType("f32")
_SQUARE = """module @m attributes {k = 1 : i32} {
  func.func @"qwen$prefill"(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = arith.mulf %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


def _attribute(text):
    return parse_module(f'"test.op"() {{a = {text}}} : () -> ()').operations[0].attributes["a"]


def test_a_module_has_its_functions_and_their_places():
    module = parse_module(_SQUARE, file="square.mlir")
    assert (module.source.file, module.name) == ("square.mlir", "m")
    assert module.attributes == {"k": syntax.IntegerAttr(1, ScalarType("i32"))}
    (function,) = module.functions()
    assert function.attributes["sym_name"] == syntax.StringAttr("qwen$prefill")
    assert function.location == syntax.Location(2, 3)
    (block,) = function.regions[0].blocks
    multiply, give = block.operations
    assert (multiply.name, multiply.location) == ("arith.mulf", syntax.Location(3, 10))
    assert multiply.operands == (block.arguments[0], block.arguments[0])
    assert give.name == "func.return"
    assert give.operands == multiply.results
    assert multiply.results[0].type == TensorType((4,), _F32)


def test_a_module_may_be_left_out():
    module = parse_module("func.func private @f(f32)\nfunc.func private @g()")
    assert [function.attributes["sym_name"].value for function in module.functions()] == ["f", "g"]
    assert [function.regions[0].blocks for function in module.functions()] == [(), ()]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("@a$b", "a$b"),
        ("@a_b", "a_b"),
        ("@a.b", "a.b"),
        ('@"ä"', "ä"),
        (r'@"\C3\A4"', "ä"),
        ('@"with space"', "with space"),
        (r'@"a\22b\5Cc\0A"', 'a"b\\c\n'),
        ("@" + "n" * 300, "n" * 300),
    ],
)
def test_a_function_has_the_exact_name(text, name):
    module = parse_module(f"func.func private {text}()")
    assert module.operations[0].attributes["sym_name"] == syntax.StringAttr(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unit", syntax.UnitAttr()),
        ("true", syntax.IntegerAttr(1, ScalarType("i1"))),
        ("-5", syntax.IntegerAttr(-5, ScalarType("i64"))),
        ("0xFF : i8", syntax.IntegerAttr(255, ScalarType("i8"))),
        ("2.5", syntax.FloatAttr(2.5, ScalarType("f64"))),
        ("0xFF800000 : f32", syntax.FloatAttr(float("-inf"), _F32)),
        ("0.1 : f16", syntax.FloatAttr(0.0999755859375, ScalarType("f16"))),
        (r'"a\22\n"', syntax.StringAttr('a"\n')),
        ("@a::@b", syntax.SymbolRefAttr(("a", "b"))),
        ("[1 : i8, f32]", syntax.ArrayAttr((syntax.IntegerAttr(1, ScalarType("i8")), syntax.TypeAttr(_F32)))),
        ('{b, "c d" = unit}', syntax.DictionaryAttr({"b": syntax.UnitAttr(), "c d": syntax.UnitAttr()})),
        ("array<i64: 1, -2>", syntax.DenseArrayAttr(ScalarType("i64"), (1, -2))),
        ("array<i1: true, false>", syntax.DenseArrayAttr(ScalarType("i1"), (1, 0))),
        ("array<f32>", syntax.DenseArrayAttr(_F32, ())),
        ("#linalg.iterator_type<parallel>", syntax.DialectAttr("linalg.iterator_type", "parallel")),
        ('#a.b<"x>", [c<d>], (e) -> f>', syntax.DialectAttr("a.b", '"x>", [c<d>], (e) -> f')),
        ("tensor<?x4xbf16>", syntax.TypeAttr(TensorType((None, 4), ScalarType("bf16")))),
        ("tensor<0x1x2xf32>", syntax.TypeAttr(TensorType((0, 1, 2), _F32))),
        ("tensor<4xf32, #a.b<c>>", syntax.TypeAttr(syntax.OtherType("tensor<4xf32, #a.b<c>>"))),
        ("tensor<*xf32>", syntax.TypeAttr(syntax.OtherType("tensor<*xf32>"))),
        (
            "memref<4xf32, affine_map<(i) -> (i)>>",
            syntax.TypeAttr(syntax.OtherType("memref<4xf32, affine_map<(i) -> (i)>>")),
        ),
        ("(f32) -> (i1, f32)", syntax.TypeAttr(syntax.FunctionType((_F32,), (ScalarType("i1"), _F32)))),
    ],
)
def test_an_attribute_is_that_of_the_text(text, expected):
    assert _attribute(text) == expected


def test_an_affine_map_has_its_expressions():
    d0, s0, three = syntax.AffineDim(0), syntax.AffineSymbol(0), syntax.AffineConstant(3)
    map_ = _attribute("affine_map<(i)[n] -> (-i + 3, i - n, (i + n) * 3 mod 3, 3 floordiv i ceildiv n)>").map
    assert (map_.dims, map_.symbols) == (1, 1)
    assert map_.results == (
        syntax.AffineBinary("+", syntax.AffineBinary("*", d0, syntax.AffineConstant(-1)), three),
        syntax.AffineBinary("+", d0, syntax.AffineBinary("*", s0, syntax.AffineConstant(-1))),
        syntax.AffineBinary("mod", syntax.AffineBinary("*", syntax.AffineBinary("+", d0, s0), three), three),
        syntax.AffineBinary("ceildiv", syntax.AffineBinary("floordiv", three, d0), s0),
    )


def test_aliases_stand_for_types_and_attributes():
    text = "#a = 2 : i8\n#b = [#a]\n!e = f32\n!t = tensor<4x!e>\n"
    (operation,) = parse_module(text + '%0 = "test.op"() {b = #b} : () -> !t').operations
    assert operation.attributes["b"] == syntax.ArrayAttr((syntax.IntegerAttr(2, ScalarType("i8")),))
    assert operation.results[0].type == TensorType((4,), _F32)


def test_both_ways_to_name_an_elementwise_operation_are_one():
    operation = "%0 = linalg.elementwise {} ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>"
    text = f"func.func @f(%a: tensor<4xf32>) {{{{ {operation} return }}}}"
    kinds = []
    for written in ("<exp>", "kind=#linalg.elementwise_kind<exp>"):
        module = parse_module(text.format(written))
        kinds.append(module.operations[0].regions[0].blocks[0].operations[0].attributes["kind"])
    assert kinds == [syntax.DialectAttr("linalg.elementwise_kind", "exp")] * 2


def test_an_operation_that_is_not_known_is_read_in_generic_form_only():
    (operation,) = parse_module('%0 = "stablehlo.iota"() : () -> f32').operations
    assert operation.name == "stablehlo.iota"
    with pytest.raises(UnsupportedError, match=r"m\.mlir: line 1, column 6: operation 'stablehlo.iota' is not covered"):
        parse_module("%0 = stablehlo.iota : f32", file="m.mlir")


def test_reading_needs_neither_torch_nor_triton():
    program = (
        "import sys; from coilpack.compiler.mlir.parser import parse_module; parse_module('');"
        " sys.exit(bool({'torch', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
