"""`coilpack compile`, through the command alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilpack.cli.main import main
from coilpack.runtime import read_executables
from coilpack.runtime.package import Package
from coilpack.runtime.program.parser import parse_program

pytestmark = pytest.mark.compiler

MODEL = Path(__file__).resolve().parents[2] / "samples" / "quickstart" / "model.py"
SQUARE = f"{MODEL}:square"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def exported(tmp_path) -> str:
    """The model in a file, as the command would export it in a process of its own."""
    from coilpack.compiler.frontends import export_callable

    path = tmp_path / "square.pt2"
    export_callable(MODEL, "square", path)
    return str(path)


def test_every_kind_of_file_from_one_model(exported, tmp_path, capsys) -> None:
    package, executable, text = (tmp_path / name for name in ("x.coil", "x.cda1", "x.txt"))
    assert main(["compile", SQUARE, "-o", str(package), "--target", "sm_80,sm_90", "--image", "ptx"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{package}: {package.stat().st_size} bytes, 2 kernels for sm_80, sm_90a\n"
    assert "compiling 1 kernels for sm_90" in captured.err
    with Package.open(package) as opened:
        assert [target.name for target in opened.program.targets] == ["sm_80", "sm_90a"]

    assert main(["compile", exported, "-o", str(executable), "--emit", "cda1"]) == 0
    assert capsys.readouterr().out.endswith("1 kernels for sm_80; from the cache: sm_80\n")
    (found,) = read_executables(executable)
    assert (found.target, found.image_kind, len(found.exports)) == ("sm_80", "ptx", 1)

    assert main(["compile", exported, "-o", str(text), "--emit", "text", "--image", "ptx"]) == 0
    assert [signature.name for signature in parse_program(text.read_text()).signatures] == ["main"]


def test_no_cache_leaves_none_behind(exported, tmp_path, capsys) -> None:
    arguments = ["--no-cache", "--jobs", "1", "--image", "ptx", "--ptx-version", "8.0"]
    assert main(["compile", exported, "-o", str(tmp_path / "x.coil"), *arguments]) == 0
    assert "from the cache" not in capsys.readouterr().out
    assert not (tmp_path / "cache").exists()
    with Package.open(tmp_path / "x.coil") as package:
        assert b".version 8.0\n" in bytes(package.image("executables/sm_80.ptx.cda1"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([SQUARE, "--target", "sm_81"], "nearest: 'sm_8"),
        ([SQUARE, "--target", ","], "no target is named"),
        ([SQUARE, "--ptx-version", "new"], "not of the form major.minor"),
        ([SQUARE, "--emit", "cda1", "--target", "sm_80,sm_90"], "one target"),
        ([f"{MODEL}:cube"], "cube"),
        (["none.pt2"], "none.pt2"),
        ([str(MODEL)], "a model is named as module.py:callable"),
        ([str(MODEL.parents[2] / "README.md")], "neither a .pt2 or .mlir file nor module.py:callable"),
    ],
)
def test_wrong_requests_are_one_line_and_write_nothing(tmp_path, arguments: list[str], words: str, capsys) -> None:
    assert main(["compile", *arguments, "-o", str(tmp_path / "x.coil")]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("coilpack: error: ")
    assert words in error
    assert not (tmp_path / "x.coil").exists()


def test_refuses_a_folder_that_is_not_there(tmp_path, capsys) -> None:
    assert main(["compile", SQUARE, "-o", str(tmp_path / "none" / "x.coil")]) == 1
    assert "there is no folder" in capsys.readouterr().err
