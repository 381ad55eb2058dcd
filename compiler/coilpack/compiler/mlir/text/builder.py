"""Builds operations from parse trees: names become values, types are compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from coilpack.compiler.mlir.syntax import Attribute, Block, Operation, Region, ScalarType, Source, Type, Value
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import Word
from coilpack.compiler.mlir.text.numbers import integer_of
from coilpack.compiler.mlir.text.reader import Reader, unknown

_MAX_DIGITS = 9
_I64 = ScalarType("si64")

Argument = tuple[Word, Type]
"""Name and type of an argument of a block."""


@dataclass(slots=True)
class Parts:
    """What a form says about an operation.

    Attributes:
        name: the operation's name.
        at: its token.
        operands: values, in order.
        types: those of the results.
        successors: numbers of blocks.
    """

    name: str
    at: Word
    operands: Sequence[Value] = ()
    types: Sequence[Type] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict)
    regions: Sequence[Region] = ()
    successors: Sequence[int] = ()


class Builder(Reader):
    """The state of building one module.

    A name stands for a value from its definition to the end of the region; operations that are isolated from above
    hide the names around them.
    """

    def __init__(self, source: Source, forms: Mapping[str, Form], resources: str | None = None) -> None:
        super().__init__(source, resources)
        self._forms = forms
        self._values: dict[str, tuple[Value, ...]] = {}
        self._defined: list[str] = []  # the names in `_values`, in order
        self._blocks: dict[str, int] = {}  # of the region that is built

    # --- values ---

    def define(self, word: Word, values: tuple[Value, ...]) -> None:
        """Gives values a name."""
        name = str(word)
        if name in self._values:
            self.fail(word, f"{name!r} is defined before; a name stands for one value")
        self._values[name] = values
        self._defined.append(name)

    def use(self, word: Word, type_: Type | None = None) -> Value:
        """The value that a name stands for.

        Args:
            word: the name, with `#n` for the n-th of several results.
            type_: the type that the text gives it, if it does.
        """
        values = self._values.get(word)
        position = 0
        if values is None:
            name, _, digits = word.partition("#")
            values = self._values.get(name)
            if values is None:
                self._undefined(word, name)
            position = int(digits[:9]) if digits else 0
            if position >= len(values):
                self.fail(
                    word, f"{name!r} has no result number {digits[:9]}; the results are {len(values)}, counted from 0"
                )
        value = values[position]
        if type_ is not None and value.type != type_:
            self.fail(word, f"{str(word)!r} is of type {value.type}; expected {type_}")
        return value

    def _undefined(self, word: Word, name: str) -> NoReturn:
        """Raises for a name that stands for nothing here; it may do so elsewhere."""
        elsewhere = re.compile(rf"{re.escape(name)}(?![A-Za-z0-9_$.\-#])(?::[0-9]+)?[ \t]*=").search(self.source.text)
        if elsewhere:
            line = self.location_at(elsewhere.start()).line
            self.fail(word, f"{name!r} is defined in line {line}, which does not reach here")
        self.fail(word, unknown("value", name, self._values))

    def uses(self, words: Sequence[Word], types: Sequence[Type], at: Word) -> tuple[Value, ...]:
        """The values of names, each of its type."""
        if len(words) != len(types):
            self.fail(at, f"the text has operands and their types in different numbers: {len(words)} and {len(types)}")
        return tuple(map(self.use, words, types))

    # --- regions ---

    def region(self, node: Node, arguments: Iterable[Argument] = (), *, isolated: bool = False) -> Region:
        """A region; the arguments are those of a first block without a label."""
        around = self._values, self._defined, self._blocks
        if isolated:
            self._values, self._defined = {}, []
        known = len(self._defined)
        children = [] if node is None else node.children
        first = next((i for i, child in enumerate(children) if child.data == "block"), len(children))
        self._blocks = self._numbered([child.children[0] for child in children[first:]], bool(first))
        arguments = list(arguments)
        blocks = [self.block(children[:first], arguments)] if first or (arguments and not children) else []
        blocks += [self._labelled(*child.children) for child in children[first:]]
        for name in self._defined[known:]:
            del self._values[name]
        del self._defined[known:]
        self._values, self._defined, self._blocks = around
        return Region(tuple(blocks))

    def _numbered(self, labels: Iterable[Word], start: int) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for number, label in enumerate(labels, start):
            if str(label) in numbers:
                self.fail(label, f"block {str(label)!r} is there twice")
            numbers[str(label)] = number
        return numbers

    def _labelled(self, _label: Word, arguments: Node | None, *operations: Node) -> Block:
        given = [] if arguments is None else arguments.children
        return self.block(operations, ((argument.children[0], self.type(argument.children[1])) for argument in given))

    def block(self, operations: Iterable[Node], arguments: Iterable[Argument]) -> Block:
        """A block in the region that is built."""
        values = []
        for word, type_ in arguments:
            value = Value(str(word), type_)
            self.define(word, (value,))
            values.append(value)
        return Block(tuple(values), tuple(map(self.operation, operations)))

    def successor(self, word: Word) -> int:
        """The number of a block of the region that is built."""
        number = self._blocks.get(word)
        if number is None:
            self.fail(word, unknown("block", str(word), self._blocks))
        return number

    # --- operations ---

    def operation(self, node: Node) -> Operation:
        """An operation; its results are named behind it."""
        names, form, _ = node.children
        parts = self._forms[form.data](self, *form.children)
        results: tuple[Value, ...]
        if names is None:
            results = tuple(Value("", type_) for type_ in parts.types)
        else:
            results = self._results(names.children, parts)
        operands, regions = tuple(parts.operands), tuple(parts.regions)
        location = self.location(parts.at)
        return Operation(parts.name, operands, results, parts.attributes, regions, location, tuple(parts.successors))

    def _results(self, names: list[Node], parts: Parts) -> tuple[Value, ...]:
        counts = [1 if size is None else self.small(size) for _, size in (name.children for name in names)]
        if sum(counts) != len(parts.types):
            word = names[0].children[0]
            self.fail(word, f"names for {sum(counts)} results; {parts.name!r} here has {len(parts.types)}")
        results: list[Value] = []
        for name, count in zip(names, counts, strict=True):
            word = name.children[0]
            if "#" in word:
                self.fail(word, "a result is named without '#'")
            types = parts.types[len(results) : len(results) + count]
            shown = [str(word)] if count == 1 else [f"{word}#{i}" for i in range(count)]
            values = tuple(map(Value, shown, types))
            self.define(word, values)
            results += values
        return tuple(results)

    def small(self, word: Word) -> int:
        """A whole number that counts something."""
        if not word.isdecimal() or len(word) > _MAX_DIGITS:
            self.fail(word, f"expected a whole number of at most {_MAX_DIGITS} digits")
        return int(word)

    def integer(self, word: Word) -> int:
        """An integer of 64 bits."""
        text = str(word)
        return self.read(word, lambda: integer_of(text, _I64))


Form = Callable[..., Parts]
"""Reads an operation; called with the builder and the children of the tree."""
