"""Brings a kernel's PTX into the order in which IREE's CUDA runtime passes parameters.

IREE knows two kinds: the addresses of at most 16 buffers ("bindings"), and behind them at most 64 constants of 32 bits.
It passes as many parameters as the kernel declares, so there may be no others. A kernel of Triton's takes pointers and
scalars of any width in any order; here pointers move to the front, a scalar of 64 bits becomes two constants (the lower
half first), narrower ones lie in the low bytes of one, and what the code never reads goes. Source: IREE's CUDA driver,
`native_executable.c` and `stream_command_buffer.c`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coilpack.compiler.kernels.ptx_entry import ENTRY, PtxParameter, declared_parameters, mentions, parameter_list
from coilpack.runtime.errors import CoilpackError, UnsupportedError
from coilpack.runtime.program import ir
from coilpack.schemas import wire

_POINTER_BYTES, _WORD_BYTES = 8, 4
_HALVES = ("lo", "hi")

_BRACE = re.compile(r'"[^"\n]*"|[{}]')
_LOAD = re.compile(
    r"(?P<guard>@!?[\w$%]+\s+)?\bld\.param(?:::entry)?(?:\.v[248])?\.(?P<type>[busf](?P<bits>\d+))\s+"
    r"(?:\{(?P<vector>[^{}]*)\}|(?P<register>[\w$%]+))\s*,\s*"
    r"\[\s*(?P<name>[\w$%]+)\s*(?:\+\s*(?P<offset>\d+)\s*)?\]\s*;",
    re.ASCII,
)


class Constant(NamedTuple):
    """What one 32-bit constant carries.

    Attributes:
        parameter: index of the scalar parameter.
        word: 0 for its low or only 32 bits, 1 for the high ones.
        width: bytes of the scalar; of fewer than four, only the low bytes of the constant are read.
    """

    parameter: int
    word: int
    width: int


@dataclass(frozen=True, slots=True)
class IreeKernel:
    """A kernel as IREE's runtime calls it.

    Attributes:
        ptx: the module with the entry changed.
        bindings: for each binding, in order, the index of the parameter whose address it is.
        read_only: for each binding, whether nothing is written through it.
        constants: in order.
    """

    ptx: str
    bindings: tuple[int, ...]
    read_only: tuple[bool, ...]
    constants: tuple[Constant, ...]


class _Entry(NamedTuple):
    """A module cut at the parameter list and the body of one entry."""

    before: str
    parameters: list[PtxParameter]
    between: str
    body: str
    after: str


def iree_kernel(ptx: str, kernel_name: str, parameters: Sequence[ir.KernelParameter]) -> IreeKernel:
    """Reorders the parameters of the entry `kernel_name`; PTX that is in order already stays as it is, byte by byte.

    Args:
        ptx: a module without comments, as `normalize_ptx` returns it; other entries in it stay as they are.
        kernel_name: the entry's symbol.
        parameters: what the entry takes now, in order.

    Raises:
        UnsupportedError: it needs more bindings or constants than IREE passes, or uses a scalar that would have to be
            split in another way than loading it.
        CoilpackError: there is no such entry, or its parameters are not `parameters`.
    """
    entry = _find(ptx, kernel_name)
    _check(kernel_name, entry.parameters, parameters)
    names = [declared.name for declared in entry.parameters]
    body = _split_loads(kernel_name, entry.body, [n for n, p in zip(names, parameters, strict=True) if _is_wide(p)])
    bindings = {
        index: p
        for index, p in enumerate(parameters)
        if isinstance(p, ir.PointerParameter) and mentions(body, names[index])
    }
    words = {
        constant: declaration
        for constant in _constants(parameters)
        if mentions(body, (declaration := _declaration(entry.parameters[constant.parameter], constant)).name)
    }
    _check_counts(kernel_name, len(bindings), len(words))
    declarations = [*(entry.parameters[index] for index in bindings), *words.values()]
    if declarations != entry.parameters:
        ptx = f"{entry.before}{parameter_list([d.text for d in declarations])}{entry.between}{body}{entry.after}"
    read_only = [ir.Access.WRITE not in pointer.access for pointer in bindings.values()]
    return IreeKernel(ptx, tuple(bindings), tuple(read_only), tuple(words))


def _find(ptx: str, kernel_name: str) -> _Entry:
    for match in ENTRY.finditer(ptx):
        if match["name"] == kernel_name:
            start, end = _body(ptx, match.end())
            head = match.start("parameters") - 1
            declared = declared_parameters(kernel_name, match["parameters"])
            return _Entry(ptx[:head], declared, ptx[match.end() : start], ptx[start:end], ptx[end:])
    raise CoilpackError(f"kernel {kernel_name!r}: its PTX has no entry of that name")


def _body(ptx: str, position: int) -> tuple[int, int]:
    """Where the first block behind `position` begins and ends, without its braces."""
    depth = start = 0
    for match in _BRACE.finditer(ptx, position):
        if match[0] == "{":
            depth += 1
            start = start or match.end()
        elif match[0] == "}":
            depth -= 1
            if not depth:
                return start, match.start()
    raise CoilpackError(f"the PTX ends within the block that begins at character {start}")


def _check(kernel_name: str, declared: Sequence[PtxParameter], parameters: Sequence[ir.KernelParameter]) -> None:
    sizes = [_POINTER_BYTES if isinstance(p, ir.PointerParameter) else p.dtype.itemsize for p in parameters]
    if [parameter.size for parameter in declared] != sizes:
        raise CoilpackError(
            f"kernel {kernel_name!r}: the parameters in its PTX have {[p.size for p in declared]} bytes where the "
            f"program says {sizes}"
        )


def _check_counts(kernel_name: str, bindings: int, constants: int) -> None:
    for count, what, limit in (
        (bindings, "pointers", wire.MAX_BINDINGS),
        (constants, "constants of 32 bits", wire.MAX_CONSTANTS),
    ):
        if count > limit:
            raise UnsupportedError(
                f"kernel {kernel_name!r} takes {count} {what}; IREE's CUDA runtime passes at most {limit}: emit a "
                "package, or split the operation that the kernel was made of"
            )


def _is_wide(parameter: ir.KernelParameter) -> bool:
    return isinstance(parameter, ir.ScalarParameter) and parameter.dtype.itemsize > _WORD_BYTES


def _constants(parameters: Sequence[ir.KernelParameter]) -> Iterator[Constant]:
    """The words of all scalars, read or not."""
    for index, parameter in enumerate(parameters):
        if isinstance(parameter, ir.ScalarParameter):
            width = parameter.dtype.itemsize
            yield from (Constant(index, word, width) for word in range(-(-width // _WORD_BYTES)))


def _half(name: str, word: int) -> str:
    return f"{name}_{_HALVES[word]}"


def _declaration(declared: PtxParameter, constant: Constant) -> PtxParameter:
    """What takes the place of a scalar's declaration, for one of its words."""
    if constant.width == _WORD_BYTES:
        return declared
    name = declared.name if constant.width < _WORD_BYTES else _half(declared.name, constant.word)
    return PtxParameter(name, _WORD_BYTES, f".param .u32 {name}")


