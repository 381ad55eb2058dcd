"""Broken `program.fb` files: one error type or a valid program, in memory that is in proportion to the file."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest
from damage import damage
from program_samples import large_program, one_target, small_program

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.program.codec import decode_program, encode_program
from coilpack.runtime.program.text import print_program

DATA = encode_program(one_target(small_program()))
BASE_BYTES = 400_000  # of the decoder itself, whatever it reads


def survives(data: bytes) -> bool:
    """Says whether the file was read; what was read can be printed."""
    try:
        program = decode_program(data)
    except InvalidFileError:
        return False
    print_program(program)
    return True


def test_every_truncation() -> None:
    assert survives(DATA)
    read = [size for size in range(len(DATA)) if survives(DATA[:size])]
    assert all(size > len(DATA) - 8 for size in read)  # padding behind the last part may go
    assert all(print_program(decode_program(DATA[:size])) == print_program(decode_program(DATA)) for size in read)


def test_every_byte() -> None:
    outcomes = {True: 0, False: 0}
    for position, byte in enumerate(DATA):
        other = byte ^ (0x80 if position % 2 else 0x01)
        outcomes[survives(DATA[:position] + bytes([other]) + DATA[position + 1 :])] += 1
    assert min(outcomes.values()) > 100


def _random_damage(count: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        survives(damage(DATA, rng))


def test_random_damage() -> None:
    _random_damage(3000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_much_random_damage() -> None:
    _random_damage(100_000, seed=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_value_of_every_byte() -> None:
    for position in range(len(DATA)):
        for value in range(256):
            survives(DATA[:position] + bytes([value]) + DATA[position + 1 :])


def test_memory_is_bounded_by_the_file() -> None:
    large = encode_program(large_program(20, 60))
    assert survives(DATA)
    assert survives(large)  # what long vectors are read with is imported for the first one
    rng = random.Random(3)
    files = [damage(DATA, rng) for _ in range(200)] + [damage(large, rng) for _ in range(20)] + [large]
    tracemalloc.start()
    try:
        for data in files:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(InvalidFileError):
                decode_program(data)
            assert tracemalloc.get_traced_memory()[1] - before <= 10 * len(data) + BASE_BYTES
    finally:
        tracemalloc.stop()


def test_memory_of_a_large_program() -> None:
    data = encode_program(large_program())
    decode_program(data)
    tracemalloc.start()
    decode_program(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 6 * len(data)
