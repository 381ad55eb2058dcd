"""Compiles exported PyTorch programs into packages: Inductor's kernels lowered to PTX, with the host program.

Functions to call from Python are imported when they are first asked for: torch and Triton only with what needs them.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilpack.compiler.freezing.freeze import freeze
    from coilpack.compiler.freezing.registration import register

__all__ = ["PRODUCER", "freeze", "register"]

PRODUCER = f"coilpack {version('coilpack')}"
"""Name and version that stand in every file the compiler writes."""

_MODULES = {  # of the functions that are imported when asked for
    "freeze": "coilpack.compiler.freezing.freeze",
    "register": "coilpack.compiler.freezing.registration",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
