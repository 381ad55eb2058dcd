"""What a kernel does through each of its pointers, read from its PTX.

Front ends know names (`out_ptr0`) and list what is changed in place, but not what is written; the code is the truth. A
pointer's taint spreads from the parameter through address arithmetic to the instructions that load or store with it.
Contents loaded from memory carry no taint. The result errs towards more access, never less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from coilpack.runtime.program.ir import Access

_BODY = re.compile(r"\.entry\s+[\w$]+\s*\((?P<parameters>[^()]*)\)[^{]*\{(?P<body>.*)\}", re.DOTALL)
_PARAMETER = re.compile(r"(?P<name>[\w$]+)\s*(?:\[\d+\])?\s*(?:,|$)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT = re.compile(r"[^;{}]*(?:\{[^{};]*\}[^;{}]*)*;")  # vectors keep their braces, blocks lose theirs
_REGISTER = re.compile(r"%[\w$.]+")
_OPCODE = re.compile(r"^\s*(?:[\w$]+:\s*)*(?:@!?%\w+\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*);$", re.DOTALL)
_ADDRESS = re.compile(r"\[[^\]]*\]")

_ALL = Access.READ | Access.WRITE
# What an instruction does at the addresses it names, by the start of its opcode; the first match counts.
_TOUCHES = (
    ("ld.", Access.READ),
    ("ldu.", Access.READ),
    ("st.", Access.WRITE),
    ("cp.async.bulk.global", Access.WRITE),
    ("cp.async.bulk.prefetch", Access(0)),
    ("cp.async", Access.READ),
    ("prefetch", Access(0)),
)


@dataclass
class _Flow:
    """Taint by register: which parameters an address may come from."""

    parameters: dict[str, int]
    access: list[Access]
    taint: dict[str, frozenset[int]] = field(default_factory=dict)
    changed: bool = False

    def spread(self, opcode: str, operands: str) -> None:
        if opcode.startswith("ld.param"):
            self._load_parameter(operands)
            return
        addresses = _ADDRESS.findall(operands)
        if not addresses and not opcode.startswith(("st.", "call")):
            self._propagate(operands)
            return
        access = next((access for start, access in _TOUCHES if opcode.startswith(start)), _ALL)
        self._touch(" ".join(addresses), access)
        if not opcode.startswith("ld"):  # an address that is stored, or passed on, may be followed anywhere
            self._touch(_ADDRESS.sub("", operands), _ALL)

    def _load_parameter(self, operands: str) -> None:
        target, _, source = operands.partition("[")
        name = re.split(r"[+\]]", source)[0].strip()
        if name in self.parameters:
            for register in _REGISTER.findall(target):
                self._add(register, frozenset({self.parameters[name]}))

    def _touch(self, registers: str, access: Access) -> None:
        for register in _REGISTER.findall(registers):
            for parameter in self.taint.get(register, ()):
                self.access[parameter] |= access

    def _propagate(self, operands: str) -> None:
        target, separator, sources = _first_operand(operands)
        if not separator:
            return
        taint = frozenset().union(*(self.taint.get(r, frozenset()) for r in _REGISTER.findall(sources)))
        for register in _REGISTER.findall(target):
            self._add(register, taint)

    def _add(self, register: str, taint: frozenset[int]) -> None:
        before = self.taint.get(register, frozenset())
        if not taint <= before:
            self.taint[register] = before | taint
            self.changed = True


def _first_operand(operands: str) -> tuple[str, str, str]:
    """The destination (a register, or a vector in braces), the separator, and the rest."""
    if operands.startswith("{"):
        target, closing, rest = operands.partition("}")
        return target, closing, rest
    return operands.partition(",")


def _statements(body: str) -> Iterator[tuple[str, str]]:
    for statement in _STATEMENT.findall(body):
        match = _OPCODE.match(statement)
        if match is not None:
            yield match["opcode"], match["operands"].strip()


def parameter_access(ptx: str) -> tuple[Access, ...]:
    """What the one entry of normalized PTX does through each parameter, in their order.

    Scalars, and pointers that nothing follows, have no access (`Access(0)`).

    Args:
        ptx: as `normalize_ptx` returns it. What is passed to a call counts as read and written.
    """
    match = _BODY.search(_COMMENT.sub("", ptx))
    assert match is not None, "normalized PTX has an entry"
    names = [m["name"] for m in _PARAMETER.finditer(match["parameters"])]
    flow = _Flow({name: index for index, name in enumerate(names)}, [Access(0)] * len(names))
    statements = list(_statements(match["body"]))
    while True:  # loops carry addresses backwards, so once more until nothing is new
        flow.changed = False
        for opcode, operands in statements:
            flow.spread(opcode, operands)
        if not flow.changed:
            return tuple(flow.access)
