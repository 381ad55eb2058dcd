"""PTX in memory: what the parser makes of the text."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """`%r1`, `%tid.x`; registers of an inline-assembly block carry a suffix that makes them the block's own."""

    name: str


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p1`."""

    register: Register


@dataclass(frozen=True, slots=True)
class Immediate:
    """A number. `bits` is the width of the floating-point format that it was written in, 0 for an integer."""

    value: int | float
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable plus bytes, the name of a parameter, or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """`{%r1, %r2}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`%p1|%p2`: two results."""

    first: Register
    second: Register


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]`, in bytes."""

    base: Operand
    offset: int


@dataclass(frozen=True, slots=True)
class Arguments:
    """`(param0, param1)` of a call."""

    items: tuple[Operand, ...]


Operand = Register | Negated | Immediate | Symbol | Vector | Pair | Address | Arguments


@dataclass(frozen=True, slots=True)
class Guard:
    """`@%p1` or `@!%p1`."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Args:
        name: with all modifiers, as `ld.global.v4.b32`.
        operands: in the order of the text.
        guard: the predicate that it is executed under.
        line: of the text, from 1.
        column: from 1.
        text: its source on one line.
    """

    name: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    column: int
    text: str

    @property
    def opcode(self) -> str:
        """The name without modifiers."""
        return self.name.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The modifiers in order."""
        return tuple(self.name.split(".")[1:])


@dataclass(frozen=True, slots=True)
class Label:
    """A jump target."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared variable or parameter.

    Args:
        name: unique in the module, or in its entry.
        space: `global`, `const`, `shared`, `local` or `param`.
        type: element type without the dot.
        count: elements; 0 for an array without a size, whose memory the launch provides.
        alignment: in bytes.
        initial: numbers, symbols for addresses; empty for zeros.
        external: declared `.extern`.
    """

    name: str
    space: str
    type: str
    count: int
    alignment: int
    initial: tuple[Immediate | Symbol, ...] = ()
    external: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel.

    Args:
        name: its symbol.
        parameters: in order.
        registers: type of each declared register.
        variables: those declared in the body.
        body: instructions and labels in order.
        max_threads: per CTA by `.reqntid` or `.maxntid`, or None.
        required_threads: `.reqntid` along x, y and z, or None.
        line: where it begins.
    """

    name: str
    parameters: tuple[Variable, ...]
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    body: tuple[Instruction | Label, ...]
    max_threads: int | None
    required_threads: tuple[int, int, int] | None
    line: int


@dataclass(frozen=True, slots=True)
class PtxModule:
    """A whole PTX text."""

    version: str
    target: str
    variables: tuple[Variable, ...] = ()
    entries: dict[str, Entry] = field(default_factory=dict)


# Bytes of each type; predicates have no memory form.
TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "b128": 16,
    "f16": 2,
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "f32": 4,
    "f64": 8,
}
