"""Random numbers inside kernels: xorshift64*, whose state is one uint64 in an array.

The seed decides everything, on every platform and for every number of threads.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import lean

OFFSET = 88172645463325252


def start_state(seed: int) -> np.ndarray:
    """A state that is never zero, from the seed of a run, which may have any number of bits."""
    word = (seed * 2654435761 + OFFSET) % 2**64
    return np.array([word or OFFSET], dtype=np.uint64)


@lean
def next_word(state):
    """The next 64 random bits."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return x * np.uint64(2685821657736338717)


@lean
def uniform(state):
    """A number in (0, 1)."""
    return (float(next_word(state) >> np.uint64(12)) + 0.5) / 4503599627370496.0
