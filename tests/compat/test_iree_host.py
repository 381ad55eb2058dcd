"""The host programs that we write for IREE: its compilers take them, and its runtime computes with them what ours does.

Kernels run in our emulator on both sides; without a GPU the stand-in for libcuda has it run those of IREE's runtime.
The releases are those of `--iree`, or the installed one.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import iree_program
import numpy as np
import pytest
from emulated_driver import COMPILER, emulated_driver
from iree_releases import Release, installed

from coilpack import runtime
from coilpack.compiler.iree.emit import compile_command, write_folder
from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import write_executable
from coilpack.runtime.package import write_package

PROGRAM = iree_program.program()
_OF_NUMPY = ("i1", "complex64")  # what iree-run-module reads from .npy files only

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    releases = installed(metafunc.config.getoption("--iree"))
    marks = [] if releases else [pytest.mark.skip(reason="needs IREE's tools (extra `iree`)")]
    cases = [pytest.param(release, id=release.version) for release in releases] or [pytest.param(None, marks=marks)]
    metafunc.parametrize("release", cases, indirect=True, scope="module")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with emulated_driver(tmp_path_factory.mktemp("driver")) as served:
        yield served


@pytest.fixture(scope="module")
def release(request, tmp_path_factory) -> tuple[Release, Path]:
    """A release, and the folder of the program with the module that its compiler made."""
    folder = tmp_path_factory.mktemp("host") / "program"
    write_folder(folder, PROGRAM, iree_program.executable(), iree_program.storages())
    request.param.checked(*shlex.split(compile_command(folder)))
    return request.param, folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """The same program in our runtime, a new one for each call."""
    path = tmp_path_factory.mktemp("ours") / "program.coil"
    image = {PROGRAM.targets[0].images[0].entry: write_executable(iree_program.executable())}
    write_package(path, PROGRAM, image, iree_program.storages())

    def call(function: str, inputs: list[np.ndarray | int]) -> list[np.ndarray | int]:
        with runtime.open(path, device="emulator") as program:
            results = program(*inputs, function=function)
            results = results if isinstance(results, tuple) else (results,)
            return [r if isinstance(r, int) else r.numpy().copy() for r in results]

    return call


def theirs(release, driver, function: str, inputs: list[np.ndarray | int]) -> subprocess.CompletedProcess[str]:
    """Runs `iree-run-module`; arrays it writes to files `<number>.bin`."""
    tools, folder = release
    _, environment = driver
    arguments = []
    for number, value in enumerate(inputs):
        if isinstance(value, int):
            arguments.append(f"--input={value}")
            continue
        path = folder.parent / f"input_{number}.npy"
        dtype = DType.from_numpy(value.dtype)
        if dtype.name in _OF_NUMPY:
            np.save(path, value)
            arguments.append(f"--input=@{path}")
        else:
            path.write_bytes(value.tobytes())
            content = f"=@{path}" if value.size else ""  # the command of 3.11 reads no empty file
            arguments.append(f"--input={'x'.join([*map(str, value.shape), dtype.name])}{content}")
    for number, output in enumerate(PROGRAM.signature(function).outputs):
        arguments.append("--output=-" if output.value is not None else f"--output=@{folder.parent / f'{number}.bin'}")
    return tools.run(
        "iree-run-module",
        "--device=cuda",
        f"--module={folder / 'module.vmfb'}",
        f"--parameters=model={folder / 'weights.safetensors'}",
        f"--function={function}",
        *arguments,
        environment=environment,
    )


def bits(dtype: DType, *shape: int) -> np.ndarray:
    """Elements of all kinds of bits."""
    data = np.random.default_rng(len(shape)).integers(0, 256, dtype.itemsize * int(np.prod(shape)), np.uint8)
    data = data % 2 if dtype is DType.i1 else data
    return data.view(dtype.numpy).reshape(shape)


X = np.random.default_rng(1).standard_normal(32).astype(np.float32)
TYPES = [
    bits(argument.type.dtype, *argument.type.shape)
    for argument in PROGRAM.signature("types").inputs  # type: ignore[misc]
]
ROWS = np.random.default_rng(2).standard_normal((23, 8)).astype(np.float32)
CASES = {
    "slices": ("slices", [X]),
    "state": ("_slices", [X]),
    "equal contents": ("twins", [X]),
    "layouts": ("layouts", [X.reshape(4, 8)]),
    "fills": ("fills", []),
    "types": ("types", TYPES),
    "rows": ("dynamic", [ROWS, 1000]),
    "no rows": ("dynamic", [ROWS[:1], -5]),
}


@pytest.mark.parametrize(("function", "inputs"), CASES.values(), ids=CASES)
def test_both_runtimes_compute_the_same(release, driver, ours, function, inputs):
    served, _ = driver
    served.errors.clear()
    result = theirs(release, driver, function, inputs)
    assert result.returncode == 0, (result.stderr, served.errors)
    for number, expected in enumerate(ours(function, inputs)):
        if isinstance(expected, int):
            assert f"i64={expected}" in result.stdout.splitlines()
        else:
            assert (release[1].parent / f"{number}.bin").read_bytes() == expected.tobytes(), number


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([ROWS[:15], 1], "dynamic: s != 7 must hold"),
        ([ROWS[:3], 1001], "dynamic: argument 1 (t): t must be at most 1000"),
        ([ROWS[:2], 1], "dynamic: argument 0 (x): dimension 0 must be 2*s + 1"),
    ],
)
def test_sizes_that_break_a_rule_end_the_call(release, driver, inputs, message):
    result = theirs(release, driver, "dynamic", inputs)
    assert result.returncode != 0
    assert message in result.stderr
