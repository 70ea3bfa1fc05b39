"""How the end of a walk improves the best labelling."""

from __future__ import annotations

from tightmap.graph.graph import Graph
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.coordinate_descent import local_minimum


def absorb(graph: Graph, context: Context, incumbent: Incumbent, walk: Labels) -> Labels | None:
    """Descend from the labelling of a walk, and take over every region in which it is better; the new best, if it is.

    What one walk found in one part of a large model is kept when another one is better elsewhere.
    """
    found = local_minimum(graph, walk, context)
    labels = incumbent.wide_labels
    component_fusion(graph.arrays, labels, found)
    return labels if incumbent.offer(labels) else None
