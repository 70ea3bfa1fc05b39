"""How nearly are the tables of a pairwise model metrics?  The share of label triples that meet the triangle inequality,

    theta(a, b) + theta(c, c) <= theta(a, c) + theta(c, b),      a != c != b,

in a sample of the factors.  An expansion move is exact where it holds and truncated where it does not, so this tells
whether expansion is worth its time.  Metrics have 1, tables of independent random costs 1/2.
"""

from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Graph, Kind

FACTORS = 256  # of these the tables are looked at, evenly spread over the model
LABELS = 12  # and so many labels of each
ROUNDING = 1e-9  # part of the largest cost of a table


def met_triangles(graph: Graph) -> float:
    """The share of triangles that hold, 0 where a factor is of a kind that cuts would have to tabulate."""
    g = graph.arrays
    differences = (Kind.POTTS, Kind.LINEAR, Kind.QUADRATIC)
    dense = np.flatnonzero(g.kind == Kind.DENSE)
    others = np.delete(g.weight, dense) if len(dense) < len(g.kind) else np.zeros(0)
    if graph.order != 2 or not np.isin(g.kind, (Kind.DENSE, *differences)).all() or (others < 0.0).any():
        return 0.0
    if len(dense) == 0:
        return 1.0
    met = total = 0
    for f in dense[:: max(1, len(dense) // FACTORS)]:
        i, j = g.scope[2 * f], g.scope[2 * f + 1]
        wide = int(g.cards[j])
        few = min(int(g.cards[i]), wide)
        start = int(g.param[f])
        table = g.weight[f] * g.params[start : start + int(g.cards[i]) * wide].reshape(-1, wide)
        chosen = np.unique(np.linspace(0, few - 1, min(few, LABELS)).astype(np.int64))
        t = table[np.ix_(chosen, chosen)]
        left = t[:, :, None] + np.diagonal(t)
        right = t[:, None, :] + t.T[None]
        other = ~np.eye(len(chosen), dtype=bool)
        counts = other[:, None, :] & other[None]
        met += int(((left <= right + ROUNDING * np.abs(t).max()) & counts).sum())
        total += int(counts.sum())
    return met / total
