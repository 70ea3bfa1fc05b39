"""Soft arc consistency: move integer cost between functions until the constant, a lower bound, rises no more.

Equivalence-preserving transformations (Larrosa and Schiex 2004; Cooper et al. 2010) project cost from a function to
a variable, extend it back, and gather the minimum of a unary in the constant c0.  No cost is ever negative, so at any
moment c0 is a lower bound of the subproblem, and a label a with c0 + c_i(a) >= upper can go.  Kept up here:

    node consistency       min_a c_i(a) = 0, and the labels that reach the upper bound are gone
    arc consistency        every label has, in every function, a tuple of cost 0
    directed, full         for i before j every label of i has a partner with c_ij + c_j = 0: cost flows to the front
    existential            some label of i has c_i = 0 and such a partner in all neighbours; if not, c0 can rise
    (together EDAC, de Givry et al. 2005); functions of three or more variables: projections and directed extensions
    dominance              no label b with another one a that costs nothing and is never worse (dead-end elimination,
                           de Givry, Prestwich and O'Sullivan 2013): c_i(b) >= sum_j max_y [c_ij(a, y) - c_ij(b, y)]

Each kernel is called in one place only: that is what keeps the compilation short.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.bits import ONE, highest_bit, lowest_bit
from tightmap.runtime.compiled import lean
from tightmap.solvers.exact.trailed_costs import (
    ARC,
    ARCS,
    BACK,
    DIRECTED,
    DOMINATED,
    EXIST,
    GOOD,
    HUGE,
    LOOSE,
    NEAR,
    OFF,
    RAISED,
    ROUNDS,
    ROW,
    SHIFT,
    TO,
    drop,
    mark,
    node_consistency,
    put,
    raised,
    unmark,
)
from tightmap.solvers.exact.wide_functions import gather, has_free_tuple

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
WIDE_ROUNDS = 3  # existential supports in wide functions: pulling cost from one may take it from the next
LONG = 10_000_000  # no further round after so much work: time limits have to be kept


@lean
def supports_of_neighbours(net, s, j):
    """Arc consistency of all neighbours of j towards j, whose labels changed."""
    value, tables, domain, place = s.value, net.tables, s.domain[0], s.domain[1]
    sizes = 1 + len(net.unary)
    oj = net.node[j, OFF]
    cj = net.node[j + 1, OFF] - oj
    nj = value[sizes + j]
    for back in range(net.node[j, ARCS], net.node[j + 1, ARCS]):
        i = net.arc[back, TO]
        arc = net.arc[back, BACK]
        oi = net.node[i, OFF]
        mine, theirs, row = net.arc[arc, SHIFT], net.arc[back, SHIFT], net.arc[arc, ROW]
        ni = value[sizes + i]
        mark(s, DOMINATED, i)
        if ni == 1 and nj > 1:  # its own visit sends, or has sent, all cost here
            continue
        work = ni + 2
        moved = False
        for k in range(ni):
            x = domain[oi + k]
            r = row + x * cj
            own = value[mine + x]
            y = s.support[mine + x]
            if place[oj + y] < nj and tables[r + y] - own == value[theirs + y]:
                continue
            low = HUGE
            arg = 0
            for h in range(nj):
                y = domain[oj + h]
                v = tables[r + y] - value[theirs + y]
                if v < low:
                    low = v
                    arg = y
                    if v == own:
                        break
            work += nj
            s.support[mine + x] = arg
            low -= own
            if low > 0:
                moved = moved or value[1 + oi + x] == 0
                put(s, mine + x, own + low)
                put(s, 1 + oi + x, value[1 + oi + x] + low)
                mark(s, LOOSE, i)
        s.counters[0].work += work
        if moved:
            raised(s, i)


@lean
def full_supports(net, s, v, onward):
    """Extend from j what labels of i need, then project to i: from v to all before it, or from all others to v."""
    value, tables, domain, place = s.value, net.tables, s.domain[0], s.domain[1]
    sizes = 1 + len(net.unary)
    gain = s.scratch[0]
    work = 0
    for out in range(net.node[v, ARCS], net.node[v + 1, ARCS]):
        i, j, arc = v, net.arc[out, TO], out
        if onward:
            if j > v:
                break
            i, j, arc = j, v, net.arc[out, BACK]
        ni, nj = value[sizes + i], value[sizes + j]
        work += 2
        if ni == 1 or nj == 1:  # all cost of the function is, or is about to be, with the other variable
            continue
        back = net.arc[arc, BACK]
        oi, oj = net.node[i, OFF], net.node[j, OFF]
        cj = net.node[j + 1, OFF] - oj
        mine, theirs, row = net.arc[arc, SHIFT], net.arc[back, SHIFT], net.arc[arc, ROW]
        work += ni
        some = False
        for k in range(ni):
            x = domain[oi + k]
            r = row + x * cj
            own = value[mine + x]
            y = s.support[mine + x]
            if place[oj + y] < nj and tables[r + y] - own == value[theirs + y] and value[1 + oj + y] == 0:
                gain[x] = 0
                continue
            low = HUGE
            arg = 0
            for h in range(nj):
                y = domain[oj + h]
                w = tables[r + y] - value[theirs + y] + value[1 + oj + y]
                if w < low:
                    low = w
                    arg = y
                    if w == own:
                        break
            work += nj
            s.support[mine + x] = arg
            gain[x] = low - own
            some = some or low > own
        if not some:
            continue
        turned = net.arc[back, ROW]
        ci = net.node[i + 1, OFF] - oi
        for h in range(nj):
            y = domain[oj + h]
            u = value[1 + oj + y]
            if u == 0:
                continue
            r = turned + y * ci
            most = np.int64(0)
            away = value[theirs + y]
            for k in range(ni):
                x = domain[oi + k]
                if gain[x] > 0:
                    most = max(most, gain[x] - (tables[r + x] - value[mine + x] - away))
            if most > 0:
                put(s, theirs + y, away - most)
                put(s, 1 + oj + y, u - most)
        work += ni * nj
        moved = False
        for k in range(ni):
            x = domain[oi + k]
            if gain[x] > 0:
                moved = moved or value[1 + oi + x] == 0
                put(s, mine + x, value[mine + x] + gain[x])
                put(s, 1 + oi + x, value[1 + oi + x] + gain[x])
        mark(s, LOOSE, i)
        if moved:
            raised(s, i)
    s.counters[0].work += work


@lean
def has_existential_support(net, s, i, wide):
    """Whether a label of i is free of cost together with a label of every neighbour; it is noted.

    ``wide``: together with a tuple of every function of three or more variables, too.
    """
    value, tables, domain, place = s.value, net.tables, s.domain[0], s.domain[1]
    sizes = 1 + len(net.unary)
    oi = net.node[i, OFF]
    ni = value[sizes + i]
    first = place[oi + s.pick[GOOD, i]]  # the label that served last time is asked first
    if first >= ni:
        first = 0
    for turn in range(ni):
        x = domain[oi + (first if turn == 0 else (turn - 1 if turn <= first else turn))]
        if value[1 + oi + x] > 0:
            continue
        free = True
        for arc in range(net.node[i, ARCS], net.node[i + 1, ARCS]):
            j = net.arc[arc, TO]
            oj = net.node[j, OFF]
            nj = value[sizes + j]
            if nj == 1:
                continue
            theirs = net.arc[net.arc[arc, BACK], SHIFT]
            k = net.arc[arc, SHIFT] + x
            r = net.arc[arc, ROW] + x * (net.node[j + 1, OFF] - oj)
            y = s.support[k]
            if place[oj + y] < nj and value[1 + oj + y] == 0 and tables[r + y] - value[k] == value[theirs + y]:
                continue
            free = False
            for h in range(nj):
                y = domain[oj + h]
                if value[1 + oj + y] == 0 and tables[r + y] - value[k] == value[theirs + y]:
                    free = True
                    s.support[k] = y
                    break
            s.counters[0].work += nj
            if not free:
                break
        s.counters[0].work += net.node[i + 1, ARCS] - net.node[i, ARCS]
        for q in range(net.node[i, NEAR], net.node[i + 1, NEAR]):
            free = free and (not wide or has_free_tuple(net, s, net.near[q, 0], net.near[q, 1], x))
        if free:
            s.pick[GOOD, i] = x
            return True
    return False


@lean
def drop_dominated(net, s, i):
    """Drop the most costly labels of i while the one that costs nothing is as good with all labels of the neighbours.

    Every labelling with such a label can be changed to one that costs no more.  Only where all functions are of pairs.
    """
    value, tables, domain, place = s.value, net.tables, s.domain[0], s.domain[1]
    oi = net.node[i, OFF]
    sizes = 1 + len(net.unary)
    size = value[sizes + i]
    a = s.pick[GOOD, i]
    if place[oi + a] >= size or value[1 + oi + a] > 0:
        for k in range(size):
            if value[1 + oi + domain[oi + k]] == 0:
                a = np.int64(domain[oi + k])
    work = 0
    while size > 1:
        b = np.int64(-1)
        for k in range(size):
            x = domain[oi + k]
            if x != a and (b < 0 or value[1 + oi + x] > value[1 + oi + b]):
                b = np.int64(x)
        room = value[1 + oi + b] - value[1 + oi + a]
        for arc in range(net.node[i, ARCS], net.node[i + 1, ARCS]):
            j = net.arc[arc, TO]
            oj = net.node[j, OFF]
            cj = net.node[j + 1, OFF] - oj
            mine, row = net.arc[arc, SHIFT], net.arc[arc, ROW]
            most = -HUGE
            for h in range(value[sizes + j]):
                y = domain[oj + h]
                most = max(most, tables[row + a * cj + y] - tables[row + b * cj + y])
            room -= most - value[mine + a] + value[mine + b]
            work += value[sizes + j]
            if room < 0:
                break
        work += size
        if room < 0:
            break
        drop(net, s, i, b)
        size -= 1
    s.counters[0].work += work


@lean
def ask_neighbours(net, s):
    """Existential supports may be lost at variables whose unary rose and at neighbours after them."""
    for w in range(s.flag.shape[1]):
        word = s.flag[RAISED, w]
        s.flag[RAISED, w] = 0
        s.flag[EXIST, w] |= word
        while word != 0:
            j = (w << 6) + lowest_bit(word)
            word &= word - ONE
            for arc in range(net.node[j + 1, ARCS] - 1, net.node[j, ARCS] - 1, -1):
                if net.arc[arc, TO] < j:
                    break
                mark(s, EXIST, net.arc[arc, TO])
            for q in range(net.node[j, NEAR], net.node[j + 1, NEAR]):
                f = net.near[q, 0]
                for k in range(net.wide[f, 0], net.wide[f + 1, 0]):
                    mark(s, EXIST, net.slot[k, 0])


@lean
def next_marked(s, one, other, at, step):
    """The next variable from ``at`` on, upwards or downwards, that is marked in one of two rows; -1 for none."""
    if at < 0:
        return np.int64(-1)
    w = at >> 6
    some = ALL << np.uint64(at & 63) if step > 0 else ALL >> np.uint64(63 - (at & 63))
    while 0 <= w < s.flag.shape[1]:
        some &= s.flag[one, w] | s.flag[other, w]
        if some != 0:
            return (w << 6) + (lowest_bit(some) if step > 0 else highest_bit(some))
        w += step
        some = ALL
    return np.int64(-1)


@lean
def propagate(net, s):
    """Establish the consistencies; False when the subproblem holds nothing below the upper bound.

    Every round looks for supports that removed labels took away, asks for existential supports from the front, and
    sends cost to the front from the back.
    """
    n = len(net.node) - 1
    flag = s.flag
    compare = DOMINATED if s.counters[0].dominance else LOOSE
    known = s.value[0]
    sizes = 1 + len(net.unary)
    begin = s.counters[0].work
    for turn in range(ROUNDS):
        wide = turn < WIDE_ROUNDS
        for phase in range(4):
            if phase == 1:
                ask_neighbours(net, s)
            which = ARC if phase == 0 else (EXIST if phase == 1 else (DIRECTED if phase == 2 else compare))
            step = -1 if phase == 2 else 1
            i = n - 1 if phase == 2 else 0
            while True:
                everybody = phase == 3 and s.value[0] > known  # less room below the upper bound: labels may go
                if not everybody:
                    i = next_marked(s, which, LOOSE, i, step)
                if not 0 <= i < n:
                    break
                loose = everybody or (flag[LOOSE, i >> 6] >> np.uint64(i & 63)) & ONE != 0
                if loose and not node_consistency(net, s, i):
                    return False
                wanted = (phase < 3 or s.counters[0].dominance != 0) and unmark(s, which, i)
                if phase == 3:
                    if wanted and s.value[sizes + i] > 1 and net.node[i + 1, NEAR] == net.node[i, NEAR]:
                        drop_dominated(net, s, i)
                elif wanted:
                    some = phase != 1
                    if phase == 0:
                        supports_of_neighbours(net, s, i)
                    elif s.value[sizes + i] > 1 and (phase == 2 or not has_existential_support(net, s, i, wide)):
                        full_supports(net, s, i, phase == 2)
                        some = some or wide
                    if some:
                        for q in range(net.node[i, NEAR], net.node[i + 1, NEAR]):
                            gather(net, s, net.near[q, 0], phase > 0, net.near[q, 1] if phase == 1 else -1)
                i += step
        s.counters[0].work += n
        waiting = s.value[0] > known
        known = s.value[0]
        for w in range(flag.shape[1]):
            waiting = waiting or (flag[RAISED, w] | flag[ARC, w] | flag[DIRECTED, w] | flag[LOOSE, w]) != 0
        if not waiting or s.counters[0].work - begin > LONG:
            return True
    return True
