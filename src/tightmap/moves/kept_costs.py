"""The costs of all labels of all variables, kept up to date while single labels change.

cost[offset[i] + s] is the energy of label s at variable i given the labels of the others
(``coordinate_descent.initial_costs``).  A search that changes one label after the other reads its next move from these
costs; a change touches only the factors around one variable.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import change
from tightmap.graph.graph import Graph
from tightmap.runtime.compiled import lean


@lean
def change_label(g, labels, cost, i, s):
    """Give variable i the label s, another than it has, and bring the costs of its neighbours up to date."""
    now = labels[i]
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        change(g, g.adj_factor[a], g.adj_pos[a], labels, cost, now, s)
    labels[i] = s


def costs_touched(graph: Graph) -> npt.NDArray[np.int64]:
    """(n,) how many kept costs change with the label of each variable: those of the others in its factors."""
    g = graph.arrays
    arity = np.diff(g.scope_start)
    own = g.cards[g.scope].astype(np.int64)
    together = np.add.reduceat(own, g.scope_start[:-1]) if graph.m else np.zeros(0, dtype=np.int64)
    touched = np.zeros(graph.n, dtype=np.int64)
    np.add.at(touched, g.scope, np.repeat(together, arity) - own)
    return touched
