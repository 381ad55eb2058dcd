"""Normalizes the PTX of one Triton kernel, so that it is the same wherever and whenever it was made.

Comments, line information and debug sections go (they hold the build machine's paths), the entry gets its final symbol,
and the two scratch pointers that Triton appends go when nothing reads them. What the parameters are is read from the
PTX and checked against the signature that the kernel was compiled for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coilpack.compiler.kernels.ptx_entry import ENTRY, PtxParameter, declared_parameters, mentions, parameter_list
from coilpack.compiler.kernels.signature import Parameter
from coilpack.compiler.targets import PtxVersion
from coilpack.runtime.errors import CoilpackError, InputError, UnsupportedError

SCRATCH_PARAMETERS = 2
"""Triton appends a pointer to global scratch and one to profile scratch (3.6 and 3.7)."""

_STRING_OR_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DEBUG_SECTION = re.compile(r"^[ \t]*\.section[ \t]+\.debug_\w+\s*\{[^{}]*\}", re.MULTILINE)
_LINE_INFORMATION = re.compile(
    r"^[ \t]*(?:\.(?:file|loc)\b.*|\$L__(?:tmp|func_begin|func_end)\d+:)[ \t]*$", re.MULTILINE
)
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
# PTX ISA, "Identifiers": a letter, or one of _ $ % and something more.
_IDENTIFIER = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)
_WORD = re.compile(r"(?<![\w$%.])[\w$%]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class NormalizedPtx:
    """The PTX of one kernel in its final form.

    Attributes:
        text: the PTX.
        kernel_name: the symbol of its entry.
        version: of the PTX ISA, from `.version`.
        target: from `.target`: `sm_90a`.
        parameters: in the order of the PTX.
    """

    text: str
    kernel_name: str
    version: PtxVersion
    target: str
    parameters: tuple[Parameter, ...]


def normalize_ptx(
    ptx: str, kernel_name: str, arguments: Sequence[Parameter], *, scratch_bytes: int = 0
) -> NormalizedPtx:
    """Normalizes `ptx`, as Triton made it, and names its entry `kernel_name`.

    Args:
        ptx: a module with one entry.
        kernel_name: the symbol to give it.
        arguments: what the parameters shall be, without the scratch pointers.
        scratch_bytes: of global memory that each workgroup asks for.

    Raises:
        InputError: `kernel_name` is not an identifier of PTX, or the module uses it for something else.
        UnsupportedError: the kernel needs scratch memory.
        CoilpackError: the module has not exactly one entry, or its parameters are not the `arguments`.
    """
    if _IDENTIFIER.fullmatch(kernel_name) is None or kernel_name == "WARP_SZ":
        raise InputError(f"{kernel_name!r} is not a kernel name that PTX allows; sanitize it first")
    text = _without_debug(ptx)
    entries = list(ENTRY.finditer(text))
    if len(entries) != 1:
        raise CoilpackError(f"kernel {kernel_name!r}: its PTX has {len(entries)} entries instead of one")
    entry = entries[0]
    declared = declared_parameters(kernel_name, entry["parameters"])
    kept = _without_scratch(kernel_name, declared, len(arguments), text[entry.end() :], scratch_bytes)
    _check(kernel_name, kept, arguments)
    new_names = {p.name: f"{kernel_name}_param_{index}" for index, p in enumerate(kept)}
    before, after = (_renamed(part, new_names) for part in (text[: entry.start()], text[entry.end() :]))
    if any(re.search(rf"(?<![\w$%.]){re.escape(kernel_name)}(?=\s*[(\[;,=])", part) for part in (before, after)):
        raise InputError(f"kernel {kernel_name!r}: its PTX has another symbol of that name; choose another kernel name")
    text = f"{before}.entry {kernel_name}{parameter_list([_renamed(p.text, new_names) for p in kept])}{after}"
    version, target = _VERSION.search(text), _TARGET.search(text)
    if version is None or target is None:
        raise CoilpackError(f"kernel {kernel_name!r}: its PTX has no .version or no .target")
    return NormalizedPtx(text, kernel_name, (int(version[1]), int(version[2])), target[1], tuple(arguments))


def _without_debug(ptx: str) -> str:
    text = _STRING_OR_COMMENT.sub(lambda m: m[1] or "", ptx.replace("\r\n", "\n"))
    text = _DEBUG_SECTION.sub("", text)
    text = _LINE_INFORMATION.sub("", text)
    lines = (line.rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _renamed(text: str, new_names: Mapping[str, str]) -> str:
    return _WORD.sub(lambda m: new_names.get(m[0], m[0]), text)


def _without_scratch(
    kernel_name: str, declared: list[PtxParameter], expected: int, body: str, scratch_bytes: int
) -> list[PtxParameter]:
    extra = declared[expected:]
    read = [p.name for p in extra if mentions(body, p.name)]
    if scratch_bytes or (read and len(extra) == SCRATCH_PARAMETERS):
        raise UnsupportedError(
            f"kernel {kernel_name!r} needs {scratch_bytes or 'some'} bytes of global scratch memory for each block, "
            "which the runtime does not provide; choose another configuration of it"
        )
    if extra and (len(extra) != SCRATCH_PARAMETERS or any(p.size != 8 for p in extra)):
        raise CoilpackError(
            f"kernel {kernel_name!r}: its PTX has {len(declared)} parameters where its signature has {expected}"
        )
    return declared[:expected]


def _check(kernel_name: str, declared: list[PtxParameter], arguments: Sequence[Parameter]) -> None:
    if len(declared) != len(arguments):
        raise CoilpackError(
            f"kernel {kernel_name!r}: its PTX has {len(declared)} parameters where its signature has {len(arguments)}"
        )
    for index, (parameter, argument) in enumerate(zip(declared, arguments, strict=True)):
        if parameter.size != argument.size:
            raise CoilpackError(
                f"kernel {kernel_name!r}: parameter {index} ({argument.name}: {argument.type}) takes {argument.size} "
                f"bytes by the signature and {parameter.size} in the PTX ({parameter.text})"
            )
