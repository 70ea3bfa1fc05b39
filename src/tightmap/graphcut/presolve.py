"""Labels that an optimum must have, or can do without, found before any search.

``kovtun``     Potts models: for each label, one cut of "this label against the best of the others".  On the smallest
               optimal side every optimal labelling has that label: for any labelling, switching the whole side to it
               lowers the energy strictly (submodularity of the cut and minimality of the side).
``dead_ends``  any model: label s of variable i can go when some label t is at least as good whatever the neighbours do,
                   theta_i(s) - theta_i(t) + sum_f min over the others of [theta_f(s, .) - theta_f(t, .)] >= 0.
               Minima run over the labels still alive, so removals help each other; repeated until nothing changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.kernels import value
from tightmap.graph.graph import Graph, IntArray, Kind
from tightmap.graphcut.flow import MaxFlow
from tightmap.runtime.compiled import compiled, lean

BITS = 40  # largest capacity after rounding to integers


def kovtun(graph: Graph) -> IntArray:
    """(n,) the label that every optimal labelling has, or -1 where the cuts do not tell.

    Needs a Potts model with weights of at least 0; up to the rounding of costs to 40 bits.
    """
    g = graph.arrays
    other = (g.kind != Kind.POTTS) | (g.weight < 0.0)
    if other.any():
        factor = int(np.argmax(other))
        raise ModelError(
            f"Kovtun's persistency needs Potts factors with weights of at least 0, but the factor on variables "
            f"{graph.original_scope(factor)} is {Kind(int(g.kind[factor])).name} with weight {float(g.weight[factor])}"
        )
    fixed = np.full(graph.n, -1, np.int64)
    if graph.m == 0:
        return fixed
    edges = graph.edges.astype(np.int64)
    largest = max(float(np.ptp(g.unary)) if len(g.unary) else 0.0, float(g.weight.max(initial=0.0)), 1e-300)
    scale = 1.0 if graph.quantum == 1.0 and largest < 2.0**BITS else 2.0 ** (BITS - np.ceil(np.log2(largest)))
    weight = np.rint(g.weight * scale).astype(np.int64)
    start, cards = g.offset[:-1], g.cards.astype(np.int64)
    for label in range(graph.max_labels):
        has = cards > label
        at = start + np.minimum(label, cards - 1)
        rest = g.unary.copy()
        rest[at[has]] = np.inf  # the best of the other labels
        best = np.minimum.reduceat(rest, start)
        gain = np.where(has, best - g.unary[at], 0.0)
        gain_int = np.rint(gain * scale).astype(np.int64)
        # a variable without the label can never take it
        gain_int[~has] = -(2 * int(weight.sum()) + 1)
        flow = MaxFlow(
            graph.n, edges[:, 0], edges[:, 1], weight, weight, np.maximum(gain_int, 0), np.maximum(-gain_int, 0)
        )
        flow.solve()
        fixed[flow.source_side()] = label
    return fixed


@lean
def _worst_difference(g, f, position, s, t, alive, labels, limit):
    """min over living labels of the other variables of cost(s) - cost(t); -inf when there are too many to try."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    i = g.scope[a + position]
    total = 1
    for p in range(k):
        if p != position:
            total *= g.cards[g.scope[a + p]]
    if total > limit:
        return -np.inf
    for p in range(k):
        j = g.scope[a + p]
        labels[j] = 0
    best = np.inf
    for _ in range(total):
        ok = True
        for p in range(k):
            j = g.scope[a + p]
            if p != position and not alive[g.offset[j] + labels[j]]:
                ok = False
                break
        if ok:
            labels[i] = s
            v = value(g, f, labels)
            labels[i] = t
            best = min(best, v - value(g, f, labels))
        for p in range(k):
            j = g.scope[a + p]
            if p != position:
                labels[j] += 1
                if labels[j] < g.cards[j]:
                    break
                labels[j] = 0
    return best


@compiled
def _eliminate(g, alive, labels, limit, margin):
    removed = 0
    for i in range(len(g.cards)):
        o = g.offset[i]
        for s in range(g.cards[i]):
            for t in range(g.cards[i]):
                if s == t or not alive[o + s] or not alive[o + t]:
                    continue
                gap = g.unary[o + s] - g.unary[o + t]
                for r in range(g.adj_start[i], g.adj_start[i + 1]):
                    gap += _worst_difference(g, int(g.adj_factor[r]), int(g.adj_pos[r]), s, t, alive, labels, limit)
                    if gap == -np.inf:
                        break
                if gap >= margin:
                    alive[o + s] = False
                    removed += 1
    return removed


def dead_ends(graph: Graph, limit: int = 4096) -> npt.NDArray[np.bool_]:
    """Which labels can stay, flat as graph.arrays.unary; some optimal labelling uses only these.

    Factors whose other variables have more than ``limit`` joint labellings protect the labels of their variables.
    """
    g = graph.arrays
    alive = np.ones(len(g.unary), np.bool_)
    if graph.n == 0:
        return alive
    scale = max(float(np.abs(g.unary).max(initial=0.0)), float(np.abs(g.weight).max(initial=0.0)))
    margin = 0.0 if graph.quantum > 0.0 else 1e-9 * scale  # with real costs a tie may be rounding
    labels = np.zeros(graph.n, np.int64)
    while _eliminate(g, alive, labels, limit, margin):
        pass
    return alive
