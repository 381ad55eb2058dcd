from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from coilpack.runtime.verifier import Schema
from coilpack.schemas import wire

SCHEMAS = Path(__file__).parents[2] / "schemas"
FLATC = Path(sys.executable).with_name("flatc")
NAMES = sorted(path.stem for path in SCHEMAS.glob("*.fbs"))
RELEASES = sorted(path.name for path in (SCHEMAS / "released").iterdir())

pytestmark = pytest.mark.skipif(not FLATC.exists(), reason="needs flatc (extra `dev`)")


def conform(new: Path, old: Path) -> subprocess.CompletedProcess[str]:
    command = [FLATC, "--conform", old, "--conform-includes", old.parent, "-I", new.parent, new]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_generated_code_is_current():
    result = subprocess.run([sys.executable, SCHEMAS / "generate.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_check_sees_differences(tmp_path):
    # The script works on the folder it lies in, so a copy can be broken.
    copy = tmp_path / "schemas"
    shutil.copytree(SCHEMAS, copy)
    generated = copy / "coilpack" / "schemas" / "generated"
    (generated / "program_def.bfbs").unlink()
    (generated / "left_over_generated.py").write_text("")
    with (generated / "cuda_executable_def_generated.py").open("a") as stream:
        stream.write("# edited\n")
    result = subprocess.run([sys.executable, copy / "generate.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "cuda_executable_def_generated.py: differs",
        "left_over_generated.py: no schema makes it",
        "program_def.bfbs: missing",
    ]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_schemas_evolve_from_released_ones(release, name):
    old = SCHEMAS / "released" / release / f"{name}.fbs"
    if not old.exists():
        pytest.skip(f"{name} is newer than {release}")
    result = conform(SCHEMAS / f"{name}.fbs", old)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("constant_count: uint32;", "constant_count: uint64;"),
        ("  kernel_name: string;", "  kernel_name: [ubyte];"),
        ("constant_count: uint32; ", "constant_count: uint32 = 1; "),
    ],
)
def test_conformance_fails_for_a_changed_field(tmp_path, old, new):
    for name in NAMES:
        shutil.copy(SCHEMAS / f"{name}.fbs", tmp_path)
    changed = tmp_path / "cuda_executable_def.fbs"
    text = changed.read_text()
    assert text.count(old) == 1
    changed.write_text(text.replace(old, new))
    assert conform(changed, SCHEMAS / "released" / RELEASES[0] / changed.name).returncode != 0


def test_conformance_fails_for_a_deleted_field_and_not_for_an_added_one(tmp_path):
    for name in NAMES:
        shutil.copy(SCHEMAS / f"{name}.fbs", tmp_path)
    changed = tmp_path / "cuda_executable_def.fbs"
    text = changed.read_text()
    lines = text.splitlines(keepends=True)
    old = SCHEMAS / "released" / RELEASES[0] / changed.name
    changed.write_text("".join(line for line in lines if not line.startswith("  module_ordinal:")))
    assert conform(changed, old).returncode != 0
    changed.write_text(text.replace("  source_files: [", "  source_files: [SourceFileDef];\n  more: ["))
    assert conform(changed, old).returncode == 0


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("cuda_executable_def", wire.EXECUTABLE_IDENTIFIER), ("bytecode_module_def", wire.MODULE_IDENTIFIER)],
)
def test_identifiers(name, identifier):
    assert Schema.load(name).identifier == identifier


@pytest.mark.parametrize("name", NAMES)
def test_binary_schemas_are_resources(name):
    binary = resources.files("coilpack.schemas.generated").joinpath(f"{name}.bfbs").read_bytes()
    assert binary[4:8] == b"BFBS"


def test_the_header_is_64_bytes():
    packed = wire.ExecutableHeader.for_content(0x0102030405).pack()
    assert packed == b"CDA1" + bytes(4) + bytes([5, 4, 3, 2, 1, 0, 0, 0]) + bytes(48)
    assert wire.ExecutableHeader.unpack(packed) == wire.ExecutableHeader.for_content(0x0102030405)
