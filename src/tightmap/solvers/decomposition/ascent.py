"""A good place to start from: block-coordinate ascent over monotone chains of factors (Kolmogorov 2015).

The variables are visited in order and back again.  A visit of i in a forward pass collects the min-marginals of all
factors f in which i is not the first variable and shares the sum out over those in which it is not the last one,

    m_{f->i}(s) <- min over the other members of theta_f - sum_{j != i} m_{f->j},   less its minimum over s
    total = theta_i + sum_f m_{f->i},     m_{f->i} <- m_{f->i} - total / w,

w the larger of the numbers of factors that i is passed on to and is kept from; a backward pass is its mirror image.
The bound never falls; it stalls where the linear relaxation need not be solved yet, and that is where subgradients and
planes take over.  A variable can be labelled when it is visited, given the labels of those before it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.energy.energies import message_offsets
from tightmap.factors.kernels import add_slice, minmarg, most_labels, workspace
from tightmap.graph.graph import FloatArray, Graph
from tightmap.moves.context import Labels
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER, LOOK, end_of, late


class Ascent:
    """Messages of factors to their variables, negated, and passes over them."""

    def __init__(self, graph: Graph, messages: FloatArray | None = None) -> None:
        g = graph.arrays
        self.graph = graph
        self.offsets = message_offsets(graph)
        self.negative = np.zeros(int(self.offsets[-1])) if messages is None else -messages
        first = np.minimum.reduceat(g.scope, g.scope_start[:-1])
        last = np.maximum.reduceat(g.scope, g.scope_start[:-1])
        total = np.diff(g.adj_start)
        self.ends, self.weights = (first, last), []
        for end in (last, first):
            onward = total - np.bincount(end, minlength=graph.n)
            self.weights.append(np.maximum(1, np.maximum(onward, total - onward)).astype(np.float64))
        self.scratch = workspace(g)
        self.labels: Labels = np.zeros(graph.n, dtype=np.int64)

    def sweep(self, forward: bool, rounding: bool, left: float = EVER) -> bool:
        """One pass; False if time was up (the messages are valid all the same, the labels are not)."""
        passed, kept = self.ends if forward else self.ends[::-1]
        done = _sweep(
            self.graph.arrays, self.offsets, self.negative, passed, kept, self.weights[0 if forward else 1],
            forward, rounding, self.labels, self.scratch, left,
        )  # fmt: skip
        return bool(done)

    @property
    def messages(self) -> FloatArray:
        return -self.negative


@compiled
def _sweep(g, offsets, negative, passed, kept, weights, forward, rounding, labels, scratch, left):
    """A pass over the variables, which labels them on the way if ``rounding``; False when time was up.

    Factor f sends nothing new to variable passed[f], the first of its members in this pass, and gets nothing from
    kept[f], the last one; weights[i] is the w of variable i.  One function, because a visit needs the sums of its
    factors both for the messages and for the label.
    """
    until = end_of(left)
    n, spent = len(g.cards), 0
    out, work = np.empty(max(scratch, most_labels(g.cards) + 1)), np.empty(scratch)
    total, cost = np.empty(most_labels(g.cards)), np.empty(most_labels(g.cards))
    start, where = np.zeros(128, np.int64), np.zeros(128, np.int64)
    held = np.empty(1)
    if rounding:
        for i in range(n):
            labels[i] = -1
    for k in range(n):
        i = k if forward else n - 1 - k
        c = g.cards[i]
        for s in range(c):
            total[s] = g.unary[g.offset[i] + s]
            cost[s] = total[s]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f, p = int(g.adj_factor[a]), int(g.adj_pos[a])
            begin = g.scope_start[f]
            arity = g.scope_start[f + 1] - begin
            own = offsets[begin + p]
            spent += 50 + c * c
            if passed[f] != i:
                for o in range(arity):
                    start[o] = offsets[begin + o]
                minmarg(g, f, p, negative, start, out, work)
                low = out[0]
                for s in range(1, c):
                    low = out[s] if out[s] < low else low
                for s in range(c):
                    negative[own + s] = low - out[s]
            for s in range(c):
                total[s] -= negative[own + s]
            if not rounding:
                continue
            known = 0
            for o in range(arity):
                known += o != p and labels[g.scope[begin + o]] >= 0
            if known == 0:
                for s in range(c):
                    cost[s] -= negative[own + s]
            elif known == arity - 1:
                add_slice(g, f, p, labels, cost, 1.0)
            else:
                length = offsets[begin + arity] - offsets[begin]
                if length > len(held):
                    held = np.empty(length)
                for o in range(arity):
                    where[o] = offsets[begin + o] - offsets[begin]
                    j = g.scope[begin + o]
                    for s in range(g.cards[j]):
                        free = labels[j] < 0
                        held[where[o] + s] = (
                            negative[offsets[begin + o] + s] if free else (0.0 if labels[j] == s else np.inf)
                        )
                minmarg(g, f, p, held, where, out, work)
                for s in range(c):
                    cost[s] += out[s]
        if rounding:
            best = 0
            for s in range(1, c):
                if cost[s] < cost[best]:
                    best = s
            labels[i] = best
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            if kept[f] != i:
                own = offsets[g.scope_start[f] + g.adj_pos[a]]
                for s in range(c):
                    negative[own + s] += total[s] / weights[i]
        if spent > LOOK:
            spent = 0
            if late(until):
                return False
    return True
