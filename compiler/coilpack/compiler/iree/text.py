"""The words of MLIR's text: symbols, strings, tensor types, and the lines of a function's body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from coilpack.compiler.arithmetic import multiply
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr

_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')

# Types that pass through iree-compile as they are. It turns f64 into f32 unless told not to, and rejects signs: those
# are integers of the same width inside, and an attribute says what callers see.
_DIRECT: Final = frozenset({DType.i1, DType.i8, DType.i16, DType.i32, DType.i64, DType.f16, DType.bf16, DType.f32})
_WRITTEN: Final = {DType.complex64: "complex<f32>"}


def string(text: str) -> str:
    """A string literal, in ASCII."""
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:02X}" for b in text.encode()) + '"'


def symbol(name: str) -> str:
    """A reference to the symbol `name`."""
    return f"@{name}" if _BARE.fullmatch(name) else f"@{string(name)}"


def tensor(shape: Iterable[Expr], element: str) -> str:
    """A ranked tensor type; sizes that are not constant are `?`."""
    sizes = [str(size) if isinstance(size, int) else "?" for size in shape]
    return f"tensor<{'x'.join([*sizes, element])}>"


def element_type(dtype: DType) -> tuple[str, str]:
    """The element type of arrays at a function's boundary, inside and as callers see it.

    Raises:
        UnsupportedError: IREE has no way to pass such arrays.
    """
    if dtype in _DIRECT:
        return dtype.name, dtype.name
    if dtype.itemsize > 8:
        raise UnsupportedError(f"arrays of {dtype.name} cannot be arguments or results of a module for IREE")
    return f"i{8 * dtype.itemsize}", _WRITTEN.get(dtype, dtype.name)


def boundary(type_: ir.TensorType) -> tuple[str, str]:
    """The tensor type of an argument or result, and the attribute that says how callers see it, or nothing."""
    inside, seen = element_type(type_.dtype)
    attribute = "" if inside == seen else f" {{iree.abi.encoding = {tensor(type_.shape, seen)}}}"
    return tensor(type_.shape, inside), attribute


def unique(hint: str, taken: set[str]) -> str:
    """`hint`, with a number behind it where it is taken; it is taken from then on."""
    name, number = hint, 0
    while name in taken:
        number += 1
        name = f"{hint}_{number}"
    taken.add(name)
    return name


def nbytes_of(type_: ir.TensorType) -> Expr:
    """Bytes of all elements."""
    return multiply(*type_.shape, type_.dtype.itemsize)


class Block:
    """The body of a function: its lines, and the names of values in them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: set[str] = set()
        self._constants: dict[tuple[int, str], str] = {}

    def name(self, hint: str) -> str:
        """A new value's name, made from `hint`."""
        word = re.sub(r"[^A-Za-z0-9_]", "_", hint.removeprefix("%"))
        return f"%{unique(word if word[:1].isalpha() else f'v{word}', self._names)}"

    def add(self, line: str) -> None:
        """Appends an operation without results."""
        self.lines.append(line)

    def define(self, hint: str, operation: str) -> str:
        """Appends an operation with one result; the result's name."""
        name = self.name(hint)
        self.lines.append(f"{name} = {operation}")
        return name

    def constant(self, value: int, type_: str) -> str:
        """The name of a constant of an integer type."""
        key = value, type_
        if key not in self._constants:
            hint = f"c{value}" + ("" if type_ == "index" else f"_{type_}")
            self._constants[key] = self.define(hint, f"arith.constant {value} : {type_}")
        return self._constants[key]

    def define_all(self, hints: Sequence[str], operation: str) -> list[str]:
        """Appends an operation with several results; their names."""
        names = [self.name(hint) for hint in hints]
        self.lines.append(f"{', '.join(names)} = {operation}")
        return names
