"""P^n-Potts of any order: weight * (cost of label l when all variables take l, cost of disagreement otherwise)."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.block import Block, Exceptions
from tightmap.factors.dense import largest_gap
from tightmap.factors.kind import FactorKind, Get, Kernels
from tightmap.factors.piece import Form, Piece, simple_piece, sorted_scopes
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.runtime.compiled import lean


@dataclass(frozen=True, eq=False)
class PnPottsBlock(Block):
    """``costs`` = [cost of disagreement, cost of all 0, cost of all 1, ...], shared by the rows of the block."""

    costs: FloatArray

    kind: ClassVar[Kind] = Kind.PN_POTTS
    name: ClassVar[str] = Kind.PN_POTTS.name
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

    def pieces(self, rows: IntArray, scopes: IntArray, weights: FloatArray, form: Form) -> list[Piece]:
        labels = form.cards[self.scopes[rows]].min(axis=1)
        scopes = sorted_scopes(scopes)
        return [
            simple_piece(self.kind, scopes[labels == s], weights[labels == s], self.costs[: 1 + s])
            for s in np.unique(labels)
        ]

    def exceptions(self, row: int, shape: tuple[int, ...]) -> Exceptions:
        labels = min(shape)
        entries = np.repeat(np.arange(labels)[:, None], len(shape), axis=1)
        return entries, self.costs[1 : 1 + labels], float(self.costs[0])

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {"costs": self.costs}


@lean
def pn_value(g, f, labels):
    a = g.scope_start[f]
    first = labels[g.scope[a]]
    for p in range(a + 1, g.scope_start[f + 1]):
        if labels[g.scope[p]] != first:
            return g.weight[f] * g.params[g.param[f]]
    return g.weight[f] * g.params[g.param[f] + 1 + first]


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
def pn_contract(g, f, pos, x, start, out, work):
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
def pn_minmarg(g, f, pos, h, start, out, work):
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


@lean
def pn_change(g, f, pos, labels, cost, now, s):
    """P^n-Potts: j is concerned only when all but i and j share a label, and only at that label."""
    first = g.scope_start[f]
    last = g.scope_start[f + 1]
    i = g.scope[first + pos]
    if last - first == 2:  # nobody is left to share a label
        j = g.scope[first + 1 - pos]
        row = cost[g.offset[j] : g.offset[j + 1]]
        pn_add_slice(g, f, 1 - pos, labels, row, -1.0)
        labels[i] = s
        pn_add_slice(g, f, 1 - pos, labels, row, 1.0)
        labels[i] = now
        return
    for p in range(first, last):
        j = g.scope[p]
        if j == i:
            continue
        common = -1
        for q in range(first, last):
            if q != p and g.scope[q] != i:
                l = labels[g.scope[q]]
                if common < 0:
                    common = l
                elif l != common:
                    common = -2
                    break
        if common >= 0 and common < g.cards[j]:
            if now == common:
                cost[g.offset[j] + common] += g.weight[f] * (g.params[g.param[f]] - g.params[g.param[f] + 1 + common])
            elif s == common:
                cost[g.offset[j] + common] -= g.weight[f] * (g.params[g.param[f]] - g.params[g.param[f] + 1 + common])


@lean
def pn_tabulate(g, f, size, table):
    a = g.scope_start[f]
    w = g.weight[f]
    t = g.param[f]
    for x in range(size):
        table[x] = w * g.params[t]
    low = g.cards[g.scope[a]]
    step = 0
    stride = 1
    for p in range(g.scope_start[f + 1] - 1, a - 1, -1):
        low = min(low, g.cards[g.scope[p]])
        step += stride
        stride *= g.cards[g.scope[p]]
    for s in range(low):
        table[s * step] = w * g.params[t + 1 + s]


@lean
def pn_spread(g, f):
    low = g.cards[g.scope[g.scope_start[f]]]
    for p in range(g.scope_start[f], g.scope_start[f + 1]):
        low = min(low, g.cards[g.scope[p]])
    return abs(g.weight[f]) * largest_gap(g.params, g.param[f], g.param[f] + 1 + low)


class PnPottsKind(FactorKind):
    kind = Kind.PN_POTTS
    block = PnPottsBlock
    words = "P^n-Potts"
    kernels = Kernels(pn_value, pn_add_slice, pn_contract, pn_minmarg, pn_tabulate, pn_spread, pn_change)

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        grid = np.indices(shape)
        params = piece.tables[piece.table[rows]]
        w = piece.weights[rows].reshape((-1,) + (1,) * len(shape))
        agree = (grid == grid[0]).all(axis=0)
        return w * np.where(agree, params[:, np.where(agree, 1 + grid[0], 0)], params[:, 0].reshape(w.shape))

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        costs = get("costs", "f", 1)
        if not len(costs):
            raise ModelError("array 'costs': expected the cost of disagreement, got nothing")
        model.add_pn_potts(scopes, weights, costs[1:], disagreement=float(costs[0]))


KIND = PnPottsKind()
