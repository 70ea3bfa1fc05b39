"""Potts: weight * [a != b] on pairs, also between variables with different numbers of labels."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import Block, label_grid
from tightmap.factors.kind import FactorKind, Get, Kernels
from tightmap.factors.piece import Piece
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.runtime.compiled import inlined, lean

POTTS = int(Kind.POTTS)


@dataclass(frozen=True, eq=False)
class PottsBlock(Block):
    kind: ClassVar[Kind] = Kind.POTTS
    name: ClassVar[str] = Kind.POTTS.name

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        return self.weights * (labels[self.scopes[:, 0]] != labels[self.scopes[:, 1]])

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        a, b = label_grid(shape)
        return self.weights[rows][:, None, None] * (a != b)

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {}


# ---------------------------------------------------------------------------------------------- kernels


@inlined
def potts_value(g, f, labels):
    a = g.scope_start[f]
    return g.weight[f] if labels[g.scope[a]] != labels[g.scope[a + 1]] else 0.0


@lean
def _add_slice(n, w, label, out):
    for s in range(n):
        out[s] += w
    if label < n:
        out[label] -= w


@inlined
def potts_add_slice(g, f, pos, labels, out, scale):
    a = g.scope_start[f]
    _add_slice(g.cards[g.scope[a + pos]], scale * g.weight[f], labels[g.scope[a + 1 - pos]], out)


@inlined
def potts_change(g, f, pos, labels, cost, now, s):
    """The other end is concerned at the label that was and the one that will be."""
    j = g.scope[g.scope_start[f] + 1 - pos]
    if now < g.cards[j]:
        cost[g.offset[j] + now] += g.weight[f]
    if s < g.cards[j]:
        cost[g.offset[j] + s] -= g.weight[f]


@inlined
def potts_tabulate(g, f, size, table):
    w = g.weight[f]
    c = g.cards[g.scope[g.scope_start[f] + 1]]
    for x in range(size):
        table[x] = w
    for x in range(0, min(size, c * c), c + 1):
        table[x] = 0.0


@inlined
def potts_spread(g, f):
    return abs(g.weight[f])


@lean
def _contract(n, c, w, x, start, out):
    """out(s) += w (sum_t x(t) - x(s)); the vector need not be normalised."""
    total = 0.0
    for t in range(c):
        total += x[start + t]
    total *= w
    m = min(n, c)
    for s in range(m):
        out[s] += total - w * x[start + s]
    for s in range(m, n):
        out[s] += total


@inlined
def potts_contract(g, f, pos, x, start, out, work):
    a = g.scope_start[f]
    _contract(g.cards[g.scope[a + pos]], g.cards[g.scope[a + 1 - pos]], g.weight[f], x, start[1 - pos], out)


@lean
def _minmarg(n, c, w, h, start, out):
    """min(h(s), min h + w); for a negative weight the best label different from s needs the two smallest h."""
    first = np.inf
    second = np.inf
    where = -1
    for t in range(c):
        v = h[start + t]
        if v < first:
            second = first
            first = v
            where = t
        elif v < second:
            second = v
    for s in range(n):
        other = (second if s == where else first) + w
        if s < c:
            same = h[start + s]
            out[s] = same if same < other else other
        else:
            out[s] = other


@inlined
def potts_minmarg(g, f, pos, h, start, out, work):
    a = g.scope_start[f]
    _minmarg(g.cards[g.scope[a + pos]], g.cards[g.scope[a + 1 - pos]], g.weight[f], h, start[1 - pos], out)


class PottsKind(FactorKind):
    kind = Kind.POTTS
    block = PottsBlock
    words = "Potts"
    kernels = None
    pair_kernels = Kernels(
        potts_value, potts_add_slice, potts_contract, potts_minmarg, potts_tabulate, potts_spread, potts_change
    )
    has_parameters = False
    metric = True

    def extent(self, piece: Piece) -> tuple[FloatArray, FloatArray]:
        return np.zeros(len(piece.tables)), np.ones(len(piece.tables))

    def multiples(self, piece: Piece) -> FloatArray:
        return np.ones(1)

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        a, b = label_grid(shape)
        return piece.weights[rows][:, None, None] * (a != b)

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        model.add_potts(scopes, weights)


KIND = PottsKind()
