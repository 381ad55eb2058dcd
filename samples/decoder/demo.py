"""The decoder from end to end: compile both functions into one package, verify, inspect, generate."""

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
    package = str(BUILD / "decoder.coil")
    functions = [
        option for name in ("prefill", "decode") for option in ("--function", f"{name}={HERE}/model.py:{name}")
    ]
    step(COILPACK, "compile", *functions, "-o", package, "--target", "sm_80,sm_90")
    step(COILPACK, "verify", package)
    step(COILPACK, "inspect", package)
    step(sys.executable, str(HERE / "generate.py"), package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
