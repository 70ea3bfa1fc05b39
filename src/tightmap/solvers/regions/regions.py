"""The region graph: variables, factors and added clusters, with an edge from each to the parts it sends messages to.

Singleton messages (factor -> variable) give the bound of the local polytope.  Letting a factor also send messages to
smaller factors inside it, and adding zero factors ("clusters") for this purpose, gives tighter bounds.  The
regions are numbered: variables 0..n-1, factors n..n+m-1, then clusters.  With messages m_{A->B} on the edges every
energy is

    E(x) = constant + sum over regions B of [theta_B + sum_{A->B} m_{A->B} - sum_{B->C} m_{B->C}](x_B),

so the sum of the minima of the brackets is a lower bound.  All messages live in one flat vector of *negated* entries
(the kernels of factors/ then read them in place).  With edges to variables only, its layout is that of
``energies.message_offsets``.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.kernels import workspace
from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import check_time

NODE, STRUCT, TABLE, ZERO, TRIPLET, SQUARE = 0, 1, 2, 3, 4, 5  # how a region computes: see Dag.mode
LARGEST_TABLE = 1 << 16  # factors with more entries send to variables only: the kernels for that need no table
LARGEST_ARITY = 7  # the same for factors of more variables


class Dag(NamedTuple):
    """Flat arrays for the kernels.  R regions, E edges sorted by source."""

    mode: npt.NDArray[np.uint8]  # (R,) NODE; STRUCT: factor kernels; TABLE: factor, tabulated; others: no cost
    size: IntArray  # (R,) entries of the table of a region (0 for STRUCT, TRIPLET, SQUARE, which have none)
    scope_start: IntArray  # (R + 1,)
    scope: npt.NDArray[np.int32]
    out_start: IntArray  # (R + 1,) edges that leave a region; those of a STRUCT are in the order of its positions
    source: npt.NDArray[np.int32]  # (E,)
    target: npt.NDArray[np.int32]  # (E,)
    at: IntArray  # (E,) where the message starts; it has size[target] entries
    map_at: IntArray  # (E,) where the maps of an edge start; SQUARE: 4 * first + second position of the pair; else -1
    maps: npt.NDArray[np.uint32]  # index of the target by that of the source; then of the source by (rest, target)
    in_start: IntArray  # (R + 1,)
    in_edge: IntArray  # (E,) edges that enter a region
    sequence: npt.NDArray[np.int32]  # variables and all regions with edges that enter, in the order of a sweep
    forward: npt.NDArray[np.uint8]  # (E,) the edge takes its share in a forward pass (and is sent in a backward pass)
    backward: npt.NDArray[np.uint8]  # (E,) the other way round
    counted: npt.NDArray[np.uint8]  # (E,) the minimum of the source counts when the edge is sent in a backward pass
    region_counted: npt.NDArray[np.uint8]  # (R,) the minimum of the region itself counts in a backward pass
    weight_forward: FloatArray  # (R,) into how many shares a visit divides its sum in a forward pass
    weight_backward: FloatArray  # (R,) the same in a backward pass


@dataclass(frozen=True, eq=False)
class Regions:
    """A Dag with what is known about it outside the kernels."""

    graph: Graph
    dag: Dag
    clusters: tuple[tuple[int, ...], ...]  # scopes of the regions n + m, n + m + 1, ...
    edges: str
    order: IntArray  # of the variables
    entries: int  # of all messages
    table: int  # entries of scratch for the largest table
    vector: int  # entries of scratch for the largest message
    scratch: int  # entries of scratch for the factor kernels
    plain: bool  # messages to variables only: the layout is that of energies.message_offsets

    def scope(self, region: int) -> npt.NDArray[np.int32]:
        d = self.dag
        return d.scope[d.scope_start[region] : d.scope_start[region + 1]]

    def children(self, region: int) -> range:
        return range(int(self.dag.out_start[region]), int(self.dag.out_start[region + 1]))


# ------------------------------------------------------------------------------------------------- building


def _hash(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """One number per row of variables; rows that collide are told apart by comparison."""
    key = np.zeros(len(rows), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in rows.T:
            key = (key ^ (key >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64)
    return key


class _Index:
    """Finds regions of one arity by their sorted scopes."""

    def __init__(self, ids: IntArray, scopes: npt.NDArray[Any]) -> None:
        keys = _hash(scopes)
        order = np.argsort(keys, kind="stable")
        self.ids, self.scopes, self.keys = ids[order], scopes[order], keys[order]

    def find(self, rows: npt.NDArray[Any]) -> IntArray:
        """(m,) region of each row, -1 where there is none."""
        keys = _hash(rows)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        same = (self.scopes[at] == rows).all(axis=1)
        return np.where(same, self.ids[at], -1)


def _edges_of_arity(
    ids: IntArray, scopes: npt.NDArray[Any], index: dict[int, _Index]
) -> tuple[IntArray, IntArray, npt.NDArray[Any]]:
    """Maximal existing parts of regions of one arity: sources, targets, and which variables no part covers."""
    k = scopes.shape[1]
    sources, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    bare = np.ones(scopes.shape, dtype=bool)
    found: list[tuple[frozenset[int], npt.NDArray[Any]]] = []
    for size in range(k - 1, 1, -1):
        if size not in index:
            continue
        for part in combinations(range(k), size):
            child = index[size].find(scopes[:, part])
            hit = child >= 0
            own = frozenset(part)
            for larger, there in found:
                if own < larger:
                    hit &= ~there
            if hit.any():
                sources.append(ids[hit])
                targets.append(child[hit])
                bare[np.flatnonzero(hit)[:, None], list(part)] = False
                found.append((own, hit))
    return np.concatenate(sources), np.concatenate(targets), bare


def _find_edges(
    n: int,
    m: int,
    sizes: FloatArray,
    scope_start: IntArray,
    scope: npt.NDArray[Any],
    edges: str,
    context: Context | None,
) -> tuple[IntArray, IntArray]:
    """Sources and targets of all edges."""
    arity = np.diff(scope_start)
    region = np.arange(len(arity))
    sources, targets = [], []
    whole = (sizes <= LARGEST_TABLE) & (arity <= LARGEST_ARITY)
    wide = (arity >= 3) & ((region >= n + m) | (whole & (edges == "full")))
    # regions that can be parts of others, by arity and sorted scope
    index: dict[int, _Index] = {}
    for k in np.unique(arity[(arity >= 2) & whole]):
        check_time(context)
        ids = np.flatnonzero((arity == k) & whole)
        index[int(k)] = _Index(ids, np.sort(scope[scope_start[ids][:, None] + np.arange(k)], axis=1))
    for k in np.unique(arity[arity >= 2]):
        check_time(context)
        ids = np.flatnonzero((arity == k) & ~wide)
        if len(ids):
            sources.append(np.repeat(ids, k))
            targets.append(scope[scope_start[ids][:, None] + np.arange(k)].reshape(-1).astype(np.int64))
        ids = np.flatnonzero((arity == k) & wide)
        if len(ids):
            sorted_scopes = np.sort(scope[scope_start[ids][:, None] + np.arange(k)], axis=1)
            src, dst, bare = _edges_of_arity(ids, sorted_scopes, index)
            rows, columns = np.nonzero(bare)
            sources += [src, ids[rows]]
            targets += [dst, sorted_scopes[rows, columns].astype(np.int64)]
    none = np.zeros(0, dtype=np.int64)
    return np.concatenate([none, *sources]), np.concatenate([none, *targets])


def _maps(
    cards: npt.NDArray[Any],
    scope_start: IntArray,
    scope: npt.NDArray[Any],
    source: IntArray,
    target: IntArray,
    tabled: npt.NDArray[Any],
) -> tuple[IntArray, npt.NDArray[np.uint32], IntArray]:
    """Per edge: start of its index maps (shared by edges of one form), the maps, rank of the target's positions."""
    arity = np.diff(scope_start)
    map_at = np.full(len(source), -1, dtype=np.int64)
    first = np.zeros(len(source), dtype=np.int64)
    maps: list[npt.NDArray[Any]] = []
    length = 0
    widest = int(arity.max(initial=1)) + 1
    form_of = arity[source] * widest + arity[target]  # one number: to sort pairs of them is a hundred times slower
    for both in np.unique(form_of):
        a, b = divmod(int(both), widest)
        mine = np.flatnonzero(form_of == both)
        own = scope[scope_start[source[mine]][:, None] + np.arange(a)]
        part = scope[scope_start[target[mine]][:, None] + np.arange(b)]
        place = (own[:, :, None] == part[:, None, :]).argmax(axis=1)
        first[mine] = place.min(axis=1) * (LARGEST_ARITY + a) + place.max(axis=1)
        mine, own, place = (v[tabled[source[mine]]] for v in (mine, own, place))
        if not len(mine):
            continue
        forms, form = np.unique(np.concatenate((cards[own], place), axis=1), axis=0, return_inverse=True)
        starts = []
        for row in forms:
            shape, where = tuple(int(c) for c in row[:a]), row[a:]
            grid = np.indices(shape, dtype=np.int32).reshape(a, -1)
            index = np.zeros(grid.shape[1], dtype=np.int64)
            for p in where:
                index = index * shape[p] + grid[p]
            starts.append(length)
            rest = [p for p in range(a) if p not in where]
            inverse = np.arange(len(index)).reshape(shape).transpose((*rest, *where)).reshape(-1)
            maps += [index.astype(np.uint32), inverse.astype(np.uint32)]
            length += 2 * len(index)
        map_at[mine] = np.array(starts, dtype=np.int64)[form.reshape(-1)]
    return map_at, np.concatenate([np.zeros(0, np.uint32), *maps]), first


