"""Arc consistency of tables of two variables of at most 64 labels each, by words of bits.

    arc i -> j     labels of j that have lost all their supports in i go:  D_j <- { y in D_j : S_ij(y) & D_i != 0 }

D_i are the living labels of i, S_ij(y) the labels of i that the table allows beside label y of j, each a word of bits.
With one label x left for i this is D_j & S_ji(x).  While fewer labels of i have gone than every y has supports, nothing
can follow, and the arc is passed over: for "not the same label" until i has its label.

A label that went has as its reason either the label that i took, or that all of its supports in i were gone before.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.moves.feasibility.literal_trail import (
    AT,
    BY_TABLE,
    LEAST,
    NONE,
    OF,
    ON,
    ORIGIN,
    PLACE,
    TO,
    believe,
)
from tightmap.runtime.bits import ONE, lowest_bit
from tightmap.runtime.compiled import lean

LABELS = 64  # bits of a word


@lean
def touch(r, s, i):
    """Variable i has lost a label: look at its arcs."""
    if r.arcs[i + 1] > r.arcs[i] and not s.moved[i]:
        c = s.counters[0]
        s.moved[i] = 1
        s.moves[c.moves] = i
        c.moves += 1


@lean
def _taken_before(r, s, i, limit):
    """The literal that says which label variable i has, where it is true before that place of the trail; else -1."""
    if s.taken[i] < 0:
        return -1
    lit = r.literal[s.taken[i]]
    return lit if s.info[lit >> 1, PLACE] < limit else -1


@lean
def _gone(r, s, i, labels, found):
    """Write to Store.cause that these labels of variable i are gone; those gone at level 0 need no mention."""
    while labels != NONE:
        lit = r.literal[r.offset[i] + lowest_bit(labels)] ^ 1
        labels &= labels - ONE
        if s.info[lit >> 1, AT] > 0:
            s.cause[found] = lit
            found += 1
    return found


@lean
def explain_arc(r, s, q, at, limit):
    """Why did label ``at`` go, by arc q, at that place of the trail?  See ``explain``."""
    i = r.arc[q, ORIGIN]
    lit = _taken_before(r, s, i, limit)
    if lit >= 0:
        s.cause[0] = lit
        return 1 if s.info[lit >> 1, AT] > 0 else 0
    return _gone(r, s, i, r.beside[r.arc[q, ON] + at - r.offset[r.arc[q, TO]]], 0)


@lean
def _clash(r, s, q):
    """No label of j is left by arc i -> j: literals that contradict each other, to Store.cause."""
    i, j = r.arc[q, ORIGIN], r.arc[q, TO]
    lit = _taken_before(r, s, i, s.counters[0].trail_length)
    count = r.offset[j + 1] - r.offset[j]
    found = 0
    lost = NONE  # labels of i that are gone and would support a living label of j
    other = NONE  # labels of j that are gone and have a support in i: the rest have not
    for y in range(count):
        support = r.beside[r.arc[q, ON] + y]
        if support & s.domain[i] != NONE:
            other |= ONE << np.uint64(y)
        else:
            lost |= support
    if lit < 0:
        found = _gone(r, s, i, lost, found)
    elif s.info[lit >> 1, AT] > 0:
        s.cause[found] = lit
        found += 1
    own = _taken_before(r, s, j, s.counters[0].trail_length)
    if own < 0:
        return _gone(r, s, j, other, found)
    if s.info[own >> 1, AT] > 0:
        s.cause[found] = own
        found += 1
    return found


@lean
def revise(r, s, i, none):
    """All arcs from variable i; ``none``, or how many literals of Store.cause contradict each other."""
    c = s.counters[0]
    first = r.offset[i]
    gone = r.offset[i + 1] - first - s.size[i]
    domain = s.domain[i]
    work = 0
    tables = len(r.table) - 1
    for q in range(r.arcs[i], r.arcs[i + 1]):
        work += 2
        if gone < r.arc[q, LEAST]:
            continue
        j = r.arc[q, TO]
        living = s.domain[j]
        if s.size[i] == 1:
            lost = living & ~r.beside[r.arc[q, OF] + lowest_bit(domain)]
            work += 4
        else:
            lost = NONE
            rest = living
            while rest != NONE:
                y = lowest_bit(rest)
                if r.beside[r.arc[q, ON] + y] & domain == NONE:
                    lost |= ONE << np.uint64(y)
                rest &= rest - ONE
            work += 4 + 2 * s.size[j]
        if lost == living:
            c.work += work
            return _clash(r, s, q)
        while lost != NONE:
            believe(r, s, r.literal[r.offset[j] + lowest_bit(lost)] ^ 1, 4 * (tables + q) + BY_TABLE)
            lost &= lost - ONE
            work += 4
    c.work += work
    return none
