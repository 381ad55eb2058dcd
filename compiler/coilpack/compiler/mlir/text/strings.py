"""Quoted text."""

from __future__ import annotations

import re

from coilpack.compiler.mlir.text.lexer import LexicalError

_ESCAPE = re.compile(rb'\\(?:([\\"nt])|([0-9a-fA-F]{2})|(.))', re.DOTALL)
_NAMED = {b"n": b"\n", b"t": b"\t"}


def unquoted(text: str) -> str:
    r"""The text of a string token: `\\`, `\"`, `\n`, `\t`, and bytes of UTF-8 as two hexadecimal digits.

    Raises:
        LexicalError: an escape is none of these, or the bytes are not UTF-8.
    """
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    try:
        return _ESCAPE.sub(_byte, inner.encode("utf-8")).decode("utf-8")
    except UnicodeError as error:
        raise LexicalError(0, "the bytes of this string are not UTF-8") from error


def _byte(match: re.Match[bytes]) -> bytes:
    named, digits, wrong = match.groups()
    if wrong is not None:
        raise LexicalError(0, f"there is no escape \\{wrong.decode('utf-8', 'replace')}")
    return bytes.fromhex(digits.decode()) if digits is not None else _NAMED.get(named, named)
