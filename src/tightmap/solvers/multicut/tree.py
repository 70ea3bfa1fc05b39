"""Branch and bound over pairs that are cut or not, with the cycle relaxation in every node.

    a pair whose reduced cost r_e exceeds the gap is fixed:   bound + |r_e| > best value  =>  y_e = 0 if r_e > 0, else 1
    the node with the lowest bound is next; it branches on the pair whose y is nearest to 1/2 and whose cost is large

The bound of all is the least over the open nodes and those that were closed.  Rows and multipliers are kept from node
to node: cycle inequalities hold everywhere, and any multipliers give a bound.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tightmap.energy.certificate import UNIT
from tightmap.solvers.multicut.cycles import Relaxation
from tightmap.solvers.multicut.problem import IntArray, SignedGraph

SWEEPS, INNER = 50, 10  # sweeps of one round, and between two proximal steps
ROUNDS = 400  # of a node, at most
STALLED = 1e-3  # of the gap: a round that raises the bound by less is of no use
PATIENCE = 6  # such rounds, after which a node branches
WHOLE = 0.02  # y within this of 0 or 1 counts as decided


class Tree:
    """The open nodes, and the relaxation of the one that is being worked on."""

    def __init__(self, problem: SignedGraph) -> None:
        self.problem = problem
        self.relaxation = Relaxation(problem)
        self.nodes = 0
        self.rounds = 0
        self.fixed = 0
        self._open: list[tuple[float, int, dict[int, float], float]] = []
        self._closed = (math.inf, 0.0)  # the least bound of closed nodes
        self._fixes: dict[int, float] = {}
        self._now = (-math.inf, 0.0)  # bound of the present node, and its rounding error
        self._bad = 0
        self._in_node = 0
        self._low, self._high = self.relaxation.low.copy(), self.relaxation.high.copy()  # of the root
        self.done = False
        self._working = True
        self._update(*self.relaxation.bound())

    def _update(self, raw: float, error: float) -> bool:
        if raw - error > self._now[0] - self._now[1]:
            self._now = (raw, error)
            return True
        return False

    def bound(self) -> tuple[float, float]:
        """The bound of all nodes, and the rounding error."""
        candidates = [self._closed] + [(bound, error) for bound, _, _, error in self._open]
        if self._working:
            candidates.append(self._now)
        raw, error = min(candidates, key=lambda b: b[0] - b[1])
        return (raw, error) if math.isfinite(raw) else self._now

    def story(self) -> str:
        text = f"{self.rounds} rounds of the relaxation, {len(self.relaxation.right)} rows, {self.fixed} pairs fixed"
        return text + (f", {self.nodes} nodes" if self.nodes else "")

    def advance(self, best: float, left: float) -> IntArray | None:
        """One round of the present node; ``best`` is the value to be below.  Returns a rounded point now and then."""
        r = self.relaxation
        self.rounds += 1
        self._in_node += 1
        found = r.separate(left)
        r.solve(SWEEPS, INNER)
        r.drop()
        raw, error = r.bound()
        before = self._now[0]
        self._update(raw, error)
        gap = best - self._now[0]
        if gap <= self._now[1]:
            self._close()
            return None
        if math.isfinite(gap):
            self._fix(raw - error, best)
        slow = not self._now[0] - before > STALLED * gap
        self._bad = self._bad + 1 if slow else 0
        rounded = self._round() if self._in_node in (4, 12, 30) or self._in_node % 100 == 0 else None
        if (self._bad >= PATIENCE and not found and r.separated) or self._bad > 4 * PATIENCE or self._in_node >= ROUNDS:
            rounded = self._round()
            self._branch()
        return rounded

    def _fix(self, bound: float, best: float) -> None:
        """Fix pairs by their reduced costs: in this node, and for ever at the root."""
        r = self.relaxation
        loose = r.low < r.high
        beyond = np.abs(r.reduced) > (best - bound) * (1.0 + 1e-9)
        zero, one = loose & beyond & (r.reduced > 0.0), loose & beyond & (r.reduced < 0.0)
        r.high[zero] = 0.0
        r.low[one] = 1.0
        if not self._fixes:
            self._high[zero], self._low[one] = 0.0, 1.0
            self.fixed += int(zero.sum() + one.sum())

    def _round(self) -> IntArray:
        """Parts that are connected by pairs which are rather equal than different."""
        return self._parts(self.relaxation.y[: len(self.problem.pairs)] < 0.5)

    def _parts(self, near: npt.NDArray[np.bool_]) -> IntArray:
        p = self.problem
        a, b = p.pairs[near, 0], p.pairs[near, 1]
        graph = coo_array((np.ones(len(a)), (a, b)), shape=(p.n, p.n))
        return connected_components(graph, directed=False)[1].astype(np.int64)

    def _close(self) -> None:
        if self._now[0] - self._now[1] < self._closed[0] - self._closed[1]:
            self._closed = self._now
        self._next()

    def _leaf(self) -> None:
        """All pairs are decided: the node is one partition, whose value is its bound, or none."""
        p, m = self.problem, len(self.problem.pairs)
        cut = self.relaxation.low[:m] > 0.5
        part = self._parts(~cut)
        if (part[p.pairs[cut, 0]] == part[p.pairs[cut, 1]]).any():
            self._next()  # a pair is cut within a part
            return
        size = float(np.abs(p.weight).sum() + np.abs(p.extra).sum())
        self._update(p.value(part), UNIT * (m + len(p.extra) + 4) * size)
        self._close()

    def _branch(self) -> None:
        r, m = self.relaxation, len(self.problem.pairs)
        y = r.y[:m]
        free = (r.low < r.high)[:m]
        middle = np.minimum(y, 1.0 - y)
        score = np.where(free, (middle + 1e-3) * (np.abs(r.cost[:m]) + 0.1 * r.typical), -1.0)
        if not free.any():
            self._leaf()
            return
        e = int(np.argmax(score))
        own = {int(k): float(r.low[k]) for k in np.flatnonzero((r.low == r.high) & (self._low < self._high))}
        for value in (0.0, 1.0):
            self.nodes += 1
            heapq.heappush(self._open, (self._now[0], self.nodes, own | {e: value}, self._now[1]))
        self._next()

    def _next(self) -> None:
        r = self.relaxation
        self._working = bool(self._open)
        if not self._open:
            self.done = True
            return
        bound, _, self._fixes, error = heapq.heappop(self._open)
        self._now = (bound, error)
        self._bad = self._in_node = 0
        r.low[:], r.high[:] = self._low, self._high
        for e, value in self._fixes.items():
            r.low[e] = r.high[e] = value
