"""What all tests share: skipping by capability, and the option that brings in the slow ones."""

from __future__ import annotations

import functools
import gc
import importlib.util
from pathlib import Path

import pytest

# As in the processes that compile: what torch's import leaves behind is not looked through again and again.
gc.set_threshold(20_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption(
        "--iree",
        type=Path,
        action="append",
        default=[],
        help="folder of a release's tools, instead of the installed one",
    )
    parser.addoption("--prepared", type=Path, help="folder of tests/compile/iree_prepared.py, for tests on a GPU")


@functools.cache
def _no_gpu() -> str:
    """Why tests of a CUDA device cannot run here; empty where they can."""
    from coilpack.runtime.devices import resolve_device
    from coilpack.runtime.errors import CoilpackError

    try:
        resolve_device("cuda:0")
    except CoilpackError as error:
        return f"needs a CUDA device: {error}"
    return ""


@functools.cache
def _no_compiler() -> str:
    """What the compiler lacks here; empty where it has all."""
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    return f"needs the extra `compile`: {', '.join(missing)} not installed" if missing else ""


_CAPABILITIES = {"gpu": _no_gpu, "compiler": _no_compiler}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        for marker, lacking in _CAPABILITIES.items():
            if item.get_closest_marker(marker) and (reason := lacking()):
                item.add_marker(pytest.mark.skip(reason=reason))
