"""Philox4x32-10 against the known answers of Random123, and the seeds that are drawn with it."""

from __future__ import annotations

import numpy as np
import pytest

from coilpack.runtime.errors import InputError
from coilpack.runtime.philox import check_seed, philox, random_seeds

# Random123 1.14, tests/kat_vectors: philox4x32, 10 rounds; counter, key, result.
KNOWN = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    words = philox(tuple(np.array([word], np.uint64) for word in counter), key)
    assert tuple(int(word[0]) for word in words) == expected


def reference(seed: int, index: int, offset: int) -> int:
    """Element `index` of `torch.randint(-2**63, 2**63 - 1)`, in Python's integers."""
    position = offset // 4
    counter = (position & 0xFFFFFFFF, position >> 32, index, 0)
    words = philox(tuple(np.array([word], np.uint64) for word in counter), (seed & 0xFFFFFFFF, seed >> 32))
    drawn = int(words[0][0]) << 32 | int(words[1][0])
    return drawn % (2**64 - 1) - 2**63


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 + 7, 2**64 - 1])
@pytest.mark.parametrize("offset", [0, 4, 2**34])
def test_a_row_of_seeds(seed, offset):
    row = random_seeds(seed, 300, offset)
    assert row.dtype == np.int64
    assert [int(row[index]) for index in (0, 1, 255, 299)] == [reference(seed, i, offset) for i in (0, 1, 255, 299)]


def test_no_seeds():
    assert random_seeds(0, 0, 0).shape == (0,)


@pytest.mark.parametrize(("seed", "key"), [(0, 0), (-1, 2**64 - 1), (-(2**63), 2**63), (np.int32(-2), 2**64 - 2)])
def test_seeds_as_torch_takes_them(seed, key):
    assert check_seed(seed, "main") == key


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (2**64, r"main: seed is 18446744073709551616; it must be -2\*\*63 to 2\*\*64 - 1"),
        (-(2**63) - 1, "it must be"),
        (1.0, "main: seed is a float; it must be an integer"),
        (True, "seed is a bool"),
    ],
)
def test_seeds_that_are_none(seed, message):
    with pytest.raises(InputError, match=message):
        check_seed(seed, "main")
