"""Ways to break a file, for tests of readers."""

from __future__ import annotations

import random

_WORDS = (0, 1, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def damage(data: bytes, rng: random.Random) -> bytes:
    """Changes, overwrites, copies, cuts or inserts a few pieces."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(changed))
        kind = rng.randrange(6)
        if kind == 0:
            changed[at] ^= rng.randrange(1, 256)
        elif kind == 5:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 1:
            number = rng.choice((*_WORDS, len(data), rng.randrange(2 * len(data))))
            changed[at & ~3 : (at & ~3) + 4] = number.to_bytes(4, "little")
        elif kind == 2:
            source, size = rng.randrange(len(changed)), rng.randrange(1, 48)
            changed[at : at + size] = changed[source : source + size]
        elif kind == 3:
            del changed[at : at + rng.randrange(1, 20)]
        else:
            changed[at:at] = rng.randbytes(rng.randrange(1, 20))
        if not changed:
            return b""
    return bytes(changed)
