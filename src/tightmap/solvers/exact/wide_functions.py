"""Wide functions of the exact search, those of three or more variables: projection and directed extension."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import lean
from tightmap.solvers.exact.trailed_costs import HUGE, MOST_TUPLES, OFF, put, raised


@lean
def living_tuples(net, s, f):
    """Tuples of living labels of a wide function, or 0 when there are too many to look at."""
    total = 1
    for q in range(net.wide[f, 0], net.wide[f + 1, 0]):
        total *= s.value[1 + len(net.unary) + net.slot[q, 0]]
        if total > MOST_TUPLES:
            return 0
    return total


@lean
def project(net, s, f, position):
    """Project a wide function to one of its variables; whether that gained."""
    value, domain, slot, tables = s.value, s.domain[0], net.slot, net.tables
    sizes = 1 + len(net.unary)
    a, b = net.wide[f, 0], net.wide[f + 1, 0]
    k = b - a
    low, turn = s.scratch[0], s.scratch[1]
    i = slot[a + position, 0]
    oi = net.node[i, OFF]
    ni = value[sizes + i]
    for h in range(ni):
        low[domain[oi + h]] = HUGE
    last = slot[b - 1, 0]
    ol = net.node[last, OFF]
    nl = value[sizes + last]
    shift = slot[b - 1, 1]
    for p in range(k):
        turn[p] = 0
    work = 0
    going = True
    while going:
        at = net.wide[f, 1]
        away = np.int64(0)
        mine = 0
        for p in range(k - 1):
            x = domain[net.node[slot[a + p, 0], OFF] + turn[p]]
            at += x * slot[a + p, 2]
            away += value[slot[a + p, 1] + x]
            if p == position:
                mine = x
        for h in range(nl):
            x = domain[ol + h]
            if position == k - 1:
                mine = x
            low[mine] = min(low[mine], tables[at + x] - value[shift + x] - away)
        work += nl + k
        going = False
        for p in range(k - 2, -1, -1):
            turn[p] += 1
            if turn[p] < value[sizes + slot[a + p, 0]]:
                going = True
                break
            turn[p] = 0
    s.counters[0].work += work
    gained = False
    for h in range(ni):
        x = domain[oi + h]
        if low[x] > 0:
            at = slot[a + position, 1] + x
            put(s, at, value[at] + low[x])
            put(s, 1 + oi + x, value[1 + oi + x] + low[x])
            gained = True
    return gained


@lean
def gather(net, s, f, extend):
    """Project a wide function to its variables, the first free one first; ``extend``: it takes their unaries before."""
    if living_tuples(net, s, f) == 0:
        return
    value, domain = s.value, s.domain[0]
    sizes = 1 + len(net.unary)
    a, b = net.wide[f, 0], net.wide[f + 1, 0]
    first = 0
    for p in range(b - a - 1, -1, -1):
        if value[sizes + net.slot[a + p, 0]] > 1:
            first = p
    before = s.scratch[2]
    for p in range(b - a):
        before[p] = 0
        if extend and p != first:
            j = net.slot[a + p, 0]
            o = net.node[j, OFF]
            for h in range(value[sizes + j]):
                x = domain[o + h]
                u = value[1 + o + x]
                if u > 0:
                    at = net.slot[a + p, 1] + x
                    put(s, at, value[at] - u)
                    put(s, 1 + o + x, 0)
                    before[p] += u
    for turn in range(b - a):
        p = first if turn == 0 else (turn - 1 if turn <= first else turn)
        if not project(net, s, f, p):
            continue
        i = net.slot[a + p, 0]
        o = net.node[i, OFF]
        total = np.int64(0)
        if extend and p != first:
            for h in range(value[sizes + i]):
                total += value[1 + o + domain[o + h]]
        else:
            total = before[p] + 1
        if total > before[p]:  # the variable has gained; getting back what it had extended is no change
            s.counters[0].culprit = len(net.arc) // 2 + f
            raised(s, i)
