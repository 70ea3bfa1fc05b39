"""Generalised Potts: the cost depends only on which variables of the scope share a label (OpenGM's PottsG).

``pattern_ranks.py`` numbers the patterns of equal labels, ``pattern_kernels.py`` sums and minimises over them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import Block
from tightmap.factors.dense import largest_gap
from tightmap.factors.kind import FactorKind, Get, Kernels, Sizes
from tightmap.factors.pattern_kernels import MERGERS, pattern_contract, pattern_minmarg, pattern_workspace
from tightmap.factors.pattern_ranks import (
    COMPLETIONS,
    IN_ORDER,
    MAX_ARITY,
    bell,
    growth_strings,
    pattern_rank,
    pattern_ranks,
)
from tightmap.factors.piece import Form, Piece, simple_piece
from tightmap.graph.graph import Arrays, FloatArray, IntArray, Kind
from tightmap.runtime.compiled import lean

__all__ = ["KIND", "MAX_ARITY", "PatternBlock", "bell", "pattern_ranks"]

EXPAND = 1 << 14  # a table up to this size is written out once and shared by all its factors


@dataclass(frozen=True, eq=False)
class PatternBlock(Block):
    """``values[r]`` is the cost of the pattern of rank r, shared by the rows of the block."""

    values: FloatArray

    kind: ClassVar[Kind] = Kind.PATTERN
    name: ClassVar[str] = Kind.PATTERN.name
    costs_in: ClassVar[tuple[str, ...]] = ("values",)

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        return self.weights * self.values[pattern_ranks(labels[self.scopes])]

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        every = np.indices(shape).reshape(len(shape), -1).T
        table = self.values[pattern_ranks(every)].reshape(shape)
        return self.weights[rows].reshape((-1,) + (1,) * len(shape)) * table

    def pieces(self, rows: IntArray, scopes: IntArray, weights: FloatArray, form: Form) -> list[Piece]:
        out: list[Piece] = []
        k = self.arity
        cards = form.cards[self.scopes[rows]]
        small = np.prod(cards.astype(np.float64), axis=1) <= EXPAND
        for shape in np.unique(cards[small], axis=0):
            mine = np.flatnonzero(small & (cards == shape).all(axis=1))
            every = np.indices(tuple(shape)).reshape(k, -1).T
            table = self.values[pattern_ranks(every)].reshape((1, *shape))
            out += form.tables(scopes[mine], table, np.zeros(len(mine), dtype=np.int64), weights[mine])
        large = np.flatnonzero(~small)
        if len(large):
            orders, group = np.unique(np.argsort(scopes[large], axis=1), axis=0, return_inverse=True)
            strings = growth_strings(k)
            for q, order in enumerate(orders):
                mine = large[group.reshape(-1) == q]
                # position p of the sorted scope is position order[p] of the user's
                own = np.empty_like(strings)
                own[:, order] = strings
                values = self.values[pattern_ranks(own)]
                out.append(simple_piece(self.kind, scopes[mine][:, order], weights[mine], values))
        return out

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {"values": self.values}


@lean
def pattern_value(g, f, labels):
    scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
    return g.weight[f] * g.params[g.param[f] + pattern_rank(labels, scope, -1, 0)]


@lean
def pattern_add_slice(g, f, pos, labels, out, scale):
    scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
    for s in range(g.cards[scope[pos]]):
        out[s] += scale * g.weight[f] * g.params[g.param[f] + pattern_rank(labels, scope, pos, s)]


@lean
def pattern_tabulate(g, f, size, table):
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    own = table[size : size + k]  # the labels of the entry that is next
    for p in range(k):
        own[p] = 0.0
    for x in range(size):
        table[x] = g.weight[f] * g.params[g.param[f] + pattern_rank(own, IN_ORDER[: len(own)], -1, 0)]
        for p in range(k - 1, -1, -1):
            own[p] += 1.0
            if own[p] < g.cards[g.scope[a + p]]:
                break
            own[p] = 0.0


@lean
def pattern_spread(g, f):
    count = COMPLETIONS[g.scope_start[f + 1] - g.scope_start[f], 0]
    return abs(g.weight[f]) * largest_gap(g.params, g.param[f], g.param[f] + count)


class PatternKind(FactorKind):
    kind = Kind.PATTERN
    block = PatternBlock
    words = "label-pattern"
    kernels = Kernels(
        pattern_value, pattern_add_slice, pattern_contract, pattern_minmarg, pattern_tabulate, pattern_spread
    )

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        ranks = pattern_ranks(np.indices(shape).reshape(len(shape), -1).T).reshape(shape)
        return piece.weights[rows].reshape((-1,) + (1,) * len(shape)) * piece.tables[piece.table[rows]][:, ranks]

    def scratch(self, g: Arrays, factors: npt.NDArray[Any], arity: int, labels: int) -> int:
        return pattern_workspace(arity, labels)

    def seconds(self, sizes: Sizes, rows: npt.NDArray[Any], contraction: bool) -> FloatArray:
        out = np.empty(len(rows))
        for r, f in enumerate(rows):
            k = int(sizes.arity[f])
            terms = 14.0 * MERGERS[k] if contraction else 50.0 * bell(k)
            out[r] = 1e-9 * (terms + 2.0**k * sizes.labels[f] * k)
        return out

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        model.add_label_patterns(scopes, get("values", "f", 1), weights)


KIND = PatternKind()
