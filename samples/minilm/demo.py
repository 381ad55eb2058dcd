"""The main sample from end to end: export, compile, verify, inspect and, where there is a GPU, embed sentences."""

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


def why_no_gpu() -> str:
    """Why the package cannot run here; empty where it can."""
    from coilpack.runtime import CoilpackError
    from coilpack.runtime.devices import resolve_device

    try:
        resolve_device("cuda:0")
    except CoilpackError as error:
        return str(error)
    return ""


def main() -> int:
    """Runs every step that this machine can run, and says which it cannot."""
    BUILD.mkdir(exist_ok=True)
    exported, package = str(BUILD / "minilm.pt2"), str(BUILD / "minilm.coil")
    step(sys.executable, str(HERE / "export.py"), "-o", exported)
    step(COILPACK, "compile", exported, "-o", package, "--target", "sm_80,sm_90")
    step(COILPACK, "verify", package)
    step(COILPACK, "inspect", package)
    if reason := why_no_gpu():
        print(
            f"\nThe package is compiled and verified. It was not run, because there is no GPU here: {reason}\n"
            f"On a machine with an NVIDIA GPU, run: python samples/minilm/embed.py {package}"
        )
        return 0
    step(sys.executable, str(HERE / "embed.py"), package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
