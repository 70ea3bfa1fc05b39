"""Regions of a lattice change their label as a whole: what coordinate descent cannot see.

A region R is a connected set of pixels of one label.  Given the labels around it, the cost of label s for all of it is

    sum over p in R of unary_p(s)  +  sum over edges from p in R to q outside of  w profile(|s - x_q|),

and it takes the best s.  An island of some pixels in a sea of another label vanishes that way, where every single
pixel of it would have to climb first.  All pixels are visited once in a round, about as fast as a sweep of descent;
then descent goes on from what has changed.

A second labelling is fused in the same way: there a region is a connected set of pixels at which the two differ, and it
takes the labels y of the second one where that lowers the energy, by

    sum over p in R of unary_p(y_p) - unary_p(x_p)  +  what its edges cost more, within R and to the x_q around it.

Regions are cut at so many pixels (what is left is a region of its own) and at the borders of bands of BAND rows.  All
bands of even number are visited, in any order and by any thread, then those of odd number: a band reads the rows next
to it, which nobody changes meanwhile.  So labels do not depend on the number of threads.  In the next round the
bands begin half a band higher.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Graph
from tightmap.graph.pixel_costs import cost_at
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import settle_all
from tightmap.moves.lattice_descent import ROUNDING, WORTH_THREADS, mark_around, neighbour_shifts, step_weight
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late, time_left
from tightmap.runtime.sync import meet, together

MOST = 4096  # pixels of a region that takes another label
MOST_FUSED = 1 << 16  # pixels of a region that takes the labels of a second labelling
BAND = 256  # rows
ROUNDS = 3  # most rounds: the first two find nearly everything
NEW, HERE, DONE = 0, 1, 2  # pixels that are in no region yet, in the present one, in an earlier one


@lean
def _collect(g, start, low, high, labels, seen, shift, stack, cost, weight, near):
    """The region of a pixel within rows low..high: its pixels to ``stack``, what its unaries cost to ``cost``.

    weight[l] is the sum over its edges to outer pixels of label l, listed in ``near``; before, weight is zero.
    Returns the numbers of pixels and of labels around it, and the size of all that its present label pays.
    """
    H, W, S = g.height, g.width, g.labels
    own = labels[start]
    for s in range(S):
        cost[s] = 0.0
    stack[0] = start
    seen[start] = HERE
    count = 1
    around = 0
    size = 0.0
    at = 0
    while at < count:
        p = stack[at]
        at += 1
        r = p // W
        c = p - r * W
        for s in range(S):
            cost[s] += cost_at(g.unary, g.single, p * S + s)
        size += abs(cost_at(g.unary, g.single, p * S + own))
        for e in range(len(shift)):
            k = g.near[e]
            dr, dc = g.sign[e] * g.down[k], g.sign[e] * g.right[k]
            if r + dr < 0 or r + dr >= H or c + dc < 0 or c + dc >= W:
                continue
            q = p + shift[e]
            l = labels[q]
            if l == own and low <= r + dr < high:
                if seen[q] == HERE:
                    continue
                if seen[q] == NEW and count < len(stack):
                    seen[q] = HERE
                    stack[count] = q
                    count += 1
                    continue
            if g.listed == 0:
                w = g.weight[0]
            else:
                w = step_weight(g, k, r, c) if g.sign[e] > 0 else step_weight(g, k, r + dr, c + dc)
            size += abs(w * g.profile[abs(own - l)])
            known = False
            for j in range(around):
                known = known or near[j] == l
            if not known:
                near[around] = l
                around += 1
            weight[l] += w
    return count, around, size


@lean
def _best(g, own, cost, weight, near, around):
    """Add what the labels around a region cost, forget them, and return the best label."""
    best = own
    for j in range(around):
        l = near[j]
        w = weight[l]
        weight[l] = 0.0
        for s in range(g.labels):
            cost[s] += w * g.profile[abs(s - l)]
    for s in range(g.labels):
        if cost[s] < cost[best]:
            best = s
    return best


@lean
def _collect_differing(g, start, low, high, labels, proposal, seen, stack):
    """The region of a pixel among those that differ from ``proposal``, in rows low..high, to ``stack``; its size."""
    W = g.width
    stack[0] = start
    seen[start] = HERE
    count = 1
    at = 0
    while at < count:
        p = stack[at]
        at += 1
        r = p // W
        c = p - r * W
        for e in range(len(g.near)):
            r1, c1 = r + g.sign[e] * g.down[g.near[e]], c + g.sign[e] * g.right[g.near[e]]
            if r1 < low or r1 >= high or c1 < 0 or c1 >= W:
                continue
            q = r1 * W + c1
            if seen[q] == NEW and count < len(stack) and labels[q] != proposal[q]:
                seen[q] = HERE
                stack[count] = q
                count += 1
    return count


@lean
def _difference(g, labels, proposal, seen, stack, count):
    """What the labels of ``proposal`` cost more in the present region, and the size of all terms of that."""
    H, W, S = g.height, g.width, g.labels
    more = 0.0
    size = 0.0
    for k in range(count):
        p = stack[k]
        r = p // W
        c = p - r * W
        now, new = labels[p], proposal[p]
        after, before = cost_at(g.unary, g.single, p * S + new), cost_at(g.unary, g.single, p * S + now)
        more += after - before
        size += abs(after) + abs(before)
        for e in range(len(g.near)):
            j = g.near[e]
            r1, c1 = r + g.sign[e] * g.down[j], c + g.sign[e] * g.right[j]
            if r1 < 0 or r1 >= H or c1 < 0 or c1 >= W:
                continue
            q = r1 * W + c1
            l, other = labels[q], labels[q]
            if seen[q] == HERE:
                if g.sign[e] < 0:
                    continue  # an edge within the region counts at its first end
                other = proposal[q]
            w = step_weight(g, j, r, c) if g.sign[e] > 0 else step_weight(g, j, r1, c1)
            a, b = w * g.profile[abs(new - other)], w * g.profile[abs(now - l)]
            more += a - b
            size += abs(a) + abs(b)
    return more, size


@compiled
def _round(g, labels, proposal, seen, dirty, above, most, left, changed, thread, threads, progress):
    """This thread's bands, which begin ``above`` rows above the image; all threads meet between even and odd ones.

    An empty ``proposal``: regions of one label take another one.  changed[thread] is how many regions have changed;
    they and their neighbours are marked in ``dirty``.
    """
    until = end_of(left)
    H, W, S = g.height, g.width, g.labels
    fuse = len(proposal) > 0
    shift = neighbour_shifts(g)
    stack = np.empty(most, np.int64)
    near = np.empty(S, np.int64)
    cost, weight = np.empty(S), np.zeros(S)
    bands = (H + above + BAND - 1) // BAND
    work = 0
    over = False
    for odd in range(2):
        for band in range(odd + 2 * thread, bands, 2 * threads):
            low, high = max(0, band * BAND - above), min(H, (band + 1) * BAND - above)
            for start in range(low * W, high * W):
                if over or seen[start] != NEW or (fuse and labels[start] == proposal[start]):
                    continue
                own = labels[start]
                best = own
                if fuse:
                    count = _collect_differing(g, start, low, high, labels, proposal, seen, stack)
                    terms = 2 * count * (1 + len(shift))
                    more, size = _difference(g, labels, proposal, seen, stack, count)
                    better = more < -ROUNDING * (terms + 2) * size
                else:
                    count, around, size = _collect(g, start, low, high, labels, seen, shift, stack, cost, weight, near)
                    terms = count * (1 + len(shift))
                    best = _best(g, own, cost, weight, near, around)
                    better = cost[best] < cost[own] - ROUNDING * (terms + 2) * size
                    work += S * (count + around + 5)
                for k in range(count):
                    p = stack[k]
                    seen[p] = DONE
                    if better:
                        labels[p] = proposal[p] if fuse else best
                        dirty[p] = 1
                        mark_around(g, p // W, p % W, dirty)
                changed[thread] += better
                work += terms * 20
                if work > LOOK:
                    work = 0
                    over = late(until)
        if not meet(progress, thread, threads, odd + 1):
            return


def _rounds(graph: Graph, labels: Labels, proposal: Labels, context: Context | None, most: int, rounds: int) -> bool:
    """Rounds, each followed by coordinate descent, until nothing changes or time is up; whether anything changed."""
    assert graph.lattice is not None
    g, n = graph.lattice.pixels, graph.lattice.n
    team = parallel.threads() if n >= WORTH_THREADS else 1
    for turn in range(rounds):
        changed = np.zeros(team, np.int64)
        dirty = np.zeros(n, np.uint8)
        seen = np.zeros(n, np.uint8)
        above = turn % 2 * (BAND // 2)
        together(team, _round, team, g, labels, proposal, seen, dirty, above, most, time_left(context), changed)
        del seen
        if not changed.any():
            return turn > 0
        settle_all(graph, labels, dirty, context)
        if time_left(context) <= 0.0:
            return True
    return True


def merge_regions(graph: Graph, labels: Labels, context: Context | None = None, most: int = MOST) -> bool:
    """Regions take their best labels, in place; True where one has changed.

    ``labels`` are a local minimum of coordinate descent, before and (unless time was up) after.
    """
    return _rounds(graph, labels, np.zeros(0, np.int64), context, most, ROUNDS)


def fuse_regions(
    graph: Graph, labels: Labels, proposal: Labels, context: Context | None = None, most: int = MOST_FUSED
) -> bool:
    """Take the regions from a second labelling that lower the energy, in place; True where there is one.

    Both are local minima of coordinate descent, and so is (unless time was up) the result.
    """
    return _rounds(graph, labels, proposal, context, most, 2)
