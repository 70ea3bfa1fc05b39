"""Kernels of sparse tables: all go through the list of exceptions, never through the table.

The keys are sorted, so that the labels of all positions but the last, and of all but the last two, change rarely from
one exception to the next: what these contribute is kept.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.dense import dense_key, largest_gap, slice_keys
from tightmap.runtime.compiled import lean


@lean
def sparse_lookup(g, f, key):
    """Cost of one C-order key by bisection, without the weight."""
    i = g.iparam[f]
    lo = 0
    hi = g.ints[i]
    while lo < hi:
        mid = (lo + hi) // 2
        if g.ints[i + 1 + mid] < key:
            lo = mid + 1
        else:
            hi = mid
    if lo < g.ints[i] and g.ints[i + 1 + lo] == key:
        return g.params[g.param[f] + 1 + lo]
    return g.params[g.param[f]]


@lean
def sparse_value(g, f, labels):
    return g.weight[f] * sparse_lookup(g, f, dense_key(g, f, labels))


@lean
def sparse_add_slice(g, f, pos, labels, out, scale):
    base, step = slice_keys(g, f, pos, labels)
    w = scale * g.weight[f]
    for s in range(g.cards[g.scope[g.scope_start[f] + pos]]):
        out[s] += w * sparse_lookup(g, f, base + s * step)


@lean
def sparse_contract(g, f, pos, x, start, out, work):
    """default * prod sum(x_j), plus every exception where it differs from the default."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = g.weight[f]
    default = g.params[g.param[f]]
    mass = w * default
    for p in range(k):
        if p != pos:
            total = 0.0
            for s in range(g.cards[g.scope[a + p]]):
                total += x[start[p] + s]
            mass *= total
    for s in range(n):
        out[s] += mass
    i = g.iparam[f]
    t = g.param[f] + 1
    last, next_to_last = np.uint64(g.cards[g.scope[a + k - 1]]), np.uint64(g.cards[g.scope[a + k - 2]])
    row = top = np.uint64(1 << 63)  # the labels of all but the last, and of all but the last two; none yet
    rest = above = w
    own = 0
    for e in range(g.ints[i]):
        key = np.uint64(g.ints[i + 1 + e])
        upper = key // last
        l = np.int64(key - upper * last)
        if upper != row:
            row = upper
            upper = row // next_to_last
            here = np.int64(row - upper * next_to_last)
            if upper != top:
                top = upper
                above = w
                for p in range(k - 3, -1, -1):
                    c = np.uint64(g.cards[g.scope[a + p]])
                    digit = np.int64(upper % c)
                    upper //= c
                    if p == pos:
                        own = digit
                    else:
                        above *= x[start[p] + digit]
            if pos == k - 2:
                own = here
                rest = above
            else:
                rest = above * x[start[k - 2] + here]
        if pos == k - 1:
            out[l] += rest * (g.params[t + e] - default)
        else:
            out[own] += rest * x[start[k - 1] + l] * (g.params[t + e] - default)


@lean
def _order_labels(h, at, count, order):
    """order = the labels 0..count-1 by increasing h[at + label] (heap sort: no scratch space, never slow)."""
    for s in range(count):
        order[s] = s
    end = count
    root = count // 2
    while end > 1:
        if root > 0:
            root -= 1
        else:
            end -= 1
            order[0], order[end] = order[end], order[0]
        parent = root
        while True:
            child = 2 * parent + 1
            if child >= end:
                break
            if child + 1 < end and h[at + int(order[child])] < h[at + int(order[child + 1])]:
                child += 1
            if h[at + int(order[parent])] >= h[at + int(order[child])]:
                break
            order[parent], order[child] = order[child], order[parent]
            parent = child


