"""Propagation to a fixed point: unit clauses, generalised arc consistency of tables, one label per variable.

    clause     (l_1 or ... or l_k): when all literals but one are false, that one is true.  Two literals of each clause
               are watched; a clause is looked at only when one of these becomes false.
    table      a label goes when no allowed tuple of living labels contains it.  The living tuples of a table are the
               bits of a few words; a label that goes clears the bits of its mask, and a label is supported while its
               own mask meets the words (Demeulenaere et al. 2016).  Those of two variables go label by label (arcs.py).
    variable   with one label taken all others go; the last one left is taken.

Whatever becomes true has a reason, and the literals behind it are found again when a failure asks for them: for a table
a small set of labels, gone before, that together hit every allowed tuple with the label in question.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.moves.feasibility.arcs import explain_arc, revise, touch
from tightmap.moves.feasibility.literal_trail import (
    AT,
    BY_CLAUSE,
    BY_LABELS,
    BY_LITERAL,
    BY_TABLE,
    FIRST,
    GONE,
    LENGTH,
    MASK,
    NEXT,
    NONE,
    PLACE,
    REASON,
    SERVED,
    SLOT,
    SUPPORT,
    TABLE,
    TAKEN,
    VARIABLE,
    WORD,
    believe,
)
from tightmap.runtime.bits import count_bits
from tightmap.runtime.compiled import lean

FINE = -1  # no failure; otherwise the number of literals in Store.cause
FEW = 256  # a hitting set is chosen greedily where labels of the scope times words are no more than this


@lean
def watch(s, clause, which):
    """Put a clause into the list of its watched literal number 0 or 1."""
    lit = s.arena[clause + FIRST + which]
    s.arena[clause + NEXT + which] = s.head[lit]
    s.head[lit] = 2 * clause + which


@lean
def _clauses(r, s, lit):
    """The clauses that watch the opposite of a literal that is true now."""
    arena, value = s.arena, s.value
    lost = lit ^ 1
    ref = s.head[lost]
    s.head[lost] = -1
    bad = FINE
    work = 0
    while ref >= 0:
        clause = ref >> 1
        which = ref & 1
        ref = arena[clause + NEXT + which]
        work += 1
        other = arena[clause + FIRST + 1 - which]
        moved = False
        if bad == FINE and value[other] <= 0:
            for k in range(clause + FIRST + 2, clause + FIRST + arena[clause + LENGTH]):
                if value[arena[k]] >= 0:
                    arena[clause + FIRST + which] = arena[k]
                    arena[k] = lost
                    watch(s, clause, which)
                    moved = True
                    break
            if not moved:
                work += arena[clause + LENGTH]
                if value[other] == 0:
                    believe(r, s, other, 4 * clause + BY_CLAUSE)
                else:
                    arena[clause + SERVED] = s.counters[0].conflicts
                    bad = arena[clause + LENGTH]
                    for k in range(bad):
                        s.cause[k] = arena[clause + FIRST + k] ^ 1
        if not moved:
            watch(s, clause, which)
    s.counters[0].work += 8 * work
    return bad


@lean
def _labels(r, s, lit):
    """One label for a variable of more than two."""
    i = r.owner[lit >> 1]
    o = r.offset[i]
    if r.effect[lit, TAKEN] >= 0:
        for at in range(o, r.offset[i + 1]):
            other = r.literal[at]
            if other != lit and s.value[other] >= 0:
                if s.value[other] > 0:
                    s.cause[0] = lit
                    s.cause[1] = other
                    return 2
                believe(r, s, other ^ 1, 4 * np.int64(lit) + BY_LITERAL)
        s.counters[0].work += r.offset[i + 1] - o
    elif s.size[i] == 0:
        for at in range(o, r.offset[i + 1]):
            s.cause[at - o] = r.literal[at] ^ 1
        return r.offset[i + 1] - o
    elif s.size[i] == 1 and s.taken[i] < 0:
        for at in range(o, r.offset[i + 1]):
            if s.value[r.literal[at]] == 0:
                believe(r, s, r.literal[at], 4 * np.int64(i) + BY_LABELS)
    return FINE


@lean
def _clear(r, s, at, i):
    """Clear the tuples with label ``at`` of variable i."""
    c = s.counters[0]
    x = at - r.offset[i]
    for q in range(r.near[i], r.near[i + 1]):
        k = r.slots[q]
        t = r.slot[k, TABLE]
        w = r.table[t, WORD]
        count = r.table[t + 1, WORD] - w
        m = r.slot[k, MASK] + x * count
        some = False
        for h in range(count):
            old = s.words[w + h]
            new = old & ~r.masks[m + h]
            if new != old:
                s.changed[c.changes] = w + h
                s.before[c.changes] = old
                c.changes += 1
                s.words[w + h] = new
                some = True
        c.work += 4 + count
        if some and not s.waiting[t]:
            s.waiting[t] = 1
            s.queue[c.queued] = t
            c.queued += 1


@lean
def _cover(r, s, t, at, limit):
    """Which literals, true before place ``limit``, leave no tuple of table t (with label ``at``, unless that is -1)?

    Written to Store.cause; returns how many.  Labels that are gone at level 0 need no mention.
    """
    first, last = r.table[t, SLOT], r.table[t + 1, SLOT]
    w = r.table[t, WORD]
    count = r.table[t + 1, WORD] - w
    rest = s.scratch[:count]
    labels = 0
    for h in range(count):
        rest[h] = r.all[w + h]
    for k in range(first, last):
        i = r.slot[k, VARIABLE]
        o = r.offset[i]
        card = r.offset[i + 1] - o
        labels += card
        for x in range(card):
            m = r.slot[k, MASK] + x * count
            lit = r.literal[o + x]
            if o + x == at:
                for h in range(count):
                    rest[h] &= r.masks[m + h]
            elif s.value[lit] < 0 and s.info[lit >> 1, AT] == 0:
                for h in range(count):
                    rest[h] &= ~r.masks[m + h]
    found = 0
    greedy = labels * count <= FEW
    while True:
        most = 0
        best = 0  # literal
        for k in range(first, last):
            i = r.slot[k, VARIABLE]
            o = r.offset[i]
            card = r.offset[i + 1] - o
            whole = card > 2 and s.taken[i] >= 0
            if whole:
                b = r.literal[s.taken[i]] >> 1
                whole = s.info[b, PLACE] < limit and s.info[b, AT] > 0
            for x in range(card):
                lit = r.literal[o + x]
                if whole:
                    if o + x != s.taken[i]:
                        continue
                else:
                    if o + x == at or s.value[lit] >= 0:
                        continue
                    lit ^= 1
                    if s.info[lit >> 1, PLACE] >= limit or s.info[lit >> 1, AT] == 0:
                        continue
                m = r.slot[k, MASK] + x * count
                hit = 0
                for h in range(count):
                    if whole:
                        hit += count_bits(rest[h] & ~r.masks[m + h])
                    else:
                        hit += count_bits(rest[h] & r.masks[m + h])
                if greedy and hit > most:
                    most = hit
                    best = lit
                elif not greedy and hit > 0:
                    s.cause[found] = lit
                    found += 1
                    for h in range(count):
                        if whole:
                            rest[h] &= r.masks[m + h]
                        else:
                            rest[h] &= ~r.masks[m + h]
        s.counters[0].work += labels * count
        if most == 0:
            return found
        s.cause[found] = best
        found += 1
        for k in range(first, last):
            i = r.slot[k, VARIABLE]
            if i == r.owner[best >> 1]:
                keep = r.offset[i + 1] - r.offset[i] > 2 and r.effect[best, TAKEN] >= 0
                x = r.effect[best, TAKEN if keep else GONE] - r.offset[i]
                m = r.slot[k, MASK] + x * count
                for h in range(count):
                    rest[h] &= r.masks[m + h] if keep else ~r.masks[m + h]


@lean
def _filter(r, s, t):
    """Generalised arc consistency of one table."""
    w = r.table[t, WORD]
    count = r.table[t + 1, WORD] - w
    some = False
    for h in range(count):
        if s.words[w + h] != NONE:
            some = True
            break
    if not some:
        return _cover(r, s, t, -1, s.counters[0].trail_length)
    for k in range(r.table[t, SLOT], r.table[t + 1, SLOT]):
        i = r.slot[k, VARIABLE]
        if s.size[i] == 1:
            continue
        o = r.offset[i]
        card = r.offset[i + 1] - o
        s.counters[0].work += 2 * card
        for x in range(card):
            lit = r.literal[o + x]
            if s.value[lit] < 0:
                continue
            m = r.slot[k, MASK] + x * count
            last = r.slot[k, SUPPORT] + x
            if s.words[w + s.support[last]] & r.masks[m + s.support[last]] != NONE:
                continue
            some = False
            for h in range(count):
                if s.words[w + h] & r.masks[m + h] != NONE:
                    s.support[last] = h
                    some = True
                    break
            s.counters[0].work += count
            if not some:
                believe(r, s, lit ^ 1, 4 * t + BY_TABLE)
    return FINE


@lean
def explain(r, s, lit):
    """Why is a literal true?  Writes literals to Store.cause that were true before it, and says how many."""
    reason = s.info[lit >> 1, REASON]
    x, kind = reason >> 2, reason & 3
    if kind == BY_CLAUSE:
        found = 0
        s.arena[x + SERVED] = s.counters[0].conflicts
        for k in range(x + FIRST, x + FIRST + s.arena[x + LENGTH]):
            if s.arena[k] != lit:
                s.cause[found] = s.arena[k] ^ 1
                found += 1
        return found
    if kind == BY_LITERAL:
        s.cause[0] = x
        return 1
    if kind == BY_LABELS:
        found = 0
        for at in range(r.offset[x], r.offset[x + 1]):
            if r.literal[at] != lit:
                s.cause[found] = r.literal[at] ^ 1
                found += 1
        return found
    tables = len(r.table) - 1
    if x >= tables:
        return explain_arc(r, s, x - tables, r.effect[lit, GONE], s.info[lit >> 1, PLACE])
    return _cover(r, s, x, r.effect[lit, GONE], s.info[lit >> 1, PLACE])


@lean
def propagate(r, s):
    """Draw all conclusions; FINE, or how many literals in Store.cause contradict each other."""
    c = s.counters[0]
    while True:
        while c.propagated < c.trail_length:
            lit = s.trail[c.propagated]
            c.propagated += 1
            i = r.owner[lit >> 1]
            bad = _clauses(r, s, lit)
            if bad == FINE and r.offset[i + 1] - r.offset[i] > 2:
                bad = _labels(r, s, lit)
            if bad != FINE:
                return bad
            if r.effect[lit, GONE] >= 0:
                _clear(r, s, r.effect[lit, GONE], i)
                touch(r, s, i)
        if c.moves > 0:
            c.moves -= 1
            i = s.moves[c.moves]
            s.moved[i] = 0
            bad = revise(r, s, np.int64(i), FINE)
            if bad != FINE:
                return np.int64(bad)
            continue
        if c.queued == 0:
            return np.int64(FINE)
        c.queued -= 1
        t = s.queue[c.queued]
        s.waiting[t] = 0
        bad = _filter(r, s, np.int64(t))
        if bad != FINE:
            return np.int64(bad)
