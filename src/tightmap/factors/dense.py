"""Dense tables of any order: individual, shared, or shared with a weight per factor."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import Block, weighted
from tightmap.factors.kind import FactorKind, Get, Kernels, Sizes
from tightmap.factors.piece import Form, Piece
from tightmap.graph.graph import Arrays, FloatArray, IntArray, Kind
from tightmap.runtime.compiled import compiled, inlined, lean


@dataclass(frozen=True, eq=False)
class DenseBlock(Block):
    """cost of row c = weights[c] * tables[index[c]][labels of its scope]; tables is (t, S1, ..., Sk)."""

    tables: FloatArray
    index: IntArray

    kind: ClassVar[Kind] = Kind.DENSE
    name: ClassVar[str] = Kind.DENSE.name
    per_row: ClassVar[tuple[str, ...]] = ("index",)
    costs_in: ClassVar[tuple[str, ...]] = ("tables",)

    def sizes(self, rows: slice) -> FloatArray:
        tables = self.tables[self.index[rows]].reshape(len(self.index[rows]), -1)
        finite = np.where(np.isfinite(tables), tables, 0.0)
        with np.errstate(over="ignore", under="ignore"):
            return np.abs(self.weights[rows]) * (finite.max(axis=1, initial=0.0) - finite.min(axis=1, initial=0.0))

    def scaled(self, power: int) -> Block:
        used = np.zeros(len(self.tables), dtype=bool)
        used[self.index] = True
        if used.all():
            return super().scaled(power)
        # tables that no factor uses may be of any size: they must not choose how costs are split with the weights
        tables = np.where(used.reshape((-1,) + (1,) * self.arity), self.tables, 0.0)
        return Block.scaled(replace(self, tables=tables), power)

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        picked = self.tables[(self.index, *(labels[self.scopes[:, p]] for p in range(self.arity)))]
        return weighted(self.weights, picked)

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        w = self.weights[rows].reshape((-1,) + (1,) * self.arity)
        return weighted(w, self.tables[self.index[rows]])

    def pieces(self, rows: IntArray, scopes: IntArray, weights: FloatArray, form: Form) -> list[Piece]:
        index = self.index if len(rows) == len(self) else self.index[rows]
        return form.tables(scopes, self.tables, index, weights)

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {"tables": self.tables, "index": self.index}


# ---------------------------------------------------------------------------------------------- kernels
# A kernel adds to (or writes) a vector over the labels of one position.  Vectors of the other positions are
# x[start[p] : start[p] + cards], so that one flat array can hold several copies of all variables.


@lean
def dense_key(g, f, labels):
    """Index of the labelling of factor f in its C-order table."""
    a = g.scope_start[f]
    key = 0
    for p in range(a, g.scope_start[f + 1]):
        i = g.scope[p]
        key = key * g.cards[i] + labels[i]
    return key


@inlined
def pair_value(g, f, labels):
    a = g.scope_start[f]
    i, j = g.scope[a], g.scope[a + 1]
    return g.weight[f] * g.params[g.param[f] + labels[i] * g.cards[j] + labels[j]]


@lean
def dense_value(g, f, labels):
    return g.weight[f] * g.params[g.param[f] + dense_key(g, f, labels)]


@lean
def pair_add_slice(g, f, pos, labels, out, scale):
    a = g.scope_start[f]
    i, j = g.scope[a], g.scope[a + 1]
    c = g.cards[j]
    w = scale * g.weight[f]
    t, step = g.param[f], 1
    if pos == 0:
        t, step = t + labels[j], c
    else:
        t += labels[i] * c
    for s in range(g.cards[g.scope[a + pos]]):
        out[s] += w * g.params[t]
        t += step


@compiled(_nrt=False, fastmath={"reassoc", "contract", "nsz"})
def _pair_contract(g, f, pos, x, at, out):
    """The vector of the other position is x[at:]."""
    a = g.scope_start[f]
    c, n = g.cards[g.scope[a + 1 - pos]], g.cards[g.scope[a + pos]]
    w = g.weight[f]
    table = g.params[g.param[f] : g.param[f] + n * c]
    if pos == 0:
        for s in range(n):
            total = 0.0
            for t in range(c):
                total += table[s * c + t] * x[at + t]
            out[s] += w * total
    else:
        for t in range(c):
            v = w * x[at + t]
            for s in range(n):
                out[s] += v * table[t * n + s]


@inlined
def pair_contract(g, f, pos, x, start, out, work):
    _pair_contract(g, f, pos, x, start[1 - pos], out)


@lean
def _pair_minmarg(g, f, pos, h, at, out):
    """Min-plus twin of _pair_contract; overwrites out."""
    a = g.scope_start[f]
    c, n = g.cards[g.scope[a + 1 - pos]], g.cards[g.scope[a + pos]]
    w = g.weight[f]
    table = g.params[g.param[f] : g.param[f] + n * c]
    if pos == 0:
        for s in range(n):
            best = np.inf
            for t in range(c):
                u = w * table[s * c + t] + h[at + t]
                best = u if u < best else best
            out[s] = best
    else:
        for s in range(n):
            out[s] = np.inf
        for t in range(c):
            for s in range(n):
                u = w * table[t * n + s] + h[at + t]
                out[s] = u if u < out[s] else out[s]


@inlined
def pair_minmarg(g, f, pos, h, start, out, work):
    _pair_minmarg(g, f, pos, h, start[1 - pos], out)


@lean
def slice_keys(g, f, pos, labels):
    """Index of label 0 at ``pos``, the others as labelled, and the distance from one label to the next."""
    a = g.scope_start[f]
    stride = 1
    base = 0
    step = 1
    for p in range(g.scope_start[f + 1] - a - 1, -1, -1):
        i = g.scope[a + p]
        if p == pos:
            step = stride
        else:
            base += stride * labels[i]
        stride *= g.cards[i]
    return base, step


@lean
def dense_add_slice(g, f, pos, labels, out, scale):
    base, step = slice_keys(g, f, pos, labels)
    w = scale * g.weight[f]
    t = g.param[f] + base
    for s in range(g.cards[g.scope[g.scope_start[f] + pos]]):
        out[s] += w * g.params[t]
        t += step


@compiled(_nrt=False, fastmath={"reassoc", "contract", "nsz"})
def dense_contract(g, f, pos, x, start, out, work):
    """Contract all modes but one: trailing modes from the last inwards, then leading ones from the first."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    w = g.weight[f]
    size = 1
    for p in range(k):
        size *= g.cards[g.scope[a + p]]
    table = g.params[g.param[f] : g.param[f] + size]
    source = table
    for p in range(k - 1, pos, -1):
        c = g.cards[g.scope[a + p]]
        size //= c
        v = x[start[p] : start[p] + c]
        for r in range(size):
            acc = 0.0
            for t in range(c):
                acc += source[r * c + t] * v[t]
            work[r] = acc
        source = work
    for p in range(pos):
        c = g.cards[g.scope[a + p]]
        size //= c
        v = x[start[p] : start[p] + c]
        # in place is safe: entry r of the result is written only after every entry r + t * size has been read
        for r in range(size):
            acc = 0.0
            for t in range(c):
                acc += v[t] * source[t * size + r]
            work[r] = acc
        source = work
    for s in range(size):
        out[s] += w * source[s]


