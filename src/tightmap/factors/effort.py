"""How long one operation on one factor takes, so that a method can refuse a model on which it could not stop.

Kernels look at the clock between factors, not inside one.  Nearly every kind of factor is through within milliseconds
however large it is; the exceptions are tables of hundreds of millions of entries, patterns of eleven and more
variables, and second differences of more than a thousand labels.
"""

from __future__ import annotations

import math

import numpy as np

from tightmap.errors import ModelError
from tightmap.factors.kind import Sizes
from tightmap.factors.kinds import row_of, rows_by_kind
from tightmap.graph.graph import FloatArray, Graph

MOST = 0.4  # seconds that one operation may take
LARGE = 1e8  # entries of a table up to which nothing takes that long


def _sizes(graph: Graph) -> tuple[FloatArray, FloatArray]:
    """(m,) entries of the table of every factor (as if there were one), and number of its variables."""
    g = graph.arrays
    arity = np.diff(g.scope_start).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.multiply.reduceat(g.cards[g.scope].astype(np.float64), g.scope_start[:-1]), arity


def operation_seconds(graph: Graph, contraction: bool) -> FloatArray:
    """(m,) seconds, about, of one contraction or one min-marginal of every factor on a present-day core."""
    g = graph.arrays
    entries, arity = _sizes(graph)
    labels = np.maximum.reduceat(g.cards[g.scope], g.scope_start[:-1]).astype(np.float64)
    sizes = Sizes(g, entries, arity, labels)
    seconds = np.empty(graph.m)
    for row, factors in rows_by_kind(g.kind):
        seconds[factors] = row.seconds(sizes, factors, contraction)
    return seconds


def check_effort(graph: Graph, method: str, contraction: bool) -> None:
    """Refuse a model with a factor on which one operation takes so long that no time limit could be kept."""
    if graph.m == 0 or graph.order * math.log(max(graph.max_labels, 1)) <= math.log(LARGE):
        return
    if _sizes(graph)[0].max() <= LARGE:
        return
    seconds = operation_seconds(graph, contraction)
    f = int(np.argmax(seconds))
    if seconds[f] > MOST:
        kind = row_of(graph.arrays.kind[f]).block.name.lower().replace("_", " ")
        raise ModelError(
            f"method {method!r} would need about {seconds[f]:.2g} s for one message of the factor on variables "
            f"{graph.original_scope(f)} ({kind}, {_sizes(graph)[0][f]:.3g} labellings), more than {MOST} s; "
            "try method 'sa', 'tabu' or 'lns'"
        )
