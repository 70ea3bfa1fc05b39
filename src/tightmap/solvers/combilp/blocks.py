"""The reparametrised model: one block of costs for every variable and every factor, and moves of cost between them.

With messages m (laid out by ``energies.message_offsets``) the blocks are

    b_i(s) = theta_i(s) + sum_f m_{f->i}(s),        c_f(x_f) = theta_f(x_f) - sum_{i in f} m_{f->i}(x_i),

and E(x) = constant + sum_i b_i(x_i) + sum_f c_f(x_f) for every x.  Two moves change messages, and neither can lower the
sum of the minima of all blocks:

    collect  m_{f->i} += min over the other variables of c_f,     so that c_f has the minimum 0 for every label of i
    lend     m_{f->i} -= w_f (b_i - min b_i),   sum_f w_f <= 1,   the variable keeps the rest

``press`` makes both along the way from some rings around a set of variables to the set: what the rings know about the
labels of its border then stands in the border's own costs (after the denser subproblems of Haller, Swoboda and
Savchynskyy 2018).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from typing import Any

import numpy as np

from tightmap.energy.certificate import UNIT
from tightmap.energy.energies import message_offsets
from tightmap.factors.kernels import minimum, minmarg, most_labels, tabulate, value, workspace
from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.one_form import one_form
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled, lean

MANY = 4096  # blocks that are worth a second thread


@lean
def load_belief(g, i, messages, at, row):
    """row = b_i."""
    base = g.offset[i]
    for s in range(g.cards[i]):
        row[s] = g.unary[base + s]
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        p = at[g.scope_start[g.adj_factor[a]] + g.adj_pos[a]]
        for s in range(g.cards[i]):
            row[s] += messages[p + s]


@lean
def negative_messages(g, f, messages, at, vectors, start):
    """vectors = -m of all variables of the factor, and where each begins."""
    begin = g.scope_start[f]
    for p in range(g.scope_start[f + 1] - begin):
        start[p] = at[begin + p] - at[begin]
        for s in range(g.cards[g.scope[begin + p]]):
            vectors[start[p] + s] = -messages[at[begin + p] + s]


@one_form
@compiled
def _variable_minima(first, last, ids, g, messages, at, low, wrong):
    """low_i = min b_i, and wrong_i: what rounding may have added to it, in units of 2^-53."""
    row = np.empty(most_labels(g.cards))
    for k in range(first, last):
        i = ids[k]
        load_belief(g, i, messages, at, row)
        best = row[0]
        size = 0.0
        for s in range(g.cards[i]):
            best = min(best, row[s])
            size = max(size, abs(g.unary[g.offset[i] + s]))
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            p = at[g.scope_start[g.adj_factor[a]] + g.adj_pos[a]]
            largest = 0.0
            for s in range(g.cards[i]):
                largest = max(largest, abs(messages[p + s]))
            size += largest
        low[i] = best
        # k additions, none to a number larger than the sum of the sizes (nearly: 1.01)
        wrong[i] = 1.01 * (g.adj_start[i + 1] - g.adj_start[i]) * size


@one_form
@compiled
def _factor_minima(first, last, ids, g, messages, at, low, wrong, scratch, longest):
    """low_f = min c_f, and wrong_f: what rounding may have added, in units of 2^-53 (as in energy/energies.py)."""
    out, work = np.empty(scratch), np.empty(scratch)
    vectors, start = np.empty(longest), np.empty(128, np.int64)
    for k in range(first, last):
        f = ids[k]
        negative_messages(g, f, messages, at, vectors, start)
        low[f] = minimum(g, f, vectors, start, out, work)
        size = 0.0
        for p in range(g.scope_start[f], g.scope_start[f + 1]):
            largest = 0.0
            for s in range(at[p], at[p + 1]):
                largest = max(largest, abs(messages[s]))
            size += largest
        wrong[f] = 16.0 * (g.scope_start[f + 1] - g.scope_start[f] + 2) * (size + abs(low[f]))


@one_form
@compiled
def _variable_excess(first, last, ids, g, messages, at, labels, low, out):
    row = np.empty(most_labels(g.cards))
    for k in range(first, last):
        i = ids[k]
        load_belief(g, i, messages, at, row)
        out[k] = max(0.0, row[labels[i]] - low[i])


@one_form
@compiled
def _factor_excess(first, last, ids, g, messages, at, labels, low, out):
    for k in range(first, last):
        f = ids[k]
        total = value(g, f, labels)
        for p in range(g.scope_start[f], g.scope_start[f + 1]):
            total -= messages[at[p] + labels[g.scope[p]]]
        out[k] = max(0.0, total - low[f])


@lean
def _nearest(g, f, distance):
    """The least distance of a variable of the factor."""
    best = distance[g.scope[g.scope_start[f]]]
    for p in range(g.scope_start[f] + 1, g.scope_start[f + 1]):
        best = min(best, distance[g.scope[p]])
    return best


@one_form
@compiled
def _press(g, rings, core, distance, messages, at, scratch, longest):
    """``distance`` is 0 on the core, k on ring k and large elsewhere; the outermost ring comes first in ``rings``."""
    row, out, work = np.empty(most_labels(g.cards)), np.empty(scratch), np.empty(scratch)
    vectors, start = np.empty(longest), np.empty(128, np.int64)
    for k in range(len(rings) + len(core)):
        i = rings[k] if k < len(rings) else core[k - len(rings)]
        inner = 0
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            begin = g.scope_start[f]
            nearest = _nearest(g, f, distance)
            inside = distance[i] == 0
            if inside:  # factors that lie in the core stay as they are
                for p in range(begin, g.scope_start[f + 1]):
                    inside = inside and distance[g.scope[p]] == 0
            if nearest < distance[i]:
                inner += 1
            elif not inside:
                negative_messages(g, f, messages, at, vectors, start)
                minmarg(g, f, int(g.adj_pos[a]), vectors, start, out, work)
                to = at[begin + g.adj_pos[a]]
                for s in range(g.cards[i]):
                    messages[to + s] = out[s]
        if inner == 0:
            continue
        load_belief(g, i, messages, at, row)
        low = row[0]
        for s in range(1, g.cards[i]):
            low = min(low, row[s])
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            if _nearest(g, f, distance) < distance[i]:
                q = at[g.scope_start[f] + g.adj_pos[a]]
                for s in range(g.cards[i]):
                    messages[q + s] -= (row[s] - low) / inner


@one_form
@compiled
def _core_beliefs(g, ids, begin, messages, at, flat):
    """b of some variables, each entry rounded down."""
    for k in range(len(ids)):
        i = ids[k]
        count = g.adj_start[i + 1] - g.adj_start[i]
        for s in range(g.cards[i]):
            total = g.unary[g.offset[i] + s]
            size = abs(total)
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                v = messages[at[g.scope_start[g.adj_factor[a]] + g.adj_pos[a]] + s]
                total += v
                size += abs(v)
            flat[begin[k] + s] = total - 2.0 * UNIT * (count + 1) * size


@one_form
@compiled
def _core_tables(g, ids, begin, messages, at, flat):
    """c of some factors, each entry rounded down; ``flat`` has some room at the end (tabulate)."""
    labels = np.zeros(128, np.int64)
    for k in range(len(ids)):
        f = ids[k]
        first, last = g.scope_start[f], g.scope_start[f + 1]
        size = tabulate(g, f, flat[begin[k] :])
        labels[: last - first] = 0
        for x in range(size):
            total = flat[begin[k] + x]
            large = abs(total)
            for p in range(first, last):
                v = messages[at[p] + labels[p - first]]
                total -= v
                large += abs(v)
            # the entry itself may be rounded (weight times parameter), then one rounding for every message
            flat[begin[k] + x] = total - 2.0 * UNIT * (last - first + 8) * large
            p = last - 1
            while p >= first:
                labels[p - first] += 1
                if labels[p - first] < g.cards[g.scope[p]]:
                    break
                labels[p - first] = 0
                p -= 1


class Blocks:
    """Messages on a graph and the minima of all blocks; ``low`` and ``wrong`` are kept up to date."""

    def __init__(self, graph: Graph, messages: FloatArray) -> None:
        self.graph, self.messages = graph, messages
        g = graph.arrays
        self.at = message_offsets(graph)
        self.scratch = workspace(g)
        self.longest = int((self.at[g.scope_start[1:]] - self.at[g.scope_start[:-1]]).max(initial=1))
        self.low_v, self.wrong_v = np.zeros((2, graph.n))
        self.low_f, self.wrong_f = np.zeros((2, graph.m))
        self.all_v, self.all_f = np.arange(graph.n), np.arange(graph.m)
        self.refresh(self.all_v, self.all_f)

    def refresh(self, variables: IntArray, factors: IntArray) -> None:
        """Minima of these blocks, whose messages have changed."""
        g, m, at = self.graph.arrays, self.messages, self.at
        over_blocks(_variable_minima, variables, g, m, at, self.low_v, self.wrong_v)
        over_blocks(_factor_minima, factors, g, m, at, self.low_f, self.wrong_f, self.scratch, self.longest)

    def sum(self) -> tuple[float, float]:
        """Sum of the minima of all blocks, and what rounding may have added to it."""
        low = math.fsum(self.low_v.tolist()), math.fsum(self.low_f.tolist())
        wrong = 1.001 * UNIT * float(self.wrong_v.sum() + self.wrong_f.sum())
        return low[0] + low[1], wrong + 4.0 * UNIT * (abs(low[0]) + abs(low[1]))

    def excess(self, labels: IntArray, variables: IntArray, factors: IntArray) -> tuple[FloatArray, FloatArray]:
        """By how much each of these blocks is above its minimum at a labelling: over all blocks, energy - bound."""
        g, m, at = self.graph.arrays, self.messages, self.at
        own, joint = np.zeros(len(variables)), np.zeros(len(factors))
        over_blocks(_variable_excess, variables, g, m, at, labels, self.low_v, own)
        over_blocks(_factor_excess, factors, g, m, at, labels, self.low_f, joint)
        return own, joint

    def press(self, rings: IntArray, core: IntArray, distance: IntArray) -> None:
        """Costs of the rings around a core move into it; see ``_press``."""
        g = self.graph.arrays
        _press(g, rings, core, distance, self.messages, self.at, self.scratch, self.longest)

    def tables(self, variables: IntArray, factors: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Lower bounds of all entries of some blocks: of variables, of factors, and where each factor begins."""
        g = self.graph.arrays
        begin_v = np.concatenate(([0], np.cumsum(g.cards[variables], dtype=np.int64)))
        own = np.empty(int(begin_v[-1]))
        _core_beliefs(g, variables, begin_v, self.messages, self.at, own)
        begin = np.zeros(len(factors) + 1, np.int64)
        for k, f in enumerate(factors.tolist()):
            size = int(np.prod(g.cards[g.scope[g.scope_start[f] : g.scope_start[f + 1]]], dtype=np.int64))
            begin[k + 1] = begin[k] + size
        joint = np.empty(int(begin[-1]) + self.graph.order)
        _core_tables(g, factors, begin, self.messages, self.at, joint)
        return own, joint[: begin[-1]], begin


def over_blocks(kernel: Any, ids: IntArray, *arguments: Any) -> None:
    """The kernel on some blocks, on several threads where there are many."""
    if len(ids) >= MANY:
        parallel.run(kernel, len(ids), ids, *arguments)
    elif len(ids):
        kernel(0, len(ids), ids, *arguments)
