"""Tokens of MLIR's text, made for lark.

What stands in the brackets of a type, an affine map, a dense literal or a location is one token: their own readers take
it apart, once for each text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from lark import Token
from lark.common import LexerConf
from lark.lexer import Lexer, PatternStr

from coilpack.compiler.mlir.text.operations import FORMS

MAX_CHARACTERS = 1 << 28
MAX_TOKENS = 2_000_000
MAX_DEPTH = 100  # of brackets of any kind; the builder recurses with them

_SPACE = r"(?:[ \t\r\n]++|//[^\n]*+)*+"
_TOKEN = re.compile(
    _SPACE
    + r"""(?:
    (?P<VALUE>%(?:[0-9]++|[A-Za-z_$.\-][A-Za-z0-9_$.\-]*+)(?:\#[0-9]++)?)
  | (?P<PUNCTUATION>->|::|<\{|\}>|\{(?!-\#)|[()}\[\]<>:=,])
  | (?P<WORD>[A-Za-z_][A-Za-z0-9_$.]*+(?:<[A-Za-z0-9_?,:.\#*+ \-]*+(?<!-)>)?)
  | (?P<FLOAT>-?[0-9]++\.[0-9]*+(?:[eE][+\-]?[0-9]++)?)
  | (?P<INTEGER>-?(?:0x[0-9a-fA-F]++|[0-9]++))
  | (?P<STRING>"(?:[^"\\\n]++|\\[^\n])*+")
  | (?P<SYMBOL>@(?:[A-Za-z_][A-Za-z0-9_$.]*+|"(?:[^"\\\n]++|\\[^\n])*+"))
  | (?P<BLOCK>\^(?:[0-9]++|[A-Za-z_$.\-][A-Za-z0-9_$.\-]*+))
  | (?P<HASH>\#(?:[0-9]++|[A-Za-z_$.\-][A-Za-z0-9_$.\-]*+))
  | (?P<BANG>!(?:[0-9]++|[A-Za-z_$.\-][A-Za-z0-9_$.\-]*+))
  | (?P<RESOURCES>\{-\#)
  | (?P<EOF>\Z)
)""",
    re.VERBOSE,
)
_BRACKET = re.compile(r'->|[<>()\[\]{}]|"(?:[^"\\\n]++|\\[^\n])*+"|//[^\n]*+')
_OPENING = re.compile(_SPACE + "<")
_PLAIN_DENSE = re.compile(r"dense<[^<>\"/]*+>")
_SCALAR = re.compile(
    r"(?:[su]?i[1-9][0-9]*|bf16|tf32|f(?:16|32|64|80|128)|f[468]E[0-9]M[0-9](?:B11)?(?:FNUZ|FNU|FN)?|index)"
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_DEPTH = {"(": 1, "[": 1, "{": 1, "<{": 1, ")": -1, "]": -1, "}": -1, "}>": -1}

# What a word with brackets behind it is.
_BRACKETED = {
    **dict.fromkeys(("tensor", "vector", "memref", "complex", "tuple"), "TYPE"),
    "dense": "DENSE",
    "dense_resource": "RESOURCE",
    "array": "ARRAY",
    "affine_map": "AFFINE_MAP",
    "fastmath": "FASTMATH",
    "overflow": "OVERFLOW",
    **dict.fromkeys(("affine_set", "sparse", "strided", "distinct", "opaque"), "CARRIED"),
}


class Word(str):
    """A token: its text, its kind (a terminal of the grammar), and where it starts in the text."""

    __slots__ = ("start", "type")
    type: str
    start: int


class LexicalError(Exception):
    """Text that is no token, or one too many. It never leaves the parser."""

    def __init__(self, offset: int, problem: str) -> None:
        self.offset, self.problem = offset, problem
        super().__init__(problem)


def scalar_name(text: str) -> bool:
    """Whether the text is a number's type, such as `f32` or `index`."""
    return _SCALAR.fullmatch(text) is not None


def closing(text: str, start: int, depth: int = 0) -> int:
    """The offset behind the bracket that closes the one at `start`.

    Args:
        text: the whole text.
        start: the offset of an opening bracket of any kind.
        depth: the number of brackets around it.

    Raises:
        LexicalError: a bracket is not closed, closed by another kind, or nested deeper than the limit.
    """
    open_ = []
    for match in _BRACKET.finditer(text, start):
        found = match.group()
        if found in _CLOSING:
            open_.append((_CLOSING[found], match.start()))
            if depth + len(open_) > MAX_DEPTH:
                raise LexicalError(match.start(), _too_deep())
        elif found in _DEPTH or found == ">":
            wanted, at = open_.pop()
            if found != wanted:
                line = text.count("\n", 0, at) + 1
                problem = f"unexpected {found!r}; the {text[at]!r} of line {line} needs {wanted!r} before"
                raise LexicalError(match.start(), problem)
            if not open_:
                return match.end()
    raise LexicalError(open_[0][1] if open_ else start, "this bracket is not closed")


def _too_deep() -> str:
    return f"brackets are nested deeper than the limit of {MAX_DEPTH}"


class MlirLexer(Lexer):
    """A lexer for lark. Punctuation and keywords are the literals of the grammar."""

    __future_interface__ = 2  # lark passes its state, not only the text

    def __init__(self, lexer_conf: LexerConf) -> None:
        literals = {t.pattern.value: t.name for t in lexer_conf.terminals if isinstance(t.pattern, PatternStr)}
        self._literals = {**FORMS, **literals}

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Any]:  # noqa: ARG002  lark's signature
        """The tokens of a text, in order, each a `Word`; the last is EOF, lark's own.

        Raises:
            LexicalError: something is no token, or a limit is exceeded.
        """
        text: str = lexer_state.text.text
        kinds: dict[str, str] = dict(self._literals)
        position, depth, count, new = 0, 0, 0, str.__new__
        match_at = _TOKEN.match
        while match := match_at(text, position):
            kind = match.lastgroup
            assert kind is not None
            start, position = match.span(kind)
            word = new(Word, text[start:position])
            if kind == "PUNCTUATION":
                depth += _DEPTH.get(word, 0)
                if depth > MAX_DEPTH:
                    raise LexicalError(start, _too_deep())
                kind = self._literals.get(word)
                if kind is None:
                    raise LexicalError(start, f"unexpected {str(word)!r}")
            elif kind == "EOF":
                break
            elif kind in _READERS:
                found = kinds.get(word)
                if found is None or text[position : position + 1] in "<(":
                    kind, end = _READERS[kind](text, start, position, depth, kinds)
                    if end != position:
                        position = end
                        word = new(Word, text[start:end])
                else:
                    kind = found
            word.type, word.start = kind, start
            count += 1
            if count > MAX_TOKENS:
                raise LexicalError(start, f"the text has more than {MAX_TOKENS} tokens, the limit")
            yield word
        else:
            _no_token(text, position)
        yield Token("EOF", "", len(text), 1, 1)  # lark takes what it needs of the end from the last token


def _no_token(text: str, position: int) -> NoReturn:
    start = re.compile(_SPACE).match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
    if text[start] == '"':
        raise LexicalError(start, "this string does not end on its line")
    raise LexicalError(start, f"unexpected {text[start]!r}")


def _word(text: str, start: int, end: int, depth: int, kinds: dict[str, str]) -> tuple[str, int]:
    """The kind and the end of a word, with what its brackets hold."""
    word = text[start:end]
    name, bracket, _ = word.partition("<")
    following = text[end : end + 1]
    if following == "(" and name == "loc":
        return "LOCATION", closing(text, end, depth)
    if not bracket and following == "<":
        plain = _PLAIN_DENSE.match(text, start) if name == "dense" else None
        return _BRACKETED.get(name, "BRACKETED"), plain.end() if plain else closing(text, end, depth)
    if not bracket and name in _BRACKETED:  # a name of its own, or with space before its brackets
        space = _OPENING.match(text, end)
        return (_BRACKETED[name], closing(text, space.end() - 1, depth)) if space else ("WORD", end)
    if bracket:
        kind = _BRACKETED.get(name, "BRACKETED")
    elif word in kinds:
        return kinds[word], end
    elif scalar_name(word) or word == "none":
        kind = "SCALAR"
    else:
        kind = "DOTTED" if "." in word else "WORD"
    kinds[word] = kind
    return kind, end


def _hash(text: str, start: int, end: int, depth: int, _kinds: dict[str, str]) -> tuple[str, int]:
    """`#map`, `#dialect.name` or `#dialect.name<…>`."""
    if text[end : end + 1] == "<":
        return "DIALECT_ATTRIBUTE", closing(text, end, depth)
    return ("DIALECT_ATTRIBUTE" if "." in text[start:end] else "ATTRIBUTE_ALIAS"), end


def _bang(text: str, start: int, end: int, depth: int, _kinds: dict[str, str]) -> tuple[str, int]:
    """`!alias`, `!dialect.name` or `!dialect.name<…>`."""
    if text[end : end + 1] == "<":
        return "TYPE", closing(text, end, depth)
    return ("TYPE" if "." in text[start:end] else "TYPE_ALIAS"), end


def _resources(text: str, start: int, end: int, _depth: int, _kinds: dict[str, str]) -> tuple[str, int]:
    """The section for tools at the end of a file."""
    close = text.find("#-}", end)
    if close < 0:
        raise LexicalError(start, "this section does not end with '#-}'")
    return "RESOURCES", close + 3


_READERS = {"WORD": _word, "HASH": _hash, "BANG": _bang, "RESOURCES": _resources}
