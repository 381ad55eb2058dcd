"""The seeds that a random program draws from the seed of a call: what `torch.randint` draws on a CUDA device.

Philox4x32-10 is the generator of J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
Inductor begins a random program with `torch.randint(-2**63, 2**63 - 1, (count,), dtype=torch.int64)` on the device and
seeds its kernels from the result. There, thread i makes element i (ATen/native/cuda/DistributionTemplates.h), up to as
many elements as threads fit on the device at once: hundreds of thousands, and no program has so many random kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coilpack.runtime.errors import InputError

Words = npt.NDArray[np.uint64]  # 32-bit words, in 64 bits so that products do not overflow

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = 0xFFFFFFFF
_LOWEST_SEED, _HIGHEST_SEED = -(2**63), 2**64 - 1  # what torch.manual_seed takes
_WORDS_PER_COUNT = 4  # one evaluation gives four words, and offsets count words


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10 of many counters.

    Args:
        counter: its four 32-bit words, lowest first, each an array.
        key: its two 32-bit words, lowest first.

    Returns:
        Four random 32-bit words for each counter.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            second & np.uint64(_LOW),
            (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            first & np.uint64(_LOW),
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def check_seed(seed: object, what: str) -> int:
    """A call's seed as the generator's key: 64 bits, negative ones in two's complement as torch takes them.

    Raises:
        InputError: it is no integer, or out of range.
    """
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer):
        raise InputError(f"{what}: seed is a {type(seed).__name__}; it must be an integer")
    if not _LOWEST_SEED <= seed <= _HIGHEST_SEED:
        raise InputError(f"{what}: seed is {seed}; it must be -2**63 to 2**64 - 1")
    return int(seed) % 2**64


def random_seeds(seed: int, count: int, philox_offset: int) -> npt.NDArray[np.int64]:
    """A row of seeds for random kernels.

    Args:
        seed: the call's, as `check_seed` gives it.
        count: how many seeds.
        philox_offset: where the generator stands, in 32-bit words; a multiple of 4.
    """
    subsequence, position = np.arange(count, dtype=np.uint64), philox_offset // _WORDS_PER_COUNT
    low, high = (np.full(count, word, np.uint64) for word in (position & _LOW, position >> 32))
    counter = (low, high, subsequence & np.uint64(_LOW), subsequence >> np.uint64(32))
    words: Any = philox(counter, (seed & _LOW, seed >> 32))
    drawn = words[0] << np.uint64(32) | words[1]
    # The span of [-2**63, 2**63 - 1) is 2**64 - 1: only the largest draw wraps to the lowest seed.
    wrapped = np.where(drawn == np.uint64(2**64 - 1), np.uint64(0), drawn)
    return (wrapped ^ np.uint64(1 << 63)).view(np.int64)
