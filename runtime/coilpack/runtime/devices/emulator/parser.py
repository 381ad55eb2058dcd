"""PTX text to `PtxModule`."""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Mapping
from importlib import resources
from typing import Any

from lark import Lark, LarkError, Token, Transformer, UnexpectedInput, UnexpectedToken

from coilpack.runtime.devices.emulator.flatten import Flattener, RawEntry, RawFunction, RawInstruction
from coilpack.runtime.devices.emulator.ptx import (
    TYPE_BYTES,
    Address,
    Arguments,
    Entry,
    Guard,
    Immediate,
    Label,
    Negated,
    Pair,
    PtxModule,
    Register,
    Symbol,
    Variable,
    Vector,
)
from coilpack.runtime.errors import InvalidFileError

_MAX_REGISTERS = 1_000_000  # of one declaration; a kernel has thousands


def parse_ptx(text: str, *, file: str = "PTX") -> PtxModule:
    """Parses PTX.

    Args:
        text: the whole text.
        file: its name, for messages.

    Raises:
        InvalidFileError: it is not PTX; the message has line, column and the text there.
    """
    try:
        items: Any = _grammar().parse(text)  # what the transformer returns, no tree
    except UnexpectedInput as error:
        found = repr(str(error.token)) if isinstance(error, UnexpectedToken) else "what stands here"
        line = next(itertools.islice(text.splitlines(), max(error.line - 1, 0), None), "").strip()
        where = f"line {error.line}, column {error.column}"
        raise InvalidFileError(file, where, f"{found} is not PTX: `{line}`") from error
    except LarkError as error:
        raise InvalidFileError(file, "", f"the PTX cannot be read: {error}") from error
    return _module(items, text, file)


@functools.cache
def _grammar() -> Lark:
    source = resources.files(__package__).joinpath("ptx_grammar.lark").read_text("utf-8")
    return Lark(source, parser="lalr", transformer=_Builder(), maybe_placeholders=False)


