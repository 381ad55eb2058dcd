"""The description of a kernel image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ImageKind = Literal["ptx", "cubin"]


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """One parameter of a kernel.

    Args:
        name: its name in PTX; a cubin keeps none, there it is the position, as `0`.
        size: bytes that it takes.
        alignment: bytes that its place is aligned to.
        type: PTX type without the dot, as `u64`, `f32` or, for a structure, `b8`; empty for a cubin.
        offset: bytes from the start of the parameter block.
    """

    name: str
    size: int
    alignment: int
    type: str
    offset: int


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What an image says of itself.

    Args:
        kind: PTX text or a cubin.
        target: the architecture as PTX writes it, `sm_80` or `sm_90a`.
        ptx_version: `.version` of PTX, as `(8, 7)`; None for a cubin.
        entries: parameters of each kernel by its symbol, in the order of the image.
    """

    kind: ImageKind
    target: str
    ptx_version: tuple[int, int] | None
    entries: Mapping[str, tuple[ParamInfo, ...]]
