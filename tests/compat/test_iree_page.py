"""The commands of docs/iree.md do what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_driver import COMPILER, emulated_driver
from iree_releases import installed

from coilpack.compiler.driver import CompileOptions, compile_package
from coilpack.runtime.errors import InputError

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.compiler


def steps() -> list[tuple[str, str]]:
    """Each command of the page, and what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / "docs" / "iree.md").read_text(), re.DOTALL | re.MULTILINE)
    commands = [step for block in blocks for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, printed) for command, _, printed in (step.partition("\n") for step in commands)]


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
@pytest.mark.skipif(not installed(), reason="needs IREE's tools (extra `iree`)")
def test_the_commands(tmp_path_factory, tmp_path):
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    path = f"{installed()[0].folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with emulated_driver(tmp_path_factory.mktemp("driver")) as (_, environment):
        environment |= {"PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        for command, printed in steps():
            done = subprocess.run(
                shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            lines = [
                line for line in done.stdout.splitlines() if not line.startswith(("function ", "attrib", "launch "))
            ]
            pattern = re.escape(printed).replace(re.escape("...\n"), r"(?:.*\n)*")
            assert re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)), f"{command} printed:\n{done.stdout}"
            if "coilpack" in command:
                assert lines[-2:] == [steps()[1][0], re.sub("=1,2,3,4$", "", steps()[2][0])]


@pytest.mark.parametrize("options", [{"targets": ("sm_80", "sm_90")}, {"image": "cubin"}])
def test_it_is_the_ptx_of_one_target(tmp_path, options):
    choice = CompileOptions(emit="iree", **{"image": "ptx", **options})
    with pytest.raises(InputError, match="a module for IREE holds the PTX of one target"):
        compile_package({"main": "no.pt2"}, tmp_path / "out", choice)
