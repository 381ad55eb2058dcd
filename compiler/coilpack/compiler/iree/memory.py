"""Memory as values: a buffer is a tensor of bytes, and what changes it makes the next value of it.

IREE's tensors are values. Each allocation of the program, and each argument, weight and global, is a flat tensor of its
bytes; a view is a place in one. Writing makes a new value, which takes the old one's memory where nobody else needs
that: IREE's compiler finds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from coilpack.compiler.arithmetic import add, maximum, multiply
from coilpack.compiler.iree.sizes import Sizes
from coilpack.compiler.iree.text import Block, nbytes_of
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr


@dataclass(eq=False, slots=True)
class Buffer:
    """A block of `nbytes` bytes.

    Attributes:
        name: for the names of its values.
        nbytes: its size.
        value: its present content, a flat tensor of bytes.
        origin: the argument, storage or global that it is; None for memory of the function's own.
        changed: whether the function has written to it.
        known: whether iree-compile could know a part of its content: weights or constants went into it.
        unique: whether no other buffer's content can be the same to iree-compile.
    """

    name: str
    nbytes: Expr
    value: str
    origin: ir.Argument | ir.Storage | ir.Global | None = None
    changed: bool = False
    known: bool = False
    unique: bool = False

    @property
    def undefined(self) -> bool:
        """Whether nothing was ever written there."""
        return self.origin is None and not self.changed


class Place(NamedTuple):
    """Where a value begins: `offset` bytes into a buffer."""

    buffer: Buffer
    offset: Expr


class Operand(NamedTuple):
    """A flat tensor of bytes that an operation takes; where `size` is given, its type hides how many bytes it has."""

    value: str
    nbytes: Expr
    size: str = ""


def is_row_major(type_: ir.TensorType) -> bool:
    """Whether the elements surely lie in row-major order without gaps; along a single one the stride says nothing."""
    rows = ir.contiguous_strides(type_.shape)
    return all(size == 1 or a == b for size, a, b in zip(type_.shape, type_.strides, rows, strict=True))


def extent_nbytes(type_: ir.TensorType) -> Expr:
    """Bytes from the first element to the end of the last; the strides are not negative."""
    if is_row_major(type_) or 0 in type_.shape:
        return nbytes_of(type_)
    steps = [multiply(add(size, -1), stride) for size, stride in zip(type_.shape, type_.strides, strict=True)]
    return multiply(maximum(add(*steps, 1), 0), type_.dtype.itemsize)


class Memory:
    """Reads and writes buffers.

    Args:
        block: where operations go.
        sizes: of the function.
    """

    def __init__(self, block: Block, sizes: Sizes) -> None:
        self._block = block
        self._sizes = sizes

    def type(self, nbytes: Expr) -> str:
        """The type of a flat tensor."""
        return f"tensor<{nbytes if isinstance(nbytes, int) else '?'}xi8>"

    def dims(self, nbytes: Expr) -> str:
        """The dynamic size of a flat tensor, in braces; nothing where it is constant."""
        return "" if isinstance(nbytes, int) else f"{{{self._sizes.value(nbytes)}}}"

    def typed(self, nbytes: Expr) -> str:
        """The type of a flat tensor, with its dynamic size."""
        return self.type(nbytes) + self.dims(nbytes)

    def allocate(self, name: str, nbytes: Expr) -> Buffer:
        """A buffer of undefined bytes."""
        value = self._block.define(name, f"flow.tensor.empty : {self.typed(nbytes)}")
        return Buffer(name, nbytes, value, known=True)

    def check(self, place: Place, nbytes: Expr, what: str) -> None:
        """Ends the call unless that many bytes from `place` on lie in its buffer."""
        end, limit = add(place.offset, nbytes), place.buffer.nbytes
        if end != limit and not (isinstance(end, int) and isinstance(limit, int) and end <= limit):
            self._sizes.check("sle", end, limit, f"{what} reaches beyond its memory")

    def read(self, place: Place, nbytes: Expr) -> Operand:
        """A tensor that begins at `place` and has at least `nbytes` bytes."""
        return Operand(place.buffer.value, place.buffer.nbytes) if place.offset == 0 else self.exactly(place, nbytes)

    def exactly(self, place: Place, nbytes: Expr) -> Operand:
        """A tensor of the `nbytes` bytes from `place` on."""
        buffer, offset = place
        if offset == 0 and buffer.nbytes == nbytes:
            return Operand(buffer.value, nbytes)
        start, length = self._sizes.value(offset), self._sizes.value(nbytes)
        if isinstance(buffer.origin, ir.Storage):
            start = self._sizes.hide(start)  # iree-compile 3.11 crashes where it tries to fold a slice of a parameter
        result = self.typed(nbytes)
        operation = f"flow.tensor.slice {buffer.value}[{start} for {length}] : {self.typed(buffer.nbytes)} -> {result}"
        return Operand(self._block.define(f"{buffer.name}_part", operation), nbytes)

    def apart(self, operand: Operand, undefined: bool) -> Operand:
        """The same bytes in a tensor that iree-compile cannot take for another one.

        It keeps one of equal tensors, undefined ones too. A size that it does not know makes them differ.
        """
        size = self._sizes.hide(self._sizes.value(operand.nbytes))
        type_ = f"tensor<?xi8>{{{size}}}"
        value = self._block.define("apart", f"flow.tensor.empty : {type_}")
        if not undefined:
            types = f"{self.typed(operand.nbytes)} -> {value} as {type_}"
            start = self._sizes.value(0)
            value = self._block.define("apart", f"flow.tensor.update {operand.value}, {value}[{start}] : {types}")
        return Operand(value, operand.nbytes, size)

    def operand_type(self, operand: Operand) -> tuple[str, str]:
        """The type of an operand, and its dynamic size in braces, if it has one."""
        if operand.size:
            return "tensor<?xi8>", f"{{{operand.size}}}"
        return self.type(operand.nbytes), self.dims(operand.nbytes)

    def write(self, place: Place, content: Operand, known: bool, unique: bool) -> None:
        """Puts `content` where `place` is; `known` and `unique` are said of it as of a buffer."""
        buffer, offset = place
        buffer.known = known or (buffer.known and content.nbytes != buffer.nbytes)
        if content.size:
            types = f"{''.join(self.operand_type(content))} -> {self.typed(content.nbytes)}"
            value = self._block.define(buffer.name, f"flow.tensor.reshape {content.value} : {types}")
            content = Operand(value, content.nbytes)
        buffer.changed = True
        if offset == 0 and buffer.nbytes == content.nbytes:
            buffer.value, buffer.unique = content.value, unique
            return
        buffer.unique = buffer.unique or unique
        types = f"{self.typed(content.nbytes)} -> {buffer.value} as {self.typed(buffer.nbytes)}"
        operation = f"flow.tensor.update {content.value}, {buffer.value}[{self._sizes.value(offset)}] : {types}"
        buffer.value = self._block.define(buffer.name, operation)
