"""Min-marginals of zero clusters whose parts are pairs: triplets and squares.

A zero cluster costs nothing itself; its reparametrised table is a sum of messages of pairs, so a min-marginal is a
small elimination (min-plus products) and the table of S^3 or S^4 entries is never formed.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.simd import LANES, get, load, minimum, pointer, put, splat, store

FEW = 8  # labels up to which squares are done in lanes, for which ``lane_room`` says what they need

inline = compiled(_nrt=False, forceinline=True)


@lean
def _min_plus(a, b, rows, inner, columns, out):
    """out[r, c] = min over t of a[r, t] + b[t, c]; the innermost loop runs along memory."""
    for r in range(rows):
        row = out[r * columns : (r + 1) * columns]
        for c in range(columns):
            row[c] = np.inf
        for t in range(inner):
            v = a[r * inner + t]
            for c in range(columns):
                u = v + b[t * columns + c]
                row[c] = u if u < row[c] else row[c]


@lean
def _transpose(a, rows, columns, out):
    for r in range(rows):
        for c in range(columns):
            out[c * rows + r] = a[r * columns + c]


@lean
def triplet_product(which, ij, ik, jk, ni, nj, nk, out, work):
    """Min-marginal of ij + ik + jk on pair 0 (ij), 1 (ik) or 2 (jk), without that pair's own term."""
    if which == 0:
        _transpose(jk, nj, nk, work)
        _min_plus(ik, work, ni, nk, nj, out)
    elif which == 1:
        _min_plus(ij, jk, ni, nj, nk, out)
    else:
        _transpose(ij, ni, nj, work)
        _min_plus(work, ik, nj, ni, nk, out)


@lean
def triplet_marginal(g, d, e, neg, out, work):
    """Min-marginal of a zero triplet (i, j, k) with edges to ij, ik, jk: one min-plus product of two messages."""
    r = d.source[e]
    a = d.out_start[r]
    s = d.scope_start[r]
    ni, nj, nk = g.cards[d.scope[s]], g.cards[d.scope[s + 1]], g.cards[d.scope[s + 2]]
    triplet_product(e - a, neg[d.at[a] :], neg[d.at[a + 1] :], neg[d.at[a + 2] :], ni, nj, nk, out, work)


@lean
def _take(neg, at, turned, rows, columns, to, work):
    """work[to + s * columns + t] = message of a pair that starts at ``at`` (turned: stored by columns); zero if < 0."""
    if at < 0:
        for x in range(rows * columns):
            work[to + x] = 0.0
    elif not turned:
        for x in range(rows * columns):
            work[to + x] = neg[at + x]
    else:
        for s in range(rows):
            for t in range(columns):
                work[to + s * columns + t] = neg[at + t * rows + s]


@lean
def _pick(p, q, at01, at02, at03, at12, at13, at23):
    """Where the message of the pair of positions p and q starts, -1 if there is no such pair."""
    code = 4 * min(p, q) + max(p, q)
    if code == 1:
        return at01
    if code == 2:
        return at02
    if code == 3:
        return at03
    if code == 6:
        return at12
    if code == 7:
        return at13
    return at23


def lane_room(labels: int) -> int:
    """Entries of scratch for a square in lanes, of so many labels."""
    few = min(labels, FEW)
    return (2 * few + 1) * (few * few + LANES)


@inline
def _spread(neg, first, second, turn_first, turn_second, na, nb, count, work, to, wide):
    """work[to + v wide + x nb + y] = first(x, v) + second(y, v), of messages by rows or turned; nothing where < 0."""
    step_x, over_x = (1, na) if turn_first else (count, 1)
    step_y, over_y = (1, nb) if turn_second else (count, 1)
    for v in range(count):
        for x in range(na):
            own = get(neg, first + x * step_x + v * over_x) if first >= 0 else 0.0
            at = to + v * wide + x * nb
            for y in range(nb):
                put(work, at + y, own + get(neg, second + y * step_y + v * over_y) if second >= 0 else own)


