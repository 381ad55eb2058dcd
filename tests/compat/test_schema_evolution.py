"""Old readers and new files, new readers and files with fields of tomorrow, frozen schemas and today's."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from iree_golden import FLATC, FOLDER, SCHEMAS, as_json, executable_bytes, executable_json, module_json, module_start

from coilpack.runtime import empty, to_device
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import LaunchConfig
from coilpack.runtime.executable import read_executable, write_executable
from coilpack.runtime.vmfb import read_vmfb

FROZEN = Path(__file__).parent / "schemas"
OLD_IREE = FROZEN / "iree-3.11"
EXECUTABLE, DEBUG_INFO, MODULE = "cuda_executable_def", "executable_debug_info", "bytecode_module_def"
OURS = Path(__file__).parent / "executables" / "full-0.1.0.cda1"

pytestmark = pytest.mark.skipif(not FLATC.exists(), reason="needs flatc (extra `dev`)")


def flatc(*arguments: object) -> None:
    subprocess.run([FLATC, *map(str, arguments)], check=True, capture_output=True)


@pytest.mark.parametrize("path", sorted(FROZEN.glob("*/*.fbs")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_todays_schema_conforms_to_frozen_ones(path):
    flatc("--conform", path, "--conform-includes", path.parent, "-I", SCHEMAS, SCHEMAS / path.name)


def test_only_the_export_name_is_newer():
    """The frozen schema is today's without that one field: nothing else is hidden from the old reader."""

    def fields(path: Path) -> list[str]:
        text = re.sub(r"//.*", "", path.read_text())
        return text.split()

    for name in (EXECUTABLE, DEBUG_INFO):
        old, new = (fields(folder / f"{name}.fbs") for folder in (OLD_IREE, SCHEMAS))
        if name == EXECUTABLE:
            at = new.index("export_name:")
            del new[at : at + 2]
        assert old == new


@pytest.fixture(scope="module")
def old_reader(tmp_path_factory) -> ModuleType:
    """The accessors that flatc makes from the schema of IREE 3.11."""
    folder = tmp_path_factory.mktemp("old")
    flatc("--python", "--gen-onefile", "-o", folder, OLD_IREE / f"{EXECUTABLE}.fbs", OLD_IREE / f"{DEBUG_INFO}.fbs")
    names = [f"{name}_generated" for name in (EXECUTABLE, DEBUG_INFO)]
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(names[0])
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)


@dataclass(frozen=True)
class Seen:
    """An export as the old reader sees it."""

    kernel_name: str
    module_ordinal: int
    block_dims: tuple[int, int, int]
    shared_memory_bytes: int
    constant_count: int
    binding_flags: tuple[int, ...]


def read_old(reader: ModuleType, data: bytes) -> tuple[list[Seen], list[bytes]]:
    root = reader.ExecutableDef.GetRootAs(data, 64 if data[:4] == b"CDA1" else 0)
    assert not hasattr(reader.ExportDef, "ExportName")
    exports = []
    for index in range(root.ExportsLength()):
        export = root.Exports(index)
        dims = export.BlockDims()
        flags = tuple(int(export.BindingFlags(at)) for at in range(export.BindingFlagsLength()))
        exports.append(
            Seen(
                export.KernelName().decode(),
                export.ModuleOrdinal(),
                (dims.X(), dims.Y(), dims.Z()),
                export.BlockSharedMemorySize(),
                export.ConstantCount(),
                flags,
            )
        )
    return exports, [root.Modules(index).PtxImage() for index in range(root.ModulesLength())]


NEW_FILES = ["names-3.12.0", "names-3.13.0", "names_dyn-3.12.0", "names_dyn-3.13.0", "full-0.1.0"]


def new_file(name: str) -> bytes:
    return OURS.read_bytes() if name == OURS.stem else executable_bytes(FOLDER / f"{name}.vmfb")[2]


@pytest.mark.parametrize("rewritten", [False, True], ids=["as it is", "rewritten by us"])
@pytest.mark.parametrize("name", NEW_FILES)
def test_the_old_reader_reads_new_files(old_reader, name, rewritten):
    executable = read_executable(new_file(name))
    assert any(export.export_name for export in executable.exports)
    data = write_executable(executable) if rewritten else new_file(name)
    expected = read_executable(data)
    exports, images = read_old(old_reader, data)
    assert exports == [
        Seen(e.kernel_name, e.module_ordinal, e.block_dims, e.shared_memory_bytes, e.constant_count, e.binding_flags)
        for e in expected.exports
    ]
    if rewritten:  # as it is, IREE's image may have symbols that a driver refuses; a reader of ours mends them
        assert images == [bytes(image) for image in expected.modules]


