"""Minimum cuts of general graphs, for callers that hold edge lists: solve, change capacities, solve again.

Capacities are int64 (exact) or float64.  Terminal capacities are folded into one number per node; what passes from the
source through a node to the sink at once is counted separately, so that ``value`` is always the full minimum cut.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.graphcut.maxflow import new_trees, plant, push_to_neighbours, repair_arcs, repair_nodes, run
from tightmap.graphcut.network import csr_from_edges

FLOAT_EPS = 1e-11  # relative to the largest capacity: a residual below it counts as none


class MaxFlow:
    """A flow network on nodes 0..n-1 with a source and a sink.

    tails, heads    (m,) ends of the edges
    capacity        (m,) from tail to head
    reverse         (m,) from head to tail (none by default)
    source, sink    (n,) capacities from the source and to the sink
    """

    def __init__(
        self,
        n: int,
        tails: npt.ArrayLike,
        heads: npt.ArrayLike,
        capacity: npt.ArrayLike,
        reverse: npt.ArrayLike | None = None,
        source: npt.ArrayLike | None = None,
        sink: npt.ArrayLike | None = None,
    ) -> None:
        forward = np.asarray(capacity)
        backward = forward[:0] if reverse is None else np.asarray(reverse)
        s = np.zeros(n) if source is None else np.asarray(source)
        t = np.zeros(n) if sink is None else np.asarray(sink)
        whole = all(np.issubdtype(a.dtype, np.integer) for a in (forward, backward)) and all(
            np.issubdtype(a.dtype, np.integer) or not a.any() for a in (s, t)
        )
        dtype = np.int64 if whole else np.float64
        tails, heads = np.asarray(tails, np.int32), np.asarray(heads, np.int32)
        self.net, self.arcs = csr_from_edges(n, tails, heads)
        self.tails = tails
        self.cap = np.zeros(2 * len(tails), dtype)
        self.cap[self.arcs] = forward
        if len(backward):
            self.cap[self.net.sisters[self.arcs]] = backward
        self.through = np.minimum(s, t).astype(dtype).sum()  # straight from source to sink
        self.term = (s.astype(dtype) - t.astype(dtype)) if n else np.zeros(0, dtype)
        largest = max((float(np.abs(a).max(initial=0.0)) for a in (self.cap, self.term)), default=0.0)
        self.eps = dtype(0) if whole else np.float64(FLOAT_EPS * largest)
        self.trees = new_trees(n, self.net)
        self.flow = dtype(0)
        self.planted = False

    def solve(self) -> float | int:
        """Value of the minimum cut."""
        if len(self.term):
            if not self.planted:
                self.flow += push_to_neighbours(self.net, self.cap, self.term, self.eps, None)
                plant(self.trees, self.term, self.eps, True)
                self.planted = True
            self.flow += run(self.net, self.cap, self.term, self.eps, self.trees, None)
        value = self.flow + self.through
        return int(value) if np.issubdtype(self.cap.dtype, np.integer) else float(value)

    def source_side(self, largest: bool = False) -> npt.NDArray[np.bool_]:
        """The smallest or the largest source side of a minimum cut, after ``solve``."""
        return self.trees.side != -1 if largest else self.trees.side == 1

    def add_terminals(self, nodes: npt.ArrayLike, source: npt.ArrayLike, sink: npt.ArrayLike) -> None:
        """Change terminal capacities of distinct nodes by these amounts (negative ones too); flow and trees are kept.

        Lowering a capacity below the flow through it is allowed: the same amount is added to both terminals of the
        node, which moves every cut by a constant.
        """
        index = np.asarray(nodes, np.int64)
        dtype = self.cap.dtype
        s = np.maximum(self.term[index], 0) + np.asarray(source, dtype)
        t = np.maximum(-self.term[index], 0) + np.asarray(sink, dtype)
        self.through += np.minimum(s, t).sum()
        self.term[index] = s - t
        if self.planted:
            repair_nodes(self.net, self.term, self.eps, self.trees, index)

    def add_capacities(self, edges: npt.ArrayLike, forward: npt.ArrayLike, backward: npt.ArrayLike) -> None:
        """Change the capacities of distinct edges by these amounts; flow and trees are kept.

        Flow that no longer fits is taken back: its tail keeps the excess and its head owes it.
        """
        index = np.asarray(edges, np.int64)
        there, back = self.arcs[index], self.net.sisters[self.arcs[index]]
        self.cap[there] += np.asarray(forward, self.cap.dtype)
        self.cap[back] += np.asarray(backward, self.cap.dtype)
        excess, debt = np.zeros_like(self.term), np.zeros_like(self.term)
        for a, b in ((there, back), (back, there)):
            over = np.maximum(-self.cap[a], 0)
            self.cap[a] += over
            self.cap[b] -= over
            np.add.at(excess, self.net.heads[b], over)
            np.add.at(debt, self.net.heads[a], over)
            self.flow -= over.sum()
        changed = np.flatnonzero(excess + debt)
        if self.planted:
            tails = self.tails[index]
            repair_arcs(self.net, self.cap, self.eps, self.trees, tails, there - self.net.start[tails])
        if len(changed):
            self.add_terminals(changed, excess[changed], debt[changed])
