"""Sparse tables: a default cost and a list of exceptions, of any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.compiled import lean
from tightmap.factors.block import Block, weighted
from tightmap.factors.dense import slice_keys
from tightmap.graph import FloatArray, IntArray, Kind


@dataclass(frozen=True, eq=False)
class SparseBlock(Block):
    """``entries`` is (K, k) label vectors with costs ``values`` (K,); every other labelling costs ``default``.

    ``shape`` is the label counts of the scopes.  Exceptions are shared by the rows of the block.
    """

    shape: IntArray
    entries: IntArray
    values: FloatArray
    default: FloatArray  # 0-d

    kind: ClassVar[Kind] = Kind.SPARSE
    costs_in: ClassVar[tuple[str, ...]] = ("values", "default")

    def keys(self) -> IntArray:
        """C-order index of every exception."""
        return np.ravel_multi_index(tuple(self.entries.T), tuple(self.shape)).astype(np.int64)

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        keys = self.keys()
        order = np.argsort(keys, kind="stable")
        own = np.ravel_multi_index(tuple(labels[self.scopes].T), tuple(self.shape))
        at = np.minimum(np.searchsorted(keys, own, sorter=order), max(len(keys) - 1, 0))
        value = np.full(len(self), float(self.default))
        if len(keys):
            hit = keys[order[at]] == own
            value[hit] = self.values[order[at[hit]]]
        return weighted(self.weights, value)

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        table = np.full(shape, float(self.default))
        table[tuple(self.entries.T)] = self.values
        return weighted(self.weights[rows].reshape((-1,) + (1,) * len(shape)), table)

    @property
    def parameters(self) -> dict[str, npt.NDArray]:
        return {"shape": self.shape, "entries": self.entries, "values": self.values, "default": self.default}


@lean
def sparse_lookup(g, f, key):
    """Cost of one C-order key by bisection, without the weight."""
    i = g.iparam[f]
    lo = 0
    hi = g.ints[i]
    while lo < hi:
        mid = (lo + hi) // 2
        if g.ints[i + 1 + mid] < key:
            lo = mid + 1
        else:
            hi = mid
    if lo < g.ints[i] and g.ints[i + 1 + lo] == key:
        return g.params[g.param[f] + 1 + lo]
    return g.params[g.param[f]]


@lean
def sparse_add_slice(g, f, pos, labels, out, scale):
    base, step = slice_keys(g, f, pos, labels)
    w = scale * g.weight[f]
    for s in range(g.cards[g.scope[g.scope_start[f] + pos]]):
        out[s] += w * sparse_lookup(g, f, base + s * step)


@lean
def sparse_contract(g, f, pos, x, start, out):
    """default * prod sum(x_j), plus every exception where it differs from the default."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = g.weight[f]
    default = g.params[g.param[f]]
    mass = w * default
    for p in range(k):
        if p != pos:
            total = 0.0
            for s in range(g.cards[g.scope[a + p]]):
                total += x[start[p] + s]
            mass *= total
    for s in range(n):
        out[s] += mass
    i = g.iparam[f]
    for e in range(g.ints[i]):
        key = g.ints[i + 1 + e]
        product = w * (g.params[g.param[f] + 1 + e] - default)
        own = 0
        for p in range(k - 1, -1, -1):
            c = g.cards[g.scope[a + p]]
            l = key % c
            key //= c
            if p == pos:
                own = l
            else:
                product *= x[start[p] + l]
        out[own] += product


@lean
def sparse_minmarg(g, f, pos, h, start, out):
    """Exact when no exception is dearer than the default; returns False otherwise (the caller enumerates)."""
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = g.weight[f]
    default = w * g.params[g.param[f]]
    i = g.iparam[f]
    for e in range(g.ints[i]):
        if w * g.params[g.param[f] + 1 + e] > default:
            return False
    total = default
    for p in range(k):
        if p != pos:
            low = np.inf
            for s in range(g.cards[g.scope[a + p]]):
                v = h[start[p] + s]
                low = v if v < low else low
            total += low
    for s in range(n):
        out[s] = total
    for e in range(g.ints[i]):
        key = g.ints[i + 1 + e]
        v = w * g.params[g.param[f] + 1 + e]
        own = 0
        for p in range(k - 1, -1, -1):
            c = g.cards[g.scope[a + p]]
            l = key % c
            key //= c
            if p == pos:
                own = l
            else:
                v += h[start[p] + l]
        if v < out[own]:
            out[own] = v
    return True
