"""`coilpack run` on a device."""

from __future__ import annotations

import numpy as np
import pytest
from square_package import write_square_package
from state_samples import write_state_package

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


@pytest.fixture
def stateful(tmp_path):
    return str(write_state_package(tmp_path / "state.coil"))


def test_integers_in_and_out(stateful, tmp_path, capsys) -> None:
    arguments = ["run", stateful, "--function", "integers", "--input", "2x2xf32=1,2,3,4"]
    more = ["--input", "1xf32=0", "--output", str(tmp_path / "n.npy")]
    for integer in ("5", "i64=5", "0x5"):
        assert main([*arguments, "--input", integer, *more]) == 0
        assert capsys.readouterr().out == (
            f"EXEC @integers\nresult[0]: i64 written to {tmp_path / 'n.npy'}\n"
            "result[1]: hal.buffer_view\n2x2xf32=[3 6][9 12]\nresult[2]: i64=2\n"
        )
    assert np.load(tmp_path / "n.npy") == 6
    for wrong, words in (("2xi64=5", "is a ndarray, it must be an integer"), ("10", "it must be 0 to 9")):
        assert main([*arguments, "--input", wrong, *more]) == 1
        assert words in capsys.readouterr().err


def test_random_functions_take_a_seed(stateful, capsys) -> None:
    printed = []
    for seed in ("7", "7", "-1"):
        assert main(["run", stateful, "--function", "draw", "--seed", seed]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]
    assert main(["run", stateful, "--function", "draw"]) == 1
    assert "pass an integer as seed= (--seed)" in capsys.readouterr().err
    assert main(["run", stateful, "--function", "state", "--seed", "1"]) == 1
    assert "takes no seed" in capsys.readouterr().err
