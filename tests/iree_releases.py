"""IREE's released tools where they are installed, and files made ready with them for a machine that has none."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

COMPILER = "iree-compile"
RUNTIME = ("iree-run-module", "iree-dump-module", "iree-benchmark-module", "iree-benchmark-executable")


@dataclass(frozen=True)
class Release:
    """One release of IREE.

    Attributes:
        folder: where its tools are.
        version: major and minor: `3.13`.
    """

    folder: Path
    version: str

    @classmethod
    def of(cls, folder: Path) -> Release:
        """The release in that folder, by what its compiler says."""
        output = subprocess.run([folder / COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"compiler version (\d+\.\d+)", output)
        assert found is not None, output
        return cls(folder, found[1])

    def run(
        self, tool: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a tool to its end; what it writes is text."""
        command = [str(self.folder / tool), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)

    def checked(self, tool: str, *arguments: object, environment: Mapping[str, str] | None = None) -> str:
        """What a tool prints; it must succeed."""
        result = self.run(tool, *arguments, environment=environment)
        assert result.returncode == 0, f"{tool} {self.version}: {result.stderr[-4000:]}"
        return result.stdout

    def copy_runtime(self, target: Path) -> None:
        """Copies the programs behind the tools of the runtime, which need nothing else."""
        scripts = self.folder.parent
        for tool in RUNTIME:
            found = next(iter(scripts.glob(f"lib/python*/site-packages/iree/_runtime_libs/{tool}")), self.folder / tool)
            shutil.copy2(found, target / tool)


def installed(folders: Iterable[Path] = ()) -> list[Release]:
    """The releases in those folders; without any, the one beside this Python or on PATH, if there is one."""
    found = [Release.of(folder) for folder in folders]
    if found:
        return found
    beside = Path(sys.executable).with_name(COMPILER)
    tool = beside if beside.exists() else shutil.which(COMPILER)
    return [Release.of(Path(tool).parent)] if tool else []
