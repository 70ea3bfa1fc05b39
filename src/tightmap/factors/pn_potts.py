"""P^n-Potts of any order: weight * (cost of label l when all variables take l, cost of disagreement otherwise)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import Block
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.runtime.compiled import lean


@dataclass(frozen=True, eq=False)
class PnPottsBlock(Block):
    """``costs`` = [cost of disagreement, cost of all 0, cost of all 1, ...], shared by the rows of the block."""

    costs: FloatArray

    kind: ClassVar[Kind] = Kind.PN_POTTS
    costs_in: ClassVar[tuple[str, ...]] = ("costs",)

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        own = labels[self.scopes]
        agree = (own == own[:, :1]).all(axis=1)
        return self.weights * np.where(agree, self.costs[1 + own[:, 0] * agree], self.costs[0])

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        table = np.full(shape, self.costs[0])
        for l in range(min(shape)):
            table[(l,) * len(shape)] = self.costs[1 + l]
        return self.weights[rows].reshape((-1,) + (1,) * len(shape)) * table

    @property
    def parameters(self) -> dict[str, npt.NDArray]:
        return {"costs": self.costs}


@lean
def pn_value(g, f, labels):
    a = g.scope_start[f]
    first = labels[g.scope[a]]
    for p in range(a + 1, g.scope_start[f + 1]):
        if labels[g.scope[p]] != first:
            return g.params[g.param[f]]
    return g.params[g.param[f] + 1 + first]


@lean
def pn_add_slice(g, f, pos, labels, out, scale):
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = scale * g.weight[f]
    t = g.param[f]
    for s in range(n):
        out[s] += w * g.params[t]
    common = -1
    for p in range(k):
        if p != pos:
            l = labels[g.scope[a + p]]
            if common >= 0 and l != common:
                return
            common = l
    if common < n:
        out[common] += w * (g.params[t + 1 + common] - g.params[t])


@lean
def pn_contract(g, f, pos, x, start, out):
    """gmax prod sum(x_j) + (g_s - gmax) prod x_j(s) over j != pos; sums are not 1 on the loose copies of ADMM."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = g.weight[f]
    t = g.param[f]
    mass = w * g.params[t]
    low = n
    for p in range(k):
        c = g.cards[g.scope[a + p]]
        low = min(low, c)
        if p != pos:
            total = 0.0
            for s in range(c):
                total += x[start[p] + s]
            mass *= total
    for s in range(n):
        out[s] += mass
    for s in range(low):
        product = w * (g.params[t + 1 + s] - g.params[t])
        for p in range(k):
            if p != pos:
                product *= x[start[p] + s]
        out[s] += product


@lean
def pn_minmarg(g, f, pos, h, start, out):
    """Either all others agree with s, or the cheapest choice that does not.

    The cheapest disagreeing choice is the sum of the minima unless that choice is itself "all others equal s"; then
    one of the others moves to its second best label, the one that loses least.
    """
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = g.weight[f]
    t = g.param[f]
    low = n
    total = 0.0
    common = -2  # label that attains every minimum, -1 when they differ
    loss = np.inf  # smallest regret of moving one variable to another label
    for p in range(k):
        c = g.cards[g.scope[a + p]]
        low = min(low, c)
        if p == pos:
            continue
        first = np.inf
        second = np.inf
        where = 0
        for s in range(c):
            v = h[start[p] + s]
            if v < first:
                second = first
                first = v
                where = s
            elif v < second:
                second = v
        total += first
        if common == -2:
            common = where
        elif common != where:
            common = -1
        if first < np.inf and second - first < loss:
            loss = second - first
    spread = w * g.params[t]
    for s in range(n):
        best = spread + total
        if s == common:
            best += loss
        if s < low:
            same = w * g.params[t + 1 + s]
            for p in range(k):
                if p != pos:
                    same += h[start[p] + s]
            if same < best:
                best = same
        out[s] = best
