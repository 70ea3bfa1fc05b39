"""Kernels of AD3: the programs of all factors, the consensus of their copies, multipliers, and excluded labels.

Vectors of (factor, position) are laid out as messages are (energies.message_offsets), those of variables as unaries.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import labellings, minmarg, most_labels
from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.one_form import one_form
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.solvers.decomposition.active_set import make_work, solve_factor
from tightmap.solvers.decomposition.binary_pair import solve_binary_pair

FACTORS = 64  # in a block
VARIABLES = 512
KEPT = 12  # labellings of a set that are kept from one iteration to the next, at most
MOST = 256  # labellings in a set, at most: larger ones are not worth their time


class Sets(NamedTuple):
    """The active sets of all factors between two iterations."""

    label_start: IntArray  # (m + 1,) labellings of factor f are rows of labels[label_start[f] :]
    start: IntArray  # (m + 1,) its weights and costs are at start[f] : start[f + 1]
    held: npt.NDArray[np.int32]  # (m,) how many labellings there are
    labels: npt.NDArray[np.int32]
    weight: FloatArray
    cost: FloatArray


class Sizes(NamedTuple):
    """How much scratch space the programs need."""

    arity: int
    entries: int
    most: int
    scratch: int


def independent_labellings(graph: Graph) -> IntArray:
    """(m,) how many labellings of a factor can be affinely independent."""
    g = graph.arrays
    return 1 + np.add.reduceat(g.cards[g.scope].astype(np.int64) - 1, g.scope_start[:-1])


def make_sets(graph: Graph) -> Sets:
    arity = np.diff(graph.arrays.scope_start)
    room = np.minimum(independent_labellings(graph), KEPT)
    start = np.concatenate(([0], np.cumsum(room)))
    label_start = np.concatenate(([0], np.cumsum(room * arity)))
    total = int(start[-1])
    count = np.zeros(graph.m, dtype=np.int32)
    return Sets(label_start, start, count, np.empty(int(label_start[-1]), np.int32), np.empty(total), np.empty(total))


@lean
def _take(sets, f, k, w):
    """The kept set of factor f."""
    count = sets.held[f]
    at, row = sets.start[f], sets.label_start[f]
    for r in range(count):
        w.weight[r] = sets.weight[at + r]
        w.cost[r] = sets.cost[at + r]
        for p in range(k):
            w.sets[r, p] = sets.labels[row + r * k + p]
    return count


@lean
def _keep(sets, f, k, count, w):
    """Keep the labellings that have weight, as many as there is room for."""
    at, row = sets.start[f], sets.label_start[f]
    room = sets.start[f + 1] - at
    kept = 0
    total = 0.0
    for r in range(count):
        if w.weight[r] > 0.0 and kept < room:
            sets.weight[at + kept] = w.weight[r]
            sets.cost[at + kept] = w.cost[r]
            total += w.weight[r]
            for p in range(k):
                sets.labels[row + kept * k + p] = w.sets[r, p]
            kept += 1
    for r in range(kept):
        sets.weight[at + r] /= total
    sets.held[f] = kept


@one_form
@compiled
def solve_factors(first, last, g, unary, at, multipliers, point, still, eta, copies, sets, sizes, done, solved, left):
    """New copies of the variables of all factors of some blocks, as far as time allows.

    ``done`` counts the factors of each block that are through; those whose variables all stand still keep their copies.
    """
    w = make_work(len(g.cards), sizes.arity, sizes.entries, sizes.most, sizes.scratch)
    until = end_of(left)
    spent = 0.0
    for b in range(first, last):
        begin = b * FACTORS
        end = min(len(g.kind), begin + FACTORS)
        for f in range(begin + done[b], end):
            if spent > LOOK:
                spent = 0.0
                if late(until):
                    return
            done[b] += 1
            a = g.scope_start[f]
            k = g.scope_start[f + 1] - a
            spent += 10.0
            rest = True
            for p in range(k):
                rest = rest and still[g.scope[a + p]] != 0
            if rest:
                continue
            solved[b] += 1
            base = at[a]
            binary = k == 2
            for p in range(k):
                i = g.scope[a + p]
                w.start[p] = at[a + p] - base
                o, c = g.offset[i], g.cards[i]
                binary = binary and c == 2
                share = 1.0 / (g.adj_start[i + 1] - g.adj_start[i])
                for s in range(c):
                    w.linear[w.start[p] + s] = share * unary[o + s] + multipliers[at[a + p] + s] - eta * point[o + s]
            w.start[k] = at[a + k] - base
            if binary:
                solve_binary_pair(g, f, eta, w)
                spent += 50.0
            else:
                count = _take(sets, f, k, w)
                count = solve_factor(g, f, eta, count, sizes.most, w)
                _keep(sets, f, k, count, w)
                spent += 200.0 + count * (k * labellings(g, f) + count * count)
            for e in range(w.start[k]):
                copies[base + e] = w.marginal[e]


@one_form
@compiled
def agree(
    first, last, g, at, copies, eta, relaxation, multipliers, point, mean, mean_point, share, still, primal, dual
):
    """The mean of the copies of every variable of some blocks, and the step of the multipliers.

    Means over the iterations take in the new multipliers and the new point with weight ``share``.
    """
    new = np.empty(most_labels(g.cards))
    for b in range(first, last):
        apart = 0.0
        moved = 0.0
        for i in range(b * VARIABLES, min(len(g.cards), (b + 1) * VARIABLES)):
            degree = g.adj_start[i + 1] - g.adj_start[i]
            if degree == 0:
                continue
            o, c = g.offset[i], g.cards[i]
            for s in range(c):
                new[s] = 0.0
            for t in range(g.adj_start[i], g.adj_start[i + 1]):
                m = at[g.scope_start[g.adj_factor[t]] + g.adj_pos[t]]
                for s in range(c):
                    new[s] += copies[m + s]
            rest = True
            for s in range(c):
                step = relaxation * (new[s] / degree - point[o + s])
                rest = rest and step == 0.0
                new[s] = point[o + s] + step
                moved += degree * step * step
            for t in range(g.adj_start[i], g.adj_start[i + 1]):
                m = at[g.scope_start[g.adj_factor[t]] + g.adj_pos[t]]
                for s in range(c):
                    away = copies[m + s] - new[s]
                    apart += away * away
                    off = point[o + s] + relaxation * (copies[m + s] - point[o + s]) - new[s]
                    multipliers[m + s] += eta * off
                    mean[m + s] += share * (multipliers[m + s] - mean[m + s])
                    rest = rest and off == 0.0
            for s in range(c):
                point[o + s] = new[s]
                mean_point[o + s] += share * (new[s] - mean_point[o + s])
            still[i] = rest
        primal[b] = apart
        dual[b] = moved


@one_form
@compiled
def to_messages(g, unary, at, multipliers, messages):
    """m_{A->i} = -(theta_i / degree + lambda_i^A): nothing is left at the variables."""
    for i in range(len(g.cards)):
        o = g.offset[i]
        share = 1.0 / max(1, g.adj_start[i + 1] - g.adj_start[i])
        for t in range(g.adj_start[i], g.adj_start[i + 1]):
            m = at[g.scope_start[g.adj_factor[t]] + g.adj_pos[t]]
            for s in range(g.cards[i]):
                messages[m + s] = -(share * unary[o + s] + multipliers[m + s])


@compiled
def from_messages(g, at, messages, multipliers):
    """Multipliers of any messages: what they leave at a variable goes to its factors in equal shares."""
    total = np.empty(most_labels(g.cards))
    for i in range(len(g.cards)):
        share = 1.0 / max(1, g.adj_start[i + 1] - g.adj_start[i])
        for s in range(g.cards[i]):
            total[s] = 0.0
        for t in range(g.adj_start[i], g.adj_start[i + 1]):
            m = at[g.scope_start[g.adj_factor[t]] + g.adj_pos[t]]
            for s in range(g.cards[i]):
                total[s] += messages[m + s]
        for t in range(g.adj_start[i], g.adj_start[i + 1]):
            m = at[g.scope_start[g.adj_factor[t]] + g.adj_pos[t]]
            for s in range(g.cards[i]):
                multipliers[m + s] = share * total[s] - messages[m + s]


@compiled
def exclude(g, at, messages, sizes, room, allowed, left):
    """Forbid every label that alone raises the minimum of a factor by ``room`` or more; returns how many.

    The messages leave nothing at the variables, so a labelling with such a label costs as much more than the bound.
    """
    costs, out, work = np.empty(sizes.entries), np.empty(sizes.scratch), np.empty(sizes.scratch)
    start = np.empty(128, np.int64)
    until = end_of(left)
    spent = 0.0
    count = 0
    for f in range(len(g.kind)):
        a = g.scope_start[f]
        k = g.scope_start[f + 1] - a
        spent += k * (20.0 + labellings(g, f))
        if spent > LOOK:
            spent = 0.0
            if late(until):
                return count
        for p in range(k):
            start[p] = at[a + p] - at[a]
            for s in range(g.cards[g.scope[a + p]]):
                costs[start[p] + s] = -messages[at[a + p] + s]
        for p in range(k):
            i = g.scope[a + p]
            minmarg(g, f, p, costs, start, out, work)
            low = np.inf
            for s in range(g.cards[i]):
                out[s] += costs[start[p] + s]
                low = min(low, out[s])
            for s in range(g.cards[i]):
                if allowed[g.offset[i] + s] and out[s] - low >= room:
                    allowed[g.offset[i] + s] = 0
                    count += 1
    return count


@one_form
@compiled
def likeliest(g, point):
    """The label of the largest entry of every variable, the lowest on ties."""
    labels = np.zeros(len(g.cards), np.int64)
    for i in range(len(g.cards)):
        o = g.offset[i]
        best = 0
        for s in range(1, g.cards[i]):
            if point[o + s] > point[o + best]:
                best = s
        labels[i] = best
    return labels
