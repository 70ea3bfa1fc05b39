"""Minimum cuts for callers that hold edge lists or arrays of a grid: solve, change capacities, solve again.

Capacities are int64 (exact) or float64.  Terminal capacities are folded into one number per node; what passes from the
source through a node to the sink at once is counted separately, so that ``value`` is always the full minimum cut.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.graphcut.maxflow import ended, new_trees, plant, push_to_neighbours, repair_arcs, repair_nodes, run
from tightmap.graphcut.network import Csr, Grid, csr_from_edges
from tightmap.runtime.pace import EVER, TimeUp

FLOAT_EPS = 1e-11  # relative to the largest capacity: a residual below it counts as none


class Flow:
    """A network with its terminals, its flow and its search trees: solve, change terminals, solve again."""

    def __init__(
        self, net: Csr | Grid, cap: npt.NDArray[Any], term: npt.NDArray[Any], through: float, eps: np.number
    ) -> None:
        self.net, self.cap, self.term, self.through, self.eps = net, cap, term, through, eps
        self.trees = new_trees(len(term), net)
        self.flow: float = 0 if np.issubdtype(cap.dtype, np.integer) else 0.0
        self.planted = False

    def solve(self, left: float = EVER) -> float | int:
        """Value of the minimum cut; TimeUp when that takes more than ``left`` seconds (another call goes on)."""
        if len(self.term):
            if not self.planted:
                self.flow += push_to_neighbours(self.net, self.cap, self.term, self.eps, None)
                plant(self.trees, self.term, self.eps, True)
                self.planted = True
            self.flow += run(self.net, self.cap, self.term, self.eps, self.trees, None, left)
            if not ended(self.trees):
                raise TimeUp
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


class MaxFlow(Flow):
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
        net, self.arcs = csr_from_edges(n, tails, heads)
        self.tails = tails
        cap = np.zeros(2 * len(tails), dtype)
        cap[self.arcs] = forward
        if len(backward):
            cap[net.sisters[self.arcs]] = backward
        through = np.minimum(s, t).astype(dtype).sum()  # straight from source to sink
        term = (s.astype(dtype) - t.astype(dtype)) if n else np.zeros(0, dtype)
        largest = max((float(np.abs(a).max(initial=0.0)) for a in (cap, term)), default=0.0)
        self.csr = net
        super().__init__(net, cap, term, through, dtype(0) if whole else np.float64(FLOAT_EPS * largest))

    def add_capacities(self, edges: npt.ArrayLike, forward: npt.ArrayLike, backward: npt.ArrayLike) -> None:
        """Change the capacities of distinct edges by these amounts; flow and trees are kept.

        Flow that no longer fits is taken back: its tail keeps the excess and its head owes it.
        """
        index = np.asarray(edges, np.int64)
        there, back = self.arcs[index], self.csr.sisters[self.arcs[index]]
        self.cap[there] += np.asarray(forward, self.cap.dtype)
        self.cap[back] += np.asarray(backward, self.cap.dtype)
        excess, debt = np.zeros_like(self.term), np.zeros_like(self.term)
        for a, b in ((there, back), (back, there)):
            over = np.maximum(-self.cap[a], 0)
            self.cap[a] += over
            self.cap[b] -= over
            np.add.at(excess, self.csr.heads[b], over)
            np.add.at(debt, self.csr.heads[a], over)
            self.flow -= over.sum()
        changed = np.flatnonzero(excess + debt)
        if self.planted:
            tails = self.tails[index]
            repair_arcs(self.net, self.cap, self.eps, self.trees, tails, there - self.csr.start[tails])
        if len(changed):
            self.add_terminals(changed, excess[changed], debt[changed])


class GridFlow(Flow):
    """A flow network whose nodes are the cells of an array, with an edge from every cell to those at fixed offsets.

    offsets             (k, d) steps to neighbours, one of each pair of opposite ones
    capacity, reverse   for every offset, from a cell to its neighbour and back: integers, or arrays over the cells that
                        have that neighbour
    source, sink        integer arrays of the shape of the grid

    No edge list: cells lie in memory with a frame of dead ones between the rows, so that a step is a fixed distance.
    """

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        capacity: list[npt.NDArray[Any]],
        reverse: list[npt.NDArray[Any]],
        source: npt.NDArray[Any],
        sink: npt.NDArray[Any],
        dtype: type[np.signedinteger] = np.int64,
    ) -> None:
        self.shape = shape = source.shape
        reach = int(np.abs(offsets).max(initial=0))
        self.framed = (shape[0], *(s + reach for s in shape[1:]))
        self.strides = np.append(np.cumprod(self.framed[:0:-1])[::-1], 1).astype(np.int64)
        self.margin = reach * int(self.strides.sum())
        self.cells = int(np.prod(self.framed))
        total = self.cells + 2 * self.margin
        steps = offsets @ self.strides
        degree = 2 * len(offsets)
        cap = np.zeros((total, degree), dtype)
        inside = cap[self.margin : self.margin + self.cells].reshape(*self.framed, degree)
        for k, offset in enumerate(offsets):
            tails, heads = ends(shape, offset)
            inside[..., 2 * k][tails] = capacity[k]
            inside[..., 2 * k + 1][heads] = reverse[k]
        term = np.zeros(total, dtype)
        self.unframe(term)[...] = source - sink
        through = int(np.minimum(source, sink).sum(dtype=np.int64))
        pairs = np.stack((steps, -steps), axis=1).reshape(-1)
        super().__init__(Grid(pairs, degree), cap.reshape(-1), term, through, dtype(0))

    def unframe(self, framed: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The cells of the user's array among those of the network, as a view."""
        inside = framed[self.margin : self.margin + self.cells].reshape(self.framed)
        return inside[tuple(slice(0, s) for s in self.shape)]

    def node(self, cells: tuple[npt.NDArray[Any], ...]) -> npt.NDArray[np.int64]:
        """Numbers of the nodes at these coordinates."""
        found = np.full(len(cells[0]), self.margin, np.int64)
        for at, stride in zip(cells, self.strides, strict=True):
            found += at * stride
        return found

    def source_side(self, largest: bool = False) -> npt.NDArray[np.bool_]:
        return self.unframe(super().source_side(largest))


def framed_cells(shape: tuple[int, ...], offsets: npt.NDArray[np.int64]) -> float:
    """How many cells a GridFlow has with its frame, which of many dimensions is most of them."""
    reach = int(np.abs(offsets).max(initial=0))
    rows = [float(math.prod(s + reach for s in shape[k:])) for k in range(1, len(shape) + 1)]
    return shape[0] * rows[0] + 2.0 * reach * sum(rows) if rows else 0.0


def ends(shape: tuple[int, ...], offset: npt.NDArray[np.int64]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Which cells have a neighbour at this offset, and which cells these neighbours are."""
    tails = tuple(slice(max(0, -int(o)), s - max(0, int(o))) for s, o in zip(shape, offset, strict=True))
    heads = tuple(slice(max(0, int(o)), s - max(0, -int(o))) for s, o in zip(shape, offset, strict=True))
    return tails, heads
