"""Which symbol of its image an export is.

As a rule it is the export's kernel name. IREE's compilers (2.9 to 3.13 were looked at) have one exception: kernels
whose names meet when sanitized get the same `kernel_name`, and LLVM, linking them into one module, calls all but one
of them `name.1`, `name.2` and so on. A dot is no part of a PTX identifier: assemblers and the driver refuse the whole
image. The kernels stand in the PTX in the order of the exports, so each can be found; its symbol is then rewritten to
an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from coilpack.runtime.images import ImageInfo

_LLVM_SUFFIX: Final = re.compile(r"\.\d+$")
_DOTTED: Final = re.compile(rb"[A-Za-z_$%][\w$%]*(?:\.\w+)+")


def assign_symbols(kernel_names: Sequence[str], image: ImageInfo, fail: Callable[[int, str], Exception]) -> list[str]:
    """Returns the entry of `image` that each of the exports of this image is.

    Args:
        kernel_names: their kernel names in ordinal order.
        image: the image.
        fail: makes the error for the export at a position.
    """
    groups: dict[str, list[str]] = {}
    for entry in image.entries:
        groups.setdefault(_LLVM_SUFFIX.sub("", entry), []).append(entry)
    wanted: dict[str, int] = {}
    for name in kernel_names:
        wanted[name] = wanted.get(name, 0) + 1
    taken: dict[str, int] = {}
    symbols = []
    for position, name in enumerate(kernel_names):
        group = groups.get(name, [])
        if len(group) > 1 and wanted[name] == len(group):
            symbols.append(group[taken.get(name, 0)])
            taken[name] = taken.get(name, 0) + 1
        elif name in image.entries and len(group) == 1:
            symbols.append(name)
        elif group:
            raise fail(
                position, f"{wanted[name]} exports have the kernel name {name!r}, the image has {len(group)} such"
            )
        else:
            raise fail(position, f"the image has no kernel {name!r}; it has {_some(list(image.entries))}")
    return symbols


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "none"


def legal_symbols(image: ImageInfo) -> dict[str, str]:
    """Returns a legal name for each entry of a PTX image whose symbol is no PTX identifier."""
    used = set(image.entries)
    renamed = {}
    for entry in image.entries:
        if image.kind == "ptx" and "." in entry:
            symbol = entry.replace(".", "_")
            while symbol in used:
                symbol += "_"
            used.add(symbol)
            renamed[entry] = symbol
    return renamed


def rename_entries(ptx: bytes | memoryview, renamed: Mapping[str, str]) -> bytes:
    """Rewrites symbols with dots, and the names of their parameters, which begin with them."""
    names = {old.encode(): new.encode() for old, new in renamed.items()}

    def replace(match: re.Match[bytes]) -> bytes:
        text = match[0]
        for old, new in names.items():
            if text == old or text.startswith(old + b"_param_"):
                return new + text[len(old) :]
        return text

    return _DOTTED.sub(replace, ptx)
