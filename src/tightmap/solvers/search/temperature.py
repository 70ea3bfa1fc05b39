"""The unit in which searches measure temperatures and random costs."""

from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Graph
from tightmap.moves.context import Labels
from tightmap.moves.coordinate_descent import initial_costs


def typical_change(graph: Graph, labels: Labels) -> float:
    """Median cost, over variables, of the cheapest change of one label at a local minimum (hard costs left out)."""
    g = graph.arrays
    cost = np.empty(len(g.unary))
    initial_costs(g, labels, cost)
    cost -= np.repeat(cost[g.offset[:-1] + labels], g.cards)
    cost[g.offset[:-1] + labels] = np.inf
    cheapest = np.minimum.reduceat(cost, g.offset[:-1])
    cheapest = np.maximum(cheapest, 0.0)
    soft = cheapest[cheapest < graph.hard] if graph.hard > 0.0 else cheapest
    positive = soft[soft > 0.0]
    return float(np.median(positive)) if len(positive) else 1.0
