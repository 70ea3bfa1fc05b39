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
def is_supported(net, s, f, position, x):
    """Whether the tuple that last had cost 0 with label x at a position is alive and still costs nothing."""
    sizes = 1 + len(net.unary)
    a, b = net.wide[f, 0], net.wide[f + 1, 0]
    rest = np.int64(s.support[net.slot[a + position, 1] + x])
    cost = net.tables[net.wide[f, 1] + rest]
    for q in range(a, b):
        y = rest // net.slot[q, 2]
        rest -= y * net.slot[q, 2]
        j = net.slot[q, 0]
        if s.domain[1, net.node[j, OFF] + y] >= s.value[sizes + j] or (q == a + position and y != x):
            return False
        cost -= s.value[net.slot[q, 1] + y]
    return cost == 0


@lean
def project(net, s, f, position):
    """Project a wide function to one of its variables; whether that gained.

    For a label whose support is gone, its tuples are looked at until one costs nothing.
    """
    value, domain, slot, tables = s.value, s.domain[0], net.slot, net.tables
    sizes = 1 + len(net.unary)
    a, b = net.wide[f, 0], net.wide[f + 1, 0]
    k = b - a
    turn = s.scratch[1]
    i = slot[a + position, 0]
    oi = net.node[i, OFF]
    last = k - 2 if position == k - 1 else k - 1  # runs fastest
    ol, stride, shift = net.node[slot[a + last, 0], OFF], slot[a + last, 2], slot[a + last, 1]
    nl = value[sizes + slot[a + last, 0]]
    work = 0
    gained = False
    for own in range(value[sizes + i]):
        x = domain[oi + own]
        mine = slot[a + position, 1] + x
        work += k
        if is_supported(net, s, f, position, x):
            continue
        for p in range(k):
            turn[p] = 0
        low = HUGE
        arg = np.int64(0)
        going = True
        while going and low > 0:
            at = x * slot[a + position, 2]
            away = value[mine]
            for p in range(k):
                if p != position and p != last:
                    y = domain[net.node[slot[a + p, 0], OFF] + turn[p]]
                    at += y * slot[a + p, 2]
                    away += value[slot[a + p, 1] + y]
            for h in range(nl):
                y = domain[ol + h]
                cost = tables[net.wide[f, 1] + at + y * stride] - value[shift + y] - away
                if cost < low:
                    low = cost
                    arg = at + y * stride
            work += nl + k
            going = False
            for p in range(k - 1, -1, -1):
                if p == position or p == last:
                    continue
                turn[p] += 1
                if turn[p] < value[sizes + slot[a + p, 0]]:
                    going = True
                    break
                turn[p] = 0
        s.support[mine] = arg
        if low > 0:
            put(s, mine, value[mine] + low)
            put(s, 1 + oi + x, value[1 + oi + x] + low)
            gained = True
    s.counters[0].work += work
    return gained


@lean
def has_free_tuple(net, s, f, position, x):
    """Whether a tuple with label x at a position is free, the unaries of its other labels included; it is noted."""
    value, domain, slot, tables = s.value, s.domain[0], net.slot, net.tables
    sizes = 1 + len(net.unary)
    a, b = net.wide[f, 0], net.wide[f + 1, 0]
    k = b - a
    mine = slot[a + position, 1] + x
    if is_supported(net, s, f, position, x):
        rest = np.int64(s.support[mine])
        free = True
        for q in range(a, b):
            y = rest // slot[q, 2]
            rest -= y * slot[q, 2]
            free = free and (q == a + position or value[1 + net.node[slot[q, 0], OFF] + y] == 0)
        if free:
            return True
    if living_tuples(net, s, f) == 0:
        return True
    turn = s.scratch[1]
    for p in range(k):
        turn[p] = 0
    work = k
    p = 0
    at = x * slot[a + position, 2]
    away = value[mine]
    found = False
    # depth first over the positions: labels that cost something are left out
    while p >= 0:
        if p == k:
            if tables[net.wide[f, 1] + at] == away:
                s.support[mine] = at
                found = True
                break
            p -= 1
            if p == position:
                p -= 1
            if p >= 0:
                y = domain[net.node[slot[a + p, 0], OFF] + turn[p] - 1]
                at -= y * slot[a + p, 2]
                away -= value[slot[a + p, 1] + y]
            continue
        if p == position:
            p += 1
            continue
        o = net.node[slot[a + p, 0], OFF]
        size = value[sizes + slot[a + p, 0]]
        while turn[p] < size and value[1 + o + domain[o + turn[p]]] > 0:
            turn[p] += 1
        work += 1
        if turn[p] < size:
            y = domain[o + turn[p]]
            turn[p] += 1
            at += y * slot[a + p, 2]
            away += value[slot[a + p, 1] + y]
            p += 1
        else:
            turn[p] = 0
            p -= 1
            if p == position:
                p -= 1
            if p >= 0:
                y = domain[net.node[slot[a + p, 0], OFF] + turn[p] - 1]
                at -= y * slot[a + p, 2]
                away -= value[slot[a + p, 1] + y]
    s.counters[0].work += work
    return found


@lean
def gather(net, s, f, extend, position):
    """Project a wide function to its variables, one first; ``extend``: it takes the unaries of the others before.

    First is the one at a position, or with -1 the first that is free.
    """
    if living_tuples(net, s, f) == 0:
        return
    value, domain = s.value, s.domain[0]
    sizes = 1 + len(net.unary)
    a, b = net.wide[f, 0], net.wide[f + 1, 0]
    first = max(position, 0)
    if position < 0:
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
            raised(s, i)
