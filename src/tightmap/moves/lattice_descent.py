"""Coordinate descent on a lattice: the visits of ``coordinate_descent.descend``, in the same order, label by label.

Costs are added in the order of the edge list (neighbours ascending), so that both give the same labels, bit by bit.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late

ROUNDING = 2.0**-52  # as there


@lean
def _add_neighbour(g, cost, now, label, weight):
    """Add what a neighbour of this label costs, up to a constant; returns how much label ``now`` got at most."""
    if g.potts:
        cost[label] -= weight
        return abs(weight)
    before = cost[now]
    for s in range(g.labels):
        cost[s] += weight * g.profile[abs(s - label)]
    return abs(cost[now] - before)


@compiled
def descend_pixels(g, labels, dirty, left):
    """One sweep over the dirty pixels; returns how many changed, and where it is: at the end, or where time was up."""
    until = end_of(left)
    H, W, S = g.height, g.width, g.labels
    ends = len(g.near)
    cost = np.empty(S)
    shift = np.empty(ends, np.int64)  # from a pixel to its neighbours
    for e in range(ends):
        shift[e] = g.sign[e] * (g.down[g.near[e]] * W + g.right[g.near[e]])
    changed = 0
    work = 0
    for r in range(H):
        for c in range(W):
            p = r * W + c
            if dirty[p] == 0:
                continue
            work += 50 + 4 * S * (1 + ends)
            if work > LOOK:
                work = 0
                if late(until):
                    return changed, p
            dirty[p] = 0
            now = labels[p]
            for s in range(S):
                cost[s] = g.unary[p * S + s]
            size = abs(cost[now])
            degree = 0
            inside = g.listed == 0 and 0 < r < H - 1 and 0 < c < W - 1
            if inside:  # most pixels: all neighbours are there, and one weight is for all
                degree = ends
                w = g.weight[0]
                for e in range(ends):
                    l = labels[p + shift[e]]
                    size += _add_neighbour(g, cost, now, l, w)
            for e in range(0 if inside else ends):
                k = g.near[e]
                forward = g.sign[e] > 0
                dr, dc = g.down[k], g.right[k]
                # (r0, c0) is the first end of the edge
                r0, c0 = (r, c) if forward else (r - dr, c - dc)
                if r0 < 0 or r0 + dr >= H or c0 < 0 or c0 >= W or c0 + dc < 0 or c0 + dc >= W:
                    continue
                degree += 1
                w = g.weight[(g.first[k] + r0 * (W - abs(dc)) + c0 - max(0, -dc)) * g.listed]
                l = labels[p + dr * W + dc] if forward else labels[p - dr * W - dc]
                size += _add_neighbour(g, cost, now, l, w)
            best = 0
            for s in range(1, S):
                if cost[s] < cost[best]:
                    best = s
            if cost[best] < cost[now] - ROUNDING * (degree + 2) * size:
                labels[p] = best
                changed += 1
                for e in range(ends):
                    r1, c1 = r + g.sign[e] * g.down[g.near[e]], c + g.sign[e] * g.right[g.near[e]]
                    if 0 <= r1 < H and 0 <= c1 < W:
                        dirty[r1 * W + c1] = 1
    return changed, H * W


@lean
def mark_pixels(g, labels, settled, dirty):
    """Mark the pixels that have another label than in ``settled``, and their neighbours."""
    H, W = g.height, g.width
    for r in range(H):
        for c in range(W):
            p = r * W + c
            if labels[p] != settled[p]:
                dirty[p] = 1
                for e in range(len(g.near)):
                    r1, c1 = r + g.sign[e] * g.down[g.near[e]], c + g.sign[e] * g.right[g.near[e]]
                    if 0 <= r1 < H and 0 <= c1 < W:
                        dirty[r1 * W + c1] = 1