@pytest.mark.parametrize("name", ["names_dyn-3.12.0", "names_dyn-3.13.0"])
def test_the_old_reader_launches_new_files_by_kernel_name(old_reader, name):
    (export,), images = read_old(old_reader, new_file(name))
    device = resolve_device("emulator")
    module = device.load_module(memoryview(images[export.module_ordinal]), name)
    kernel = module.kernel(export.kernel_name)
    x = np.arange(40, dtype=np.float32)
    given, result = to_device(x, device), empty(x.shape, "f32", device)
    parameters = [struct.pack("<Q", array.address) for array in (given, result)] + [
        struct.pack("<I", n) for n in (40, 0)
    ]
    assert len(parameters) == len(export.binding_flags) + export.constant_count
    config = LaunchConfig((-(-40 // export.block_dims[0]), 1, 1), export.block_dims, export.shared_memory_bytes)
    device.prepare(kernel, config, parameters).run(device.default_stream)
    np.testing.assert_array_equal(result.numpy(), 3 * x)


@pytest.fixture(scope="module")
def tomorrow(tmp_path_factory) -> Path:
    """A folder of today's schemas with a field more at the end of every table that a reader meets."""
    folder = tmp_path_factory.mktemp("tomorrow")
    for path in SCHEMAS.glob("*.fbs"):
        shutil.copy(path, folder)
    for name in (EXECUTABLE, DEBUG_INFO, MODULE):
        path = folder / f"{name}.fbs"
        text = path.read_text()
        extended, count = re.subn(r"^(table \w+ \{\n(?:  .*\n)*)\}", r"\1  tomorrow: [string];\n}", text, flags=re.M)
        assert count == text.count("\ntable ")
        path.write_text(extended)
        flatc("--conform", SCHEMAS / path.name, "--conform-includes", SCHEMAS, "-I", folder, path)
    return folder


def add_fields(value: object) -> object:
    """A copy of a FlatBuffer as JSON in which each table has the new field; structs stay as they are."""
    if isinstance(value, list):
        return [add_fields(item) for item in value]
    if not isinstance(value, dict) or set(value) == {"x", "y", "z"} or "bytecode_offset" in value:
        return value
    return {**{key: add_fields(item) for key, item in value.items()}, "tomorrow": ["CDA1", ""]}


def as_binary(schema: Path, content: object, folder: Path, *options: str) -> bytes:
    source = folder / "content.json"
    source.write_text(json.dumps(content, ensure_ascii=False), "latin-1")
    flatc("--binary", "--allow-non-utf8", *options, "-o", folder, schema, source)
    (made,) = [path for path in folder.iterdir() if path.stem == "content" and path.suffix != ".json"]
    return made.read_bytes()


@pytest.mark.parametrize("name", ["names_dyn-2.9.0", "names_dyn-3.13.0"])
def test_fields_of_tomorrow_are_ignored_in_executables(tmp_path, old_reader, tomorrow, name):
    today = new_file(name)
    extended = as_binary(tomorrow / f"{EXECUTABLE}.fbs", add_fields(executable_json(today)), tmp_path)
    assert as_json(tomorrow / f"{EXECUTABLE}.fbs", extended)["exports"][0]["tomorrow"] == ["CDA1", ""]
    found, expected = read_executable(extended), read_executable(today)
    assert (found.exports, found.modules) == (expected.exports, expected.modules)
    assert executable_json(write_executable(found)) == executable_json(today)
    assert read_old(old_reader, extended) == read_old(old_reader, today)


def test_fields_of_tomorrow_are_ignored_in_modules(tmp_path, tomorrow):
    path = FOLDER / "names_dyn-3.13.0.vmfb"
    extended = as_binary(tomorrow / f"{MODULE}.fbs", add_fields(module_json(path)), tmp_path, "--size-prefixed")
    data, start = path.read_bytes(), module_start(path)
    (size,) = struct.unpack_from("<I", data, start)
    behind = data[-(-(start + 4 + size) // 64) * 64 :]
    found = read_vmfb(extended + bytes(-len(extended) % 64) + behind)
    expected = read_vmfb(data)
    for field in (
        "module_name",
        "bytecode_version",
        "functions",
        "imports",
        "dependencies",
        "devices",
        "formats",
        "rodata",
    ):
        assert getattr(found, field) == getattr(expected, field)
    assert [e.exports for e in found.executables] == [e.exports for e in expected.executables]
