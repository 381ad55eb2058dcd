"""IREE's released runtime reads what we write.

IREE's own verifier, its lookup by `export_name` and the symbols that it asks the driver for are seen through a stand-in
for libcuda that is compiled here and prints its calls. Another stand-in has our emulator run the kernels. On a machine
with a GPU the same files are run for real.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from emulated_driver import COMPILER, emulated_driver

from coilpack.runtime.executable import BindingFlags, Executable, Export, read_executable, write_executable
from coilpack.runtime.extract import extract, write_parts
from coilpack.runtime.vmfb import read_vmfb

FOLDER = Path(__file__).parent
BIN = Path(shutil.which("iree-run-module") or Path(sys.executable).with_name("iree-run-module")).parent
# Where each 3.13 module keeps its executable (expected.json) and how long it is.
PLACES = {"names-3.13.0": (7456, 3804), "names_dyn-3.13.0": (5280, 2316)}
PTX = b""".version 7.6
.target sm_80
.address_size 64
.visible .entry first(.param .u64 a, .param .u64 b, .param .u32 n) { ret; }
.visible .entry second(.param .u64 a) { ret; }
"""

pytestmark = pytest.mark.skipif(not (BIN / "iree-run-module").exists(), reason="needs iree-base-runtime (extra `iree`)")


@pytest.fixture(scope="module")
def stub(tmp_path_factory) -> dict[str, str]:
    """The environment in which libcuda is the stand-in."""
    if COMPILER is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("stub")
    command = [COMPILER, "-shared", "-fPIC", "-o", folder / "libcuda.so", FOLDER / "stub_driver.c"]
    subprocess.run(command, check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def run(tool: str, *arguments: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / tool), "--device=cuda", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)


def benchmark(
    path: Path, ordinal: int, environment: dict[str, str], constants: Sequence[int] = (4,)
) -> subprocess.CompletedProcess[str]:
    return run(
        "iree-benchmark-executable",
        "--executable_format=cuda-nvptx-fb",
        f"--executable_file={path}",
        f"--entry_point={ordinal}",
        "--binding=4xf32",
        "--binding=4xf32",
        *(f"--constant={constant}" for constant in constants),
        "--workgroup_count=3,2,1",
        "--batch_size=1",
        "--benchmark_min_time=1x",
        environment=environment,
    )


def calls(result: subprocess.CompletedProcess[str]) -> list[str]:
    words = ("load", "function ", "attribute ", "launch ")
    return list(dict.fromkeys(line for line in result.stdout.splitlines() if line.startswith(words)))


def executable() -> Executable:
    flags = (BindingFlags.READ_ONLY, BindingFlags(0))
    first = Export(0, "first", "first$", (128, 2, 1), binding_flags=flags, constant_count=1)
    second = Export(1, "second", "z\u00e9ro", (32, 1, 1), binding_flags=flags[:1], shared_memory_bytes=512)
    return Executable((PTX,), (first, second))


def test_an_executable_is_loaded_and_launched(stub, tmp_path):
    path = tmp_path / "x.cda1"
    path.write_bytes(write_executable(executable()))
    for ordinal, launch in enumerate(("block 128 2 1 shared 0", "block 32 1 1 shared 512")):
        result = benchmark(path, ordinal, stub)
        assert result.returncode == 0, result.stderr
        assert calls(result) == [
            "load",
            "function first",
            "attribute 8 0",  # maximum of dynamic shared memory
            "function second",
            "attribute 8 512",
            f"launch 3 2 1 {launch}",
        ]


@pytest.mark.parametrize("name", ["names-2.9.0", "names_dyn-2.9.0", "names-3.8.0", "names_dyn-3.11.0", "names-3.13.0"])
def test_what_is_extracted_is_loaded_and_launched(stub, tmp_path, name):
    """Also what older compilers wrote without a header, and with names that no driver takes."""
    executable, _ = write_parts(extract(FOLDER / "iree" / f"{name}.vmfb"), tmp_path)
    exports = read_executable(executable.read_bytes()).exports
    result = benchmark(executable, len(exports) - 1, stub, [4] * exports[-1].constant_count)
    assert result.returncode == 0, result.stderr
    functions = [line for line in calls(result) if line.startswith("function ")]
    assert functions == [f"function {export.kernel_name}" for export in exports]
    assert len(set(functions)) == len(exports)
    x, y, z = exports[-1].block_dims
    assert calls(result)[-1] == f"launch 3 2 1 block {x} {y} {z} shared 0"


def test_iree_refuses_what_our_verifier_refuses(stub, tmp_path):
    data = bytearray(write_executable(executable()))
    data[64] ^= 0x80  # the root offset
    path = tmp_path / "x.cda1"
    path.write_bytes(data)
    result = benchmark(path, 0, stub)
    assert result.returncode != 0
    assert "verif" in result.stderr


def module(name: str, rename: bool, folder: Path) -> Path:
    """Puts an executable that we wrote into IREE's module, in the place of its own."""
    at, size = PLACES[name]
    data = bytearray((FOLDER / "iree" / f"{name}.vmfb").read_bytes())
    theirs = read_vmfb(bytes(data)).executables[0]
    exports = tuple(
        replace(export, debug_name=None, location=None, export_name=f"x{i}" if rename else export.export_name)
        for i, export in enumerate(theirs.exports)
    )
    ours = write_executable(replace(theirs, exports=exports))
    data[at : at + size] = ours.ljust(size, b"\0")
    path = folder / f"{name}.vmfb"
    path.write_bytes(data)
    return path


def run_module(path: Path, function: str, value: str, environment: dict[str, str] | None = None):
    return run(
        "iree-run-module", f"--module={path}", f"--function={function}", f"--input={value}", environment=environment
    )


def test_a_module_finds_our_exports_by_export_name(stub, tmp_path):
    result = run_module(module("names-3.13.0", False, tmp_path), "decode$step", "8xf32=1", stub)
    assert result.returncode == 0, result.stderr
    symbols = [line.removeprefix("function ") for line in calls(result) if line.startswith("function")]
    assert symbols == [
        "decode_step_dispatch_0_elementwise_8_f32_1",
        "decode_step_dispatch_0_elementwise_8_f32",
        "row_max_dispatch_0_reduction_16x64_f32",
    ]
    result = run_module(module("names-3.13.0", True, tmp_path), "decode$step", "8xf32=1", stub)
    assert result.returncode != 0
    assert "'decode$step_dispatch_0_elementwise_8_f32' not found" in result.stderr


@pytest.fixture(scope="module", params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def computing(request, tmp_path_factory):
    """The environment in which kernels run: in the emulator, or on a GPU."""
    if request.param == "gpu":
        yield None
    elif COMPILER is None:
        pytest.skip("needs a C compiler")
    else:
        with emulated_driver(tmp_path_factory.mktemp("driver")) as (_, environment):
            yield environment


@pytest.mark.parametrize(
    ("name", "function", "value", "expected"),
    [
        ("names-3.13.0", "decode$step", "8xf32=1", "8xf32=1.5 1.5 1.5 1.5 1.5 1.5 1.5 1.5"),
        ("names-3.13.0", "decode_step", "8xf32=3", "8xf32=6 6 6 6 6 6 6 6"),
        ("names_dyn-3.13.0", "scale$any", "4xf32=1,2,3,4", "4xf32=3 6 9 12"),
    ],
)
def test_a_module_with_our_executable_computes(computing, tmp_path, name, function, value, expected):
    result = run_module(module(name, False, tmp_path), function, value, computing)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == expected
