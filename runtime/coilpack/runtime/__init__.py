"""Loads and runs what the compiler packs; never imports torch, Triton or the compiler.

    program = coilpack.runtime.open("model.coil")
    result = program(x).numpy()

Only the errors are imported with this module: the rest comes when it is first asked for, for it brings in numpy and the
file formats.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from coilpack.runtime.errors import (
    CoilpackError,
    DeviceError,
    InputError,
    InvalidFileError,
    NotFoundError,
    TargetMismatchError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from coilpack.runtime.arrays import DeviceArray, empty, to_device
    from coilpack.runtime.context import Context, Snapshot
    from coilpack.runtime.devices import resolve_device
    from coilpack.runtime.dtypes import DType
    from coilpack.runtime.files import read_executables
    from coilpack.runtime.launch import Function, LoadedExecutable, load_executable, load_executables
    from coilpack.runtime.session import Program
    from coilpack.runtime.session import open_program as open  # noqa: A004 (the public name, as `gzip.open`)
    from coilpack.runtime.tuning.report import TuningReport
    from coilpack.runtime.tuning.tune import tune

__all__ = [
    "CoilpackError",
    "Context",
    "DType",
    "DeviceArray",
    "DeviceError",
    "Function",
    "InputError",
    "InvalidFileError",
    "LoadedExecutable",
    "NotFoundError",
    "Program",
    "Snapshot",
    "TargetMismatchError",
    "TuningReport",
    "UnsupportedError",
    "empty",
    "load_executable",
    "load_executables",
    "open",
    "read_executables",
    "resolve_device",
    "to_device",
    "tune",
]

_LAZY = {
    "Context": "context:Context",
    "DType": "dtypes:DType",
    "DeviceArray": "arrays:DeviceArray",
    "Function": "launch:Function",
    "LoadedExecutable": "launch:LoadedExecutable",
    "Program": "session:Program",
    "Snapshot": "context:Snapshot",
    "TuningReport": "tuning.report:TuningReport",
    "empty": "arrays:empty",
    "load_executable": "launch:load_executable",
    "load_executables": "launch:load_executables",
    "open": "session:open_program",
    "read_executables": "files:read_executables",
    "resolve_device": "devices:resolve_device",
    "to_device": "arrays:to_device",
    "tune": "tuning.tune:tune",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
