"""The seeds of random programs against those that torch draws on the device."""

from __future__ import annotations

import numpy as np
import pytest

from coilpack.runtime.philox import check_seed, random_seeds

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


@pytest.mark.parametrize("seed", [0, 1, 1234567, -1, -(2**62) - 3, 2**32 + 5, 2**63 + 1, 2**64 - 1])
@pytest.mark.parametrize("count", [1, 7, 256, 257, 3000])
def test_seeds_are_those_of_torch(torch, seed, count):
    torch.manual_seed(seed)
    for call in range(4):  # each call leaves the generator four words further
        low, high = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
        expected = torch.randint(low, high, (count,), dtype=torch.int64, device="cuda")
        found = random_seeds(check_seed(seed, "test"), count, 4 * call)
        np.testing.assert_array_equal(found, expected.cpu().numpy())


@pytest.mark.parametrize("offset", [0, 4, 2**20, 2**34, 2**40 + 8])
def test_any_offset_of_the_generator(torch, offset):
    generator = torch.Generator(device="cuda")
    generator.manual_seed(99)
    generator.set_offset(offset)
    limits = torch.iinfo(torch.int64)
    expected = torch.randint(limits.min, limits.max, (20,), dtype=torch.int64, device="cuda", generator=generator)
    np.testing.assert_array_equal(random_seeds(99, 20, offset), expected.cpu().numpy())
