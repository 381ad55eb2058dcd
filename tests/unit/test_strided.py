"""Strided copies: how they are split into launches, and the kernel itself in the emulator."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coilpack.runtime import strided
from coilpack.runtime.devices.emulator.device import Emulator
from coilpack.runtime.dtypes import DType
from coilpack.runtime.layout import ArrayType, contiguous_strides
from coilpack.runtime.strided import Dim, StridedCopier, plan_copy

DTYPES = [DType.i8, DType.bf16, DType.f32, DType.f64, DType.complex128]


@pytest.fixture(scope="module")
def device():
    return Emulator()


@pytest.fixture(scope="module")
def copier(device):
    made = StridedCopier(device)
    yield made
    made.close()


def random_strides(rng, shape, *, distinct):
    """Strides of an array with gaps, permuted and partly backwards; some are 0 where elements need not be distinct."""
    strides, step = [0] * len(shape), 1
    for dim in rng.permutation(len(shape)):
        strides[dim] = step * int(rng.choice([-1, 1]))
        step = step * shape[dim] + int(rng.integers(0, 3))
        if not distinct and rng.random() < 0.3:
            strides[dim] = 0
    return tuple(strides)


def at(memory, type_, first):
    """The elements of an array in a block of bytes, whose first element is `first` bytes into it."""
    strides = tuple(stride * type_.dtype.itemsize for stride in type_.strides)
    return np.ndarray((*type_.shape, type_.dtype.itemsize), np.uint8, memory, first, (*strides, 1))


def run(device, copier, rng, shape, dtype, misaligned):
    size = dtype.itemsize
    source_type = ArrayType(dtype, shape, random_strides(rng, shape, distinct=False))
    target_type = ArrayType(dtype, shape, random_strides(rng, shape, distinct=True))
    blocks, firsts = [], []
    for type_, shift in ((source_type, misaligned[0]), (target_type, misaligned[1])):
        data = rng.integers(0, 256, type_.span_nbytes + 32, np.uint8)
        buffer = device.allocate(data.nbytes, 1)
        device.write(buffer.address, data.data, 1)
        blocks.append((data, buffer))
        firsts.append(shift - type_.extent[0] * size)
    (source, _), (target, target_buffer) = blocks
    addresses = [buffer.address + first for (_, buffer), first in zip(blocks, firsts, strict=True)]
    copier.copy(source_type, *addresses, target_type.strides, 1)
    at(target, target_type, firsts[1])[...] = at(source, source_type, firsts[0])
    found = np.empty_like(target)
    device.read(target_buffer.address, found.data, 1)
    np.testing.assert_array_equal(found, target)  # the gaps too: nothing else was written
    for _, buffer in blocks:
        buffer.close()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("rank", range(5))
def test_random_strides(device, copier, dtype, rank):
    rng = np.random.default_rng([rank, dtype.code])
    for _ in range(3):
        run(device, copier, rng, tuple(int(n) for n in rng.integers(1, 6, rank)), dtype, (0, 0))


@pytest.mark.parametrize("misaligned", [(1, 0), (0, 2), (4, 4), (3, 8)])
@pytest.mark.parametrize("dtype", [DType.f32, DType.complex128], ids=lambda dtype: dtype.name)
def test_addresses_that_are_not_aligned(device, copier, dtype, misaligned):
    run(device, copier, np.random.default_rng(misaligned), (3, 5), dtype, misaligned)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_nothing_to_copy(copier, shape):
    copier.copy(ArrayType.contiguous(DType.f32, shape), 0, 0, contiguous_strides(shape), 1)


@pytest.mark.parametrize("rank", [8, 9, 11])
def test_many_dimensions(device, copier, rank):
    run(device, copier, np.random.default_rng(rank), (2,) * rank, DType.f32, (0, 0))


def test_more_than_one_launch_can_count(device, copier, monkeypatch):
    monkeypatch.setattr(strided, "MAX_COUNT", 10)
    for shape in ((7, 3), (25, 2), (2, 3, 11)):
        run(device, copier, np.random.default_rng(shape), shape, DType.f32, (0, 0))


def test_dimensions_are_merged():
    _, (piece,) = plan_copy((2, 3, 4), 4, (0, (12, 4, 1)), (0, (100, 4, 1)))
    assert piece.dims == (Dim(2, 48, 400), Dim(12, 4, 4))
    unit, (piece,) = plan_copy((2, 3), 16, (8, (3, 1)), (16, (3, 1)))
    assert (unit, piece.dims) == (8, (Dim(12, 8, 8),))
    _, (piece,) = plan_copy((2, 1, 3), 4, (0, (1, 77, 2)), (0, (3, 5, 1)))
    assert piece.dims == (Dim(2, 4, 12), Dim(3, 8, 4))


def test_a_dense_copy_needs_no_kernel(device):
    copier = StridedCopier(device)
    run_type = ArrayType.contiguous(DType.f32, (4, 4))
    source, target = (device.allocate(64, 1) for _ in range(2))
    data = np.arange(16, dtype=np.float32)
    device.write(source.address, data.data, 1)
    before = device.instructions
    copier.copy(run_type, source.address, target.address, run_type.strides, 1)
    found = np.empty_like(data)
    device.read(target.address, found.data, 1)
    np.testing.assert_array_equal(found, data)
    assert device.instructions == before


def test_pieces_cover_a_copy_once():
    shape = (3, 2**20, 2**12)
    _, pieces = plan_copy(shape, 1, (0, (2**32, 2**12, 1)), (0, (2**33, 2**13, 2)))
    assert sum(math.prod(dim.size for dim in piece.dims) for piece in pieces) == math.prod(shape)
    assert all(math.prod(dim.size for dim in piece.dims) <= 2**31 for piece in pieces)
    assert len({piece.target for piece in pieces}) == len(pieces) == 6
