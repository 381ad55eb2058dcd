"""Broken packages: one error type, or what was written is read."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from damage import damage
from program_samples import one_target, small_program

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.package import Package, StorageData, write_package

PROGRAM = one_target(small_program())
ENTRY = PROGRAM.targets[0].images[0].entry
EXECUTABLE = b"executable" * 8
STORAGES = {"layer.0/weight": bytes(range(256)), "bias": bytes(range(64, 128))}
BASE_BYTES = 400_000  # of the reader itself, whatever it reads


@pytest.fixture
def package_file(tmp_path: Path) -> Path:
    storages = [StorageData(name, DType.ui8, (len(data),), lambda d=data: [d]) for name, data in STORAGES.items()]
    path = tmp_path / "x.coil"
    write_package(path, PROGRAM, {ENTRY: EXECUTABLE}, storages)
    return path


def survives(path: Path) -> bool:
    """Says whether the package was opened; if it passes `verify` too, everything in it is as it was written."""
    try:
        with Package.open(path) as package:
            assert bytes(package.image(ENTRY)) == EXECUTABLE
            sizes = {name: package.storage(name).nbytes for name in STORAGES}
            assert sizes == {name: len(data) for name, data in STORAGES.items()}
            package.verify()
            assert {name: bytes(package.storage(name)) for name in STORAGES} == STORAGES
    except InvalidFileError:
        return False
    return True


def test_every_truncation(package_file: Path) -> None:
    assert survives(package_file)
    for size in range(package_file.stat().st_size - 1, -1, -1):
        with package_file.open("r+b") as file:
            file.truncate(size)
        assert not survives(package_file)


def test_every_byte(package_file: Path) -> None:
    data = package_file.read_bytes()
    rng = random.Random(0)
    outcomes = {True: 0, False: 0}
    with package_file.open("r+b", buffering=0) as file:
        for position, byte in enumerate(data):
            file.seek(position)
            file.write(bytes([byte ^ rng.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))]))
            outcomes[survives(package_file)] += 1
            file.seek(position)
            file.write(bytes([byte]))
    assert min(outcomes.values()) > 100  # padding and dates are free, the rest is not


def _random_damage(path: Path, count: int, seed: int) -> None:
    data, rng = path.read_bytes(), random.Random(seed)
    for _ in range(count):
        path.write_bytes(damage(data, rng))
        survives(path)


def test_random_damage(package_file: Path) -> None:
    _random_damage(package_file, 2000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_much_random_damage(package_file: Path) -> None:
    _random_damage(package_file, 100_000, seed=2)


def test_memory_is_bounded_by_the_file(package_file: Path) -> None:
    data, rng = package_file.read_bytes(), random.Random(3)
    survives(package_file)
    tracemalloc.start()
    try:
        for _ in range(200):
            broken = damage(data, rng)
            package_file.write_bytes(broken)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            survives(package_file)
            assert tracemalloc.get_traced_memory()[1] - before <= 10 * len(broken) + BASE_BYTES
    finally:
        tracemalloc.stop()