@inline
def _least_pairs(neg, at_cw, nc, nw, work, by_c, wide):
    """Behind the sums for w (from 0 on) and for c (from by_c on): min over both of sum_c + sum_w + message(c, w)."""
    result = by_c + nc * wide
    for o in range(0, wide, LANES):
        best = splat(np.inf)
        for u in range(nc):
            inner = splat(np.inf)
            for v in range(nw):
                both = get(neg, at_cw + u * nw + v) if at_cw >= 0 else 0.0
                inner = minimum(inner, load(work, v * wide + o) + splat(both))
            best = minimum(best, inner + load(work, by_c + u * wide + o))
        store(work, result + o, best)
    return result


@lean
def square_in_lanes(neg, at_ac, at_aw, at_bc, at_bw, at_cw, turned, na, nb, nc, nw, out, work):
    """Min-marginal on (a, b) of a square of few labels: all labels of a and b side by side in lanes.

    out(x, y) = min over u of [ac(x, u) + bc(y, u) + min over v of (aw(x, v) + bw(y, v) + cw(u, v))]

    at_..   where the messages of the other pairs start, -1 where there is no such pair
    turned  which of ac, aw, bc, bw are stored by columns, as bits (``turns``); a < b and c < w
    """
    turned_ac, turned_aw, turned_bc, turned_bw = turned & 1 > 0, turned & 2 > 0, turned & 4 > 0, turned & 8 > 0
    size = na * nb
    if na == 4 and nb == 4 and nc == 4 and nw == 4:  # constants unroll the loops
        _spread(neg, at_aw, at_bw, turned_aw, turned_bw, 4, 4, 4, work, 0, 16)
        _spread(neg, at_ac, at_bc, turned_ac, turned_bc, 4, 4, 4, work, 64, 16)
        result = _least_pairs(neg, at_cw, 4, 4, work, 64, 16)
    else:
        wide = (size + LANES - 1) // LANES * LANES
        for x in range(size, wide):  # lanes that nobody reads
            for v in range(nc + nw):
                put(work, v * wide + x, 0.0)
        _spread(neg, at_aw, at_bw, turned_aw, turned_bw, na, nb, nw, work, 0, wide)
        _spread(neg, at_ac, at_bc, turned_ac, turned_bc, na, nb, nc, work, nw * wide, wide)
        result = _least_pairs(neg, at_cw, nc, nw, work, nw * wide, wide)
    for x in range(size):
        put(out, x, get(work, result + x))


@inline
def turns(a, b, c, w):
    """Of which pairs of positions the second one comes first: their messages are read by columns."""
    return (a > c) | (a > w) << 1 | (b > c) << 2 | (b > w) << 3


@lean
def square_marginal(g, d, e, neg, out, work):
    """Min-marginal of a zero square on one of its pairs (a, b); c and w are the other two positions.

    Where a (or b) has no pair with c or w, that variable is eliminated once for all labels of a (or b).
    """
    r = d.source[e]
    at01 = at02 = at03 = at12 = at13 = at23 = np.int64(-1)
    for o in range(d.out_start[r], d.out_start[r + 1]):
        code = d.map_at[o]
        if code == 1:
            at01 = d.at[o]
        elif code == 2:
            at02 = d.at[o]
        elif code == 3:
            at03 = d.at[o]
        elif code == 6:
            at12 = d.at[o]
        elif code == 7:
            at13 = d.at[o]
        else:
            at23 = d.at[o]
    a, b = d.map_at[e] // 4, d.map_at[e] % 4
    c = 0
    while c == a or c == b:
        c += 1
    w = 6 - a - b - c
    at_ac = _pick(a, c, at01, at02, at03, at12, at13, at23)
    at_aw = _pick(a, w, at01, at02, at03, at12, at13, at23)
    at_bc = _pick(b, c, at01, at02, at03, at12, at13, at23)
    at_bw = _pick(b, w, at01, at02, at03, at12, at13, at23)
    at_cw = _pick(c, w, at01, at02, at03, at12, at13, at23)
    first = d.scope_start[r]
    na, nb = g.cards[d.scope[first + a]], g.cards[d.scope[first + b]]
    nc, nw = g.cards[d.scope[first + c]], g.cards[d.scope[first + w]]
    if max(na, nb, nc, nw) <= FEW:
        turned = turns(a, b, c, w)
        messages, room = pointer(neg), pointer(work)
        square_in_lanes(messages, at_ac, at_aw, at_bc, at_bw, at_cw, turned, na, nb, nc, nw, pointer(out), room)
        return
    if at_aw >= 0 and at_bw >= 0:
        c, w = w, c
        nc, nw = nw, nc
        at_ac, at_aw, at_bc, at_bw = at_aw, at_ac, at_bw, at_bc
    swapped = at_aw >= 0
    if swapped:
        a, b = b, a
        na, nb = nb, na
        at_ac, at_aw, at_bc, at_bw = at_bc, at_bw, at_ac, at_aw
    ac = 0
    aw = ac + na * nc
    bc = aw + na * nw
    bw = bc + nb * nc
    cw = bw + nb * nw
    rest = cw + nc * nw
    diagonal = at_aw >= 0
    _take(neg, at_ac, a > c, na, nc, ac, work)
    _take(neg, at_aw, a > w, na, nw, aw, work)
    _take(neg, at_bc, b > c, nb, nc, bc, work)
    _take(neg, at_bw, b > w, nb, nw, bw, work)
    _take(neg, at_cw, c > w, nc, nw, cw, work)
    sums = rest + nc
    for t in range(nb):
        for s in range(na if diagonal else 1):
            # entries rest..rest + nc: for every label of c the best label of w, given that of b (and of a)
            for v in range(nw):
                work[sums + v] = work[bw + t * nw + v] + work[aw + s * nw + v]
            for u in range(nc):
                best = np.inf
                for v in range(nw):
                    x = work[cw + u * nw + v] + work[sums + v]
                    best = x if x < best else best
                work[rest + u] = best + work[bc + t * nc + u]
            for k in range(s, s + 1 if diagonal else na):
                best = np.inf
                for u in range(nc):
                    x = work[rest + u] + work[ac + k * nc + u]
                    best = x if x < best else best
                out[t * na + k if swapped else k * nb + t] = best


