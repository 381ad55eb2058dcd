"""From export names to symbols.

An export name is the identity of a kernel: any Unicode without NUL. Its symbol in the image must be a PTX identifier,
so every other character becomes `_` (IREE's rule); names that meet there are told apart by a suffix.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from coilpack.runtime.errors import InputError

_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_]")
_SUFFIX_DIGITS: Final = 8


def check_export_name(name: str) -> None:
    """Raises `InputError` unless `name` may be an export name: not empty, no NUL, encodable as UTF-8."""
    if not name:
        raise InputError("an export name is empty; it must have at least one character")
    if "\0" in name:
        raise InputError(f"the export name {name!r} holds a NUL at character {name.index(chr(0))}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the export name {name!r} holds a lone surrogate at character {error.start}") from None


def sanitize(name: str) -> str:
    """Returns `name` as a PTX identifier: characters outside `[A-Za-z0-9_]` become `_`, nothing is cut off.

    PTX identifiers do not start with a digit, and `_` alone is none: such names get a `_` before them.

    Raises:
        InputError: `name` is no export name.
    """
    check_export_name(name)
    symbol = _NOT_ALLOWED.sub("_", name)
    return f"_{symbol}" if symbol[0].isdigit() or symbol == "_" else symbol


def unique_kernel_names(export_names: Sequence[str]) -> list[str]:
    """Returns one symbol for each export name, unique among them, in the same order.

    A name that is a symbol already, or whose symbol no other name shares, keeps it. The others get a suffix made from a
    digest of the export name, so that a kernel's symbol depends neither on the order of the names nor on how many
    others collide with it. No suffix makes another collision go unseen: digits of the digest are added until all
    symbols differ.

    Raises:
        InputError: a name is no export name, or occurs twice.
    """
    repeated = [name for name, count in Counter(export_names).items() if count > 1]
    if repeated:
        raise InputError(f"the export name {repeated[0]!r} occurs twice; export names are unique in an executable")
    plain = {name: sanitize(name) for name in export_names}
    sharing = Counter(plain.values())
    kept = {name: symbol for name, symbol in plain.items() if sharing[symbol] == 1 or symbol == name}
    colliding = sorted(set(plain) - set(kept))
    for digits in range(_SUFFIX_DIGITS, 65):
        made = {name: f"{plain[name]}_{hashlib.sha256(name.encode()).hexdigest()[:digits]}" for name in colliding}
        symbols = kept | made
        if len(set(symbols.values())) == len(symbols):
            return [symbols[name] for name in export_names]
    raise InputError(f"no unique symbols were found for {colliding!r}; rename one of them")
