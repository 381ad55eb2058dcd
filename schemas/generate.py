"""Generates the Python code and the binary schemas from the `.fbs` files beside this script.

    python schemas/generate.py           # writes schemas/coilpack/schemas/generated/
    python schemas/generate.py --check   # exits 1 if that folder differs from what would be written

Needs the pinned `flatc` package (extra `dev`): another version may write other code.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parent
GENERATED = SCHEMAS / "coilpack" / "schemas" / "generated"
FLATC_VERSION = "25.12.19rc0"
PACKAGE_INIT = '"""Python made from the schemas by `schemas/generate.py`; do not edit."""\n'

# flatc imports the code of an included schema as a top-level module.
_SIBLING_IMPORT = re.compile(r"^from (\w+_generated) import", re.MULTILINE)


def _flatc(*arguments: str | Path) -> None:
    subprocess.run([Path(sys.executable).with_name("flatc"), *arguments], check=True, cwd=SCHEMAS)


def render() -> dict[str, bytes]:
    """Returns the content of every generated file, by name."""
    installed = metadata.version("flatc")
    if installed != FLATC_VERSION:
        raise SystemExit(f"flatc {installed} is installed; generated code is made by flatc=={FLATC_VERSION}")
    schemas = sorted(path.name for path in SCHEMAS.glob("*.fbs"))
    with tempfile.TemporaryDirectory() as folder:
        python = ("--python", "--gen-object-api", "--gen-onefile", "--python-typing")
        _flatc(*python, "-o", folder, *schemas)
        _flatc("--binary", "--schema", "-o", folder, *schemas)
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    for name, content in files.items():
        if name.endswith((".py", ".pyi")):
            text = _SIBLING_IMPORT.sub(r"from coilpack.schemas.generated.\1 import", content.decode())
            files[name] = text.encode()
    return {"__init__.py": PACKAGE_INIT.encode(), **files}


def differences(expected: dict[str, bytes]) -> list[str]:
    """Returns one line for each generated file that is missing, left over or different."""
    present = {path.name: path.read_bytes() for path in GENERATED.glob("*.*")}
    lines = [f"{name}: missing" for name in expected if name not in present]
    lines += [f"{name}: no schema makes it" for name in present if name not in expected]
    lines += [f"{name}: differs" for name in expected if present.get(name, expected[name]) != expected[name]]
    return sorted(lines)


def main() -> int:
    """Writes the generated files, or compares them under `--check`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    expected = render()
    if arguments.check:
        stale = differences(expected)
        for line in stale:
            print(line, file=sys.stderr)  # noqa: T201 - this script's output
        return 1 if stale else 0
    GENERATED.mkdir(exist_ok=True)
    for path in GENERATED.glob("*.*"):
        if path.name not in expected:
            path.unlink()
    for name, content in expected.items():
        (GENERATED / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
