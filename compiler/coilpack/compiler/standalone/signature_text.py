"""The signature of a kernel as users write it: `"*fp32:16, *fp32, i32, 128"`.

An item is a type of Triton's (`i32`, `fp16`, `*bf16`), with `:16` behind it where the address or integer is always a
multiple of 16, or a constant as Python writes it (`128`, `0.5`, `True`, `None`, `"relu"`); `i32:1` is the constant 1,
as in Triton's own ahead-of-time compiler. `name=item` gives the argument of that name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, NotFoundError, UnsupportedError

_NAMED = re.compile(r"([A-Za-z_]\w*)\s*=\s*(.*)", re.DOTALL)
_TYPE = re.compile(r"(\*?)([A-Za-z]\w*)(?::(\d+))?")
_DESCRIPTOR = "tensordesc"
_DIVISIBLE = 16  # what Triton specializes on, in bytes of an address or as a factor of an integer


@dataclass(frozen=True)
class Constant:
    """The value of an argument that is fixed when compiling."""

    value: object


@dataclass(frozen=True)
class Argument:
    """An argument that is passed at each launch: Triton's type, and what it is a multiple of."""

    type: str
    divisibility: int = 1


Item = Constant | Argument


@dataclass(frozen=True)
class Declared:
    """An argument of the function as its author declared it; `default` is None where there is none."""

    name: str
    is_constexpr: bool
    default: Constant | None = None


def bind_signature(text: str, declared: Sequence[Declared], elsewhere: Collection[str], what: str) -> dict[str, Item]:
    """What each argument of a function is, in the function's order.

    Args:
        text: the signature.
        declared: the function's arguments, in order.
        elsewhere: arguments that something else sets, as a tuner; the text passes over them.
        what: the function, for messages.

    Raises:
        InputError: an item cannot be read, there are too many, an argument is missing, or a type is given for one that
            must be a constant.
        NotFoundError: an item names an argument that there is not.
        UnsupportedError: an item is a tensor descriptor.
    """
    wanted = [argument for argument in declared if argument.name not in elsewhere]
    names = [argument.name for argument in wanted]
    given: dict[str, Item] = {}
    for index, (name, item) in enumerate(_items(text, what)):
        if name and name not in names:
            raise NotFoundError("argument", name, what, names)
        if not name and index >= len(names):
            raise InputError(f"{what}: the signature has more items than the {len(names)} arguments {names}")
        key = name or names[index]
        if key in given:
            raise InputError(f"{what}: the signature gives the argument {key!r} twice")
        given[key] = item
    defaults = {argument.name: argument.default for argument in wanted if argument.default is not None}
    missing = [name for name in names if name not in given and name not in defaults]
    if missing:
        raise InputError(f"{what}: the signature lacks {', '.join(missing)}; the arguments are {names}")
    bound: dict[str, Item] = {name: given[name] if name in given else defaults[name] for name in names}
    for argument in wanted:
        item = bound[argument.name]
        if argument.is_constexpr and isinstance(item, Argument):
            raise InputError(f"{what}: {argument.name!r} is a constexpr; give its value, not the type {item.type}")
    return bound


def _items(text: str, what: str) -> Iterator[tuple[str, Item]]:
    """Each item with the name of its argument, empty where it goes by its place."""
    named = False
    for part in _parts(text):
        match = _NAMED.fullmatch(part)
        name, value = match.groups() if match else ("", part)
        if named and not name:
            raise InputError(f"{what}: the item {part!r} of the signature stands behind named ones; name it, too")
        named = bool(name)
        yield name, _item(value, what)


def _parts(text: str) -> Iterator[str]:
    """The text between commas that stand neither in a string nor in brackets."""
    quote, depth, start = "", 0, 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[<(":
            depth += 1
        elif character in "]>)":
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[start:at].strip()
            start = at + 1
    if text.strip():
        yield text[start:].strip()


def _item(text: str, what: str) -> Item:
    if text.startswith(_DESCRIPTOR):
        raise UnsupportedError(
            f"{what}: {text!r} in the signature is a tensor descriptor, which a package cannot pass; "
            "let the kernel take a pointer, sizes and strides"
        )
    match = _TYPE.fullmatch(text)
    if match and _is_type(match[2]):
        return _argument(match[1], match[2], int(match[3] or 0), f"{what}: {text!r}")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = ...
    if value is None or isinstance(value, bool | int | float | str):
        return Constant(value)
    raise InputError(f"{what}: {text!r} in the signature is neither a type, as i32 or *fp16, nor a constant")


def _is_type(name: str) -> bool:
    try:
        DType.from_triton(name)
    except KeyError:
        return False
    return True


def _argument(star: str, name: str, hint: int, where: str) -> Item:
    integer = not star and not DType.from_triton(name).is_float
    if hint == 1 and integer:
        return Constant(1)
    if hint not in (0, _DIVISIBLE) or (hint and not star and not integer):
        raise InputError(f"{where}: a pointer or an integer can be a multiple of {_DIVISIBLE}, and an integer 1")
    return Argument(star + name, hint or 1)


def attributes(items: Mapping[str, Item], names: Sequence[str]) -> dict[tuple[int, ...], list[list[object]]]:
    """What Triton's front end is told of divisible arguments, by their place in the function."""
    return {
        (index,): [["tt.divisibility", item.divisibility]]
        for index, name in enumerate(names)
        if isinstance(item := items.get(name), Argument) and item.divisibility > 1
    }