@lean
def _cheapest_default(g, f, pos, s, h, start, limit, work):
    """The smallest sum of the vectors of the other positions, below ``limit``, at which the default cost is to be had.

    Position ``pos`` has label s.  Labellings are tried depth first, labels from the cheapest on, and a branch ends when
    its cheapest continuation is not below the best so far.  So hardly more labellings are looked at than there are
    exceptions, dearer than the default, below the answer.
    """
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    widest = 0
    for p in range(k):
        widest = max(widest, g.cards[g.scope[a + p]])
    tried = work[k * widest : k * widest + k]  # which of its labels, in order, a position has now
    spent = work[k * widest + k : k * widest + 2 * k + 1]  # by the positions before
    left = work[k * widest + 2 * k + 1 : k * widest + 3 * k + 2]  # that this and the positions after it spend at least
    left[k] = 0.0
    for p in range(k - 1, -1, -1):
        left[p] = left[p + 1]
        if p != pos:
            left[p] += h[start[p] + int(work[p * widest])]
    w = g.weight[f]
    dear = w * g.params[g.param[f]]
    spent[0] = 0.0
    tried[0] = -1.0
    p = 0
    while p >= 0:
        tried[p] += 1.0
        r = int(tried[p])
        if r >= (1 if p == pos else g.cards[g.scope[a + p]]):
            p -= 1
            continue
        here = 0.0 if p == pos else h[start[p] + int(work[p * widest + r])]
        spent[p + 1] = spent[p] + here
        if not spent[p + 1] + left[p + 1] < limit:
            p -= 1
            continue
        if p + 1 < k:
            p += 1
            tried[p] = -1.0
            continue
        key = 0
        for q in range(k):
            l = s if q == pos else int(work[q * widest + int(tried[q])])
            key = key * g.cards[g.scope[a + q]] + l
        if w * sparse_lookup(g, f, key) <= dear:
            limit = spent[k]
    return limit


@lean
def sparse_minmarg(g, f, pos, h, start, out, work):
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = g.weight[f]
    default = w * g.params[g.param[f]]
    i = g.iparam[f]
    t = g.param[f] + 1
    total = 0.0
    for p in range(k):
        if p != pos:
            low = np.inf
            for s in range(g.cards[g.scope[a + p]]):
                v = h[start[p] + s]
                low = v if v < low else low
            total += low
    for s in range(n):
        out[s] = np.inf
    dearer = False
    last, next_to_last = np.uint64(g.cards[g.scope[a + k - 1]]), np.uint64(g.cards[g.scope[a + k - 2]])
    row = top = np.uint64(1 << 63)  # the labels of all but the last, and of all but the last two; none yet
    rest = above = 0.0
    own = 0
    for e in range(g.ints[i]):
        key = np.uint64(g.ints[i + 1 + e])
        upper = key // last
        l = np.int64(key - upper * last)
        if upper != row:
            row = upper
            upper = row // next_to_last
            here = np.int64(row - upper * next_to_last)
            if upper != top:
                top = upper
                above = 0.0
                for p in range(k - 3, -1, -1):
                    c = np.uint64(g.cards[g.scope[a + p]])
                    digit = np.int64(upper % c)
                    upper //= c
                    if p == pos:
                        own = digit
                    else:
                        above += h[start[p] + digit]
            if pos == k - 2:
                own = here
                rest = above
            else:
                rest = above + h[start[k - 2] + here]
        v = w * g.params[t + e]
        dearer |= v > default
        v += rest
        if pos == k - 1:
            own = l
        else:
            v += h[start[k - 1] + l]
        if v < out[own]:
            out[own] = v
    if total == np.inf:
        return
    if dearer:
        widest = 0
        for p in range(k):
            widest = max(widest, g.cards[g.scope[a + p]])
        for p in range(k):
            if p != pos:
                _order_labels(h, start[p], g.cards[g.scope[a + p]], work[p * widest : (p + 1) * widest])
    for s in range(n):
        v = total
        if dearer:
            v = _cheapest_default(g, f, pos, s, h, start, out[s] - default, work)
        if default + v < out[s]:
            out[s] = default + v


@lean
def sparse_tabulate(g, f, size, table):
    w = g.weight[f]
    t = g.param[f]
    for x in range(size):
        table[x] = w * g.params[t]
    i = g.iparam[f]
    for e in range(g.ints[i]):
        table[g.ints[i + 1 + e]] = w * g.params[t + 1 + e]


@lean
def sparse_spread(g, f):
    return abs(g.weight[f]) * largest_gap(g.params, g.param[f], g.param[f] + 1 + g.ints[g.iparam[f]])
