"""Diagnostics for people: how far a labelling or a relaxed point is from being stationary for the tight relaxation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightmap.driver import initial_point
from tightmap.energy.energies import gradient, one_hot
from tightmap.errors import ModelError
from tightmap.model.model import Model


def stationarity(model: Model, x: Any) -> float:
    """The Frank-Wolfe gap  sum_i <g_i, x_i> - min_s g_i(s)  of the relaxed energy at x, g its gradient there.

    It is never negative, zero exactly at the stationary points of the relaxation (paper, Proposition 2), and says how
    much a linear model of the energy promises to gain.  At a labelling, zero means that no change of one variable
    lowers the energy; otherwise it is the sum of what every variable could gain if all others stayed.

    x : (n,) labels, or relaxed vectors ((n, S) or one vector per variable), or a Result.
    Forbidden combinations count with the large finite cost that stands for them in the search.
    """
    if x is None:
        raise ModelError("stationarity: expected labels, relaxed vectors or a Result, got None")
    graph = model.graph()
    point = initial_point(model, graph, x)
    if graph.n == 0:
        return 0.0
    vectors = point.relaxed if point.relaxed is not None else one_hot(graph, _labels(point.labels))
    slope = gradient(graph, vectors)
    g = graph.arrays
    low = np.minimum.reduceat(slope, g.offset[:-1])
    return float(((slope - np.repeat(low, g.cards)) * vectors).sum())


def _labels(labels: np.ndarray | None) -> np.ndarray:
    assert labels is not None
    return labels
