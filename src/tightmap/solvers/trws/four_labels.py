"""Visits of variables with four labels between Potts edges of positive weight, with all sums in registers.

Image models with few labels spend their time on loading and storing sums of four numbers, not on computing.  These
functions do the same operations in the same order as those of general.py, so that results are the same bit by bit;
``edges`` are pointers to the edges of the variables, and to what is known of each (see general.half_sweep).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import get, put

inline = compiled(_nrt=False, forceinline=True)


@inline
def _least(a, b, c, d):
    a, c = a if a < b else b, c if c < d else d
    return a if a < c else c


@inline
def _most(a, b, c, d):
    a, c = a if a > b else b, c if c > d else d
    return a if a > c else c


@inline
def round_four(unary, o, edges, scope, adj_pos, x, begin, end, towards):
    """The best label given the neighbours labelled before and the messages of the others, and what it costs."""
    messages, start, adj_factor, later, weight = edges
    m0 = m1 = m2 = m3 = 0.0
    c0, c1, c2, c3 = get(unary, o), get(unary, o + 1), get(unary, o + 2), get(unary, o + 3)
    for a in range(begin, end):
        f = np.int64(get(adj_factor, a))
        if get(later, a) == towards:
            base = get(start, f)
            m0, m1 = m0 + get(messages, base), m1 + get(messages, base + 1)
            m2, m3 = m2 + get(messages, base + 2), m3 + get(messages, base + 3)
        else:
            w, other = get(weight, f), get(x, get(scope, 2 * f + 1 - np.int64(get(adj_pos, a))))
            c0 += 0.0 if other == 0 else w
            c1 += 0.0 if other == 1 else w
            c2 += 0.0 if other == 2 else w
            c3 += 0.0 if other == 3 else w
    best, low, paid = 0, m0 + c0, c0
    if m1 + c1 < low:
        best, low, paid = 1, m1 + c1, c1
    if m2 + c2 < low:
        best, low, paid = 2, m2 + c2, c2
    if m3 + c3 < low:
        best, low, paid = 3, m3 + c3, c3
    return best, paid


@inline
def visit_four(unary, o, edges, begin, end, towards, gamma, earlier, bound, size):
    """Gather the messages of all neighbours and send to the later or earlier ones; the bound and size with them."""
    messages, start, adj_factor, later, weight = edges
    t0, t1, t2, t3 = get(unary, o), get(unary, o + 1), get(unary, o + 2), get(unary, o + 3)
    largest = _most(abs(t0), abs(t1), abs(t2), abs(t3))
    for a in range(begin, end):
        base = get(start, get(adj_factor, a))
        m0, m1, m2, m3 = get(messages, base), get(messages, base + 1), get(messages, base + 2), get(messages, base + 3)
        t0, t1, t2, t3 = t0 + m0, t1 + m1, t2 + m2, t3 + m3
        largest += _most(abs(m0), abs(m1), abs(m2), abs(m3))
    if towards == 0:
        low = _least(t0, t1, t2, t3)
        if earlier * gamma != 1.0:  # the part of the sum that stays at the node
            bound += (1.0 - gamma * earlier) * low
        size += 4.0 * (end - begin + 2) * largest + abs(low)
    t0, t1, t2, t3 = gamma * t0, gamma * t1, gamma * t2, gamma * t3
    for a in range(begin, end):
        if get(later, a) != towards:
            continue
        f = np.int64(get(adj_factor, a))
        base = get(start, f)
        h0, h1 = t0 - get(messages, base), t1 - get(messages, base + 1)
        h2, h3 = t2 - get(messages, base + 2), t3 - get(messages, base + 3)
        delta = _least(h0, h1, h2, h3)
        cap = delta + get(weight, f)
        h0, h1 = (h0 if h0 < cap else cap) - delta, (h1 if h1 < cap else cap) - delta
        h2, h3 = (h2 if h2 < cap else cap) - delta, (h3 if h3 < cap else cap) - delta
        put(messages, base, h0)
        put(messages, base + 1, h1)
        put(messages, base + 2, h2)
        put(messages, base + 3, h3)
        bound += delta
        size += 16.0 * (2.0 * largest + abs(delta) + _most(h0, h1, h2, h3))
    return bound, size