def _positions(scope_start: IntArray, scope: npt.NDArray[Any], square: IntArray, pair: IntArray) -> IntArray:
    """4 * first + second position of pairs within squares."""
    own = scope[scope_start[square][:, None] + np.arange(4)]
    part = scope[scope_start[pair][:, None] + np.arange(2)]
    place = (own[:, :, None] == part[:, None, :]).argmax(axis=1)
    return 4 * place[:, 0] + place[:, 1]


def _sequence(
    n: int, scope_start: IntArray, scope: npt.NDArray[Any], entered: npt.NDArray[Any], rank: IntArray
) -> IntArray:
    """Variables and entered regions by (first rank, last rank, arity, ranks between)."""
    arity = np.diff(scope_start)
    ids = np.flatnonzero(entered | (np.arange(len(arity)) < n))
    widest = int(arity[ids].max(initial=1))
    ranks = np.full((len(ids), widest), -1, dtype=np.int64)
    for k in np.unique(arity[ids]):
        mine = np.flatnonzero(arity[ids] == k)
        ranks[mine, :k] = np.sort(rank[scope[scope_start[ids[mine]][:, None] + np.arange(k)]], axis=1)
    keys = [ranks[:, p] for p in range(widest - 1, 0, -1)]
    return ids[np.lexsort((*keys, arity[ids], ranks.max(axis=1), ranks[:, 0]))]


