"""What importing the runtime brings in, seen from a fresh interpreter: lint sees only imports as they are written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Imports the module named in argv, then prints what is loaded, and for how long that took.
_REPORT = """
import json, sys, time
start = time.perf_counter()
__import__(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - start, "modules": sorted(sys.modules)}))
"""
FORBIDDEN = {"torch", "triton", "coilpack.compiler"}
HEAVY = {"cuda.bindings", "lark", "ml_dtypes", "rich"}  # imported where they are needed


def _import(module: str) -> dict:
    done = subprocess.run([sys.executable, "-c", _REPORT, module], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", ["coilpack.schemas", "coilpack.runtime", "coilpack.cli.main"])
def test_brings_in_neither_the_compiler_nor_what_is_heavy(module: str, record_property) -> None:
    report = _import(module)
    record_property(f"seconds to import {module}", report["seconds"])
    assert module in report["modules"]
    assert not (FORBIDDEN | HEAVY) & set(report["modules"])


@pytest.mark.parametrize("command", ["run", "inspect", "extract", "verify", "compile", "freeze", "tune"])
def test_no_sub_command_imports_the_compiler_by_itself(command: str) -> None:
    assert not FORBIDDEN & set(_import(f"coilpack.cli.{command}_command")["modules"])


def test_the_help_imports_no_sub_command() -> None:
    code = "import sys; from coilpack.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "compile  " in done.stdout
    assert not [name for name in done.stderr.split() if name.endswith("_command")]
