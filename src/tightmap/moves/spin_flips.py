"""Single flips on a quadratic form of spins: the inner loops of searches that change one binary variable at a time.

    E(s) = 1/2 s^T A s,   change of E by the flip of s_i:   d_i = -2 s_i sum_j A_ij s_j

    tabu    i = argmin of d_i over the spins that are not forbidden;  s_i <- -s_i, and i is forbidden for a while;
            a forbidden flip is made all the same when it leads below the best energy
    cooling i = 1, 2, ..., n, again and again;  s_i <- -s_i with probability min(1, exp(-d_i / T)), T falling evenly

All d_i are kept.  A flip of i changes the sign of d_i, and d_j by -4 A_ij s_i s_j (with the new s_i) at its neighbours,
so a step of tabu search is one scan of n numbers and one row of A, and a flip that cooling refuses, which is most of
them, costs a nanosecond or two.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.runtime.random_numbers import next_word, uniform


@lean
def flip_changes(start, index, weight, spins, change):
    """d_i of all spins; returns the energy."""
    total = 0.0
    for i in range(len(spins)):
        field = 0.0
        for p in range(start[i], start[i + 1]):
            field += weight[p] * spins[index[p]]
        change[i] = -2.0 * spins[i] * field
        total += spins[i] * field
    return 0.5 * total


@lean
def flip(start, index, weight, spins, change, i):
    """Turn spin i around."""
    now = -spins[i]
    spins[i] = now
    change[i] = -change[i]
    for p in range(start[i], start[i + 1]):
        j = index[p]
        change[j] -= 4.0 * weight[p] * now * spins[j]


@lean
def flip_walk(
    start, index, weight, n, spins, change, best, until_step, clock, steps, idle, tenure, spread, random, value, tiny,
    left,
):  # fmt: skip
    """``steps`` flips among the first n spins; value = [energy now, best energy]; best changes when that falls.

    until_step[i] is the step before which spin i is forbidden: ``tenure`` steps and up to ``spread`` more at random.
    An energy counts as lower when it falls by more than ``tiny``.  Returns the flips made (fewer when time is up), and
    those since the last improvement, to which ``idle`` from before are added if there was none.
    """
    until = end_of(left)
    work = 0
    for step in range(clock, clock + steps):
        chosen = -1
        least = np.inf
        ties = 1
        free = value[1] - value[0] - tiny
        for i in range(n):
            d = change[i]
            if d <= least and (until_step[i] <= step or d < free):
                if d < least:
                    least = d
                    chosen = i
                    ties = 1
                else:  # equally good: each with the same probability
                    ties += 1
                    if (next_word(random) >> np.uint64(33)) % np.uint64(ties) == 0:
                        chosen = i
        if chosen < 0:
            idle += 1
            continue
        work += n + 3 * (start[chosen + 1] - start[chosen])
        until_step[chosen] = step + 1 + tenure + (next_word(random) >> np.uint64(33)) % np.uint64(spread)
        flip(start, index, weight, spins, change, chosen)
        value[0] += least
        if value[0] < value[1] - tiny:
            value[1] = value[0]
            for i in range(len(spins)):
                best[i] = spins[i]
            idle = 0
        else:
            idle += 1
        if work > LOOK:
            work = 0
            if late(until):
                return step + 1 - clock, idle
    return steps, idle


@lean
def cool(start, index, weight, n, spins, change, best, hot, cold, sweep, sweeps, random, value, tiny, left):
    """Sweeps number ``sweep`` to ``sweeps`` over the first n spins, at temperatures from ``hot`` to ``cold``.

    value = [energy now, lowest at the end of a sweep]; best changes when the latter falls.  Returns the number of the
    next sweep: ``sweeps``, or the one before which time was up.
    """
    until = end_of(left)
    work = 0
    while sweep < sweeps:
        temperature = hot + (cold - hot) * sweep / sweeps
        most = 20.0 * temperature
        work += 2 * n
        for i in range(n):
            d = change[i]
            if d > most or (d > 0.0 and uniform(random) >= np.exp(-d / temperature)):
                continue
            flip(start, index, weight, spins, change, i)
            value[0] += d
            work += 2 * (start[i + 1] - start[i])
        sweep += 1
        if value[0] < value[1] - tiny:
            value[1] = value[0]
            for i in range(len(spins)):
                best[i] = spins[i]
        if work > LOOK:
            work = 0
            if late(until):
                return sweep
    return sweeps
