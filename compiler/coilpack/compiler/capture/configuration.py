"""How the configuration of a kernel is written: in packages, in reports of tuning, and to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def configuration_text(values: Mapping[str, object], num_warps: int | None, num_stages: int | None) -> str:
    """A configuration as text, `XBLOCK=256 num_warps=4 num_stages=1`.

    Args:
        values: what the configuration chooses besides: block sizes, and flags of templates.
        num_warps: of a workgroup; None where it leaves that to Triton.
        num_stages: of pipelined loops; None likewise.
    """
    chosen = {**values, "num_warps": num_warps, "num_stages": num_stages}
    return " ".join(f"{name}={value}" for name, value in chosen.items() if value is not None)


def noted_sizes(inductor_meta: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of a template, which has them in its source and notes them for Inductor; empty for other kernels."""
    noted = inductor_meta.get("config_args") or {}
    return {name: value for name, value in noted.items() if isinstance(value, int) and not isinstance(value, bool)}


def tuner_configuration(tuner: Any, config: Any) -> str:
    """A configuration of a kernel of Inductor's as text."""
    return configuration_text(config.kwargs or noted_sizes(tuner.inductor_meta), config.num_warps, config.num_stages)
