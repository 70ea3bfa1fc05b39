"""The unit in which searches measure temperatures and random costs."""

from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Graph
from tightmap.moves.context import Labels
from tightmap.moves.coordinate_descent import initial_costs


def typical_change(graph: Graph, labels: Labels, breaking: bool = True) -> float:
    """Median cost, over variables, of the cheapest change of one label at a local minimum.

    What costs more than a broken constraint is left out; without ``breaking``, all that breaks one.
    """
    g = graph.arrays
    cost = np.empty(len(g.unary))
    initial_costs(g, labels, cost)
    cost -= np.repeat(cost[g.offset[:-1] + labels], g.cards)
    cost[g.offset[:-1] + labels] = np.inf
    cheapest = np.minimum.reduceat(cost, g.offset[:-1])
    cheapest = np.maximum(cheapest, 0.0)
    most = (1.0 if breaking else 0.5) * graph.hard if graph.hard > 0.0 else np.inf
    positive = cheapest[(cheapest > 0.0) & (cheapest < most)]
    return float(np.median(positive)) if len(positive) else 1.0
