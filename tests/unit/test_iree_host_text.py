"""Host programs for IREE as text, and what is refused; whether IREE computes with them is in tests/compat."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilpack.compiler.iree.emit import check_folder, write_folder
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import CoilpackError, InputError, UnsupportedError
from coilpack.runtime.executable import Executable, Export, read_executable, write_executable
from coilpack.runtime.package import StorageData
from coilpack.runtime.program.parser import parse_program

GOLDEN = Path(__file__).parent / "data" / "iree_host.mlir"

PTX = """\
.version 7.8
.target sm_80
.address_size 64
.visible .entry add(.param .u32 n, .param .u64 x, .param .u64 y, .param .u64 k)
{
.reg .b32 %r<3>;
.reg .b64 %rd<4>;
ld.param.u32 %r1, [n];
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
ld.param.u64 %rd3, [k];
ret;
}
"""
EXECUTABLE = read_executable(write_executable(Executable((PTX.encode(),), (Export(0, "add", "add", (64, 1, 1)),))))

PROGRAM = """\
program {{producer = "test"}} {{
  storage @w {{nbytes = 64}}
  global @seen {{nbytes = 16}}
  signature @"a \\"main\\"" {{
    symbol s {{input = 0, dim = 0, minimum = 1, maximum = 5000000000}}
    input "x" : {input}
    output "" : tensor<(s)x4xf32>
    output "" : integer (s floordiv 3)
    guard (s mod 4) == 0{random}
  }}
  target @sm_90a {{
    image {{kind = ptx, entry = "executables/sm_90a.ptx.cda1"}}
    kernel @add(i32, ptr<f32, access = {access}, alignment = 4>, {written}, {last}){kind}
    function @"a \\"main\\""(%x: {input}) {{arena_nbytes = 0}} {{
      %w = parameter() {{storage = @w, byte_offset = 32}} : () -> tensor<8xf32>
      %seen = get_global() {{global = @seen, byte_offset = 0}} : () -> tensor<4xf32>
      %y = alloc() {{space = output, nbytes = (s * 16), offset = 0}} : () -> tensor<(s)x4xf32>
      fill(%y) {{pattern = 0x0}} : (tensor<(s)x4xf32>) -> ()
      dispatch({operands}) {{kernel = @add, grid = [(s), 1, 1]}} : ({types}) -> () loc("model.py:7"){more}
      return(%y) : (tensor<(s)x4xf32>) -> ()
    }}
  }}
}}
"""
PARTS = {
    "input": "tensor<(s)x4xf32>",
    "random": "",
    "access": "read",
    "written": "ptr<f32, access = read_write, alignment = 4>",
    "last": "i64",
    "kind": "",
    "operands": "(s), %w, %y, (s * -2)",
    "types": "tensor<8xf32>, tensor<(s)x4xf32>",
    "more": """
      dispatch(4, %x, %seen, 1) {kernel = @add, grid = [1, 1, 1]} : (tensor<(s)x4xf32>, tensor<4xf32>) -> ()""",
}


def emit(folder: Path, **parts: str) -> str:
    program = parse_program(PROGRAM.format(**{**PARTS, **parts}))
    write_folder(folder, program, EXECUTABLE, [StorageData("w", DType.ui8, (64,), lambda: [bytes(64)])])
    return (folder / "module.mlir").read_text()


def test_the_text_is_the_golden_one(tmp_path):
    folder = tmp_path / "made"
    assert emit(folder) == GOLDEN.read_text()
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == [
        "kernels",
        "kernels/000_add.ptx",
        "module.mlir",
        "weights.safetensors",
    ]
    assert ".param .u64 x, .param .u64 y" in (folder / "kernels" / "000_add.ptx").read_text().replace("\n\t", " ")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"random": "\n    random"}, "function 'a \"main\"': it draws random numbers"),
        ({"kind": " {cooperative = true}"}, "kernel 'add' needs all its workgroups resident at once"),
        ({"operands": "(s), null, %y, 1", "types": "tensor<(s)x4xf32>"}, "kernel 'add' gets a null pointer"),
        ({"last": "f64"}, "kernel 'add' takes the size -2*s as f64"),
        (
            {"access": "read_write", "operands": "(s), %y, %y, 1", "types": "tensor<(s)x4xf32>, tensor<(s)x4xf32>"},
            "kernel 'add' writes to parts of one buffer, 'y', through two pointers",
        ),
        (
            {"operands": "(s), %w, %x, 1", "more": ""},
            "function 'a \"main\"' (from model.py:7): it changes its argument 'x'",
        ),
        (
            {"input": "tensor<(s)x4xf32, strides = [0, 1]>", "more": ""},
            "it takes 'x', whose elements share memory",
        ),
        ({"input": "tensor<(s)x4xcomplex128>", "more": ""}, "arrays of complex128 cannot be arguments or results"),
    ],
)
def test_what_cannot_be_expressed_is_refused(tmp_path, parts, message):
    with pytest.raises(UnsupportedError) as raised:
        emit(tmp_path / "made", **parts)
    assert message in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_replaced_only_where_nothing_is_lost(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    first = emit(folder)
    (folder / "module.vmfb").touch()
    assert emit(folder, more="") != first
    assert not (folder / "module.vmfb").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    other = tmp_path / "other"
    other.touch()
    with pytest.raises(CoilpackError, match="other' is a file; --emit iree writes a folder"):
        check_folder(other)


@pytest.mark.parametrize(
    "name", ["notes.txt", "other.vmfb", "kernels/mine.ptx", "kernels/000_add.ptx/x", "module.vmfb/x"]
)
def test_what_coilpack_did_not_write_stays(tmp_path, name):
    folder, mine = tmp_path / "made", tmp_path / "made" / name
    emit(folder)
    if mine.parent.is_file():
        mine.parent.unlink()
    mine.parent.mkdir(exist_ok=True)
    mine.touch()
    with pytest.raises(InputError, match=f"made' holds '{name.removesuffix('/x')}', which coilpack did not write"):
        emit(folder)
    assert mine.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("place", [".", "kernels"])
def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch, place):
    emit(tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made" / place)
    for name in (tmp_path / "made", Path("." if place == "." else "..")):
        with pytest.raises(InputError, match="is the current folder"):
            emit(name)