@lean
def dense_minmarg(g, f, pos, h, start, out, work):
    """Min-plus twin of dense_contract; overwrites out."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    w = g.weight[f]
    size = 1
    for p in range(k):
        size *= g.cards[g.scope[a + p]]
    table = g.params[g.param[f] : g.param[f] + size]
    for r in range(size):
        work[r] = w * table[r]
    for p in range(k - 1, pos, -1):
        c = g.cards[g.scope[a + p]]
        size //= c
        v = h[start[p] : start[p] + c]
        for r in range(size):
            best = np.inf
            for t in range(c):
                u = work[r * c + t] + v[t]
                best = u if u < best else best
            work[r] = best
    for p in range(pos):
        c = g.cards[g.scope[a + p]]
        size //= c
        v = h[start[p] : start[p] + c]
        for r in range(size):
            best = np.inf
            for t in range(c):
                u = v[t] + work[t * size + r]
                best = u if u < best else best
            work[r] = best
    for s in range(size):
        out[s] = work[s]


@lean
def dense_change(g, f, pos, labels, cost, now, s):
    """A table of any order: the costs of the others change by the difference of two of its lines."""
    first = g.scope_start[f]
    last = g.scope_start[f + 1] - 1
    base = g.param[f]
    stride = 1
    own = 1
    for p in range(last, first - 1, -1):
        if p - first == pos:
            own = stride
        base += stride * labels[g.scope[p]]
        stride *= g.cards[g.scope[p]]
    jump = own * (s - labels[g.scope[first + pos]])
    w = g.weight[f]
    stride = 1
    for p in range(last, first - 1, -1):
        j = g.scope[p]
        c = g.cards[j]
        if p - first != pos:
            old = base - stride * labels[j]
            o = g.offset[j]
            for l in range(c):
                cost[o + l] += w * (g.params[old + jump] - g.params[old])
                old += stride
        stride *= c


@inlined
def dense_tabulate(g, f, size, table):
    w = g.weight[f]
    t = g.param[f]
    for x in range(size):
        table[x] = w * g.params[t + x]


@lean
def largest_gap(params, begin, end):
    """max - min of params[begin:end]."""
    low = high = params[begin]
    for x in range(begin + 1, end):
        low, high = min(low, params[x]), max(high, params[x])
    return high - low


@lean
def dense_spread(g, f):
    size = 1
    for p in range(g.scope_start[f], g.scope_start[f + 1]):
        size *= g.cards[g.scope[p]]
    return abs(g.weight[f]) * largest_gap(g.params, g.param[f], g.param[f] + size)


class DenseKind(FactorKind):
    kind = Kind.DENSE
    block = DenseBlock
    words = "dense"
    kernels = Kernels(
        dense_value, dense_add_slice, dense_contract, dense_minmarg, dense_tabulate, dense_spread, dense_change
    )
    pair_kernels = Kernels(
        pair_value, pair_add_slice, pair_contract, pair_minmarg, dense_tabulate, dense_spread, dense_change
    )

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        table = piece.tables[piece.table[rows]].reshape((len(rows), *shape))
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(table), np.inf, piece.weights[rows].reshape((-1,) + (1,) * len(shape)) * table)

    def scratch(self, g: Arrays, factors: npt.NDArray[Any], arity: int, labels: int) -> int:
        entries = np.multiply.reduceat(g.cards[g.scope].astype(np.int64), g.scope_start[:-1])
        return int(entries[factors].max())

    def seconds(self, sizes: Sizes, rows: npt.NDArray[Any], contraction: bool) -> FloatArray:
        return 2e-9 * sizes.entries[rows]

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        model.add_indexed_factors(scopes, get("tables", "f", scopes.shape[1] + 1), get("index", "iu", 1), weights)


KIND = DenseKind()
