"""The labelling that all proposals of one search are fused into.

A proposal is first descended to a local minimum (BCD), then fused: the best mixture of both that roof duality finds in
a pairwise model, and every connected region where the proposal is better.  Then the labelling is polished by
exact dynamic programming over blocks, the rows and the columns of a grid or greedy forests of any graph, visiting only
blocks near a change.  Where factors have three or four variables it is also fused with every constant labelling (on
half-size cones with second differences that lowers the energy by 3 % in ten seconds).  Nothing here ever raises the
energy.

All that needs the list of edges, which takes as much memory as the iterates.  A large image that has none is fused and
polished by moves of its own, of regions and of lines (moves/lattice_regions.py,
moves/lattice_lines.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tightmap.energy.energies import energy
from tightmap.errors import ModelError
from tightmap.factors.kernels import workspace
from tightmap.graph.graph import Graph
from tightmap.graphcut.fusion import fuse_into
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import settle_all
from tightmap.moves.forests import (
    Forests,
    Lines,
    forest_blocks,
    grid_shape,
    largest_block,
    minimise_forest,
    rooted_blocks,
)
from tightmap.moves.lattice_lines import minimise_lines
from tightmap.moves.lattice_regions import fuse_regions, merge_regions
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import end_of, late, time_left

CHUNK = 16  # blocks that are polished between two looks at the clock
AHEAD = 4  # chunks of which the blocks are built at a time
# A fusion decides at most (labels in all) / NETWORK variables at a time, so that its network is small beside the
# iterates of ADMM, but CHOICES in any case.
NETWORK = 768
CHOICES = 2048
ALL_CHOICES = 1 << 17  # the same of a fusion with a constant labelling, whose regions are as large as the model
PROPOSALS = 64  # labels of a variable up to which labellings of higher order are fused with constant ones
FUSED = 4  # roof duality fuses models up to this order: quadratisation adds ever more variables with the order


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
def _polish(g, start, order, parent, link, family, begin, end, labels, touched, cost, place, scratch, left):
    """Minimise the blocks begin..end of a family that hold a touched variable; returns how many improved."""
    until = end_of(left)
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
        if late(until):
            break
        old = labels[order[lo:hi]]
        gain = minimise_forest(
            g, labels, order[lo:hi], parent[lo:hi], link[lo:hi], cost, place, scratch, cost, False, until
        )
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


class FusedLabelling:
    """What has been fused so far, its canonical energy, and the blocks that are not known to be optimal."""

    def __init__(self, graph: Graph, context: Context, polish: bool) -> None:
        self.graph, self.context = graph, context
        self.labels: Labels | None = None
        self.energy = float("inf")
        self._families: list[Forests | Lines] | None = None if polish else []
        self._touched = np.zeros((0, graph.n), dtype=np.uint8)

    def offer(self, proposal: Labels) -> bool:
        """Improve it with a proposal, which is used up; True when the energy fell."""
        graph = self.graph
        settle_all(graph, proposal, np.ones(graph.n, dtype=np.uint8), self.context)
        if self.labels is None:
            self.labels, self.energy = proposal, energy(graph, proposal)
            self._touched[:] = 1
            return True
        if graph.unlisted:
            return self._offer_regions(proposal)
        before = self.labels.astype(np.int16 if graph.max_labels < 2**15 else np.int64)
        if graph.order <= FUSED and self.context.remaining() > 0.0:
            most = max(CHOICES, len(graph.unary) // NETWORK)
            fuse_into(graph, self.labels, proposal, largest=most, context=self.context)
        component_fusion(graph.arrays, self.labels, proposal, 1e-12 * abs(self.energy))
        if (self.labels == before).all():
            return False
        dirty = np.zeros((1, graph.n), dtype=np.uint8)
        _near(graph.arrays, before, self.labels, dirty)
        settle_all(graph, self.labels, dirty[0], self.context)
        _near(graph.arrays, before, self.labels, self._touched)
        value = energy(graph, self.labels)
        fell = value < self.energy
        self.energy = value
        return fell

    def _offer_regions(self, proposal: Labels) -> bool:
        """The same without a list of edges; the better one of the two takes the regions of the other."""
        assert self.labels is not None
        value = energy(self.graph, proposal)
        if value < self.energy:
            self.labels, proposal = proposal, self.labels
        fuse_regions(self.graph, self.labels, proposal, self.context)
        before, self.energy = self.energy, energy(self.graph, self.labels)
        return self.energy < before

    def polish(self, rounds: int = 2) -> None:
        """Block descent on the touched blocks, until nothing improves, the rounds or the time are over."""
        if self.labels is None or self._families == []:
            return
        graph = self.graph
        if graph.unlisted:
            if minimise_lines(graph, self.labels, self.context, rounds):
                settle_all(graph, self.labels, np.ones(graph.n, dtype=np.uint8), self.context)
            merge_regions(graph, self.labels, self.context)
            self.energy = energy(graph, self.labels)
            return
        if self._families is None:
            self._families = _families(graph)
            self._touched = np.ones((len(self._families), graph.n), dtype=np.uint8)
        for _ in range(rounds):
            improved = sum(self._polish_family(k) for k in range(len(self._families)))
            if improved == 0 or self.context.remaining() <= 0:
                break
        self.energy = energy(graph, self.labels)
        if 2 < graph.order <= FUSED and graph.max_labels <= PROPOSALS:
            self._fuse_with_labels()

    def _fuse_with_labels(self) -> None:
        """Fuse with every constant labelling in turn until none of them helps: forests see little of higher orders."""
        assert self.labels is not None
        graph = self.graph
        cards = graph.arrays.cards
        label = quiet = 0
        while quiet < graph.max_labels and self.context.remaining() > 0:
            before = self.energy
            proposal = np.where(cards > label, label, self.labels)
            fuse_into(graph, self.labels, proposal, largest=ALL_CHOICES, context=self.context)
            self.energy = energy(graph, self.labels)
            quiet = 0 if self.energy < before else quiet + 1
            label = (label + 1) % graph.max_labels

    def _polish_family(self, k: int) -> int:
        """Minimise every touched block of a family once; returns how many improved."""
        assert self._families is not None
        graph = self.graph
        g = graph.arrays
        place = np.zeros(graph.n, dtype=np.int32)
        scratch = workspace(g)
        improved = 0
        for some in self._touched_parts(k):
            cost = np.empty(largest_block(graph, some))
            blocks = len(some.start) - 1
            for b in range(0, blocks, CHUNK):
                end = min(b + CHUNK, blocks)
                left = time_left(self.context)
                improved += _polish(g, *some, k, b, end, self.labels, self._touched, cost, place, scratch, left)
                if self.context.remaining() <= 0:
                    return improved
        return improved

    def _touched_parts(self, k: int) -> Iterator[Forests]:
        """The blocks of a family, those of lines of an image some at a time and only where something was touched.

        All of them together would be a fifth of the memory of a run.
        """
        assert self._families is not None
        family = self._families[k]
        if isinstance(family, Forests):
            yield family
            return
        for first in range(0, family.count, AHEAD * CHUNK):
            start, nodes = family.nodes(first, min(first + AHEAD * CHUNK, family.count))
            if self._touched[k, nodes].any():
                yield rooted_blocks(self.graph, start, nodes, family.kind)


def _families(graph: Graph) -> list[Forests | Lines]:
    """Families of blocks, each covering every variable once."""
    shape = grid_shape(graph)
    if shape is None:
        return [forest_blocks(graph, "forests")]
    kinds = ["rows", "columns"]
    if 2 * graph.m > 7 * graph.n:  # more than four neighbours: the diagonals are chains as well
        kinds += ["diagonals", "antidiagonals"]
    lines = [Lines(shape, kind) for kind in kinds]
    try:
        for family in lines:
            for first in range(0, family.count, AHEAD * CHUNK):
                rooted_blocks(graph, *family.nodes(first, min(first + AHEAD * CHUNK, family.count)), family.kind)
    except ModelError:  # a factor has three or more variables in one line
        return [forest_blocks(graph, "forests")]
    return list(lines)
