"""Rows and columns of a lattice at their minimum given all others: dynamic programming without a list of edges.

With u_t what pixel t of a line pays for its label and for the edges to pixels outside of the line,

    best_t(s) = u_t(s) + min over s' of  best_{t-1}(s') + w_t profile(|s - s'|),

and the labels are read off backwards.  Lines of even number are minimised first, in any order and by any thread, then
those of odd number: a line reads the labels of its two neighbours alone, which nobody changes meanwhile.  So labels do
not depend on the number of threads.  Several columns are minimised side by side, since a single one would read a
cache line of memory for every pixel.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Graph
from tightmap.graph.pixel_costs import copy_costs, inline
from tightmap.moves.context import Context, Labels
from tightmap.moves.lattice_descent import ROUNDING, WORTH_THREADS, step_weight
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import end_of, late, time_left
from tightmap.runtime.sync import meet, together

TOGETHER = 16  # columns that are minimised side by side
WIDEST = 64  # labels, times the differences that cost less than the largest, per pixel: what a line may take


@inline
def _own_costs(g, r, c, vertical, labels, cost):
    """What a pixel pays outside of its line, by label; returns the size of what its present label pays."""
    H, W, S = g.height, g.width, g.labels
    p = r * W + c
    now = labels[p]
    copy_costs(g.unary, g.single, p * S, S, cost)
    size = abs(cost[now])
    for e in range(len(g.near)):
        k = g.near[e]
        if g.right[k] == 0 if vertical else g.down[k] == 0:  # the line itself
            continue
        forward = g.sign[e] > 0
        dr, dc = g.sign[e] * g.down[k], g.sign[e] * g.right[k]
        if r + dr < 0 or r + dr >= H or c + dc < 0 or c + dc >= W:
            continue
        w = step_weight(g, k, r, c) if forward else step_weight(g, k, r + dr, c + dc)
        l = labels[p + dr * W + dc]
        for s in range(S):
            cost[s] += w * g.profile[abs(s - l)]
        size += abs(w * g.profile[abs(now - l)])
    return size


@inline
def _go_on(g, w, reach, best, cost, back, at, fresh):
    """best <- cost + min over the labels before, with the place of the minimum in back[at:]; ``fresh`` is scratch."""
    S = g.labels
    lowest = 0
    for s in range(1, S):
        if best[s] < best[lowest]:
            lowest = s
    span = reach if w >= 0.0 else S  # an edge of negative weight may prefer any difference
    for s in range(S):
        value, from_ = best[lowest] + w * g.profile[abs(s - lowest)], lowest
        for t in range(max(0, s - span + 1), min(S, s + span)):
            v = best[t] + w * g.profile[abs(s - t)]
            if v < value:
                value, from_ = v, t
        fresh[s] = value + cost[s]
        back[at + s] = from_
    for s in range(S):
        best[s] = fresh[s]


@compiled
def _minimise(g, vertical, along, reach, first, count, labels, costs, cost, fresh, back, old, size):
    """The lines first, first + 2, ... (so many), side by side; returns how many have got other labels.

    along  the step from a pixel to the next one of its line, of those of the lattice
    costs  (count, labels) room for the best costs, old and size (count,) for what the present labels pay
    """
    W, S = g.width, g.labels
    length = g.height if vertical else W
    for j in range(count):
        old[j] = 0.0
        size[j] = 0.0
    for t in range(length):
        for j in range(count):
            r, c = (t, first + 2 * j) if vertical else (first + 2 * j, t)
            size[j] += _own_costs(g, r, c, vertical, labels, cost)
            now = labels[r * W + c]
            old[j] += cost[now]
            if t == 0:
                costs[j, :] = cost
                continue
            r0, c0 = (r - 1, c) if vertical else (r, c - 1)
            w = step_weight(g, along, r0, c0)
            paid = w * g.profile[abs(now - labels[r0 * W + c0])]
            old[j] += paid
            size[j] += abs(paid)
            _go_on(g, w, reach, costs[j], cost, back, (t * count + j) * S, fresh)
    changed = 0
    for j in range(count):
        s = 0
        for l in range(1, S):
            if costs[j, l] < costs[j, s]:
                s = l
        if not costs[j, s] < old[j] - ROUNDING * length * (2 + len(g.near)) * size[j]:
            continue
        changed += 1
        for t in range(length - 1, -1, -1):
            r, c = (t, first + 2 * j) if vertical else (first + 2 * j, t)
            labels[r * W + c] = s
            if t > 0:
                s = back[(t * count + j) * S + s]
    return changed


@compiled
def _pass(g, vertical, along, reach, labels, left, changed, thread, threads, progress):
    """This thread's share of all rows or of all columns; changed[thread] is how many have got other labels."""
    until = end_of(left)
    S = g.labels
    lines, length = (g.width, g.height) if vertical else (g.height, g.width)
    most = TOGETHER if vertical else 1
    costs, cost, fresh = np.empty((most, S)), np.empty(S), np.empty(S)
    back = np.empty(length * most * S, np.int32)
    old, size = np.empty(most), np.empty(most)
    for odd in range(2):
        for first in range(odd + 2 * most * thread, lines, 2 * most * threads):
            if late(until):
                break
            count = min(most, (lines - first + 1) // 2)
            changed[thread] += _minimise(
                g, vertical, along, reach, first, count, labels, costs, cost, fresh, back, old, size
            )
        if not meet(progress, thread, threads, odd + 1):
            return


def minimise_lines(graph: Graph, labels: Labels, context: Context | None = None, rounds: int = 1) -> bool:
    """All rows, then all columns, in place, until nothing changes or rounds or time are over; True where one changed.

    Nothing is done where labels and differences are so many that a line would take long.
    """
    assert graph.lattice is not None
    g = graph.lattice.pixels
    reach = max(1, int((g.profile < g.profile.max()).sum()))  # differences from which on all cost the same
    if g.labels * reach > WIDEST * WIDEST:
        return False
    team = parallel.threads() if graph.lattice.n >= WORTH_THREADS else 1
    any_ = False
    for _ in range(rounds):
        found = False
        for vertical in (False, True):
            step = (1, 0) if vertical else (0, 1)
            along = list(zip(g.down.tolist(), g.right.tolist(), strict=True)).index(step)
            changed = np.zeros(team, np.int64)
            together(team, _pass, team, g, vertical, along, reach, labels, time_left(context), changed)
            found = found or bool(changed.any())
        any_ = any_ or found
        if not found or time_left(context) <= 0.0:
            break
    return any_
