"""Readers meet broken files: every truncation, every changed byte, and random damage.

Whatever the damage, a reader raises `InvalidFileError` or reads something valid: no other error, no endless work, and
no more memory than ten times the file.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import damage
from executable_samples import full, raw_executable, small

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.executable import read_executable, write_executable
from coilpack.runtime.vmfb import read_vmfb

IREE = Path(__file__).parents[1] / "compat" / "iree"
FILES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "cda1": (write_executable(small()), read_executable),
    "vmfb": ((IREE / "names_dyn-3.6.0.vmfb").read_bytes(), read_vmfb),
}
# Damaged at random only: a module with a module as its executable, and one with parameters.
OTHER = [
    ((IREE / "other" / f"{name}.vmfb").read_bytes(), read_vmfb) for name in ("names-vmvx-3.13.0", "parameters-3.13.0")
]
# Schemas, regular expressions and the like that a first call leaves in memory.
BASE_BYTES = 100_000

pytestmark = pytest.mark.timeout(120)


def survives(read: Callable[[bytes], object], data: bytes) -> bool:
    """Says whether the file was read; fails for any error but the one that is allowed."""
    try:
        read(data)
    except InvalidFileError:
        return False
    return True


@pytest.mark.parametrize("kind", FILES)
def test_every_truncation(kind):
    data, read = FILES[kind]
    assert survives(read, data)
    # What lies behind the last part that is read may go: a ZIP's directory, or padding.
    last = max(size for size in range(len(data)) if not survives(read, data[:size]))
    assert not any(survives(read, data[:size]) for size in range(0, last, 7))
    assert last > 0.9 * len(data) or kind == "vmfb"


@pytest.mark.parametrize("kind", ["cda1", "raw"])
def test_every_bit(kind):
    data = FILES["cda1"][0] if kind == "cda1" else bytes(raw_executable()[0].data)
    outcomes = [False, False]
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            outcomes[survives(read_executable, bytes(changed))] = True
    assert outcomes == [True, True]


def test_every_byte_of_a_module():
    data, read = FILES["vmfb"]
    rng = random.Random(0)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= rng.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))
        survives(read, bytes(changed))


def _random_damage(count: int, seed: int) -> None:
    sources = [*FILES.values(), *OTHER, (write_executable(full()), read_executable)]
    rng = random.Random(seed)
    for index in range(count):
        data, read = sources[index % len(sources)]
        survives(read, damage(data, rng))


def test_random_damage():
    _random_damage(3000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_much_random_damage():
    _random_damage(100_000, seed=2)


@pytest.mark.parametrize(("data", "read"), [*FILES.values(), *OTHER], ids=[*FILES, "vmvx", "parameters"])
def test_memory_is_bounded_by_the_file(data, read):
    survives(read, data)
    rng = random.Random(3)
    variants = [damage(data, rng) for _ in range(300)]
    tracemalloc.start()
    try:
        for variant in variants:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            survives(read, variant)
            assert tracemalloc.get_traced_memory()[1] - before <= 10 * len(variant) + BASE_BYTES
    finally:
        tracemalloc.stop()


def test_memory_of_large_files():
    image = full().modules[0] + b"// \xc3\xa9" * 500_000 + b"\n"
    raw, _, _ = raw_executable(image=image, name=b"twice")
    data = bytes(raw.data)
    read_executable(data)
    tracemalloc.start()
    read_executable(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 3 * len(data)


@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("byte", [0x00, 0x43, 0x50, 0x7F, 0xFF])
def test_tiny_files(size, byte):
    for _, read in FILES.values():
        assert not survives(read, bytes([byte]) * size)
    assert not survives(read_executable, b"CDA1"[:size])
    assert not survives(read_vmfb, b"PK\x03\x04"[:size])
