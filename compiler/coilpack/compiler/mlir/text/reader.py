"""What all readers of parse trees share: places, errors, aliases and types."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from coilpack.compiler.mlir.diagnostics import invalid, unsupported
from coilpack.compiler.mlir.syntax import Attribute, FunctionType, Location, Source, Type
from coilpack.compiler.mlir.text.grammar import Node
from coilpack.compiler.mlir.text.lexer import LexicalError, Word
from coilpack.compiler.mlir.text.places import Places
from coilpack.compiler.mlir.text.resources import Resources
from coilpack.compiler.mlir.text.types import parse_type

_T = TypeVar("_T")
_MAX_COMPARED, _MAX_CANDIDATES = 100, 1000  # characters and names: finding the nearest takes time with both


class Reader:
    """The state of reading one text; each text of a type is read once.

    Attributes:
        attribute_aliases: what `#name` stands for.
        resources: the bytes of `dense_resource`.
        memo: attributes by their token's text, for those that need nothing else.
    """

    def __init__(self, source: Source, resources: str | None = None) -> None:
        self.source = source
        self.attribute_aliases: dict[str, Attribute] = {}
        self.resources = Resources(resources)
        self.memo: dict[str, Attribute] = {}
        self._places = Places(source.text)
        self._types: dict[str, Type] = {}
        self._type_aliases: dict[str, Type] = {}

    def location(self, word: Word) -> Location:
        """Where a token stands."""
        return self._places.location(word.start)

    def location_at(self, offset: int) -> Location:
        """Where a character stands, by its offset from 0."""
        return self._places.location(offset)

    def fail(self, word: Word, problem: str, offset: int = 0) -> NoReturn:
        """Raises for something wrong `offset` characters into a token."""
        raise invalid(self.source, self._places.location(word.start + offset), problem)

    def unsupported(self, word: Word, problem: str) -> NoReturn:
        """Raises for something valid that is not covered."""
        raise unsupported(self.source, self.location(word), problem)

    def read(self, word: Word, make: Callable[[], _T], offset: int = 0) -> _T:
        """What `make` returns; what it finds wrong is told at the token, whose text it reads from `offset` on."""
        try:
            return make()
        except LexicalError as error:
            self.fail(word, error.problem, offset + error.offset)

    def define_type(self, word: Word, node: Node) -> None:
        """`!name = type`."""
        if str(word) in self._type_aliases:
            self.fail(word, f"{str(word)!r} is defined twice")
        self._type_aliases[str(word)] = self.type(node)

    def _type_alias(self, name: str) -> Type:
        found = self._type_aliases.get(name)
        if found is None:
            raise LexicalError(0, unknown("type", name, self._type_aliases))
        return found

    def type(self, node: Node) -> Type:
        """The type of a tree."""
        if not isinstance(node, Word):
            return self.function_type(node)
        found = self._types.get(node)
        if found is None:
            text = str(node)
            found = self._types[text] = self.read(node, lambda: parse_type(text, self._type_alias))
        return found

    def types(self, node: Node) -> tuple[Type, ...]:
        """The types of a list."""
        types = tuple(map(self.type, node.children))
        for word, type_ in zip(node.children, types, strict=True):
            if isinstance(type_, FunctionType):
                self.fail(word, "a function cannot take or give functions here")
        return types

    def function_type(self, node: Node) -> FunctionType:
        """The type of `(…) -> …`."""
        inputs, results = map(self.types, node.children)
        return FunctionType(inputs, results)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The problem of a name that is not defined, with the nearest that are."""
    names = [candidate for candidate in known if len(candidate) <= _MAX_COMPARED][-_MAX_CANDIDATES:]
    near = difflib.get_close_matches(name[:_MAX_COMPARED], names, n=3, cutoff=0.5) or names[-3:]
    listed = ", ".join(map(repr, near))
    shown = name if len(name) <= _MAX_COMPARED else f"{name[:_MAX_COMPARED]}…"
    return f"there is no {kind} {shown!r} here; " + (f"nearest: {listed}" if near else f"no {kind} is defined before")
