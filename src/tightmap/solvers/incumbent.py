"""The best labelling so far, and how proposals improve it.

A proposal is first descended to a local minimum (BCD), then fused: the best mixture of both that roof duality finds in
a pairwise model, and every connected region where the proposal beats the incumbent.  Then the incumbent is polished by
exact dynamic programming over blocks, the rows and the columns of a grid or greedy forests of any graph, visiting only
blocks near a change.  Nothing here ever raises the energy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.compiled import compiled, lean
from tightmap.energy import energy
from tightmap.factors.kernels import workspace
from tightmap.graph import Graph
from tightmap.graphcut.components import component_fusion
from tightmap.graphcut.fusion import fuse_proposal
from tightmap.solvers.base import Context, Labels
from tightmap.solvers.bcd import descend, local_minimum
from tightmap.solvers.forest import Forests, forest_blocks, minimise_forest

CHUNK = 16  # blocks between two looks at the clock
FUSED = 4  # order up to which roof duality fuses (quadratisation adds variables with the order)


@lean
def _near(g, before, after, out):
    """Set out[..., i] for every variable i that changed or shares a factor with one that did."""
    for i in range(len(g.cards)):
        if before[i] != after[i]:
            for k in range(out.shape[0]):
                out[k, i] = 1
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = int(g.adj_factor[a])
                for p in range(g.scope_start[f], g.scope_start[f + 1]):
                    for k in range(out.shape[0]):
                        out[k, g.scope[p]] = 1


@compiled
def _polish(g, start, order, parent, link, family, begin, end, labels, touched, cost, inside, scratch):
    """Minimise the blocks begin..end of a family that hold a touched variable; returns how many improved."""
    improved = 0
    for b in range(begin, end):
        lo, hi = start[b], start[b + 1]
        stale = False
        for q in range(lo, hi):
            if touched[family, order[q]] != 0:
                stale = True
                break
        if not stale:
            continue
        old = labels[order[lo:hi]]
        gain = minimise_forest(g, labels, order[lo:hi], parent[lo:hi], link[lo:hi], cost, inside, scratch, cost, False)
        if gain < 0.0:
            improved += 1
            for q in range(lo, hi):
                i = order[q]
                if labels[i] != old[q - lo]:
                    for a in range(g.adj_start[i], g.adj_start[i + 1]):
                        f = int(g.adj_factor[a])
                        for p in range(g.scope_start[f], g.scope_start[f + 1]):
                            for k in range(touched.shape[0]):
                                touched[k, g.scope[p]] = 1
        for q in range(lo, hi):
            touched[family, order[q]] = 0
    return improved


class Incumbent:
    """Labels of the best labelling, its canonical energy, and the blocks that are not known to be optimal."""

    def __init__(self, graph: Graph, context: Context, polish: bool) -> None:
        self.graph, self.context = graph, context
        self.labels: Labels | None = None
        self.energy = float("inf")
        self._families: list[Forests] | None = None if polish else []
        self._touched = np.zeros((0, graph.n), dtype=np.uint8)

    def offer(self, proposal: npt.NDArray[np.integer]) -> bool:
        """Improve the incumbent with a proposal; True when the energy fell."""
        graph = self.graph
        labels = local_minimum(graph, np.asarray(proposal, dtype=np.int64))
        if self.labels is None:
            self.labels = labels
            self._touched[:] = 1
        else:
            before = self.labels.copy()
            if graph.order <= FUSED:
                self.labels = fuse_proposal(graph, self.labels, labels)
            component_fusion(graph.arrays, self.labels, labels, 1e-12 * abs(self.energy))
            if (self.labels == before).all():
                return False
            dirty = np.zeros((1, graph.n), dtype=np.uint8)
            _near(graph.arrays, before, self.labels, dirty)
            everyone = np.arange(graph.n)
            while descend(graph.arrays, self.labels, dirty[0], everyone, 0, graph.n):
                pass
            _near(graph.arrays, before, self.labels, self._touched)
        value = energy(graph, self.labels)
        fell = value < self.energy
        self.energy = value
        return fell

    def polish(self, rounds: int = 2) -> None:
        """Block descent on the touched blocks, until nothing improves, the rounds or the time are over."""
        if self.labels is None or self._families == []:
            return
        graph = self.graph
        g = graph.arrays
        if self._families is None:
            self._families = _families(graph)
            self._touched = np.ones((len(self._families), graph.n), dtype=np.uint8)
        cost = np.empty(len(g.unary))
        inside = np.zeros(graph.n, dtype=np.uint8)
        scratch = workspace(g)
        for _ in range(rounds):
            improved = 0
            for k, family in enumerate(self._families):
                blocks = len(family.start) - 1
                for b in range(0, blocks, CHUNK):
                    end = min(b + CHUNK, blocks)
                    improved += _polish(g, *family, k, b, end, self.labels, self._touched, cost, inside, scratch)
                    if self.context.remaining() <= 0:
                        break
            if improved == 0 or self.context.remaining() <= 0:
                break
        self.energy = energy(graph, self.labels)


def _families(graph: Graph) -> list[Forests]:
    """Families of blocks, each covering every variable once."""
    from tightmap.errors import ModelError

    try:
        families = [forest_blocks(graph, "rows"), forest_blocks(graph, "columns")]
    except ModelError:  # not a grid, or with factors along the lines
        return [forest_blocks(graph, "forests")]
    if len(graph.arrays.scope) > 7 * graph.n:  # more than four neighbours: the diagonals are chains as well
        families += [forest_blocks(graph, "diagonals"), forest_blocks(graph, "antidiagonals")]
    return families
