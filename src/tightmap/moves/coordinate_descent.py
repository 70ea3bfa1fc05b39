"""Coordinate descent: what every method rounds and polishes with (paper §3, Algorithm 1).

The energy is linear in the vector x_i of one variable, so its exact minimiser given the others is a vertex,

    x_i <- argmin_s  theta_i(s) + sum over the factors of i of their cost, with the other members at their vectors.

From a relaxed point one sweep of that makes every variable discrete and never raises the energy (``round_relaxed``);
from a labelling it goes on while a change of a single label lowers the energy (``descend``), which ends at a labelling
that no such change improves (Proposition 1).  Only variables next to a change are visited again.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.kernels import add_slice, contract, load_unary, most_labels, workspace
from tightmap.factors.potts import POTTS
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Labels, Vector
from tightmap.moves.lattice_descent import settle_pixels
from tightmap.runtime import clock
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late, time_left

TIE = 1e-12  # where costs are kept and changed for long, or come from relaxed vectors: what differs by less is equal
ROUNDING = 2.0**-52  # a sum of k terms is off by less than k times this part of the sum of their sizes
SWEEPS = 1000  # most sweeps of a descent
AS_NUMBERED = np.zeros(0, np.int64)  # stands for the order 0, 1, 2, ... of the visits, without a list of it


@lean
def _push_neighbours(g, i, dirty):
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        f = int(g.adj_factor[a])
        for p in range(g.scope_start[f], g.scope_start[f + 1]):
            dirty[g.scope[p]] = 1
    dirty[i] = 0


@lean
def visit_dirty(g, labels, dirty, order, begin, end, until, cost):
    """``descend`` up to that moment, with room for the costs of all labels of a variable."""
    changed = 0
    work = 0
    for at in range(begin, end):
        i = order[at] if len(order) else at
        if dirty[i] == 0:
            continue
        c = g.cards[i]
        work += 100 + 4 * c * (1 + g.adj_start[i + 1] - g.adj_start[i])
        if work > LOOK:
            work = 0
            if late(until):
                return changed, at
        dirty[i] = 0
        o = g.offset[i]
        now = labels[i]
        for s in range(c):
            cost[s] = g.unary[o + s]
        size = abs(cost[now])  # sum of the sizes of what the present label pays: how large rounding errors can be
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            p = int(g.adj_pos[a])
            if g.kind[f] == POTTS:  # written out: inlined functions are half as fast again here
                l = labels[g.scope[g.scope_start[f] + 1 - p]]
                size += abs(g.weight[f])
                if l < c:
                    cost[l] -= g.weight[f]
            else:
                before = cost[now]
                add_slice(g, f, p, labels, cost, 1.0)
                size += abs(cost[now] - before)
        best = 0
        for s in range(1, c):
            if cost[s] < cost[best]:
                best = s
        # what is cheaper by less may be rounding, and no descent
        if cost[best] < cost[now] - ROUNDING * (g.adj_start[i + 1] - g.adj_start[i] + 2) * size:
            labels[i] = best
            changed += 1
            _push_neighbours(g, i, dirty)
    return changed, end


@compiled
def descend(g, labels, dirty, order, begin, end, left):
    """Visit order[begin:end] (an empty order: as numbered), skipping clean variables.

    Returns how many changed, and where it is: at the end, or where time was up.
    """
    return visit_dirty(g, labels, dirty, order, begin, end, end_of(left), np.empty(most_labels(g.cards)))


@compiled
def descend_to_minimum(g, labels, dirty, most, left):
    """Visit the dirty variables, again and again, until nothing changes; at most so many times or seconds."""
    until = end_of(left)
    cost = np.empty(most_labels(g.cards))
    for _ in range(most):
        changed, at = visit_dirty(g, labels, dirty, AS_NUMBERED, 0, len(labels), until, cost)
        if changed == 0 or at < len(labels):
            break


@lean
def initial_costs(g, labels, cost):
    """cost[offset[i] + s]: energy of label s at i given the labels of the others."""
    for i in range(len(g.cards)):
        row = cost[g.offset[i] : g.offset[i + 1]]
        load_unary(g, i, row)
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            add_slice(g, int(g.adj_factor[a]), int(g.adj_pos[a]), labels, row, 1.0)


@lean
def descend_incremental(g, labels, dirty, order, begin, end, cost, left):
    """As descend, with the costs of all variables kept up to date: a flip touches only the factors around it."""
    until = end_of(left)
    changed = 0
    work = 0
    for at in range(begin, end):
        i = order[at]
        if dirty[i] == 0:
            continue
        work += 20 + g.cards[i]
        if work > LOOK:
            work = 0
            if late(until):
                return changed, at
        dirty[i] = 0
        o = g.offset[i]
        best = 0
        for s in range(1, g.cards[i]):
            if cost[o + s] < cost[o + best]:
                best = s
        now = labels[i]
        if cost[o + best] < cost[o + now] - TIE * abs(cost[o + now]):
            changed += 1
            work += 100 * g.cards[i] * (1 + g.adj_start[i + 1] - g.adj_start[i])
            for sign in (-1.0, 1.0):
                for a in range(g.adj_start[i], g.adj_start[i + 1]):
                    f = int(g.adj_factor[a])
                    first = g.scope_start[f]
                    for p in range(first, g.scope_start[f + 1]):
                        j = g.scope[p]
                        if j != i:
                            add_slice(g, f, p - first, labels, cost[g.offset[j] : g.offset[j + 1]], sign)
                labels[i] = best
            _push_neighbours(g, i, dirty)
    return changed, end


@compiled
def round_relaxed(g, x, order, labels, scratch, left):
    """One sweep from relaxed vectors: every variable takes its best label given the others' current vectors.

    x is changed in place to one-hot vectors; a variable that is one-hot already keeps its label on ties.  When time is
    up, the variables that are left take the label of their largest entry.
    """
    until = end_of(left)
    hurried = False
    work = np.empty(scratch)
    start = np.empty(128, np.int64)
    cost = np.empty(most_labels(g.cards))
    for i in order:
        c = g.cards[i]
        o = g.offset[i]
        now = -1
        hurried = hurried or late(until)
        for s in range(c):
            cost[s] = -x[o + s] if hurried else g.unary[o + s]
            if x[o + s] == 1.0:
                now = s
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if hurried:
                break
            f = int(g.adj_factor[a])
            first = g.scope_start[f]
            for p in range(first, g.scope_start[f + 1]):
                start[p - first] = g.offset[g.scope[p]]
            contract(g, f, int(g.adj_pos[a]), x, start, cost, work)
        best = 0
        for s in range(1, c):
            if cost[s] < cost[best]:
                best = s
        if now >= 0 and cost[now] <= cost[best] + TIE * abs(cost[best]):
            best = now
        for s in range(c):
            x[o + s] = 0.0
        x[o + best] = 1.0
        labels[i] = best


def local_minimum(graph: Graph, labels: Labels, context: Context | None = None, max_sweeps: int = SWEEPS) -> Labels:
    """The labelling that BCD reaches from a labelling (a new array); what other methods polish with.

    With a context it ends, wherever it is, when the time limit has passed.
    """
    out = np.array(labels, dtype=np.int64)
    settle_all(graph, out, np.ones(graph.n, dtype=np.uint8), context, max_sweeps)
    return out


def descend_within(graph: Graph, labels: Labels, dirty: np.ndarray, seconds: float) -> bool:
    """Descend in place from the variables that are marked, to a local minimum or as far as so many seconds allow."""
    if graph.lattice is None:
        descend_to_minimum(graph.arrays, labels, dirty, SWEEPS, seconds)
    else:
        end = clock.now() + seconds
        settle_pixels(graph.lattice, labels, dirty, lambda: end - clock.now(), SWEEPS)
    return not np.count_nonzero(dirty)


def settle_all(
    graph: Graph, labels: Labels, dirty: np.ndarray, context: Context | None = None, max_sweeps: int = SWEEPS
) -> None:
    """Descend in place, from the variables that are marked dirty, until nothing changes or the time limit is over."""
    if graph.lattice is None:
        descend_to_minimum(graph.arrays, labels, dirty, max_sweeps, time_left(context))
    else:
        settle_pixels(graph.lattice, labels, dirty, lambda: time_left(context), max_sweeps)


def round_and_descend(graph: Graph, relaxed: Vector, context: Context | None = None) -> Labels:
    """Round relaxed vectors by one sweep of Algorithm 1, then descend to a local minimum; in haste after the limit."""
    labels = np.zeros(graph.n, dtype=np.int64)
    x = np.array(relaxed, dtype=np.float64)
    round_relaxed(graph.arrays, x, np.arange(graph.n), labels, workspace(graph.arrays), time_left(context))
    return local_minimum(graph, labels, context)
