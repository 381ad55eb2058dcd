"""Functions of MLIR as exported programs: tensors, sizes, calls, errors, and the command that compiles them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mlir_functions import call_module  # noqa: E402

from coilpack.cli.main import main  # noqa: E402
from coilpack.compiler.capture.source_location import source_location  # noqa: E402
from coilpack.compiler.mlir.lower.export import export_function, lower_function  # noqa: E402
from coilpack.compiler.mlir.lower.table import TABLE  # noqa: E402
from coilpack.compiler.mlir.parser import parse_module  # noqa: E402
from coilpack.compiler.mlir.sources import MlirSource, all_functions  # noqa: E402
from coilpack.runtime.errors import CoilpackError, InputError, InvalidFileError, UnsupportedError  # noqa: E402

pytestmark = pytest.mark.compiler

PARTS = """
func.func @slices(%a: tensor<6x8xf32>, %b: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<8xf32>, tensor<6x8xf32>) {
  %0 = tensor.extract_slice %a[1, 2] [2, 3] [3, 2] : tensor<6x8xf32> to tensor<2x3xf32>
  %1 = tensor.extract_slice %a[5, 0] [1, 8] [1, 1] : tensor<6x8xf32> to tensor<8xf32>
  %2 = tensor.insert_slice %b into %a[4, 1] [1, 3] [1, 2] : tensor<3xf32> into tensor<6x8xf32>
  return %0, %1, %2 : tensor<2x3xf32>, tensor<8xf32>, tensor<6x8xf32>
}
func.func @pad(%a: tensor<2x2xi64>) -> tensor<4x3xi64> {
  %0 = tensor.pad %a low[1, 0] high[1, 1] {
  ^bb0(%i: index, %j: index):
    %s = arith.addi %i, %j : index
    %v = arith.index_cast %s : index to i64
    tensor.yield %v : i64
  } : tensor<2x2xi64> to tensor<4x3xi64>
  return %0 : tensor<4x3xi64>
}
func.func @elements(%a: tensor<4xf32>, %i: tensor<i64>) -> (tensor<2xf32>, tensor<4xf32>) {
  %k = tensor.extract %i[] : tensor<i64>
  %p = arith.index_cast %k : i64 to index
  %x = tensor.extract %a[%p] : tensor<4xf32>
  %c2 = arith.constant 2 : index
  %y = tensor.extract %a[%c2] : tensor<4xf32>
  %0 = tensor.from_elements %x, %y : tensor<2xf32>
  %1 = tensor.insert %x into %a[%c2] : tensor<4xf32>
  return %0, %1 : tensor<2xf32>, tensor<4xf32>
}
func.func @windows(%x: tensor<9xf32>, %w: tensor<3xf32>) -> tensor<4xf32> {
  %z = arith.constant dense<0.0> : tensor<4xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(o, k) -> (o * 2 + k)>, affine_map<(o, k) -> (k)>, affine_map<(o, k) -> (o)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x, %w : tensor<9xf32>, tensor<3xf32>) outs(%z : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %s, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @twice(%a: tensor<3xi32>) -> tensor<3xi32> {
  %0 = call @double(%a) : (tensor<3xi32>) -> tensor<3xi32>
  %1 = call @double(%0) : (tensor<3xi32>) -> tensor<3xi32>
  return %1 : tensor<3xi32>
}
func.func private @double(%a: tensor<3xi32>) -> tensor<3xi32> {
  %0 = arith.addi %a, %a : tensor<3xi32>
  return %0 : tensor<3xi32>
}
"""


def test_parts_of_tensors() -> None:
    a, b = np.arange(48, dtype=np.float32).reshape(6, 8), np.array([-1, -2, -3], np.float32)
    strided, row, inserted = call_module(PARTS, "slices", a, b)
    np.testing.assert_array_equal(strided, a[1:5:3, 2:7:2])
    np.testing.assert_array_equal(row, a[5])
    a[4, 1:6:2] = b
    np.testing.assert_array_equal(inserted, a)
    (padded,) = call_module(PARTS, "pad", np.array([[10, 20], [30, 40]]))
    assert padded.tolist() == [[0, 1, 2], [10, 20, 3], [30, 40, 4], [3, 4, 5]]
    x = np.array([1, 2, 3, 4], np.float32)
    picked, replaced = call_module(PARTS, "elements", x, np.array(3))
    assert (picked.tolist(), replaced.tolist()) == ([4, 3], [1, 2, 4, 4])


def test_general_maps_and_calls() -> None:
    x, w = np.arange(9, dtype=np.float32), np.array([1, 10, 100], np.float32)
    (found,) = call_module(PARTS, "windows", x, w)
    assert found.tolist() == [float(x[2 * o : 2 * o + 3] @ w) for o in range(4)]
    (found,) = call_module(PARTS, "twice", np.array([1, -2, 2**30], np.int32))
    assert found.tolist() == [4, -8, 0]


SIZES = """
func.func @add(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %0 = arith.addf %a, %b : tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func @twice(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %0 = tensor.concat dim(0) %a, %a : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %1 = arith.addf %0, %b : tensor<?xf32>
  return %1 : tensor<?xf32>
}
func.func @known(%a: tensor<?xf32>) -> tensor<5xf32> {
  %0 = tensor.cast %a : tensor<?xf32> to tensor<5xf32>
  return %0 : tensor<5xf32>
}
func.func @row(%i: index, %a: tensor<6x?xf32>) -> tensor<?xf32> {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %a, %c1 : tensor<6x?xf32>
  %0 = tensor.extract_slice %a[%i, 0] [1, %n] [1, 1] : tensor<6x?xf32> to tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""


def test_sizes_that_must_be_equal() -> None:
    """Examples for the export are found, and what must hold becomes part of the exported program."""
    module = parse_module(SIZES)
    shapes = {
        name: [tuple(map(str, node.meta["val"].shape)) for node in program.graph.find_nodes(op="placeholder")]
        for name in ("add", "twice", "known")
        for program in [export_function(module, name)]
    }
    ((left,), (right,)) = shapes["add"]
    assert left == right
    assert not left.isdigit()
    ((single,), (double,)) = shapes["twice"]
    assert double == f"2*{single}"
    assert shapes["known"] == [("5",)]
    program = export_function(module, "row")
    values = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    assert program.range_constraints[values[0].node.expr].upper == 5


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            'func.func @f(%a: tensor<2xf32>) {\n  "nope.op"(%a) : (tensor<2xf32>) -> ()\n  return\n}',
            UnsupportedError,
            r"line 2, column 3: the operation nope.op is not covered\n.*\n  +\^",
        ),
        (
            "func.func @f(%a: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = call @f(%a)"
            " : (tensor<2xf32>) -> tensor<2xf32>\n  return %0 : tensor<2xf32>\n}",
            UnsupportedError,
            "line 2, column 8: the function calls itself: @f -> @f",
        ),
        (
            "func.func @f(%a: tensor<4xf32>) -> tensor<3xf32> {\n"
            "  %0 = tensor.extract_slice %a[2] [3] [1] : tensor<4xf32> to tensor<3xf32>\n"
            "  return %0 : tensor<3xf32>\n}",
            InvalidFileError,
            "line 2, column 8: tensor.extract_slice: a slice of 3 from 2 of dimension 0, which has size 4",
        ),
        (
            "func.func @f(%a: tensor<4xi17>) -> tensor<4xi17> {\n  return %a : tensor<4xi17>\n}",
            UnsupportedError,
            "%a has the type tensor<4xi17>",
        ),
        (
            "func.func @f(%n: tensor<index>) -> tensor<?xf32> {\n  %0 = tensor.extract %n[] : tensor<index>\n"
            "  %1 = tensor.empty(%0) : tensor<?xf32>\n  return %1 : tensor<?xf32>\n}",
            UnsupportedError,
            "line 3, column 8: %0 depends on the contents of a tensor",
        ),
    ],
)
def test_errors(text: str, error: type[CoilpackError], message: str) -> None:
    with pytest.raises(error, match=message):
        export_function(parse_module(text, file="model.mlir"), "f")


