"""Patterns of equal labels, and their numbers.

A pattern is a partition of the positions 0..k-1 into groups of equal labels.  It is written as a restricted growth
string (position 0 is group 0, every new group takes the next number) and patterns are ranked in the lexicographic order
of these strings: for k = 3 they are 000, 001, 010, 011, 012, so all equal comes first and all different last.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import IntArray
from tightmap.runtime.compiled import compiled, lean

MAX_ARITY = 12  # Bell(12) = 4213597 patterns


def _completions(limit: int) -> npt.NDArray[np.int64]:
    """count[r, g]: ways to finish a string with r positions to go when g groups are in use."""
    count = np.zeros((limit + 1, limit + 2), dtype=np.int64)
    count[0, :] = 1
    for r in range(1, limit + 1):
        for g in range(limit + 1):
            count[r, g] = g * count[r - 1, g] + count[r - 1, min(g + 1, limit + 1)]
    return count


COMPLETIONS = _completions(MAX_ARITY)
IN_ORDER = np.arange(MAX_ARITY)  # where the labels of a short vector are: see pattern_rank


def bell(k: int) -> int:
    """Number of patterns of k positions."""
    return int(COMPLETIONS[k, 0])


@lean
def _label(labels, where, pos, own, p):
    return own if p == pos else labels[where[p]]


@lean
def pattern_rank(labels, where, pos, own):
    """Rank of the pattern of the labels at ``where``; the one at position ``pos`` is ``own`` (none if pos < 0)."""
    k = len(where)
    groups = 0
    rank = 0
    string = 0  # group of position q in bits 4 q to 4 q + 3
    for p in range(k):
        mine = _label(labels, where, pos, own, p)
        group = groups
        for q in range(p):
            if _label(labels, where, pos, own, q) == mine:
                group = string >> (4 * q) & 15
                break
        rank += group * COMPLETIONS[k - p - 1, groups]
        groups += 1 if group == groups else 0
        string |= group << (4 * p)
    return rank


@compiled
def _ranks(rows):
    out = np.empty(len(rows), np.int64)
    for r in range(len(rows)):
        out[r] = pattern_rank(rows[r], IN_ORDER[: rows.shape[1]], -1, 0)
    return out


def pattern_ranks(rows: npt.NDArray[np.integer]) -> IntArray:
    """(m,) ranks of the patterns of m label vectors, given as (m, k)."""
    return _ranks(np.ascontiguousarray(rows, dtype=np.int64))


def growth_strings(k: int) -> IntArray:
    """(Bell(k), k) all restricted growth strings in lexicographic order."""
    strings = [[0]]
    for _ in range(k - 1):
        strings = [s + [g] for s in strings for g in range(max(s) + 2)]
    return np.array(strings, dtype=np.int64)
