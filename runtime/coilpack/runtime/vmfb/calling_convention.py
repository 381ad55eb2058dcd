"""IREE's calling conventions in words: `0rI_r` is `(!vm.ref<?>, i64) -> (!vm.ref<?>)`.

The encoding is stated in IREE's `vm/module.h`: a version (`0`), one character for each argument, `_`, one for each
result. `C` to `D` enclose what may be repeated. The words are those of `iree-dump-module`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_TYPES: Final = {"i": "i32", "I": "i64", "f": "f32", "F": "f64", "r": "!vm.ref<?>"}
_VOID, _OPEN, _CLOSE = "v", "C", "D"


class CallTypes(NamedTuple):
    """The types that a function takes and returns."""

    arguments: tuple[str, ...]
    results: tuple[str, ...]


def call_types(convention: str) -> CallTypes | None:
    """Returns the types that a calling convention stands for; None where it is none that is known."""
    version, (arguments, _, results) = convention[:1], convention[1:].partition("_")
    if version != "0":
        return None
    sides = [_types(side) for side in (arguments, results)]
    return None if sides[0] is None or sides[1] is None else CallTypes(sides[0], sides[1])


def _types(side: str) -> tuple[str, ...] | None:
    types: list[str] = []
    repeated: list[str] | None = None
    for character in side:
        if character == _OPEN and repeated is None:
            repeated = []
        elif character == _CLOSE and repeated is not None:
            types.append(f"tuple<{', '.join(repeated)}>...")
            repeated = None
        elif character in _TYPES:
            (types if repeated is None else repeated).append(_TYPES[character])
        elif side != _VOID:
            return None
    return tuple(types) if repeated is None else None
