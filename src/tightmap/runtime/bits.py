"""Single bits of words of 64: where the lowest and the highest one is, how many there are."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import lean

_BITS = np.zeros(64, np.int64)  # de Bruijn multiplication: hash of a word with a single bit -> position of that bit
for _k in range(64):
    _BITS[((0x03F79D71B4CB0A89 << _k) & (2**64 - 1)) >> 58] = _k
ONE = np.uint64(1)
DEBRUIJN = np.uint64(0x03F79D71B4CB0A89)
PAIRS, NIBBLES, BYTES, SUM = (
    np.uint64(m) for m in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F, 0x0101010101010101)
)


@lean
def lowest_bit(word):
    """Where the lowest bit of a word stands that is not 0."""
    return _BITS[((word & (~word + ONE)) * DEBRUIJN) >> np.uint64(58)]


@lean
def highest_bit(word):
    """Where the highest bit of a word stands that is not 0."""
    for shift in (1, 2, 4, 8, 16, 32):
        word |= word >> np.uint64(shift)
    return _BITS[((word - (word >> ONE)) * DEBRUIJN) >> np.uint64(58)]


@lean
def count_bits(word):
    """How many bits are set."""
    word = word - ((word >> ONE) & PAIRS)
    word = (word & NIBBLES) + ((word >> np.uint64(2)) & NIBBLES)
    word = (word + (word >> np.uint64(4))) & BYTES
    return np.int64((word * SUM) >> np.uint64(56))
