from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilpack.runtime.errors import InputError
from coilpack.runtime.executable import sanitize, unique_kernel_names

NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9_]+")


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("plain_1", "plain_1"),
        ("decode$step_dispatch_0", "decode_step_dispatch_0"),
        ("a.b/c d", "a_b_c_d"),
        ("\u00e9", "__"),
        ("\u30ab\u30fc", "__"),
        ("0th", "_0th"),
        ("$", "__"),
        ("_", "__"),
        ("_x", "_x"),
        ("%p", "_p"),
        ("\U0001f600x", "_x"),
        ("x" * 70_000, "x" * 70_000),
    ],
)
def test_sanitize(name, symbol):
    assert sanitize(name) == symbol


@pytest.mark.parametrize("name", ["", "a\0b", "\0", "\ud800"])
def test_refused_names(name):
    with pytest.raises(InputError, match="export name"):
        sanitize(name)
    with pytest.raises(InputError, match="export name"):
        unique_kernel_names(["fine", name])


@given(NAME)
def test_sanitized_names_are_identifiers(name):
    assert IDENTIFIER.fullmatch(sanitize(name))
    assert len(sanitize(name)) >= len(name)


@given(st.lists(NAME, unique=True, max_size=12))
def test_symbols_are_unique_identifiers(names):
    symbols = unique_kernel_names(names)
    assert len(set(symbols)) == len(names)
    assert all(IDENTIFIER.fullmatch(symbol) for symbol in symbols)


@given(st.lists(st.text("a_$.0", min_size=1, max_size=4), unique=True, max_size=12), st.randoms())
def test_symbols_do_not_depend_on_order(names, rng: random.Random):
    symbols = dict(zip(names, unique_kernel_names(names), strict=True))
    shuffled = list(names)
    rng.shuffle(shuffled)
    assert dict(zip(shuffled, unique_kernel_names(shuffled), strict=True)) == symbols


def test_only_collisions_are_renamed():
    assert unique_kernel_names(["a$b", "a_b", "c$d", "e"]) == ["a_b_c7979da2", "a_b", "c_d", "e"]
    # A third name changes nothing for the first two.
    assert unique_kernel_names(["a_b", "a.b", "a$b"]) == ["a_b", "a_b_2e7336dc", "a_b_c7979da2"]


def test_a_name_that_looks_like_a_made_symbol():
    symbols = unique_kernel_names(["a_b", "a$b", "a_b_c7979da2"])
    assert symbols[0] == "a_b"
    assert symbols[2] == "a_b_c7979da2"
    assert symbols[1].startswith("a_b_c7979da2")
    assert len(set(symbols)) == 3


def test_repeated_names():
    with pytest.raises(InputError, match=r"'a' occurs twice"):
        unique_kernel_names(["a", "b", "a"])