def _split_loads(kernel_name: str, body: str, wide: Sequence[str]) -> str:
    """Makes loads of the 64-bit parameters `wide` from loads of their halves.

    A narrower load needs no change but for the half that it reads: parameters lie in memory with the low byte first.
    """
    words = [f"%{half}{_unused(body)}" for half in _HALVES]
    changed = _LOAD.sub(lambda load: _split_load(load, words) if load["name"] in wide else load[0], body)
    for name in wide:
        if mentions(changed, name):
            raise UnsupportedError(
                f"kernel {kernel_name!r} does not only load its 64-bit parameter {name!r}, so it cannot be passed in "
                "two constants, as IREE's CUDA runtime would have to: emit a package"
            )
    return f"\n\t.reg .b32 \t{', '.join(words)};{changed}" if mentions(changed, words[0]) else changed


def _unused(body: str) -> str:
    """A suffix with which the names of both halves begin no register of the body."""
    suffixes = ("_" * length for length in itertools.count())
    return next(suffix for suffix in suffixes if not any(f"%{half}{suffix}" in body for half in _HALVES))


def _split_load(load: re.Match[str], words: Sequence[str]) -> str:
    """The statements that take the place of one load of a 64-bit parameter."""
    return "\n\t".join(f"{load['guard'] or ''}{statement}" for statement in _loads(load, words))


def _loads(load: re.Match[str], words: Sequence[str]) -> Iterator[str]:
    size, first = int(load["bits"]) // 8, int(load["offset"] or 0)
    registers = load["vector"].split(",") if load["vector"] else [load["register"]]
    for offset, register in zip(itertools.count(first, size), map(str.strip, registers), strict=False):
        if size > _WORD_BYTES:
            for word, half in enumerate(words):
                yield f"ld.param.b32 \t{half}, [{_half(load['name'], word)}];"
            yield f"mov.b64 \t{register}, {{{', '.join(words)}}};"
        elif register != "_":  # a place in the vector that nobody reads
            word, rest = divmod(offset, _WORD_BYTES)
            place = _half(load["name"], word) + (f"+{rest}" if rest else "")
            yield f"ld.param.{load['type']} \t{register}, [{place}];"
