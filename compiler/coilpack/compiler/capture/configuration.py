"""How the configuration of a kernel is written: in packages, in reports of tuning, and to people."""

from __future__ import annotations

from collections.abc import Mapping


def configuration_text(values: Mapping[str, object], num_warps: int, num_stages: int) -> str:
    """A configuration as text, `XBLOCK=256 num_warps=4 num_stages=1`.

    Args:
        values: what the configuration chooses besides: block sizes, and flags of templates.
        num_warps: of a workgroup.
        num_stages: of pipelined loops.
    """
    chosen = {**values, "num_warps": num_warps, "num_stages": num_stages}
    return " ".join(f"{name}={value}" for name, value in chosen.items())
