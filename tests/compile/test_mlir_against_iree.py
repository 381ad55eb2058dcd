"""What MLIR's functions compute: our kernels in the emulator, and IREE's build for the CPU, on the same inputs."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.compiler
pytest.importorskip("torch")

import iree_local_task  # noqa: E402
from compare_mlir import differences  # noqa: E402
from in_process import compile_in_process, write  # noqa: E402
from mlir_corpus import ALL_FILES, TestedFunction, functions_of, module_of  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.compiler.mlir.lower.export import export_function  # noqa: E402
from coilpack.compiler.mlir.syntax import ScalarType  # noqa: E402

QUICK = {"dynamic", "generic_form", "names", "scalars"}


@pytest.fixture(scope="session")
def seed() -> int:
    """Of this session's inputs; a failure shows it."""
    return secrets.randbits(32)


@pytest.mark.parametrize(
    "file",
    [pytest.param(f, id=f.stem, marks=() if f.stem in QUICK else pytest.mark.slow) for f in ALL_FILES],
)
def test_the_emulator_computes_what_iree_does(file: Path, seed: int, tmp_path: Path) -> None:
    if missing := iree_local_task.missing():
        pytest.skip(f"needs the extra `iree`: {missing} not installed")
    functions = functions_of(file)
    iree_local_task.compile_file(file, tmp_path / "iree.vmfb")
    programs = {function.name: export_function(module_of(file), function.name) for function in functions}
    package = write(compile_in_process(programs), tmp_path / "ours.coil")
    wrong = []
    with runtime.open(package, device="emulator") as program:
        assert set(program.functions) == {function.name for function in functions}
        for function in functions:
            for sizes in function.runs():
                wrong += [
                    f"{function.name} {sizes}: {text}" for text in _wrong(program, function, sizes, seed, tmp_path)
                ]
    assert not wrong, f"with seed {seed}:\n" + "\n".join(wrong)


def _wrong(
    program: runtime.Program, function: TestedFunction, sizes: dict[str, int], seed: int, folder: Path
) -> list[str]:
    """What differs in the results of one call."""
    random = np.random.default_rng([seed, *function.name.encode()])
    inputs = [(given.type, given.draw(random, sizes)) for given in function.inputs]
    want = iree_local_task.run_function(folder / "iree.vmfb", function.name, inputs, function.results, folder)
    numbers = [array.item() if type_ == ScalarType("index") else array for type_, array in inputs]
    got = program(*numbers, function=function.name)
    results = got if isinstance(got, tuple) else (got,)
    compared = [
        differences(theirs, np.asarray(ours.numpy()), function.tolerance)
        for theirs, ours in zip(want, results, strict=True)
    ]
    return [f"result {number}: {text}" for number, text in enumerate(compared) if text]


# --- the comparison itself ---


def _array(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array(values, dtype=dtype)


@pytest.mark.parametrize(
    ("want", "got", "words"),
    [
        (_array(1.0, np.nan), _array(1.0, np.nan), ""),
        (_array(1e6), _array(1e6 + 1), ""),
        (_array(np.inf, -np.inf), _array(np.inf, -np.inf), ""),
        (_array(1.0, 2.0), _array(1.0, 2.1), r"1 of 2 elements, at \[1\] 2.09"),
        (_array(1.0), _array(np.nan), "nan instead of 1.0"),
        (_array(np.inf), _array(-np.inf), "-inf instead of inf"),
        (_array(3e38), _array(np.inf), "inf instead of [23]"),
        (_array(7, dtype="int32"), _array(8, dtype="int32"), "8 instead of 7"),
        (_array(7, dtype="int32"), _array(7, dtype="int64"), "int64.* instead of int32"),
        (_array(), _array(0.0), r"\[1\] instead of .*\[0\]"),
        (np.ones(2, ml_dtypes.bfloat16), np.full(2, 1.1, ml_dtypes.bfloat16), "2 of 2 elements"),
    ],
)
def test_comparison_finds_what_differs(want: np.ndarray, got: np.ndarray, words: str) -> None:
    assert re.search(words, differences(want, got)) if words else differences(want, got) == ""


def test_every_file_says_which_inputs_it_takes() -> None:
    functions = [function for file in ALL_FILES for function in functions_of(file)]
    assert len(functions) >= 60
    random = np.random.default_rng(0)
    for function in functions:
        for sizes in function.runs():
            for given in function.inputs:
                drawn = given.draw(random, sizes)
                assert given.low is None or (drawn >= given.low).all()
                assert given.high is None or (drawn <= given.high).all()
                assert not np.isin(drawn, given.excluded).any()
