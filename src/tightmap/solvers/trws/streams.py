"""The layout of the table engine of TRW-S: everything in the order in which a pass needs it.

On a graph without a regular form the time of a message is that of finding its table: S^2 numbers somewhere in memory,
read by rows in one direction and by columns in the other.  So each direction has a copy of the tables of its own,

    forward    for the nodes in order, for their edges to later nodes:            cost(s, t) at  base + s d + t,
    backward   for the nodes from last to first, for their edges to earlier ones: the same,

where s is a label of the node that sends and t one of the d labels of the other.  A pass streams through its copy from
the beginning to the end, and lanes run along t in both.  Rows are not padded: eight lanes that begin at the end of a
row read into the next one, and what they find there is thrown away.

What a node needs to know of its edges is listed in the order of visits too, those to earlier nodes first.  Messages and
unary costs begin at multiples of eight lanes; beyond the labels of a node its unary costs are +inf.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.factors.pairs import POTTS, plain_cost
from tightmap.graph.graph import FloatArray, Graph, PairArrays
from tightmap.runtime import memory
from tightmap.runtime.compiled import lean
from tightmap.runtime.simd import LANES

FEWEST = 256  # edges: for fewer, laying them out takes as long as what it saves
LARGEST = 1 << 28  # bytes of both copies of the tables
NARROW = LANES  # labels up to which any kind of pair becomes a table; a shared table of more labels stays as it is
SHARED = 1 << 20  # bytes of copies that stay in the cache even where many edges share one table


class Streams(NamedTuple):
    """Edges and costs in the order of visits; "entry" q is an edge as one of its two ends sees it."""

    first: npt.NDArray[np.int64]  # (n + 1,) entries of the k-th node: first[k] ... first[k + 1] - 1
    slot: npt.NDArray[np.int64]  # (2 m,) where the edge's message begins
    other: npt.NDArray[np.int64]  # (2 m,) the node at the other end
    wide: npt.NDArray[np.int64]  # (2 m,) its labels
    weight: FloatArray  # (2 m,) of a Potts edge
    base: npt.NDArray[np.int64]  # (2, 2 m) backward, forward: where the edge's table begins; -1: a Potts edge
    costs: tuple[FloatArray, FloatArray]  # backward, forward
    unary: FloatArray
    unary_at: npt.NDArray[np.int64]  # (n,) where the unary costs of the k-th node begin
    largest: FloatArray  # (n,) the largest absolute value of them
    cards: npt.NDArray[np.int64]  # (n,) labels of the k-th node
    most: int  # labels of any node, a multiple of eight


@lean
def _list_entries(g, order, later, start, place, first, slot, other, wide, weight, base):
    """Fills the entries; returns how many numbers a copy of the tables has.

    place  (m,) scratch: where an edge's table is in the backward copy, then in the forward one
    """
    n = len(order)
    entry = 0
    for k in range(n):
        i = order[k]
        first[k] = entry
        for late in range(2):
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                if later[a] == late:
                    f = np.int64(g.adj_factor[a])
                    slot[entry] = start[f]
                    other[entry] = g.scope[2 * f + 1 - g.adj_pos[a]]
                    wide[entry] = g.cards[other[entry]]
                    weight[entry] = g.weight[f]
                    entry += 1
    first[n] = entry
    numbers = 0
    for towards in range(2):
        numbers = 0
        for step in range(n):
            i = order[step if towards == 1 else n - 1 - step]
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                if later[a] == towards:
                    f = np.int64(g.adj_factor[a])
                    if g.kind[f] == POTTS and g.weight[f] >= 0.0:
                        place[f] = -1
                    else:
                        place[f] = numbers
                        numbers += np.int64(g.cards[g.scope[2 * f]]) * g.cards[g.scope[2 * f + 1]]
        for k in range(n):
            i = order[k]
            entry = first[k]
            for late in range(2):
                for a in range(g.adj_start[i], g.adj_start[i + 1]):
                    if later[a] == late:
                        base[towards, entry] = place[g.adj_factor[a]]
                        entry += 1
    return numbers


@lean
def _copy_tables(g, order, later, first, base, towards, costs):
    """The tables of one direction, weights included, with the labels of the node that sends as rows."""
    for k in range(len(order)):
        i = order[k]
        entry = first[k]
        c = g.cards[i]
        for late in range(2):
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                if later[a] != late:
                    continue
                at = base[towards, entry]
                entry += 1
                if late != towards or at < 0:
                    continue
                f = np.int64(g.adj_factor[a])
                p = g.adj_pos[a]
                d = g.cards[g.scope[2 * f + 1 - p]]
                for s in range(c):
                    for t in range(d):
                        own, theirs, wide = (s, t, d) if p == 0 else (t, s, c)
                        costs[at + s * d + t] = plain_cost(
                            g.kind[f], g.weight[f], g.params, g.param[f], wide, own, theirs
                        )


@lean
def _copy_unaries(g, order, unary_at, unary, largest):
    for k in range(len(order)):
        i = order[k]
        for s in range(g.cards[i]):
            u = g.unary[g.offset[i] + s]
            unary[unary_at[k] + s] = u
            largest[k] = max(largest[k], abs(u))


def suits(graph: Graph) -> bool:
    """Whether the tables of a pairwise model are to be laid out like this: there is room for them, and a gain."""
    g = graph.arrays
    if graph.m < FEWEST or not isinstance(g, PairArrays):
        return False
    potts = (g.kind == POTTS) & (g.weight >= 0.0)
    if potts.all() and graph.max_labels == 4:  # four_labels.py
        return False
    ends = g.cards[g.scope].astype(np.int64).reshape(-1, 2)
    numbers = int((ends[:, 0] * ends[:, 1])[~potts].sum())
    narrow = graph.max_labels <= NARROW
    if 16 * numbers > LARGEST or (not narrow and (g.kind > POTTS).any()):
        return False
    if 16 * numbers > LARGEST // 16 and 64 * numbers > memory.available_bytes():
        return False
    shared = len(np.unique(g.param[~potts])) < np.count_nonzero(~potts) // 2
    return narrow or not shared or 16 * numbers <= SHARED


def build_streams(
    graph: Graph, order: npt.NDArray[np.int64], later: npt.NDArray[np.uint8], start: npt.NDArray[np.int64]
) -> Streams:
    g, n, entries = graph.arrays, graph.n, 2 * graph.m
    first, base = np.zeros(n + 1, np.int64), np.zeros((2, entries), np.int64)
    slot, other, wide = (np.zeros(entries, np.int64) for _ in range(3))
    weight, place = np.zeros(entries), np.zeros(graph.m, np.int64)
    numbers = _list_entries(g, order, later, start, place, first, slot, other, wide, weight, base)
    costs = (np.zeros(numbers + 2 * LANES), np.zeros(numbers + 2 * LANES))
    for towards in range(2):
        _copy_tables(g, order, later, first, base, towards, costs[towards])
    cards = g.cards[order].astype(np.int64)
    room = -(-cards // LANES) * LANES
    unary_at = np.concatenate(([0], np.cumsum(room)))
    unary, largest = np.full(int(unary_at[-1]), np.inf), np.zeros(n)
    _copy_unaries(g, order, unary_at, unary, largest)
    most = int(room.max())
    return Streams(first, slot, other, wide, weight, base, costs, unary, unary_at[:-1], largest, cards, most)