@compiled
def _mark(sequence, source, target, out_start, in_start, in_edge, arity, place):
    """Which edges act in which pass, and the weights, as in Kolmogorov 2015."""
    regions = len(in_start) - 1
    backward = np.zeros(len(source), np.uint8)
    forward = np.zeros(len(source), np.uint8)
    counted = np.zeros(len(source), np.uint8)
    region_counted = np.zeros(regions, np.uint8)
    touched = np.zeros(regions, np.bool_)
    for b in sequence:
        region_counted[b] = 1 if not touched[b] or arity[b] == 1 else 0
        touched[b] = True
        for k in range(in_start[b], in_start[b + 1]):
            e = in_edge[k]
            if touched[source[e]]:
                backward[e] = 1
            else:
                counted[e] = 1
                touched[source[e]] = True
    touched[:] = False
    for b in sequence[::-1]:
        touched[b] = True
        for k in range(in_start[b], in_start[b + 1]):
            e = in_edge[k]
            forward[e] = 1 if touched[source[e]] else 0
            touched[source[e]] = True
    weight_forward = np.ones(regions)
    weight_backward = np.ones(regions)
    for b in sequence:
        later = 0
        earlier = 0
        for e in range(out_start[b], out_start[b + 1]):
            if place[target[e]] > place[b]:
                later += 1
            else:
                earlier += 1
        total = in_start[b + 1] - in_start[b]
        f = 0
        r = 0
        for k in range(in_start[b], in_start[b + 1]):
            f += forward[in_edge[k]]
            r += backward[in_edge[k]]
        weight_forward[b] = max(1, later + f + max(0, total - 2 * f))
        weight_backward[b] = max(1, earlier + r + max(0, total - 2 * r))
    return forward, backward, counted, region_counted, weight_forward, weight_backward


