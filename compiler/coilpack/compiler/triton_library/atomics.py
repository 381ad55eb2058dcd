"""Scatters by atomic operations that Inductor does not generate."""

import triton
import triton.language as tl


@triton.jit
def scatter_atomic(out, places, values, count, MAXIMUM: tl.constexpr, BLOCK: tl.constexpr):
    """Adds `values[i]` to `out[places[i]]`, or takes the greater of the two; all `count` of them."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    place = tl.load(places + at, mask=inside, other=0)
    value = tl.load(values + at, mask=inside, other=0)
    if MAXIMUM:
        tl.atomic_max(out + place, value, mask=inside, sem="relaxed")
    else:
        tl.atomic_add(out + place, value, mask=inside, sem="relaxed")
