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
