"""Subproblems minimised exactly by dynamic programming (all kernels take a range of subproblems).

A tree is eliminated from its leaves: with c_i = u_i + sum of the messages to i so far, the factor f sends

    m_{f->r}(x_r) = min over the other members of theta_f(x_f) + sum_{j != r} c_j(x_j)

to its member r nearest to the root, and min E_T = min c_root.  On the way back every member takes the label that
attains the minimum.  Chains: see ``chains.py``.

Rounding.  The value that is computed is the minimum over labellings x of sums of the terms of x, in a fixed order.
With N additions per labelling, none of a result larger than the sum of the absolute values of the terms, it is above
the true minimum by at most u N sum |terms of the minimiser| <= u N (|min| + 2 sum of how far terms can be below zero).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.kernels import add_slice, argmin, labellings, minmarg, most_labels
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.solvers.decomposition.subproblems import TREE


@lean
def _negative_part(u, at, begin, end):
    """Sum over places of how far below zero their costs go."""
    total = 0.0
    for q in range(begin, end):
        low = 0.0
        for s in range(at[q], at[q + 1]):
            low = u[s] if u[s] < low else low
        total -= low
    return total


@lean
def up_tree(g, sub, t, cost, sent, keep, start, out, work, until):
    """Messages from the leaves to the root, added to the costs of the members; kept in ``sent`` if wanted.

    False if time was up before the root was reached.
    """
    spent = 0.0
    at, towards, member_start, member = sub.at, sub.towards, sub.member_start, sub.member
    for e in range(sub.entry_start[t], sub.entry_start[t + 1]):
        spent += 50.0 + labellings(g, sub.factor[e])
        if spent > LOOK:
            spent = 0.0
            if late(until):
                return False
        first = member_start[e]
        for p in range(member_start[e + 1] - first):
            start[p] = at[member[first + p]]
        minmarg(g, sub.factor[e], towards[e], cost, start, out, work)
        base = start[towards[e]]
        q = member[first + towards[e]]
        for s in range(at[q + 1] - base):
            cost[base + s] += out[s]
        if keep:
            for s in range(at[q + 1] - base):
                sent[sub.sent_at[e] + s] = out[s]
    return True


@compiled
def _tree(g, sub, t, cost, x, labels, start, own, out, work, until):
    """The minimum of a tree and the labels that attain it; -inf when time was up."""
    if not up_tree(g, sub, t, cost, cost, False, start, out, work, until):
        return -np.inf
    at, variable, member_start, member = sub.at, sub.variable, sub.member_start, sub.member
    q = sub.place_start[t]  # the root
    best = 0
    for s in range(1, at[q + 1] - at[q]):
        if cost[at[q] + s] < cost[at[q] + best]:
            best = s
    low = cost[at[q] + best]
    x[q] = best
    labels[variable[q]] = best
    for e in range(sub.entry_start[t + 1] - 1, sub.entry_start[t] - 1, -1):
        first = member_start[e]
        k = member_start[e + 1] - first
        if k == 2:
            p = 1 - sub.towards[e]
            q = member[first + p]
            base = at[q]
            count = at[q + 1] - base
            for s in range(count):
                out[s] = cost[base + s]
            add_slice(g, sub.factor[e], p, labels, out, 1.0)
            best = 0
            for s in range(1, count):
                if out[s] < out[best]:
                    best = s
            x[q] = best
            labels[variable[q]] = best
        else:
            for p in range(k):
                own[p] = -1
                start[p] = at[member[first + p]]
            own[sub.towards[e]] = x[member[first + sub.towards[e]]]
            argmin(g, sub.factor[e], cost, start, own, out, work)
            for p in range(k):
                q = member[first + p]
                x[q] = own[p]
                labels[variable[q]] = own[p]
    return low


@lean
def _chain(g, sub, t, u, x, labels, now, after, back, out, width):
    """A second-order chain; now and after hold M(a, b), back the best a of every (b, c)."""
    at, variable = sub.at, sub.variable
    begin, end = sub.place_start[t], sub.place_start[t + 1]
    e, last = sub.entry_start[t], sub.entry_start[t + 1]
    for q in range(begin + 1, end):
        d, c = at[q] - at[q - 1], at[q + 1] - at[q]
        j, k = variable[q - 1], variable[q]
        first = e  # entries that end here: pairs, then triples
        while e < last and sub.member[sub.member_start[e + 1] - 1] == q:
            e += 1
        triples = first
        while triples < e and sub.member_start[triples + 1] - sub.member_start[triples] == 2:
            triples += 1
        for b in range(d):
            for s in range(c):
                out[s] = u[at[q] + s]
                if q == begin + 1:
                    out[s] += u[at[q - 1] + b]
            labels[j] = b
            for o in range(first, triples):
                add_slice(g, sub.factor[o], 1, labels, out, 1.0)
            for s in range(c):
                after[b * width + s] = out[s]
        if q > begin + 1:
            a_count = at[q - 1] - at[q - 2]
            for b in range(d):
                labels[j] = b
                for s in range(c):
                    labels[k] = s
                    for a in range(a_count):
                        out[a] = now[a * width + b]
                    for o in range(triples, e):
                        add_slice(g, sub.factor[o], 0, labels, out, 1.0)
                    best = 0
                    for a in range(1, a_count):
                        if out[a] < out[best]:
                            best = a
                    after[b * width + s] += out[best]
                    back[((q - begin) * width + b) * width + s] = best
        for b in range(d):
            for s in range(c):
                now[b * width + s] = after[b * width + s]
    d, c = at[end - 1] - at[end - 2], at[end] - at[end - 1]
    low = np.inf
    for b in range(d):
        for s in range(c):
            if now[b * width + s] < low:
                low = now[b * width + s]
                x[end - 2], x[end - 1] = b, s
    for q in range(end - 1, begin + 1, -1):
        x[q - 2] = back[((q - begin) * width + x[q - 1]) * width + x[q]]
    return low


@compiled
def minimise(first, last, g, sub, u, cost, x, value, factors, error, scratch, left):
    """Minimisers x (labels of places) and minima of subproblems, the share of the factors in these, and the sizes
    of what rounding can have done to them.  Minima are -inf where time was up.
    """
    until = end_of(left)
    widest = max(scratch, most_labels(g.cards) + 1)
    out, work = np.empty(widest), np.empty(scratch)
    start, own = np.zeros(128, np.int64), np.zeros(128, np.int64)
    labels = np.zeros(len(g.cards), np.int64)
    width, longest = 1, 1
    for t in range(first, last):
        if sub.kind[t] != TREE:
            width = most_labels(g.cards)
            longest = max(longest, sub.place_start[t + 1] - sub.place_start[t])
    now, after = np.empty(width * width), np.empty(width * width)
    back = np.empty(longest * width * width, np.int16)
    for t in range(first, last):
        begin, end = sub.place_start[t], sub.place_start[t + 1]
        if late(until):
            value[t] = -np.inf
            continue
        if sub.kind[t] == TREE:
            for s in range(sub.at[begin], sub.at[end]):
                cost[s] = u[s]
            low = _tree(g, sub, t, cost, x, labels, start, own, out, work, until)
        else:
            low = _chain(g, sub, t, u, x, labels, now, after, back, out, width)
        value[t] = low
        for q in range(begin, end):
            low -= u[sub.at[q] + x[q]]
        factors[t] = low
        error[t] = sub.terms[t] * (abs(value[t]) + 2.0 * (sub.below[t] + _negative_part(u, sub.at, begin, end)))
