"""The search itself: decide, propagate, learn, start again from time to time.

    next variable   the one that took part in the most failures of late (learn.py); so the variable of the last failure
                    comes first, and hard parts of the model before easy ones
    its label       the one it had last, to begin with that of a given labelling; if that is gone the cheapest
    wishes          literals that are decided first; where they contradict each other the search ends with some of them
                    that do (a core)
    restarts        after 64 failures times 1, 1, 2, 1, 1, 2, 4, ... (Luby et al. 1993); what was learnt stays

Clauses that join many levels and have not served for long are forgotten (engine.py decides, ``rebuild`` does it).
Nothing here depends on the clock except where a call returns.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.moves.feasibility.learn import core_of, learn
from tightmap.moves.feasibility.literal_trail import (
    FIRST,
    GIVEN,
    LENGTH,
    REASON,
    believe,
    open_level,
    pop,
    undo,
)
from tightmap.moves.feasibility.propagation import FINE, propagate, watch
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late

# how a call ends; FULL: the arena; MANY: clauses, to forget some of; REFUSED: not all wishes can be granted
FOUND, IMPOSSIBLE, PAUSED, FULL, MANY, REFUSED = range(6)
RESTART_UNIT = 64  # failures before the first restart; the others come after multiples of it


@lean
def luby(k):
    """1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, ... for k = 0, 1, 2, ..."""
    size, power = 1, 0
    while size < k + 1:
        size = 2 * size + 1
        power += 1
    while size - 1 != k:
        size = (size - 1) >> 1
        power -= 1
        k %= size
    return 1 << power


@lean
def _decide(r, s):
    """A label for the next variable; False when all have one."""
    while s.counters[0].open_variables > 0:
        i = pop(s)
        if s.taken[i] >= 0:
            continue
        best = s.phase[i]
        if best < 0 or s.value[r.literal[best]] < 0:
            best = -1
            for at in range(r.offset[i], r.offset[i + 1]):
                if s.value[r.literal[at]] == 0 and (best < 0 or r.cost[at] < r.cost[best]):
                    best = at
        open_level(s)
        believe(r, s, r.literal[best], GIVEN)
        return True
    return False


@compiled
def search(r, s, wishes, failures, work, left):
    """Search for so many failures, units of work and seconds; returns FOUND, IMPOSSIBLE, PAUSED, FULL, MANY or REFUSED.

    REFUSED: the first literals of Store.learnt, as many as the counter core_length says, are wishes that contradict.
    """
    until = end_of(left)
    c = s.counters[0]
    work += c.work
    look = c.work + LOOK
    while True:
        if len(s.arena) - c.arena_used < len(s.value) + FIRST:
            return FULL
        bad = propagate(r, s)
        if bad != FINE:
            if not learn(r, s, bad):
                return IMPOSSIBLE
            failures -= 1
            c.until_restart -= 1
            continue
        if c.level == 0 and c.learnt > c.learnt_limit:
            return MANY
        if failures <= 0 or c.work > work:
            return PAUSED
        if c.work > look:
            look = c.work + LOOK
            if late(until):
                return PAUSED
        if c.until_restart <= 0:
            c.restarts += 1
            c.until_restart = RESTART_UNIT * luby(c.restarts)
            undo(r, s, 0)
            continue
        if c.level < len(wishes):
            lit = wishes[c.level]
            if s.value[lit] < 0:
                c.core_length = core_of(r, s, lit)
                return REFUSED
            open_level(s)
            if s.value[lit] == 0:
                believe(r, s, lit, GIVEN)
        elif not _decide(r, s):
            return FOUND


@compiled
def rebuild(s, keep, clauses):
    """Keep the clauses at some places of the arena, in order; at level 0, after propagation.

    Clauses that hold anyway go too, and the first two literals of each that is left are open ones.
    """
    c = s.counters[0]
    arena, value = s.arena, s.value
    for k in range(len(s.head)):
        s.head[k] = -1
    for t in range(c.trail_length):
        s.info[s.trail[t] >> 1, REASON] = GIVEN
    used = 0
    learnt = 0
    for q in range(len(clauses)):
        clause = clauses[q]
        length = arena[clause + LENGTH]
        if not keep[q]:
            continue
        left = 0
        holds = False
        for k in range(clause + FIRST, clause + FIRST + length):
            if value[arena[k]] > 0:
                holds = True
            elif value[arena[k]] == 0:
                arena[clause + FIRST + left] = arena[k]  # false literals are left out for good
                left += 1
        if holds:
            continue
        for k in range(FIRST + left):
            arena[used + k] = arena[clause + k]
        arena[used + LENGTH] = left
        watch(s, used, 0)
        watch(s, used, 1)
        learnt += keep[q] > 1
        used += FIRST + left
    c.arena_used = used
    c.learnt = learnt
