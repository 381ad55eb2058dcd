"""The entry of a kernel in PTX text, and the parameters that it declares. Texts are without comments."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coilpack.runtime.errors import CoilpackError

ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$%]+)\s*\((?P<parameters>[^()]*)\)", re.ASCII)

_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(?P<type>[a-z]+)(?P<bits>\d+)\s+"
    r"(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?(?P<name>[\w$%]+)\s*(?:\[(?P<count>\d+)\])?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PtxParameter:
    """A parameter as the PTX declares it.

    Attributes:
        name: its symbol.
        size: bytes.
        text: the declaration on one line: `.param .u32 k_param_0`.
    """

    name: str
    size: int
    text: str


def declared_parameters(kernel_name: str, text: str) -> list[PtxParameter]:
    """Reads what stands between the parentheses of an entry.

    Raises:
        CoilpackError: a declaration has another form than compilers write.
    """
    parameters = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _PARAMETER.fullmatch(part)
        if match is None:
            raise CoilpackError(f"kernel {kernel_name!r}: cannot read the PTX parameter {part!r}")
        size = max(int(match["bits"]), 8) // 8 * int(match["count"] or 1)
        parameters.append(PtxParameter(match["name"], size, " ".join(part.split())))
    return parameters


def parameter_list(declarations: list[str]) -> str:
    """The parenthesis of an entry, one declaration a line."""
    return "(" + ",".join(f"\n\t{text}" for text in declarations) + ("\n)" if declarations else ")")


def mentions(text: str, name: str) -> bool:
    """Whether the symbol `name` occurs in `text`."""
    return re.search(rf"(?<![\w$%.]){re.escape(name)}(?![\w$])", text) is not None
