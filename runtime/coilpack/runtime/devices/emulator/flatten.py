"""The statements of a kernel as one list: blocks opened, functions put where they are called, names made unique."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from lark import Token

from coilpack.runtime.devices.emulator.ptx import (
    TYPE_BYTES,
    Address,
    Arguments,
    Guard,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)
from coilpack.runtime.errors import InvalidFileError

_MAX_DEPTH = 64


class RawInstruction(NamedTuple):
    """An instruction with its place in the text."""

    name: Token
    operands: tuple[Operand, ...]
    guard: Guard | None
    start: int
    end: int


class RawEntry(NamedTuple):
    """A kernel as the text has it, in nested blocks."""

    name: Token
    parameters: list[Variable]
    bounds: dict[str, tuple[int, ...]]
    body: list[Any]


class RawFunction(NamedTuple):
    """A device function as the text has it, in nested blocks."""

    name: Token
    results: list[Variable]
    parameters: list[Variable]
    body: list[Any]


class Flattener:
    """Takes the statements out of nested blocks; names that a block declares get a suffix of its own.

    Calls of device functions become their bodies: PTX that compilers write has no recursion, and the functions are few.
    What is passed to a call, and what comes back, are registers then.

    Args:
        text: the whole source.
        functions: the module's device functions by name.
    """

    def __init__(self, text: str, functions: Mapping[str, RawFunction]) -> None:
        self.text, self.functions = text, functions
        self._called: list[str] = []
        self._depth = 0
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.body: list[Instruction | Label] = []
        self._blocks = itertools.count(1)

    def add(self, block: list[Any], outer: dict[str, str], suffix: str = "") -> None:
        """Adds the statements of a block in which the names `outer` stand for others.

        Raises:
            InvalidFileError: blocks are nested deeper than compilers do.
        """
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InvalidFileError("PTX", "", f"blocks are nested more than {_MAX_DEPTH} deep")
        names = dict(outer)
        if suffix:
            names |= {name: f"{name}{suffix}" for name in _declared(block)}
        for statement in block:
            if isinstance(statement, RawInstruction):
                if not self._inline(statement, names):
                    self.body.append(self._passing(self._instruction(statement, names)))
            elif isinstance(statement, Label):
                self.body.append(Label(names.get(statement.name, statement.name)))
            elif isinstance(statement, dict):
                self.registers |= {str(names.get(name, name)): type_ for name, type_ in statement.items()}
            elif isinstance(statement, list) and statement and isinstance(statement[0], Variable):
                for variable in statement:
                    self._declare(variable, names)
            elif isinstance(statement, list):
                self.add(statement, names, f"#{next(self._blocks)}")
        self._depth -= 1

    def _declare(self, variable: Variable, names: dict[str, str]) -> None:
        if variable.space == "param" and variable.count == 1:
            self.registers[names.get(variable.name, variable.name)] = f"b{8 * TYPE_BYTES[variable.type]}"
        else:
            self.variables.append(_renamed(variable, names))

    def _inline(self, call: RawInstruction, names: dict[str, str]) -> bool:
        """Puts the body of the function that is called here; False where that is not possible."""
        callee = next((o.name for o in call.operands if isinstance(o, Symbol)), "")
        function = self.functions.get(callee)
        if not call.name.startswith("call") or call.guard or function is None or callee in self._called:
            return False
        lists = [o.items for o in call.operands if isinstance(o, Arguments)]
        results = lists[0] if function.results else ()
        given = lists[-1] if len(lists) > len(function.results) else ()
        suffix = f"@{next(self._blocks)}"
        inner = {}
        for variable, operand in zip([*function.results, *function.parameters], [*results, *given], strict=True):
            if not isinstance(operand, Symbol) or variable.count != 1:
                return False
            inner[variable.name] = names.get(operand.name, operand.name)
        self._called.append(callee)
        self.add(_with_jumps(function.body, suffix), inner, suffix)
        self._called.pop()
        self.body.append(Label(f"return{suffix}"))
        return True

    def _passing(self, i: Instruction) -> Instruction:
        """Loads and stores of a call's arguments and results as moves."""
        space = i.name.split(".")[:2]
        at = {"ld": 1, "st": 0}.get(space[0])
        if at is None or space[1:] != ["param"]:
            return i
        place, value = i.operands[at], i.operands[1 - at]
        if not isinstance(place, Address) or not isinstance(place.base, Register) or place.offset:
            return i
        operands = (value, place.base) if at else (place.base, value)
        return replace(i, name=f"mov.b{8 * TYPE_BYTES[i.modifiers[-1]]}", operands=operands)

    def _instruction(self, raw: RawInstruction, names: dict[str, str]) -> Instruction:
        operands, guard = raw.operands, raw.guard
        operands = tuple(self._resolve(operand, names) for operand in operands)
        if guard and guard.register.name in names:
            guard = Guard(Register(names[guard.register.name]), guard.negated)
        source = " ".join(self.text[raw.start : raw.end].split())
        return Instruction(str(raw.name), operands, guard, raw.name.line or 0, raw.name.column or 0, source)

    def _resolve(self, operand: Operand, names: dict[str, str]) -> Operand:
        """The operand with the names of its block; a name without % that was declared as a register is one."""
        match operand:
            case Register(name):
                return Register(names[name]) if name in names else operand
            case Symbol(name, offset):
                name = names.get(name, name)
                return Register(name) if name in self.registers or name == "_" else Symbol(name, offset)
            case Address(base, offset):
                return Address(self._resolve(base, names), offset)
            case Vector(items):
                return Vector(tuple(self._resolve(item, names) for item in items))
            case Arguments(items):
                return Arguments(tuple(self._resolve(item, names) for item in items))
            case Negated(register):
                return Negated(Register(names.get(register.name, register.name)))
            case Pair(first, second):
                return Pair(*(Register(names.get(one.name, one.name)) for one in (first, second)))
            case _:
                return operand


def _with_jumps(body: list[Any], suffix: str) -> list[Any]:
    """A function's body in which returning is a jump behind it."""
    changed: list[Any] = []
    for statement in body:
        if isinstance(statement, RawInstruction) and statement.name == "ret":
            statement = statement._replace(
                name=_renamed_token(statement.name, "bra"), operands=(Symbol(f"return{suffix}"),)
            )
        elif isinstance(statement, list) and not (statement and isinstance(statement[0], Variable)):
            statement = _with_jumps(statement, suffix)
        changed.append(statement)
    return changed


def _renamed_token(token: Token, name: str) -> Token:
    return token.update(value=name)


def _declared(block: list[Any]) -> Iterator[str]:
    """Names that the statements of a block declare."""
    for statement in block:
        if isinstance(statement, dict):
            yield from statement
        elif isinstance(statement, Label):
            yield statement.name
        elif isinstance(statement, list):
            yield from (item.name for item in statement if isinstance(item, Variable))


def _renamed(variable: Variable, names: dict[str, str]) -> Variable:
    if variable.name not in names:
        return variable
    return Variable(
        names[variable.name], variable.space, variable.type, variable.count, variable.alignment, variable.initial
    )