def test_many_calls_are_refused() -> None:
    """Calls that double the work with each function end at a limit."""
    steps = "".join(
        f"func.func private @f{n}(%a: tensor<f32>) -> tensor<f32> {{\n"
        f"  %0 = call @f{n - 1}(%a) : (tensor<f32>) -> tensor<f32>\n"
        f"  %1 = call @f{n - 1}(%0) : (tensor<f32>) -> tensor<f32>\n  return %1 : tensor<f32>\n}}\n"
        for n in range(1, 40)
    )
    text = "func.func private @f0(%a: tensor<f32>) -> tensor<f32> {\n  return %a : tensor<f32>\n}\n" + steps
    text += "func.func @f(%a: tensor<f32>) -> tensor<f32> {\n"
    text += "  %0 = call @f39(%a) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}"
    with pytest.raises(UnsupportedError, match="more than 100000 operations"):
        lower_function(parse_module(text), "f")(torch.zeros(()))


def test_sources(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(PARTS)
    assert MlirSource.parse("model.pt2") is None
    assert MlirSource.parse(f"{path}:pad") == MlirSource.parse(f"{path}:@pad") == MlirSource(path, "pad")
    assert all_functions(str(path)) == {
        name: f"{path}:@{name}" for name in ("slices", "pad", "elements", "windows", "twice")
    }
    with pytest.raises(CoilpackError, match="no public function named 'double'; nearest: '"):
        MlirSource(path, "double").choose(parse_module(PARTS))
    with pytest.raises(InputError, match="has 5 public functions"):
        MlirSource(path, None).choose(parse_module(PARTS))


NAMES = ["a$b", "a_b", "a.b", "ä", "with space", "n" * 300]


def test_every_function_by_its_own_name(tmp_path: Path, capsys) -> None:
    """Compiled by the command and run in the emulator; function number k adds k to the squares."""
    functions = [
        f'func.func @"{name}"(%x: tensor<4xf32>) -> tensor<4xf32> {{\n'
        f"  %k = arith.constant dense<{number}.0> : tensor<4xf32>\n"
        "  %0 = arith.mulf %x, %x : tensor<4xf32>\n  %1 = arith.addf %0, %k : tensor<4xf32>\n"
        "  return %1 : tensor<4xf32>\n}\n"
        for number, name in enumerate(NAMES)
    ]
    source, package = tmp_path / "names.mlir", tmp_path / "names.coil"
    source.write_text("".join(functions), encoding="utf-8")
    assert main(["compile", str(source), "-o", str(package), "--image", "ptx", "--no-cache"]) == 0
    capsys.readouterr()
    for number, name in enumerate(NAMES):
        assert main(["run", str(package), "--device", "emulator", "--function", name, "--input", "4xf32=1"]) == 0
        value = " ".join([str(1 + number)] * 4)
        assert capsys.readouterr().out == f"EXEC @{name}\nresult[0]: hal.buffer_view\n4xf32={value}\n"


def test_nodes_know_their_line_of_the_file() -> None:
    text = "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n\n  %0 = math.exp %a : tensor<4xf32>\n"
    module = parse_module(
        f"{text}  %1 = arith.addf %0, %a : tensor<4xf32>\n  return %1 : tensor<4xf32>\n}}", file="m.mlir"
    )
    located = {str(node.target): source_location(node) for node in export_function(module, "f").graph.nodes}
    assert located["aten.exp.default"] == "m.mlir:3"
    assert located["aten.add.Tensor"] == "m.mlir:4"


def test_the_page_lists_the_operations() -> None:
    """`docs/mlir.md` names all that are covered, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "mlir.md").read_text()
    table = page.partition("<!-- operations -->")[2].partition("<!-- end of operations -->")[0]
    listed = {
        f"{row.split('|')[1].strip()}.{name}"
        for row in table.splitlines()
        if row.startswith("| ") and "`" in row
        for name in row.split("|")[2].replace("`", "").replace(",", " ").split()
    }
    assert listed == set(TABLE)
