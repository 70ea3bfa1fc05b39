"""A smaller stand-in for hard costs, for searches that step along gradients.

A Graph gives +inf a finite cost so large that optima are unchanged (canonical/assemble.py), and a gradient of that size
leaves no room for anything else.  The search therefore runs on the same model with a cost of the order of the largest
soft range in its place; whatever it finds is rounded and evaluated with the real costs.  Lowering the cost of forbidden
labellings never raises the energy of any labelling, so a lower bound of the softened model is a lower bound of the
model.
"""

from __future__ import annotations

import numpy as np

from tightmap.graph.graph import Arrays, Graph


def soft_range(graph: Graph) -> float:
    """At least the largest finite cost of one factor above its smallest one or zero."""
    if graph.hard > 0.0:
        return graph.soft_range
    g = graph.arrays
    largest = float(np.abs(g.weight).max(initial=0.0))
    if len(g.params):
        largest *= max(1.0, float(g.params.max() - min(0.0, float(g.params.min()))))  # 1: Potts has no table
    if len(g.unary):
        ranges = np.maximum.reduceat(g.unary, g.offset[:-1]) - np.minimum.reduceat(g.unary, g.offset[:-1])
        largest = max(largest, float(ranges.max()))
    return largest


def softened(graph: Graph, multiple: float) -> Arrays:
    """The arrays with hard costs of ``multiple`` soft ranges, the graph's own arrays where there are none."""
    g = graph.arrays
    if graph.unary_hard is None and graph.params_hard is None:
        return g
    drop = graph.hard - multiple * graph.soft_range
    if drop <= 0.0 or graph.soft_range == 0.0:
        return g
    unary, params = g.unary, g.params
    if graph.unary_hard is not None:
        unary = np.where(graph.unary_hard, unary - drop, unary)
    if graph.params_hard is not None:
        params = np.where(graph.params_hard, params - drop, params)
    return g._replace(unary=unary, params=params)
