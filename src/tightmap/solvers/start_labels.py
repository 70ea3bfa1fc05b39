"""Where methods that walk from a labelling begin: what the user gave, or what the unaries suggest."""

from __future__ import annotations

import numpy as np

from tightmap.energy.energies import unary_argmin
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum, round_and_descend
from tightmap.solvers.base import Init


def descended(graph: Graph, init: Init, context: Context) -> Labels:
    """The local minimum below the given labels, or below the cheapest unaries (relaxed vectors do not count)."""
    return local_minimum(graph, unary_argmin(graph) if init.labels is None else init.labels, context)


def given_labels(graph: Graph, init: Init, context: Context) -> Labels | None:
    """The given labels as they are, or those that given relaxed vectors are rounded to; None without either."""
    if init.labels is not None:
        return np.array(init.labels, dtype=np.int64)
    return None if init.relaxed is None else round_and_descend(graph, init.relaxed, context)


def given_or_descended(graph: Graph, init: Init, context: Context) -> Labels:
    """What is given, and where nothing is, the local minimum below the cheapest unaries."""
    labels = given_labels(graph, init, context)
    return local_minimum(graph, unary_argmin(graph), context) if labels is None else labels
