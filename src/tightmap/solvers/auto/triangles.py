"""How nearly are the tables of a pairwise model metrics?  The share of label triples that meet the triangle inequality,

    theta(a, b) + theta(c, c) <= theta(a, c) + theta(c, b),      a != c != b,

in a sample of the factors.  An expansion move is exact where it holds and truncated where it does not, so this tells
whether expansion is worth its time.  Metrics have 1, tables of independent random costs 1/2.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Graph, Kind
from tightmap.runtime.compiled import lean

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
    some = dense[:: max(1, len(dense) // FACTORS)].astype(np.int64)
    met, total = count_triangles(g.cards, g.scope, g.scope_start, g.weight, g.param, g.params, some)
    return float(met / total)


@lean
def label_of(k, asked, few):
    """The k-th of so many labels, evenly spread over the few that there are."""
    return k * (few - 1) // max(1, asked - 1)


@lean
def count_triangles(cards, scope, scope_start, weight, param, params, factors):
    """How many triangles of these tables hold, and how many there are; at most LABELS labels, evenly spread."""
    met, total = 0, 0
    for f in factors:
        a = scope_start[f]
        wide = cards[scope[a + 1]]
        few = min(cards[scope[a]], wide)
        asked = min(few, LABELS)
        w = weight[f]
        table = params[param[f] : param[f] + cards[scope[a]] * wide]
        most = 0.0
        for i in range(asked):
            for j in range(asked):
                most = max(most, abs(w * table[label_of(i, asked, few) * wide + label_of(j, asked, few)]))
        for k in range(asked):
            z = label_of(k, asked, few)
            for i in range(asked):
                x = label_of(i, asked, few)
                for j in range(asked):
                    if i == k or j == k:
                        continue
                    y = label_of(j, asked, few)
                    straight = w * table[x * wide + y] + w * table[z * wide + z]
                    total += 1
                    met += straight <= w * table[x * wide + z] + w * table[z * wide + y] + ROUNDING * most
    return met, total
