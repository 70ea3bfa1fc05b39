"""Messages of pairs and small tables, inlined into the sweeps over a region graph.

``neg`` are the negated messages of the region graph, read and written through pointers (simd.pointer).  Every function
does the same operations in the same order as the kernels of factors/ and ``kernels.marginal``, so results are the same
bit by bit; with eight labels or more the lanes of runtime/simd.py do the work, and loops over two or four labels are
called with that number as a constant, which unrolls them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import LANES, get, lane_min, load, minimum, put, splat, store
from tightmap.solvers.regions.plan import COUNTED, SHARE_BACKWARD

inline = compiled(_nrt=False, forceinline=True)


@inline
def least_of(h, at, c):
    """min h[at], ..., h[at + c - 1]."""
    if c >= LANES:
        v = load(h, at + c - LANES)
        for o in range(0, c - LANES, LANES):
            v = minimum(v, load(h, at + o))
        return lane_min(v)
    low = get(h, at)
    for s in range(1, c):
        v = get(h, at + s)
        low = v if v < low else low
    return low


@inline
def largest_of(h, at, c):
    """The largest absolute value of h[at], ..., h[at + c - 1]."""
    high = 0.0
    for s in range(c):
        v = abs(get(h, at + s))
        high = v if v > high else high
    return high


@inline
def _subtract(theta, neg, a, n):
    for s in range(n):
        put(theta, s, get(theta, s) - get(neg, a + s))


@inline
def subtract(theta, neg, a, n):
    """theta -= neg[a : a + n]."""
    if n == 2:
        _subtract(theta, neg, a, 2)
    elif n == 4:
        _subtract(theta, neg, a, 4)
    else:
        _subtract(theta, neg, a, n)


@inline
def _add(neg, a, share, n):
    for s in range(n):
        put(neg, a + s, get(neg, a + s) + get(share, s))


@inline
def add(neg, a, share, n):
    """neg[a : a + n] += share."""
    if n == 2:
        _add(neg, a, share, 2)
    elif n == 4:
        _add(neg, a, share, 4)
    else:
        _add(neg, a, share, n)


@inline
def _take(out, neg, a, theta, n):
    low = least_of(out, 0, n)
    for s in range(n):
        v = low - get(out, s)
        put(neg, a + s, v)
        put(theta, s, get(theta, s) - v)
    return low


@inline
def take(out, neg, a, theta, n):
    """The min-marginal ``out`` less its minimum becomes the message, and is added to theta; returns the minimum."""
    if n == 2:
        return _take(out, neg, a, theta, 2)
    if n == 4:
        return _take(out, neg, a, theta, 4)
    return _take(out, neg, a, theta, n)


@inline
def _potts_square(neg, at, w, a, theta, n):
    low = least_of(neg, at, n)
    cap = low + w
    for s in range(n):
        v = get(neg, at + s)
        v = low - (v if v < cap else cap)
        put(neg, a + s, v)
        put(theta, s, get(theta, s) - v)
    return low


@inline
def take_potts(neg, at, c, w, a, theta, n, out):
    """Send a Potts message and take it, in one go where both variables have n labels and the weight is positive."""
    if c == n and w >= 0.0:
        if n == 2:
            return _potts_square(neg, at, w, a, theta, 2)
        if n == 4:
            return _potts_square(neg, at, w, a, theta, 4)
        return _potts_square(neg, at, w, a, theta, n)
    send_potts(neg, at, c, w, n, out)
    return _take(out, neg, a, theta, n)


@inline
def send_potts(neg, at, c, w, n, out):
    """min(h(s), min over t != s of h(t), + w) for h = neg[at : at + c]."""
    first = np.inf
    second = np.inf
    where = -1
    for t in range(c):
        v = get(neg, at + t)
        if v < first:
            first, second, where = v, first, t
        elif v < second:
            second = v
    for s in range(n):
        v = (second if s == where else first) + w
        if s < c:
            u = get(neg, at + s)
            v = u if u < v else v
        put(out, s, v)


@inline
def _send(params, t, w, neg, at, c, n, step, other, out):
    """out(s) = min over r of w table + h(r), where the table goes on by ``step`` with s and by ``other`` with r."""
    for s in range(n):
        low = np.inf
        for r in range(c):
            v = w * get(params, t + s * step + r * other) + get(neg, at + r)
            low = v if v < low else low
        put(out, s, low)


@inline
def send_rows(params, t, w, neg, at, c, n, out):
    """out(s) = min over r of w table[s, r] + h(r): a minimum along every row."""
    if c >= LANES:
        weight = splat(w)
        for s in range(n):
            row = t + s * c
            best = weight * load(params, row + c - LANES) + load(neg, at + c - LANES)
            for o in range(0, c - LANES, LANES):
                best = minimum(best, weight * load(params, row + o) + load(neg, at + o))
            put(out, s, lane_min(best))
    elif c == 2 and n == 2:
        _send(params, t, w, neg, at, 2, 2, 2, 1, out)
    elif c == 4 and n == 4:
        _send(params, t, w, neg, at, 4, 4, 4, 1, out)
    else:
        _send(params, t, w, neg, at, c, n, c, 1, out)


@inline
def send_columns(params, t, w, neg, at, c, n, out):
    """out(s) = min over r of w table[r, s] + h(r): row after row."""
    if n >= LANES:
        weight = splat(w)
        for block in range(0, n, LANES):
            o = min(block, n - LANES)
            best = splat(np.inf)
            for r in range(c):
                best = minimum(best, weight * load(params, t + r * n + o) + splat(get(neg, at + r)))
            store(out, o, best)
    elif c == 2 and n == 2:
        _send(params, t, w, neg, at, 2, 2, 1, 2, out)
    elif c == 4 and n == 4:
        _send(params, t, w, neg, at, 4, 4, 1, 4, out)
    else:
        _send(params, t, w, neg, at, c, n, 1, n, out)


@inline
def _triple(table, t, w, neg, a, b, begin_a, end_a, begin_b, end_b, step, step_a, step_b, n, out):
    for s in range(n):
        low = np.inf
        for y in range(begin_b, end_b):
            best = np.inf
            for x in range(begin_a, end_a):
                v = w * get(table, t + s * step + x * step_a + y * step_b) + get(neg, a + x)
                best = v if v < best else best
            best += get(neg, b + y)
            low = best if best < low else low
        put(out, s, low)


@inline
def send_triple(table, t, w, neg, a, b, begin_a, end_a, begin_b, end_b, step, step_a, step_b, n, out):
    """out(s) = min over ranges of x and y of w table[t + s step + x step_a + y step_b] + h_a(x) + h_b(y)."""
    if n == 2 and begin_a == 0 and end_a == 2 and begin_b == 0 and end_b == 2:
        _triple(table, t, w, neg, a, b, 0, 2, 0, 2, step, step_a, step_b, 2, out)
    else:
        _triple(table, t, w, neg, a, b, begin_a, end_a, begin_b, end_b, step, step_a, step_b, n, out)


@inline
def _product(neg, a, b, step_x, over_x, step_y, over_y, na, nb, nz, out):
    for x in range(na):
        for y in range(nb):
            low = np.inf
            for z in range(nz):
                v = get(neg, a + x * step_x + z * over_x) + get(neg, b + y * step_y + z * over_y)
                low = v if v < low else low
            put(out, x * nb + y, low)


@inline
def send_product(neg, a, b, step_x, over_x, step_y, over_y, na, nb, nz, out):
    """out(x, y) = min over z of h_a(x, z) + h_b(y, z), which start at a and b and go on by steps with x, y and z."""
    if step_y == 1 and nb >= LANES:
        for x in range(na):
            for block in range(0, nb, LANES):
                o = min(block, nb - LANES)
                best = splat(np.inf)
                for z in range(nz):
                    v = splat(get(neg, a + x * step_x + z * over_x))
                    best = minimum(best, v + load(neg, b + z * over_y + o))
                store(out, x * nb + o, best)
    elif over_x == 1 and over_y == 1 and nz >= LANES:
        for x in range(na):
            for y in range(nb):
                first, second = a + x * step_x, b + y * step_y
                best = load(neg, first + nz - LANES) + load(neg, second + nz - LANES)
                for o in range(0, nz - LANES, LANES):
                    best = minimum(best, load(neg, first + o) + load(neg, second + o))
                put(out, x * nb + y, lane_min(best))
    elif na == 2 and nb == 2 and nz == 2:
        _product(neg, a, b, step_x, over_x, step_y, over_y, 2, 2, 2, out)
    else:
        _product(neg, a, b, step_x, over_x, step_y, over_y, na, nb, nz, out)


@inline
def visit_four(unary, o, messages, begin, end, sending, sharing, part, remaining, bound):
    """A whole visit of a variable of four labels between Potts pairs of positive weights, with its sums in registers.

    Returns the bound with what the visit adds to it; remaining < 0: it adds nothing of its own.
    """
    neg, acts, owns, others, weights = messages
    t0, t1, t2, t3 = get(unary, o), get(unary, o + 1), get(unary, o + 2), get(unary, o + 3)
    for k in range(begin, end):
        act, a = np.int64(get(acts, k)), get(owns, k)
        if act & sending:
            at = get(others, k)
            v0, v1, v2, v3 = get(neg, at), get(neg, at + 1), get(neg, at + 2), get(neg, at + 3)
            low, also = v0 if v0 < v1 else v1, v2 if v2 < v3 else v3
            low = low if low < also else also
            cap = low + get(weights, k)
            v0 = low - (v0 if v0 < cap else cap)
            v1 = low - (v1 if v1 < cap else cap)
            v2 = low - (v2 if v2 < cap else cap)
            v3 = low - (v3 if v3 < cap else cap)
            put(neg, a, v0)
            put(neg, a + 1, v1)
            put(neg, a + 2, v2)
            put(neg, a + 3, v3)
            if act & COUNTED:
                bound += low
        else:
            v0, v1, v2, v3 = get(neg, a), get(neg, a + 1), get(neg, a + 2), get(neg, a + 3)
        t0, t1, t2, t3 = t0 - v0, t1 - v1, t2 - v2, t3 - v3
        remaining -= act // SHARE_BACKWARD % 2
    if remaining >= 0.0:
        low, also = t0 if t0 < t1 else t1, t2 if t2 < t3 else t3
        bound += remaining * part * (low if low < also else also)
    t0, t1, t2, t3 = part * t0, part * t1, part * t2, part * t3
    for k in range(begin, end):
        if np.int64(get(acts, k)) & sharing:
            a = get(owns, k)
            put(neg, a, get(neg, a) + t0)
            put(neg, a + 1, get(neg, a + 1) + t1)
            put(neg, a + 2, get(neg, a + 2) + t2)
            put(neg, a + 3, get(neg, a + 3) + t3)
    return bound