@lean
def _span(labels, i, cards):
    return (0, cards[i]) if labels[i] < 0 else (labels[i], labels[i] + 1)


@lean
def restricted_triplet(g, d, e, neg, labels, out):
    """As triplet_marginal, over the labellings that agree with the labels chosen so far; +inf elsewhere."""
    r = d.source[e]
    a = d.out_start[r]
    i, j, k = d.scope[d.scope_start[r]], d.scope[d.scope_start[r] + 1], d.scope[d.scope_start[r] + 2]
    nj, nk = g.cards[j], g.cards[k]
    for y in range(d.size[d.target[e]]):
        out[y] = np.inf
    for xi in range(*_span(labels, i, g.cards)):
        for xj in range(*_span(labels, j, g.cards)):
            for xk in range(*_span(labels, k, g.cards)):
                ij, ik, jk = xi * nj + xj, xi * nk + xk, xj * nk + xk
                if e == a:
                    out[ij] = min(out[ij], neg[d.at[a + 1] + ik] + neg[d.at[a + 2] + jk])
                elif e == a + 1:
                    out[ik] = min(out[ik], neg[d.at[a] + ij] + neg[d.at[a + 2] + jk])
                else:
                    out[jk] = min(out[jk], neg[d.at[a] + ij] + neg[d.at[a + 1] + ik])


@lean
def restricted_square(g, d, e, neg, labels, out, work):
    """As square_marginal, over the labellings that agree with the labels chosen so far; +inf elsewhere."""
    r = d.source[e]
    first = d.scope_start[r]
    cards = g.cards
    for y in range(d.size[d.target[e]]):
        out[y] = np.inf
    for x0 in range(*_span(labels, d.scope[first], cards)):
        work[0] = x0
        for x1 in range(*_span(labels, d.scope[first + 1], cards)):
            work[1] = x1
            for x2 in range(*_span(labels, d.scope[first + 2], cards)):
                work[2] = x2
                for x3 in range(*_span(labels, d.scope[first + 3], cards)):
                    work[3] = x3
                    v = 0.0
                    y = 0
                    for o in range(d.out_start[r], d.out_start[r + 1]):
                        p, q = d.map_at[o] // 4, d.map_at[o] % 4
                        x = int(work[p]) * cards[d.scope[first + q]] + int(work[q])
                        if o == e:
                            y = x
                        else:
                            v += neg[d.at[o] + x]
                    out[y] = min(out[y], v)
