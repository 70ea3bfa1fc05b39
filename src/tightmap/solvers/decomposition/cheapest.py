"""The cheapest labelling of one factor under costs of its variables: the only question that AD3 asks a factor.

    argmin over x of  theta_f(x) + sum_p h_p(x_p)

Potts pairs answer in O(S) and dense tables in one pass; every other kind through its own min-marginals, one position
after the other.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.kernels import minmarg, value
from tightmap.graph.graph import Kind
from tightmap.runtime.compiled import lean

DENSE, POTTS = int(Kind.DENSE), int(Kind.POTTS)


@lean
def _cheapest_potts(c, d, weight, h, i, j, own):
    """Either both take a label together, or each its own best one.

    Where disagreement is rewarded and both like the same label best, one of them moves to its second best.
    """
    same = np.inf
    together = 0
    for s in range(min(c, d)):
        v = h[i + s] + h[j + s]
        if v < same:
            same = v
            together = s
    a = b = 0
    for s in range(1, c):
        a = s if h[i + s] < h[i + a] else a
    for s in range(1, d):
        b = s if h[j + s] < h[j + b] else b
    if a == b and weight < 0.0:
        a2 = 1 if a == 0 else 0
        b2 = 1 if b == 0 else 0
        for s in range(c):
            a2 = s if s != a and h[i + s] < h[i + a2] else a2
        for s in range(d):
            b2 = s if s != b and h[j + s] < h[j + b2] else b2
        if h[i + a2] - h[i + a] <= h[j + b2] - h[j + b]:
            a = a2
        else:
            b = b2
    if a == b or same <= h[i + a] + h[j + b] + weight:
        own[0] = together
        own[1] = together
    else:
        own[0] = a
        own[1] = b


@lean
def _cheapest_dense(g, f, h, start, own, digit):
    """One pass over the table; ``digit`` counts through the labels of all positions but the last."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    c = g.cards[g.scope[a + k - 1]]
    w = g.weight[f]
    rows = 1
    for p in range(k - 1):
        rows *= g.cards[g.scope[a + p]]
        digit[p] = 0
    tail = start[k - 1]
    t = g.param[f]
    best = np.inf
    for _ in range(rows):
        part = 0.0
        for p in range(k - 1):
            part += h[start[p] + digit[p]]
        where = -1
        for s in range(c):
            v = part + (w * g.params[t + s] + h[tail + s])
            if v < best:
                best = v
                where = s
        if where >= 0:
            for p in range(k - 1):
                own[p] = digit[p]
            own[k - 1] = where
        t += c
        for p in range(k - 2, -1, -1):
            digit[p] += 1
            if digit[p] < g.cards[g.scope[a + p]]:
                break
            digit[p] = 0


@lean
def _cheapest_of_any_kind(g, f, h, start, own, held, at, out, work):
    """One position after the other takes the best label of its min-marginal given those before it."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    end = 0
    for p in range(k):
        at[p] = end
        c = g.cards[g.scope[a + p]]
        for s in range(c):
            held[end + s] = h[start[p] + s]
        end += c
    for p in range(k):
        minmarg(g, f, p, held, at, out, work)
        best = np.inf
        own[p] = 0
        c = g.cards[g.scope[a + p]]
        for s in range(c):
            v = out[s] + held[at[p] + s]
            if v < best:
                best = v
                own[p] = s
        for s in range(c):
            if s != own[p]:
                held[at[p] + s] = np.inf


@lean
def cheapest(g, f, h, start, own, held, at, out, work):
    """Labels ``own`` of the positions of factor f that minimise its cost plus h[start[p] + label]."""
    a = g.scope_start[f]
    for p in range(g.scope_start[f + 1] - a):
        own[p] = 0  # labels whatever h is: none is the cheapest where all sums are NaN
    if g.kind[f] == POTTS:
        _cheapest_potts(g.cards[g.scope[a]], g.cards[g.scope[a + 1]], g.weight[f], h, start[0], start[1], own)
    elif g.kind[f] == DENSE:
        _cheapest_dense(g, f, h, start, own, at)
    else:
        _cheapest_of_any_kind(g, f, h, start, own, held, at, out, work)


@lean
def cost_of(g, f, own, labels):
    """Cost of factor f at the labels ``own`` of its positions; ``labels`` is scratch for all variables."""
    a = g.scope_start[f]
    for p in range(g.scope_start[f + 1] - a):
        labels[g.scope[a + p]] = own[p]
    return value(g, f, labels)
