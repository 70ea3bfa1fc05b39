"""The classical bundle: one plane for all subproblems together in each round.

A round's minimisers x of all subproblems are one plane, D(u) <= v(x) + <u, e_x>, with the subgradient
g_x = e_x - (mean over copies).  The weights a of the planes solve, with G_kl = <g_k, g_l>,

    min over a >= 0, sum a = 1   sum_k a_k (v_k + <u^, e_k>) + c/2 a' G a,

and u = u^ + c sum_k a_k g_k.  When there are too many planes, those that have no weight go, and then the one with the
least is merged into plane 0, the aggregate, with which the method converges however few planes are kept.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tightmap.graph.graph import FloatArray
from tightmap.runtime.compiled import compiled
from tightmap.solvers.decomposition.planes import move_weights
from tightmap.solvers.decomposition.run import Run
from tightmap.solvers.decomposition.split import Solved

MOVES = 1000  # of weight between planes in one round


class Cuts:
    """Planes of all subproblems together; number 0 is the aggregate."""

    def __init__(self, run: Run, limit: int) -> None:
        self.run, self.limit = run, limit
        places, entries = len(run.split.sub.variable), run.split.sub.entries
        self.labels = np.zeros((limit + 1, places), dtype=np.int32)
        self.aggregate, self.average = np.zeros(entries), np.zeros(entries)
        self.value, self.weight = np.zeros(limit + 1), np.zeros(limit + 1)
        self.product = np.zeros((limit + 1, limit + 1))
        self.idle = np.zeros(limit + 1, dtype=np.int64)
        self.count = 0

    def add(self, solved: Solved) -> None:
        """The minimisers of all subproblems are a plane from now on."""
        slot = self._free_slot()
        self.labels[slot] = solved.labels
        self.value[slot] = solved.factors.sum()
        self.weight[slot] = 0.0 if self.count > 1 or self.weight[0] > 0.0 else 1.0
        self.idle[slot] = 0
        self._products(slot)

    def _free_slot(self) -> int:
        if self.count < self.limit:
            self.count += 1
            return self.count
        planes = np.arange(1, self.limit + 1)
        slot = int(min(planes, key=lambda k: (-self.idle[k], self.weight[k])))
        if self.weight[slot] > 0.0:
            self._merge(slot)
        return slot

    def _merge(self, slot: int) -> None:
        """The plane becomes part of the aggregate, which keeps the average as it is."""
        mine, old = self.weight[slot], self.weight[0]
        share = mine / (mine + old)
        self.aggregate *= 1.0 - share
        self.aggregate[self._ones(slot)] += share
        self.value[0] += share * (self.value[slot] - self.value[0])
        self.weight[0], self.weight[slot] = mine + old, 0.0
        self._products(0)

    def _ones(self, k: int) -> np.ndarray:
        return self.run.split.sub.at[:-1] + self.labels[k]

    def _vector(self, k: int) -> FloatArray:
        if k == 0:
            return self.aggregate
        out = np.zeros(len(self.aggregate))
        out[self._ones(k)] = 1.0
        return out

    def _products(self, k: int) -> None:
        """Row k of G: g_k times every plane (the mean over copies needs to be taken away on one side only)."""
        direction = self._vector(k).copy()
        _centre(self.run.split.sub, direction)
        for other in range(self.count + 1):
            self.product[k, other] = direction @ self.aggregate if other == 0 else direction[self._ones(other)].sum()
            self.product[other, k] = self.product[k, other]

    def propose(self, centre: FloatArray, c: float) -> Iterator[None]:
        """Better weights."""
        linear = self.value.copy()
        linear[0] += centre @ self.aggregate
        for k in range(1, self.count + 1):
            linear[k] += centre[self._ones(k)].sum()
        if self.weight[0] == 0.0:
            linear[0] = 1e300  # there is no aggregate yet
        move_weights(self.product, self.weight, linear, np.empty(self.limit + 1), self.count, c, MOVES)
        self.idle = np.where(self.weight > 0.0, 0, self.idle + 1)
        self.average[:] = self.weight[0] * self.aggregate
        for k in range(1, self.count + 1):
            if self.weight[k] > 0.0:
                self.average[self._ones(k)] += self.weight[k]
        yield None

    def move(self, centre: FloatArray, c: float, out: FloatArray) -> float:
        """out = where the weights lead to; returns what the planes promise there."""
        out[:] = self.average
        _centre(self.run.split.sub, out)
        out *= c
        out += centre
        return float(self.run.graph.constant + self.weight @ self.value + out @ self.average)

    def total(self) -> FloatArray:
        """The weighted solutions of the subproblems, summed over the copies of every variable."""
        g, sub = self.run.graph.arrays, self.run.split.sub
        total = np.zeros(len(g.unary))
        _add_copies(g.offset, sub, self.average, total)
        return total


@compiled
def _centre(sub, direction):
    """Take the mean over the copies of every variable away from all of them."""
    for i in range(len(sub.copy_start) - 1):
        first, last = sub.copy_start[i], sub.copy_start[i + 1]
        q = sub.copy[first]
        for s in range(sub.at[q + 1] - sub.at[q]):
            mean = 0.0
            for o in range(first, last):
                mean += direction[sub.at[sub.copy[o]] + s]
            mean /= last - first
            for o in range(first, last):
                direction[sub.at[sub.copy[o]] + s] -= mean


@compiled
def _add_copies(offset, sub, copies, total):
    for q in range(len(sub.variable)):
        o = offset[sub.variable[q]]
        for s in range(sub.at[q + 1] - sub.at[q]):
            total[o + s] += copies[sub.at[q] + s]
