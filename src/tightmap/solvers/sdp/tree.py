"""Branch and bound with semidefinite bounds: best bound first, each node a few rounds of triangle inequalities.

A node is closed when its certified bound leaves no room below the best labelling, or when it is so small that all its
spins are tried.  Otherwise it gets rounds as long as these promise to close it, and is then split at the spin that the
relaxation knows least about.  At any time the least bound of all open and closed nodes is a bound of the whole.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np

from tightmap.graph.graph import FloatArray
from tightmap.moves.context import Context
from tightmap.solvers.sdp.node import Node, Relaxation, Spin, Whole, enumerate_all
from tightmap.solvers.sdp.triangles import Triangles

SMALL = 13  # spins, the reference included, of a node that is solved by trying all
PROMISE = 4.0  # a round that gains g promises that later ones gain no more than this times g
ROOT_ROUNDS = 6  # rounds at the root at least, where everything that is found is inherited
ROOT_GAIN = 0.03  # part of the gap that a round at the root must close for another one to follow
STALLED = 1e-4  # of the size of the bound: a smaller gain in a round is none


class Tree:
    """The search; ``lowest`` is the bound of the form with its error, ``current`` the node at work."""

    def __init__(self, matrix: FloatArray, vectors: FloatArray, bound: float, error: float) -> None:
        self.whole = Whole.of(matrix)
        spins = np.zeros(len(matrix), np.int8)
        spins[0] = 1
        self.heap: list[tuple[float, int, Node]] = []
        self.current: Relaxation | None = None
        self.closed = math.inf  # least bound of the closed nodes, and its error
        self.closed_error = 0.0
        self.nodes = 0
        self.pushed = 0
        self.before = bound
        self._push(Node(spins, vectors, Triangles.none(), bound, error))

    def _push(self, node: Node) -> None:
        heapq.heappush(self.heap, (node.bound - node.error, self.pushed, node))
        self.pushed += 1

    def _close(self, node: Node) -> None:
        if node.bound - node.error < self.closed - self.closed_error:
            self.closed, self.closed_error = node.bound, node.error

    @property
    def done(self) -> bool:
        return self.current is None and not self.heap

    def lowest(self) -> tuple[float, float]:
        """The bound of the whole form, and its error."""
        bounds = [(self.closed, self.closed_error)]
        if self.heap:
            bounds.append((self.heap[0][2].bound, self.heap[0][2].error))
        if self.current is not None:
            bounds.append((self.current.node.bound, self.current.node.error))
        return min(bounds, key=lambda pair: pair[0] - pair[1])

    def step(self, room: Callable[[float, float], float], context: Context, split: bool) -> Spin | None:
        """One round at one node.  ``room`` says how much a bound lacks to close a node, not above 0 if nothing.

        Without ``split`` the root is all there is.  Returns spins where a node was solved by trying all.
        """
        if self.current is None:
            if not self.heap:
                return None
            node = heapq.heappop(self.heap)[2]
            if room(node.bound, node.error) <= 0.0:
                self._close(node)
                return None
            self.nodes += 1
            self.current = Relaxation(self.whole, node)
            self.before = node.bound
            if len(node.free) < SMALL and split:
                spins = enumerate_all(self.current)
                self._close(node)
                self.current = None
                return spins
        work, node = self.current, self.current.node
        joined = work.improve(context)
        if context.remaining() <= 0.0:
            return None
        work.certify(context)
        gain, self.before = node.bound - self.before, max(node.bound, self.before)
        lacking = room(node.bound, node.error)
        if lacking <= 0.0:
            self._close(node)
            self.current = None
        elif not split:
            if work.rounds >= ROOT_ROUNDS and (not gain >= STALLED * abs(node.bound) or joined == 0):
                self._close(node)
                self.current = None
        elif self._hopeless(work.rounds, gain, lacking):
            for child in work.children():
                self._push(child)
            self.current = None
        return None

    def _hopeless(self, rounds: int, gain: float, lacking: float) -> bool:
        """More rounds at this node are not worth their time: it has to be split.

        Without any bound, before and after, the gain is NaN: that is no gain.
        """
        if self.nodes == 1:
            return rounds >= ROOT_ROUNDS and not gain >= ROOT_GAIN * lacking
        return rounds >= 2 and not PROMISE * gain >= lacking
