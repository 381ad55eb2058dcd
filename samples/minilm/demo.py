"""The main sample from end to end: export, compile, verify, inspect, embed sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"
COILPACK = str(Path(sys.executable).with_name("coilpack"))


def step(*command: str) -> None:
    """Shows a command and runs it; ends the demo where it fails."""
    print(f"\n$ {' '.join(command)}", flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> int:
    """Runs every step: the last on the GPU, or in the emulator where there is none."""
    BUILD.mkdir(exist_ok=True)
    exported, package = str(BUILD / "minilm.pt2"), str(BUILD / "minilm.coil")
    step(sys.executable, str(HERE / "export.py"), "-o", exported)
    step(COILPACK, "compile", exported, "-o", package, "--target", "sm_80,sm_90")
    step(COILPACK, "verify", package)
    step(COILPACK, "inspect", package)
    step(sys.executable, str(HERE / "embed.py"), package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
