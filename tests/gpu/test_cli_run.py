"""`coilpack run` on a device."""

from __future__ import annotations

import numpy as np
import pytest
from square_package import write_square_package

from coilpack.cli.main import main


@pytest.fixture
def package(tmp_path):
    return str(write_square_package(tmp_path / "square.coil"))


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--device", "emulator"],
        pytest.param(["--device", "cuda:0"], marks=pytest.mark.gpu),
        ["--function", "main"],
    ],
)
def test_prints_results_as_iree_does(package, more: list[str], capsys) -> None:
    assert main(["run", package, *more, "--input", "4xf32=1,2,3,4"]) == 0
    assert capsys.readouterr().out == "EXEC @main\nresult[0]: hal.buffer_view\n4xf32=1 4 9 16\n"


def test_reads_and_writes_files(package, tmp_path, capsys) -> None:
    np.save(tmp_path / "x.npy", np.array([2, 3, 4, 5], np.float32))
    arguments = ["run", package, "--input", f"@{tmp_path / 'x.npy'}", "--output"]
    assert main([*arguments, str(tmp_path / "y.npy")]) == 0
    assert capsys.readouterr().out == f"EXEC @main\nresult[0]: 4xf32 written to {tmp_path / 'y.npy'}\n"
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.array([4, 9, 16, 25], np.float32))
    assert main([*arguments, f"@{tmp_path / 'y.bin'}"]) == 0
    np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", np.float32), [4, 9, 16, 25])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "4xf64=1"], "f32"),
        (["--input", "5xf32=1"], "4"),
        ([], "x"),
        (["--input", "4xf32=1", "--input", "4xf32=1"], "2"),
        (["--input", "4xf32=1", "--output", "a.npy", "--output", "b.npy"], "there are 2 --output paths"),
        (["--function", "mian", "--input", "4xf32=1"], "'main'"),
    ],
)
def test_names_what_does_not_fit(package, arguments: list[str], words: str, capsys) -> None:
    assert main(["run", package, *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("coilpack: error: ")
    assert words in captured.err