class _Builder(Transformer[Token, Any]):
    """Builds values while the text is parsed. One method for each rule, named as the rule."""

    # --- operands ---

    def register(self, items: list[Any]) -> Register:
        return Register(str(items[0]))

    def negated(self, items: list[Any]) -> Negated:
        return Negated(Register(str(items[-1])))

    def symbol(self, items: list[Any]) -> Symbol:
        return Symbol(str(items[0]))

    def symbol_offset(self, items: list[Any]) -> Symbol:
        return Symbol(str(items[0]), items[1])

    def integer(self, items: list[Any]) -> Immediate:
        return Immediate(-_integer(items[1]) if items[0] == "-" else _integer(items[-1]))

    def real(self, items: list[Any]) -> Immediate:
        return Immediate(float("".join(items)), 64)

    def float_bits(self, items: list[Any]) -> Immediate:
        return Immediate(struct.unpack(">f", bytes.fromhex(items[0][2:]))[0], 32)

    def double_bits(self, items: list[Any]) -> Immediate:
        return Immediate(struct.unpack(">d", bytes.fromhex(items[0][2:]))[0], 64)

    def pair(self, items: list[Any]) -> Pair:
        return Pair(Register(str(items[0])), Register(str(items[1])))

    def vector(self, items: list[Any]) -> Vector:
        return Vector(tuple(items))

    def offset(self, items: list[Any]) -> int:
        sign = -1 if "-" in items[:-1] else 1
        return sign * _integer(items[-1])

    def address(self, items: list[Any]) -> Address:
        base, offset = items[0], items[1] if len(items) > 1 else 0
        if isinstance(base, Symbol):  # the offset was read as the symbol's
            base, offset = Symbol(base.name), base.offset + offset
        return Address(base, offset)

    def arguments(self, items: list[Any]) -> Arguments:
        return Arguments(tuple(items))

    # --- statements ---

    def guard(self, items: list[Any]) -> tuple[Guard, int]:
        return Guard(Register(str(items[-1])), len(items) > 1), items[-1].start_pos - len(items)

    def instruction(self, items: list[Any]) -> RawInstruction:
        guard, start = items[0] if isinstance(items[0], tuple) else (None, items[0].start_pos)
        name, *operands, end = items if guard is None else items[1:]
        return RawInstruction(name, tuple(operands), guard, start, end.end_pos)

    def label(self, items: list[Any]) -> Label:
        return Label(str(items[0]))

    def body(self, items: list[Any]) -> list[Any]:
        return items

    def declared(self, items: list[Any]) -> list[str]:
        name = str(items[0])
        if len(items) == 1:
            return [name]
        return [f"{name}{i}" for i in range(min(_integer(items[1]), _MAX_REGISTERS))]

    def register_names(self, items: list[Any]) -> list[str]:
        return [name for names in items for name in names]

    def register_declaration(self, items: list[Any]) -> dict[str, str]:
        attributes = dict(items[1:-1])
        return dict.fromkeys(items[-1], str(attributes.get("type", "")))

    def attribute(self, items: list[Any]) -> tuple[str, Any]:
        kind = items[0].type
        if kind == "TYPE":
            return ("type", str(items[0])[1:])
        return ("align", _integer(items[1])) if kind == "ALIGN" else (kind, str(items[0]))

    def array(self, items: list[Any]) -> int:
        return _integer(items[0]) if items else 0

    def braces(self, items: list[Any]) -> list[Any]:
        return [value for item in items for value in (item if isinstance(item, list) else [item])]

    def variable(self, items: list[Any]) -> tuple[str, int, tuple[Any, ...]]:
        sizes = [item for item in items[1:] if isinstance(item, int)]
        rest = [item for item in items[1:] if not isinstance(item, int)]
        count = 1
        for size in sizes:
            count *= size
        initial = rest[0] if rest else []
        return str(items[0]), count, tuple(initial if isinstance(initial, list) else [initial])

    def variable_declaration(self, items: list[Any]) -> list[Variable]:
        tokens = [item for item in items if isinstance(item, Token)]
        attributes = dict(item for item in items if isinstance(item, tuple) and len(item) == 2)
        space, external = tokens[-1][1:], ".extern" in tokens
        type_ = attributes.get("type", "b8")
        alignment = attributes.get("align", TYPE_BYTES.get(type_, 1))
        return [
            Variable(name, space, type_, count, alignment, initial, external)
            for name, count, initial in (item for item in items if isinstance(item, tuple) and len(item) == 3)
        ]

    # --- the module ---

    def parameter(self, items: list[Any]) -> Variable:
        attributes: dict[str, Any] = {}
        for item in items:
            if isinstance(item, tuple):
                if item[0] == "POINTER":
                    break  # the alignment that follows is that of the memory it points to
                attributes[item[0]] = item[1]
        name = next(item for item in reversed(items) if isinstance(item, Token))
        sizes = [item for item in items if isinstance(item, int)]
        type_ = attributes.get("type", "b8")
        alignment = attributes.get("align", TYPE_BYTES.get(type_, 1))
        return Variable(str(name), "param", type_, sizes[0] if sizes else 1, alignment)

    def parameters(self, items: list[Any]) -> list[Variable]:
        return items

    def bound(self, items: list[Any]) -> tuple[str, tuple[int, ...]]:
        return str(items[0])[1:], tuple(_integer(item) for item in items[1:])

    def entry(self, items: list[Any]) -> RawEntry:
        name = next(item for item in items if isinstance(item, Token) and item.type == "NAME")
        *lists, body = (item for item in items if isinstance(item, list))
        bounds: dict[str, tuple[int, ...]] = dict(item for item in items if isinstance(item, tuple))
        return RawEntry(name, lists[0] if lists else [], bounds, body)

    def function(self, items: list[Any]) -> RawFunction | None:
        """A device function; None for a declaration without a body."""
        at = next(n for n, item in enumerate(items) if isinstance(item, Token) and item.type == "NAME")
        before, after = ([item for item in part if isinstance(item, list)] for part in (items[:at], items[at + 1 :]))
        if not after or (after[-1] and isinstance(after[-1][0], Variable)) or not after[-1]:
            return None
        return RawFunction(items[at], before[0] if before else [], after[0] if len(after) > 1 else [], after[-1])

    def version(self, items: list[Any]) -> tuple[str, str]:
        return "version", str(items[0])

    def target(self, items: list[Any]) -> tuple[str, str]:
        return "target", str(items[0])

    def ignored(self, _: list[Any]) -> None:
        """What says nothing to an executor."""

    pragma = ignored

    def start(self, items: list[Any]) -> list[Any]:
        return items


def _integer(token: str) -> int:
    text = token.rstrip("U")
    octal = len(text) > 1 and text[0] == "0" and text.isdigit()
    return int(text, 8) if octal else int(text, 0)


def _module(items: list[Any], text: str, file: str) -> PtxModule:
    header: dict[str, str] = dict(
        item for item in items if isinstance(item, tuple) and not isinstance(item, (RawEntry, RawFunction))
    )
    variables = tuple(v for item in items if isinstance(item, list) for v in item)
    functions = {str(item.name): item for item in items if isinstance(item, RawFunction)}
    entries: dict[str, Entry] = {}
    for item in items:
        if isinstance(item, RawEntry):
            if item.name in entries:
                raise InvalidFileError(file, f"line {item.name.line}", f"the entry {str(item.name)!r} is defined twice")
            entries[str(item.name)] = _entry(item, text, functions)
    return PtxModule(header.get("version", ""), header.get("target", ""), variables, entries)


def _entry(raw: RawEntry, text: str, functions: Mapping[str, RawFunction]) -> Entry:
    flat = Flattener(text, functions)
    flat.add(raw.body, {})
    required = raw.bounds.get("reqntid")
    most = required or raw.bounds.get("maxntid")
    threads = functools.reduce(int.__mul__, most) if most else None
    x, y, z = (*(required or ()), 1, 1, 1)[:3]
    return Entry(
        str(raw.name),
        tuple(raw.parameters),
        flat.registers,
        tuple(flat.variables),
        tuple(flat.body),
        threads,
        (x, y, z) if required else None,
        raw.name.line or 0,
    )
