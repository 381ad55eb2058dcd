"""What the placeholders of a captured graph stand for, and which of them the program changes."""

from __future__ import annotations

from dataclasses import dataclass

from coilpack.runtime.program import ir


@dataclass(frozen=True)
class WeightRef:
    """Where a constant tensor lies: a storage of the program and a byte offset into it."""

    storage: ir.Storage
    byte_offset: int


@dataclass(frozen=True)
class GlobalRef:
    """Where a tensor lies that lives across calls: a global of the program and a byte offset into it."""

    global_: ir.Global
    byte_offset: int


Binding = WeightRef | GlobalRef | int
"""What a placeholder of the graph stands for; an int is the number of an input."""


@dataclass(frozen=True)
class Mutation:
    """Result number `result` of the graph is the new value of placeholder number `placeholder`.

    Where it is put `aside`, it is copied before any placeholder changes.
    """

    result: int
    placeholder: int
    aside: bool = False
