"""Branch and bound on the relaxation of AD3: best bound first, on the variable that is least decided.

A node allows some labels of every variable.  The others cost so much more that the relaxation keeps away from them, and
the labellings that are left cost what they did, so the bound of the relaxation is one of these.  A node is
closed when that meets the incumbent; otherwise labels that would raise its bound to the incumbent are forbidden, and
of what is left two nodes are made: the likeliest label of a variable, and its other labels.

The bound of the whole is the least of all nodes that are open or closed, and the energy of the incumbent.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, Certified, certify
from tightmap.energy.energies import energy, labelling_size
from tightmap.moves.context import Incumbent, Labels
from tightmap.moves.soften import soft_range
from tightmap.solvers.decomposition.ad3_run import Run

EVENT = 10  # iterations between two bounds of a node
PATIENCE = 3  # bounds of a node that may bring less than SLOW of its gain so far, or of the gap
SLOW = 0.05
STEEP = 8.0  # in every factor a forbidden label costs so many times the largest range: no relaxation pays a part of it
MEMORY = 1 << 28  # bytes of multipliers that open nodes keep
Mask = npt.NDArray[np.uint8]


@dataclass(order=True)
class Node:
    """Some labels of every variable.  Nodes are ordered by their key, and by their number where that is the same."""

    key: float  # the bound; less than any while there is no feasible labelling, so that the latest goes first
    number: int  # negative: the latest goes first
    bound: float = field(compare=False)
    allowed: Mask = field(compare=False)
    multipliers: npt.NDArray[Any] | None = field(compare=False)  # of its parent; None: those of the root


class Search:
    """The search tree below a relaxation that has converged."""

    def __init__(
        self,
        run: Run,
        incumbent: Incumbent,
        offer: Callable[[Labels], None],
        left: Callable[[], float],
        tolerance: float,
    ) -> None:
        self.run, self.incumbent, self.offer, self.left, self.tolerance = run, incumbent, offer, left, tolerance
        self.nodes = 0
        self.closed: float = math.inf  # the least bound of a closed node
        self.root = run.multipliers.copy()
        g = run.graph.arrays
        self.plain = g.unary
        self.wall = STEEP * float(np.diff(g.adj_start).max()) * soft_range(run.graph)
        self.owner = np.repeat(np.arange(run.graph.n), g.cards)

    def work(self, bound: float) -> Iterator[float | None]:
        """Bounds of the whole as they rise, and None in between, until all nodes are closed."""
        open_nodes = [Node(bound, 0, bound, np.ones(len(self.plain), dtype=np.uint8), None)]
        made = 0
        while open_nodes:
            node = heapq.heappop(open_nodes)
            if self._met(node.bound):
                self.closed = min(self.closed, node.bound)
                continue
            self.nodes += 1
            others = self._whole(open_nodes)
            for better in self._bounds(node):
                if better is not None:
                    node.bound = max(node.bound, better)
                yield None if better is None else min(others, node.bound, self.incumbent.energy)
            if self._met(node.bound) or not self._possible(node):
                self.closed = min(self.closed, node.bound)
            else:
                own = self._kept(len(open_nodes))
                key = node.bound if self.incumbent.feasible else -math.inf
                for allowed in self._halves(node.allowed):
                    made -= 1
                    heapq.heappush(open_nodes, Node(key, made, node.bound, allowed, own))
            yield self._whole(open_nodes)

    def _whole(self, open_nodes: list[Node]) -> float:
        """The bound of all labellings of these nodes and the closed ones; excluded ones are above the incumbent."""
        return min([self.closed, self.incumbent.energy, *(n.bound for n in open_nodes)])

    def _kept(self, count: int) -> npt.NDArray[np.float32] | None:
        """Multipliers for the halves of a node to begin with, where there is room for them and they are not too large
        for single precision (the multipliers of the root do as well)."""
        multipliers = self.run.multipliers
        roomy = 4 * len(self.root) * (count + 1) <= MEMORY
        fits = np.abs(multipliers).max(initial=0.0) < np.finfo(np.float32).max
        return multipliers.astype(np.float32) if roomy and fits else None

    def _met(self, bound: float) -> bool:
        return self.incumbent.proven_by(bound)

    def _possible(self, node: Node) -> bool:
        """Does every variable have a label left?  Otherwise no labelling of the node is better than the incumbent."""
        counts = np.add.reduceat(node.allowed.astype(np.int64), self.run.graph.arrays.offset[:-1])
        if (counts == 0).any():
            node.bound = max(node.bound, self.incumbent.energy)
            return False
        if (counts == 1).all():
            labels = (np.flatnonzero(node.allowed) - self.run.graph.arrays.offset[:-1]).astype(np.int64)
            self.offer(labels)
            node.bound = max(node.bound, self._energy_as_bound(labels))
            return False
        return True

    def _energy_as_bound(self, labels: Labels) -> Certified:
        graph = self.incumbent.graph
        terms = UNIT * (graph.n + graph.m + 4) * labelling_size(graph, labels)
        return certify(graph, energy(graph, labels), terms, worst=False)

    def _restrict(self, node: Node) -> None:
        run, allowed = self.run, node.allowed
        penalty = self.wall + 2.0 * (self.incumbent.energy - node.bound)
        unary = self.plain + penalty * (allowed == 0)
        point = np.where(allowed, run.point, 0.0)
        total = np.bincount(self.owner, weights=point, minlength=run.graph.n)
        point = np.where(total[self.owner] > 0.0, point, allowed)
        point /= np.bincount(self.owner, weights=point, minlength=run.graph.n)[self.owner]
        run.restrict(unary, self.root if node.multipliers is None else node.multipliers, point)

    def _bounds(self, node: Node) -> Iterator[float | None]:
        """Iterate on a node until its bound meets the incumbent or rises no more."""
        run = self.run
        self._restrict(node)
        first = last = -math.inf
        patience, due = PATIENCE, run.iterations + EVENT
        while True:
            yield from run.iterate()
            converged = max(run.primal, run.dual) <= self.tolerance
            if not (converged or run.iterations >= due or run.period_over or self.left() <= 0.0):
                yield None
                continue
            due = run.iterations + EVENT
            self.offer(run.labelling())
            bound = run.bound()
            yield bound
            gap = self.incumbent.energy - bound
            if self._met(bound):
                return
            run.exclude(gap + 2.0 * bound.error, node.allowed)
            first = max(first, bound) if last == -math.inf else first
            patience = PATIENCE if bound - last > SLOW * min(gap, bound - first) else patience - 1
            last = max(last, bound)
            if converged or patience == 0 or not self._all_have_labels(node.allowed):
                return

    def _all_have_labels(self, allowed: Mask) -> bool:
        return bool(np.maximum.reduceat(allowed, self.run.graph.arrays.offset[:-1]).all())

    def _halves(self, allowed: Mask) -> list[Mask]:
        """The likeliest label of the least decided variable, and its other labels."""
        g, point = self.run.graph.arrays, np.where(allowed, self.run.point, -1.0)
        counts = np.add.reduceat(allowed.astype(np.int64), g.offset[:-1])
        largest = np.maximum.reduceat(point, g.offset[:-1])
        i = int(np.argmin(np.where(counts > 1, largest, np.inf)))
        rows = slice(int(g.offset[i]), int(g.offset[i + 1]))
        s = int(np.argmax(point[rows]))
        with_it, without = allowed.copy(), allowed.copy()
        with_it[rows] = 0
        with_it[rows.start + s] = 1
        without[rows.start + s] = 0
        return [without, with_it]
