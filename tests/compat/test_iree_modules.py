"""Every module that IREE's compilers wrote for us is read right, whichever container and format it has."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from iree_golden import FLATC, FOLDER, SOURCES, compile_source, executable_json

from coilpack.runtime.executable import read_executable, write_executable
from coilpack.runtime.files import read_executables
from coilpack.runtime.vmfb import is_vmfb, read_vmfb

COMPILER = Path(shutil.which("iree-compile") or Path(sys.executable).with_name("iree-compile"))
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
MODULES = sorted(EXPECTED)
COLLIDING = [name for name in MODULES if name.startswith("names-")]


def read(name: str):
    path = FOLDER / f"{name}.vmfb"
    data = path.read_bytes()
    assert is_vmfb(data)
    return read_vmfb(data, file=path.name)


def test_every_file_is_expected():
    assert sorted(path.stem for path in FOLDER.glob("*.vmfb")) == MODULES


@pytest.mark.parametrize("name", MODULES)
def test_contents(name):
    expected, module = EXPECTED[name], read(name)
    assert module.module_name == expected["module"]
    assert module.bytecode_version == tuple(expected["bytecode_version"])
    assert [function.name for function in module.functions] == expected["functions"]
    assert len(module.executables) == 1
    executable = module.executables[0]
    assert (executable.target, executable.image_kind) == ("sm_80", "ptx")
    assert [len(executable.modules), len(executable.exports)] == [1, len(expected["exports"])]
    for ordinal, (export, fields) in enumerate(zip(executable.exports, expected["exports"], strict=True)):
        found = {field: getattr(export, field) for field in fields}
        found["block_dims"] = list(found["block_dims"])
        found["binding_flags"] = [int(flag) for flag in found["binding_flags"]]
        found["location"] = [export.location.filename, export.location.line]
        assert found == fields
        assert export.ordinal == ordinal
        assert export.binding_count == 2
        params = executable.images[0].entries[export.symbol]
        assert [param.size for param in params] == [8] * export.binding_count + [4] * export.constant_count


@pytest.mark.parametrize("name", MODULES)
def test_name_source(name):
    source = "export_name" if name.split("-")[1] in ("3.12.0", "3.13.0") else "kernel_name"
    assert {export.name_source for export in read(name).executables[0].exports} == {source}


@pytest.mark.parametrize("name", MODULES)
def test_export_names_are_found_with_and_without_the_field(name):
    executable = read(name).executables[0]
    for export in executable.exports:
        assert executable.lookup(export.debug_name) is export  # in these files the unsanitized name
    kernel_names = [export.kernel_name for export in executable.exports]
    for export in executable.exports:
        if export.export_name is None and kernel_names.count(export.kernel_name) == 1:
            assert executable.lookup(export.kernel_name) is export


@pytest.mark.parametrize("name", COLLIDING)
def test_kernels_of_colliding_names_are_told_apart(name):
    executable = read(name).executables[0]
    assert EXPECTED[name]["ptx_entries"][0] == "decode_step_dispatch_0_elementwise_8_f32.1"  # no PTX identifier
    first, second, third = executable.exports
    assert first.kernel_name == second.kernel_name == second.symbol
    assert first.symbol == "decode_step_dispatch_0_elementwise_8_f32_1"
    assert third.symbol == third.kernel_name
    image = bytes(executable.modules[0]).decode()
    assert "_f32.1" not in image
    bodies = {part.split("(")[0].strip(): part.split("ret;")[0] for part in image.split(".entry")[1:]}
    assert "0f3F000000" in bodies[first.symbol]  # 0.5
    assert "0f3F000000" not in bodies[second.symbol]


@pytest.mark.parametrize("name", MODULES)
def test_container(name):
    """The executable is where the dump says, and reads the same when cut out of the module."""
    expected = EXPECTED[name]
    data = (FOLDER / f"{name}.vmfb").read_bytes()
    cut = data[expected["at"] : expected["at"] + expected["bytes"]]
    assert (cut[:4] == b"CDA1") == expected["header"]
    alone, inside = read_executable(cut), read(name).executables[0]
    assert (alone.exports, alone.modules) == (inside.exports, inside.modules)
    if "names_dyn" in name:
        assert len(alone.modules[0]) == expected["ptx_bytes"]
        assert isinstance(inside.modules[0], memoryview)  # a slice, not a copy


def mended(name: str, content: bytes) -> dict:
    """What flatc says of IREE's executable, with the one fault mended that a reader of ours mends."""
    executable = executable_json(content)
    for entry in EXPECTED[name]["ptx_entries"]:
        if "." in entry:
            first = executable["exports"][0]
            assert first["kernel_name"] == entry.rpartition(".")[0]
            first["kernel_name"] = entry.replace(".", "_")
            (image,) = executable["modules"]
            image["ptx_image"] = image["ptx_image"].replace(entry, first["kernel_name"])
    return executable


