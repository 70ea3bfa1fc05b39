"""Coordinate descent again and again from labellings that differ little from one another.

A variable whose own label and all neighbours' labels are those of a local minimum p has nothing to gain, as was found
out when p was reached.  So from the next labelling x only the variables i with x_i != p_i and their neighbours are
visited, and from there on what changes; the result is the one of ``local_minimum``, label by label.

On an image without a list of edges regions may change their labels as a whole after that (lattice_regions.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import descend_within, settle_all
from tightmap.moves.lattice_descent import mark_pixels
from tightmap.moves.lattice_regions import merge_regions
from tightmap.runtime.compiled import lean

DESCENT = "first descent"  # what a run leaves for the next one of a plan: a local minimum, and the unaries it is one of


@lean
def _mark(g, labels, settled, dirty):
    """Mark the variables that have another label than in ``settled``, and their neighbours."""
    for i in range(len(labels)):
        if labels[i] != settled[i]:
            dirty[i] = 1
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = int(g.adj_factor[a])
                for p in range(g.scope_start[f], g.scope_start[f + 1]):
                    dirty[g.scope[p]] = 1


@lean
def _mark_costs(g, before, dirty):
    """Mark the variables that have other unary costs than before."""
    for i in range(len(g.cards)):
        for s in range(g.offset[i], g.offset[i + 1]):
            if g.unary[s] != before[s]:
                dirty[i] = 1


def first_descent(graph: Graph, labels: Labels, seconds: float) -> bool:
    """Descend in place to a local minimum (True), or as far as so many seconds allow.

    The run before has left in a plan where its first descent ended: what has the same costs and neighbours as there has
    nothing to gain here.
    """
    known = graph.take(DESCENT)
    if known is None:
        dirty = np.ones(graph.n, dtype=np.uint8)
    else:
        dirty = np.zeros(graph.n, dtype=np.uint8)
        _mark_costs(graph.arrays, known[1], dirty)
        _mark(graph.arrays, labels, known[0], dirty)
    settled = descend_within(graph, labels, dirty, seconds)
    if settled and graph.planned:
        graph.leave(DESCENT, (labels, graph.unary))
    return settled


class Polisher:
    """Local minima of one model, each from the knowledge of the last one."""

    def __init__(self, graph: Graph, context: Context | None = None) -> None:
        self.graph = graph
        self.settled: npt.NDArray[np.integer] | None = None  # the last local minimum
        if context is not None and context.incumbent is not None and context.incumbent.graph is graph:
            self.settled = context.incumbent.settled

    def _mark(self, labels: Labels, dirty: npt.NDArray[np.uint8]) -> None:
        if self.graph.lattice is not None:  # which has no list of neighbours
            mark_pixels(self.graph.lattice.pixels, labels, self.settled, dirty)
        else:
            _mark(self.graph.arrays, labels, self.settled, dirty)

    def local_minimum(self, labels: npt.NDArray[np.integer], context: Context, regions: bool = False) -> Labels:
        """The labelling that coordinate descent reaches from this one (a new array); in haste after the time limit.

        regions : go on from there with moves of regions, where the model is a large image
        """
        out = np.array(labels, dtype=np.int64)
        if self.settled is None:
            dirty = np.ones(self.graph.n, dtype=np.uint8)
        else:
            dirty = np.zeros(self.graph.n, dtype=np.uint8)
            self._mark(out, dirty)
        settle_all(self.graph, out, dirty, context)
        settled = not dirty.any()  # else time was up
        del dirty
        if settled and regions and self.graph.lattice is not None:
            merge_regions(self.graph, out, context)
            settled = context.remaining() > 0.0
        if settled:
            self.settled = out.astype(self.graph.label_type if self.graph.lattice is not None else np.int64)
        return out
