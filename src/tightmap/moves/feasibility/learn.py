"""Learning from failures: the clause behind a contradiction (Marques-Silva and Sakallah 1999).

Some true literals contradict each other.  Those of the highest level are replaced, the latest first, by the literals
that they follow from, until only one of that level is left; call it u and the others a, b, ..., all of lower levels:

    a and b and ... and u is impossible,   so   (not u) or (not a) or (not b) or ...

holds whatever is decided.  The search goes back to the highest level among a, b, ..., where u has become impossible;
had the clause been known, u would not have been decided.  Literals that follow from others of the clause are left out.
Every variable that was met gains activity, and old activity fades: the search decides next on what fails now.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.moves.feasibility.literal_trail import (
    AT,
    BY_CLAUSE,
    FIRST,
    GIVEN,
    JOINS,
    LENGTH,
    REASON,
    SERVED,
    believe,
    sift_up,
    undo,
)
from tightmap.moves.feasibility.propagation import explain, watch
from tightmap.runtime.compiled import lean

FADE = 0.95  # activity that is left of a failure one failure later
LARGE = 1e100  # activities are scaled down when one is larger


@lean
def _bump(s, i):
    n = len(s.activity) - 1
    s.activity[i] += s.activity[n]
    if s.activity[i] > LARGE:
        for k in range(n + 1):
            s.activity[k] /= LARGE
    if s.where[i] >= 0:
        sift_up(s, s.where[i])


@lean
def _gather(r, s, count, level, length, touched):
    """Add the causes to the clause, or count them where they are of the level of the failure."""
    here = 0
    for k in range(count):
        lit = s.cause[k]
        b = lit >> 1
        if s.seen[b] or s.info[b, AT] == 0:
            continue
        s.seen[b] = 1
        s.touched[touched] = b
        touched += 1
        _bump(s, r.owner[b])
        if s.info[b, AT] == level:
            here += 1
        else:
            s.learnt[length] = lit ^ 1
            length += 1
    return here, length, touched


@lean
def _shorten(r, s, length):
    """Leave out what follows from the rest of the clause."""
    kept = 1
    for k in range(1, length):
        lit = s.learnt[k] ^ 1
        needed = s.info[lit >> 1, REASON] == GIVEN
        if not needed:
            count = explain(r, s, lit)
            for q in range(count):
                b = s.cause[q] >> 1
                if not s.seen[b] and s.info[b, AT] > 0:
                    needed = True
                    break
        if needed:
            s.learnt[kept] = s.learnt[k]
            kept += 1
    return kept


@lean
def add_clause(s, length, joins):
    """The first literals of Store.learnt as a clause; at least two."""
    c = s.counters[0]
    clause = c.arena_used
    s.arena[clause + LENGTH] = length
    s.arena[clause + JOINS] = joins
    s.arena[clause + SERVED] = c.conflicts
    for k in range(length):
        s.arena[clause + FIRST + k] = s.learnt[k]
    c.arena_used = clause + FIRST + length
    watch(s, clause, 0)
    watch(s, clause, 1)
    return clause


@lean
def core_of(r, s, lit):
    """Which decisions make ``lit`` false?  Writes it and them to Store.learnt, and says how many these are."""
    c = s.counters[0]
    s.learnt[0] = lit
    count = 1
    if s.info[lit >> 1, AT] == 0:
        return count
    s.seen[lit >> 1] = 1
    for t in range(c.trail_length - 1, s.mark[1, 0] - 1, -1):
        b = s.trail[t] >> 1
        if not s.seen[b]:
            continue
        s.seen[b] = 0
        if s.info[b, REASON] == GIVEN:
            s.learnt[count] = s.trail[t]
            count += 1
            continue
        for k in range(explain(r, s, s.trail[t])):
            if s.info[s.cause[k] >> 1, AT] > 0:
                s.seen[s.cause[k] >> 1] = 1
    return count


@lean
def learn(r, s, count):
    """Learn from the first ``count`` literals of Store.cause, go back, and conclude; False: there is no labelling."""
    c = s.counters[0]
    c.conflicts += 1
    level = 0
    for k in range(count):
        level = max(level, s.info[s.cause[k] >> 1, AT])
    if level == 0:
        return False
    undo(r, s, level)
    here, length, touched = _gather(r, s, count, level, 1, 0)
    at = c.trail_length
    while True:
        at -= 1
        while not s.seen[s.trail[at] >> 1]:
            at -= 1
        lit = s.trail[at]
        here -= 1
        if here == 0:
            break
        more, length, touched = _gather(r, s, explain(r, s, lit), level, length, touched)
        here += more
    s.learnt[0] = lit ^ 1
    c.work += 20 * touched
    length = _shorten(r, s, length)
    for k in range(touched):
        s.seen[s.touched[k]] = 0
    joins = 1
    back = 0
    for k in range(1, length):
        here = s.info[s.learnt[k] >> 1, AT]
        if s.stamp[here] != c.conflicts:
            s.stamp[here] = c.conflicts
            joins += 1
        if here > back:  # the second watch is the last literal to become false
            back = here
            s.learnt[k], s.learnt[1] = s.learnt[1], s.learnt[k]
    undo(r, s, back)
    reason = GIVEN
    if length > 1:
        reason = 4 * add_clause(s, length, joins) + BY_CLAUSE
        c.learnt += 1
    believe(r, s, s.learnt[0], reason)
    s.activity[len(s.activity) - 1] /= FADE
    return True