@pytest.mark.skipif(not FLATC.exists(), reason="needs flatc (extra `dev`)")
@pytest.mark.parametrize("name", MODULES)
def test_rewritten_by_us(name):
    """Our writer writes the fields that IREE's compiler wrote, and leaves out those that it left out."""
    module = read(name)
    again = write_executable(module.executables[0])
    assert again[:4] == b"CDA1"
    assert executable_json(again) == mended(name, bytes(module.contents[0]))
    assert read_executable(again).exports == tuple(
        replace(export, kernel_name=export.symbol) for export in module.executables[0].exports
    )


def test_golden_files_are_as_they_were_written():
    lines = (FOLDER / "SHA256SUMS").read_text().splitlines()
    sums = {line.split()[1]: line.split()[0] for line in lines}
    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.glob("*.vmfb")}


def test_every_release_is_there():
    minors = ["2.9.0", *(f"3.{minor}.0" for minor in range(14)), "3.7.1"]
    assert {f"{source}-{version}" for source in SOURCES for version in minors} <= set(MODULES)


@pytest.mark.skipif(not FLATC.exists(), reason="needs flatc (extra `dev`)")
def test_expectations_are_what_flatc_says():
    command = [sys.executable, Path(__file__).with_name("iree_golden.py"), "expected", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not COMPILER.exists(), reason="needs iree-base-compiler (extra `iree`)")
@pytest.mark.parametrize("source", SOURCES)
def test_what_the_compiler_writes_today(tmp_path, source):
    """The installed compiler still writes what its golden file says, so golden files stand for it."""
    printed = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"IREE compiler version (\d+\.\d+\.\d+)", printed)
    assert version
    golden = f"{source}-{version[1]}"
    if golden not in MODULES:
        pytest.skip(f"there is no golden file of IREE {version[1]}")
    path = tmp_path / f"{source}.vmfb"
    compile_source(source, path, [str(COMPILER)])
    today, then = read_vmfb(path.read_bytes()), read(golden)
    assert today.executables[0].exports == then.executables[0].exports
    assert today.executables[0].modules == then.executables[0].modules
    assert (today.functions, today.imports) == (then.functions, then.imports)
    assert (today.dependencies, today.devices, today.formats) == (then.dependencies, then.devices, then.formats)


def test_signatures():
    functions = {function.name: function for function in read("names-3.13.0").functions}
    assert functions["decode$step"].declaration == (
        "sync func @decode$step(%input0: tensor<8xf32>) -> (%output0: tensor<8xf32>)"
    )
    assert functions["decode$step"].calling_convention == "0r_r"
    assert functions["__init"].declaration == ""


@pytest.mark.parametrize("name", ["names-2.9.0", "names-3.13.0"])
def test_from_any_path_without_the_container(tmp_path, name):
    path = tmp_path / "moved"
    shutil.copy(FOLDER / f"{name}.vmfb", path)
    assert [e.name for e in read_executables(path)[0].exports] == [e.name for e in read(name).executables[0].exports]
    # A module without its ZIP header is a module too; external data keeps its distance if the header is 64 bytes.
    data = (FOLDER / f"{name}.vmfb").read_bytes()
    path.write_bytes(data[64:])
    assert len(read_executables(path)[0].exports) == 3
