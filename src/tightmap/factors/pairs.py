"""Plain pairs: the kinds that models of pairs consist of, on bare numbers, to be inlined into loops over factors.

``kernels.py`` takes a factor of any kind and arity, at the price of a call with the whole graph.  Sweeps over pairwise
models send a message, or ask for a cost, every few nanoseconds, so the common kinds are written out here.  Messages are
out(t) = min_s h(s) + cost(s, t), with the eight lanes of runtime/simd.py running over labels wherever there are at
least eight (the last block overlaps the one before, which does not matter for a minimum).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Kind
from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import LANES, get, lane_min, load, minimum, put, splat, store

DENSE, POTTS, LINEAR, QUADRATIC = int(Kind.DENSE), int(Kind.POTTS), int(Kind.LINEAR), int(Kind.QUADRATIC)
PLAIN = (DENSE, POTTS, LINEAR, QUADRATIC)
LAST_TABLE, LAST_PLAIN = max(DENSE, POTTS), max(PLAIN)
assert sorted(PLAIN) == list(range(LAST_PLAIN + 1)) and LAST_TABLE == 1  # one comparison tells
FAST = {"contract", "nsz"}


@compiled(inline="always")
def is_plain(kind):
    """Whether factors of two variables of this kind are plain pairs."""
    return kind <= LAST_PLAIN


@compiled(inline="always")
def plain_cost(kind, weight, params, param, wide, s, t):
    """Cost of a plain pair at labels s and t; ``wide`` is the label count of the second variable."""
    if kind == POTTS:
        return weight if s != t else 0.0
    if kind == DENSE:
        return weight * params[param + s * wide + t]
    d = float(abs(s - t))
    if kind == QUADRATIC:
        d *= d
    return weight * min(d, params[param])


@compiled(_nrt=False, forceinline=True)
def lowest(h, c):
    """min h(0), ..., h(c - 1)."""
    if c >= LANES:
        v = load(h, c - LANES)
        for o in range(0, c - LANES, LANES):
            v = minimum(v, load(h, o))
        return lane_min(v)
    low = get(h, 0)
    for s in range(1, c):
        u = get(h, s)
        low = u if u < low else low
    return low


@compiled(_nrt=False, forceinline=True)
def add_to(total, messages, base, c):
    """total += messages[base : base + c]; returns the largest absolute value added."""
    largest = 0.0
    for s in range(c):
        v = get(messages, base + s)
        put(total, s, get(total, s) + v)
        v = abs(v)
        largest = v if v > largest else largest
    return largest


@compiled(_nrt=False, forceinline=True)
def _potts(w, h, c, d, out):
    if w >= 0.0:
        cap = lowest(h, c) + w
        for t in range(min(c, d)):
            u = get(h, t)
            put(out, t, u if u < cap else cap)
        for t in range(c, d):
            put(out, t, cap)
        return
    first = np.inf
    second = np.inf
    where = -1
    for s in range(c):
        u = get(h, s)
        if u < first:
            first, second, where = u, first, s
        elif u < second:
            second = u
    for t in range(d):
        other = w + (second if t == where else first)
        if t < c:
            u = get(h, t)
            other = u if u < other else other
        put(out, t, other)


@compiled(_nrt=False, forceinline=True, fastmath=FAST)
def _dense_from_first(table, base, w, h, c, d, out):
    """out(t) = min_s h(s) + w table[s, t]: row after row."""
    if d >= LANES:
        weight = splat(w)
        for block in range(0, d, LANES):
            o = min(block, d - LANES)
            best = splat(np.inf)
            for s in range(c):
                best = minimum(best, load(table, base + s * d + o) * weight + splat(get(h, s)))
            store(out, o, best)
        return
    for t in range(d):
        put(out, t, np.inf)
    for s in range(c):
        u = get(h, s)
        for t in range(d):
            v = u + w * get(table, base + s * d + t)
            if v < get(out, t):
                put(out, t, v)


@compiled(_nrt=False, forceinline=True, fastmath=FAST)
def _dense_from_second(table, base, w, h, c, d, out):
    """out(t) = min_s h(s) + w table[t, s]: a minimum along every row."""
    weight = splat(w)
    for t in range(d):
        row = base + t * c
        if c >= LANES:
            best = load(table, row + c - LANES) * weight + load(h, c - LANES)
            for o in range(0, c - LANES, LANES):
                best = minimum(best, load(table, row + o) * weight + load(h, o))
            put(out, t, lane_min(best))
        else:
            low = np.inf
            for s in range(c):
                v = get(h, s) + w * get(table, row + s)
                low = v if v < low else low
            put(out, t, low)


@compiled(_nrt=False, forceinline=True)
def table_message(kind, p, params, param, w, h, c, d, out):
    """The message of a Potts or dense edge from the variable at position p (c labels, vector h) to the other (d)."""
    if kind == POTTS:
        _potts(w, h, c, d, out)
    elif p == 0:
        _dense_from_first(params, param, w, h, c, d, out)
    else:
        _dense_from_second(params, param, w, h, c, d, out)


@compiled(_nrt=False, forceinline=True)
def add_plain_row(kind, p, params, param, w, other, c, d, cost):
    """cost(s) += cost of a plain pair between label s of the variable at position p and label ``other``."""
    if kind == DENSE:
        if p == 0:
            for s in range(c):
                put(cost, s, get(cost, s) + w * get(params, param + s * d + other))
        else:
            for s in range(c):
                put(cost, s, get(cost, s) + w * get(params, param + other * c + s))
    elif kind == POTTS:
        for s in range(c):
            put(cost, s, get(cost, s) + (0.0 if s == other else w))
    else:
        limit = get(params, param)
        for s in range(c):
            u = abs(float(s - other))
            u = u * u if kind == QUADRATIC else u
            put(cost, s, get(cost, s) + w * (u if u < limit else limit))
