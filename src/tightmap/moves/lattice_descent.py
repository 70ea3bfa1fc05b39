"""Coordinate descent on a lattice: the visits of ``coordinate_descent.descend``, in the same order, label by label.

Costs are added in the order of the edge list (neighbours ascending), so that both give the same labels, bit by bit.

Threads take bands of rows in turn.  A row follows the one above it at a distance: a pixel is visited when all
neighbours above it have been, and before any neighbour below it is.  So the labels are those of a sweep row by row,
whatever the number of threads is.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tightmap.graph.lattice import Lattice
from tightmap.graph.pixel_costs import copy_costs, inline
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.runtime.sync import LINE, publish, together, wait_for

ROUNDING = 2.0**-52  # as there
CHUNK = 64  # columns of every row of a band that are visited before the thread of the next band is told
BAND = 16  # rows, fewer than CHUNK; threads that work on neighbouring rows would wait for each other's memory
WORTH_THREADS = 1 << 16  # pixels from which on a sweep takes longer than waking threads


@inline
def step_weight(g, k, r, c):
    """Weight of the edge of step k whose first end is (r, c)."""
    dc = g.right[k]
    return g.weight[(g.first[k] + r * (g.width - abs(dc)) + c - max(0, -dc)) * g.listed]


@inline
def _add_neighbour(g, cost, now, label, weight):
    """Add what a neighbour of this label costs, up to a constant; returns how much label ``now`` got at most."""
    if g.potts:
        cost[label] -= weight
        return abs(weight)
    before = cost[now]
    for s in range(g.labels):
        cost[s] += weight * g.profile[abs(s - label)]
    return abs(cost[now] - before)


@inline
def mark_around(g, r, c, dirty):
    """Mark the neighbours of a pixel."""
    for e in range(len(g.near)):
        r1, c1 = r + g.sign[e] * g.down[g.near[e]], c + g.sign[e] * g.right[g.near[e]]
        if 0 <= r1 < g.height and 0 <= c1 < g.width:
            dirty[r1 * g.width + c1] = 1


@inline
def _visit(g, r, c, labels, dirty, shift, cost):
    """Give a pixel its best label; True where that is another one."""
    H, W, S = g.height, g.width, g.labels
    ends = len(g.near)
    p = r * W + c
    now = labels[p]
    copy_costs(g.unary, g.single, p * S, S, cost)
    size = abs(cost[now])
    degree = 0
    inside = g.listed == 0 and 0 < r < H - 1 and 0 < c < W - 1
    if inside:  # most pixels: all neighbours are there, and one weight is for all
        degree = ends
        w = g.weight[0]
        for e in range(ends):
            size += _add_neighbour(g, cost, now, labels[p + shift[e]], w)
    for e in range(0 if inside else ends):
        k = g.near[e]
        forward = g.sign[e] > 0
        dr, dc = g.down[k], g.right[k]
        # (r0, c0) is the first end of the edge
        r0, c0 = (r, c) if forward else (r - dr, c - dc)
        if r0 < 0 or r0 + dr >= H or c0 < 0 or c0 >= W or c0 + dc < 0 or c0 + dc >= W:
            continue
        degree += 1
        size += _add_neighbour(g, cost, now, labels[p + shift[e]], step_weight(g, k, r0, c0))
    best = 0
    for s in range(1, S):
        if cost[s] < cost[best]:
            best = s
    if not cost[best] < cost[now] - ROUNDING * (degree + 2) * size:
        return False
    labels[p] = best
    mark_around(g, r, c, dirty)
    return True


@compiled
def neighbour_shifts(g):
    """From the number of a pixel to those of its neighbours."""
    shift = np.empty(len(g.near), np.int64)
    for e in range(len(shift)):
        shift[e] = g.sign[e] * (g.down[g.near[e]] * g.width + g.right[g.near[e]])
    return shift


@compiled
def _sweep(g, labels, dirty, left, changed, over, thread, threads, progress):
    """This thread's bands of one sweep over the dirty pixels.

    The columns that are visited together are one further to the left in every row than in the row above.
    changed[thread] is how many pixels have another label now, over[0] whether time was up before the end.
    """
    until = end_of(left)
    W = g.width
    cost = np.empty(g.labels)
    shift = neighbour_shifts(g)
    price = 50 + 4 * g.labels * (1 + len(shift))
    steps = (W + BAND - 2) // CHUNK + 1
    work = 0
    for band in range(thread, (g.height + BAND - 1) // BAND, threads):
        for step in range(steps):
            if threads > 1 and band > 0 and not wait_for(progress, (band - 1) * LINE, min(step + 2, steps)):
                return
            for r in range(band * BAND, min((band + 1) * BAND, g.height)):
                begin = step * CHUNK - r + band * BAND
                for c in range(max(0, begin), min(begin + CHUNK, W)):
                    if dirty[r * W + c] == 0:
                        continue
                    work += price
                    if work > LOOK:
                        work = 0
                        if late(until):
                            over[0] = 1
                            publish(progress, len(progress) - 1, 1)  # those who wait for this band leave, too
                            return
                    dirty[r * W + c] = 0
                    if _visit(g, r, c, labels, dirty, shift, cost):
                        changed[thread] += 1
            publish(progress, band * LINE, step + 1)


def settle_pixels(
    lattice: Lattice,
    labels: npt.NDArray[np.int64],
    dirty: npt.NDArray[np.uint8],
    left: Callable[[], float],
    max_sweeps: int,
) -> None:
    """Sweeps over the dirty pixels until nothing changes, for ``left()`` more seconds at most; in place."""
    g = lattice.pixels
    counters = -(-g.height // BAND)
    team = min(parallel.threads(), counters) if lattice.n >= WORTH_THREADS else 1
    for _ in range(max_sweeps):
        changed, over = np.zeros(team, np.int64), np.zeros(1, np.uint8)
        together(team, _sweep, counters, g, labels, dirty, left(), changed, over)
        if over[0] or not changed.any():
            return


@lean
def mark_pixels(g, labels, settled, dirty):
    """Mark the pixels that have another label than in ``settled``, and their neighbours."""
    for r in range(g.height):
        for c in range(g.width):
            p = r * g.width + c
            if labels[p] != settled[p]:
                dirty[p] = 1
                mark_around(g, r, c, dirty)
