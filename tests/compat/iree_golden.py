"""Makes the golden modules in `iree/`, and writes down what is in them.

    python tests/compat/iree_golden.py compile FOLDER   # compiles what is missing
    python tests/compat/iree_golden.py expected         # writes expected.json and SHA256SUMS
    python tests/compat/iree_golden.py expected --check # exits 1 if they say something else

FOLDER has a folder for each release, named by its version, that `pip install --no-deps --target FOLDER/VERSION
iree-base-compiler==VERSION` filled. A file that is there already is compiled again and never replaced: what comes out
must say the same, and every difference in bytes is told (3.10.0 does not always write the same bytes). What is in a
file is told by flatc and by this script, not by the reader under test.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "iree"
SCHEMAS = FOLDER.parents[2] / "schemas"
FLATC = Path(sys.executable).with_name("flatc")
SOURCES = ("names", "names_dyn")
FLAGS = ("--iree-hal-target-device=cuda", "--iree-cuda-target=sm_80")
BINDING_BITS = {"READ_ONLY": 1, "INDIRECT": 2}
EXECUTABLE_HEADER_BYTES = 64


def module_start(path: Path) -> int:
    """Where the module begins: it is the data of the archive's first entry."""
    with zipfile.ZipFile(path) as archive:
        assert archive.infolist()[0].filename == "module.fb"
        assert archive.infolist()[0].header_offset == 0
    name_length, extra_length = struct.unpack_from("<HH", path.read_bytes(), 26)
    return 30 + name_length + extra_length


def as_json(schema: Path, content: bytes, *options: str) -> Any:
    """What flatc reads in a FlatBuffer. Only fields that are present are there."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "content.bin"
        source.write_bytes(content)
        command = [FLATC, "--json", "--raw-binary", "--strict-json", "--allow-non-utf8", *options, "-o", folder]
        subprocess.run([*command, schema, "--", source], check=True)
        return json.loads(source.with_suffix(".json").read_text("latin-1"))


@functools.cache
def module_json(path: Path) -> Any:
    """A module's FlatBuffer, as flatc reads it."""
    start, data = module_start(path), path.read_bytes()
    (size,) = struct.unpack_from("<I", data, start)
    module = data[start : start + 4 + size]
    return as_json(SCHEMAS / "bytecode_module_def.fbs", module, "--size-prefixed")


def executable_bytes(path: Path) -> tuple[str, int, bytes]:
    """Where a module's only CUDA executable is (`embedded` or `external`, and the byte), and its bytes."""
    data, start = path.read_bytes(), module_start(path)
    (size,) = struct.unpack_from("<I", data, start)
    behind = -(-(start + 4 + size) // 64) * 64
    found = []
    for segment in module_json(path)["rodata_segments"]:
        if "embedded_data" in segment:
            content = bytes(segment["embedded_data"])
            place, at = "embedded", data.index(content) if content else 0
        else:
            place, at = "external", behind + segment.get("external_data_offset", 0)
            content = data[at : at + segment["external_data_length"]]
        if b"CDA1" in (content[:4], content[4:8]):
            found.append((place, at, content))
    assert len(found) == 1
    return found[0]


def executable_json(content: bytes, schema: Path = SCHEMAS / "cuda_executable_def.fbs") -> Any:
    """A CUDA executable, as flatc reads it."""
    header = EXECUTABLE_HEADER_BYTES if content[:4] == b"CDA1" else 0
    return as_json(schema, content[header:])


def describe_export(export: dict[str, Any]) -> dict[str, Any]:
    """An export under the names that a reader of ours gives its fields."""
    debug = export.get("debug_info", {})
    flags = [sum(BINDING_BITS[word] for word in flag.split()) for flag in export.get("binding_flags", [])]
    return {
        "export_name": export.get("export_name"),
        "kernel_name": export["kernel_name"],
        "block_dims": [export["block_dims"][axis] for axis in "xyz"],
        "shared_memory_bytes": export.get("block_shared_memory_size", 0),
        "constant_count": export.get("constant_count", 0),
        "binding_flags": flags,
        "debug_name": debug.get("name"),
        "location": [debug["location"]["filename"], debug["location"]["line"]],
    }


def describe(path: Path) -> dict[str, Any]:
    """What `expected.json` says of a file."""
    module = module_json(path)
    place, at, content = executable_bytes(path)
    executable = executable_json(content)
    (ptx,) = [image["ptx_image"] for image in executable["modules"]]
    version = module["bytecode_version"]
    return {
        "module": module["name"],
        "bytecode_version": [version >> 16, version & 0xFFFF],
        "functions": [function["local_name"] for function in module["exported_functions"]],
        "place": place,
        "at": at,
        "bytes": len(content),
        "header": content[:4] == b"CDA1",
        "ptx_bytes": len(ptx),
        "ptx_entries": re.findall(r"\.entry ([\w.$]+)", ptx),
        "exports": [describe_export(export) for export in executable["exports"]],
    }


def render() -> dict[str, str]:
    """The content of the files that this script writes, by name."""
    paths = sorted(FOLDER.glob("*.vmfb"))
    expected = {path.stem: describe(path) for path in paths}
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    return {"expected.json": json.dumps(expected, indent=1) + "\n", "SHA256SUMS": "".join(sums)}


def write_expected(check: bool) -> int:
    """Writes `expected.json` and `SHA256SUMS`, or compares them; returns the exit code."""
    stale = 0
    for name, content in render().items():
        if not check:
            (FOLDER / name).write_text(content)
        elif (FOLDER / name).read_text() != content:
            print(f"{name}: differs", file=sys.stderr)  # noqa: T201 - this script's output
            stale = 1
    return stale


def compile_source(source: str, target: Path, compiler: list[str], environment: dict[str, str] | None = None) -> None:
    """Compiles a source of this folder as golden files are."""
    subprocess.run([*compiler, f"{source}.mlir", *FLAGS, "-o", target], check=True, cwd=FOLDER, env=environment)


def compile_missing(compilers: Path) -> int:
    """Compiles every source by every release, and adds what is missing; returns the exit code."""
    failed = 0
    compiler = [sys.executable, "-m", "iree.compiler.tools.scripts.iree_compile"]
    for release in sorted(folder for folder in compilers.iterdir() if (folder / "iree").is_dir()):
        for source in SOURCES:
            target = FOLDER / f"{source}-{release.name}.vmfb"
            with tempfile.TemporaryDirectory() as folder:
                made = Path(folder) / target.name
                compile_source(source, made, compiler, {**os.environ, "PYTHONPATH": str(release)})
                content, says = made.read_bytes(), describe(made)
            if not target.exists():
                target.write_bytes(content)
            elif target.read_bytes() != content:
                same = says == describe(target)
                difference = "other bytes that say the same" if same else "it says something else"
                print(f"{target.name}: compiled again, {difference}", file=sys.stderr)  # noqa: T201
                failed |= not same
    return failed


def main() -> int:
    """Runs the sub-command that the arguments name; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("compile").add_argument("folder", type=Path)
    commands.add_parser("expected").add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "compile":
        return compile_missing(arguments.folder.resolve())
    return write_expected(arguments.check)


if __name__ == "__main__":
    raise SystemExit(main())