def build_regions(
    graph: Graph,
    edges: str = "full",
    clusters: Sequence[tuple[int, ...]] = (),
    order: IntArray | None = None,
    context: Context | None = None,
) -> Regions:
    """The region graph of a model with added zero clusters (scopes ascending, none of them a factor's own scope).

    edges  "minimal": factors send to variables only; "full": to the largest factors inside them.  Clusters always
           send to the largest regions inside them.
    context  its time limit; TimeUp when that has passed
    """
    g, n, m = graph.arrays, graph.n, graph.m
    order = np.arange(n, dtype=np.int64) if order is None else order
    arity = np.concatenate(
        (np.ones(n, np.int64), np.diff(g.scope_start), np.array([len(c) for c in clusters], dtype=np.int64))
    )
    scope_start = np.concatenate(([0], np.cumsum(arity)))
    extra = np.array([i for c in clusters for i in c], dtype=np.int32)
    scope = np.concatenate((np.arange(n, dtype=np.int32), g.scope, extra))
    with np.errstate(over="ignore"):
        sizes = np.multiply.reduceat(g.cards[scope].astype(np.float64), scope_start[:-1]) if n else np.zeros(0)

    check_time(context)
    source, target = _find_edges(n, m, sizes, scope_start, scope, edges, context)
    check_time(context)
    regions = len(arity)
    region = np.arange(regions)
    entered = np.zeros(regions, dtype=bool)
    entered[target] = True
    wide_source = np.zeros(regions, dtype=bool)
    wide_source[source[target >= n]] = True
    tabled = (region >= n) & (entered | wide_source | (region >= n + m))
    parts = np.bincount(source, minlength=regions)
    pairs = np.bincount(source[arity[target] == 2], minlength=regions)
    pure = (region >= n + m) & (pairs == parts) & ~entered
    triplet, square = pure & (arity == 3) & (pairs == 3), pure & (arity == 4)
    mode = np.where(region < n, NODE, np.where(tabled, np.where(region < n + m, TABLE, ZERO), STRUCT)).astype(np.uint8)
    mode[triplet], mode[square] = TRIPLET, SQUARE
    tabled &= ~(triplet | square)
    entries = float(sizes[target].sum())
    _check_memory(8.0 * entries)

    map_at, maps, first = _maps(g.cards, scope_start, scope, source, target, tabled)
    check_time(context)
    cornered = np.flatnonzero(square[source])
    map_at[cornered] = _positions(scope_start, scope, source[cornered], target[cornered])
    check_time(context)
    by_source = np.lexsort((target, first, source))
    source, target, map_at = source[by_source], target[by_source], map_at[by_source]
    size = np.where((region < n) | tabled, np.minimum(sizes, 2.0**62), 0).astype(np.int64)
    at = np.concatenate(([0], np.cumsum(size[target])))[:-1].astype(np.int64)
    in_edge = np.argsort(target, kind="stable")
    in_start = np.concatenate(([0], np.cumsum(np.bincount(target, minlength=regions)))).astype(np.int64)
    out_start = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=regions)))).astype(np.int64)

    check_time(context)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    sequence = _sequence(n, scope_start, scope, entered, rank)
    place = np.full(regions, -1, dtype=np.int64)
    place[sequence] = np.arange(len(sequence))
    check_time(context)
    marks = _mark(sequence, source, target, out_start, in_start, in_edge, arity, place)

    dag = Dag(
        mode,
        size,
        scope_start,
        scope,
        out_start,
        source.astype(np.int32),
        target.astype(np.int32),
        at if len(at) else np.zeros(0, np.int64),
        map_at,
        maps if len(maps) else np.zeros(1, np.uint32),
        in_start,
        in_edge.astype(np.int64),
        sequence.astype(np.int32),
        *marks,
    )
    vector = int(size[sequence].max(initial=1))
    table = int(size[tabled].max(initial=1))
    plain = bool((target < n).all()) and not clusters
    scratch = workspace(g)
    return Regions(graph, dag, tuple(clusters), edges, order, int(entries), table, vector, scratch, plain)


def _check_memory(needed: float) -> None:
    try:
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return
    if needed > 0.8 * present:
        raise ModelError(
            f"messages would need {needed / 2**30:.1f} GB of the {present / 2**30:.1f} GB of this machine; "
            "use edges='minimal', fewer clusters, or method 'admm'"
        )
