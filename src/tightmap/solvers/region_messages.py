"""Carrying messages from one region graph of a model to another, and to and from the plain form of energy.py."""

from __future__ import annotations

import numpy as np
from numba import njit

from tightmap.graph import FloatArray
from tightmap.solvers.regions import Regions, build_regions


def carry(old: Regions, messages: FloatArray, new: Regions) -> FloatArray:
    """The same (negated) messages on another region graph of the same model with at least the same clusters.

    An edge that is gone because a region came to lie between its ends is replaced by the path through that region.
    """
    out = np.zeros(new.entries)
    a, b = old.dag, new.dag
    count = np.int64(len(b.mode))
    key = a.source.astype(np.int64) * count + a.target
    new_key = b.source.astype(np.int64) * count + b.target
    order = np.argsort(new_key, kind="stable")
    where = order[np.minimum(np.searchsorted(new_key[order], key), max(len(order) - 1, 0))] if len(order) else order
    same = new_key[where] == key
    length = a.size[a.target]
    _copy(messages, a.at[same], out, b.at[where[same]], length[same])
    for e in np.flatnonzero(~same):
        vector = messages[a.at[e] : a.at[e] + length[e]]
        if vector.any():
            _push(new, out, int(a.source[e]), int(a.target[e]), vector)
    return out


@njit(cache=True)
def _copy(old, start, new, to, length):
    for e in range(len(start)):
        for s in range(length[e]):
            new[to[e] + s] = old[start[e] + s]


def _push(regions: Regions, out: FloatArray, source: int, target: int, vector: FloatArray) -> None:
    """Add a message from a region to a part of it, along edges."""
    d = regions.dag
    wanted = regions.scope(target)
    while source != target:
        inside = [e for e in regions.children(source) if np.isin(wanted, regions.scope(int(d.target[e]))).all()]
        exact = [e for e in inside if d.target[e] == target]
        e = exact[0] if exact else inside[0]
        child = int(d.target[e])
        scope, cards = regions.scope(child), regions.graph.arrays.cards
        grid = np.indices(tuple(int(cards[i]) for i in scope)).reshape(len(scope), -1)
        index = np.zeros(grid.shape[1], dtype=np.int64)
        for i in wanted:
            index = index * int(cards[i]) + grid[int(np.flatnonzero(scope == i)[0])]
        out[d.at[e] : d.at[e] + d.size[child]] += vector[index]
        source = child


def from_plain(regions: Regions, messages: FloatArray) -> FloatArray:
    """Negated messages of a region graph from messages to variables in the layout of energy.message_offsets."""
    if regions.plain:
        return -messages
    return carry(build_regions(regions.graph, "minimal"), -messages, regions)


def to_plain(regions: Regions, messages: FloatArray) -> FloatArray:
    """Messages of the factors to their variables; what is sent between larger regions has no place there."""
    if regions.plain:
        return -messages
    graph, d = regions.graph, regions.dag
    g, n = graph.arrays, graph.n
    at = np.concatenate(([0], np.cumsum(g.cards[g.scope].astype(np.int64))))
    out = np.zeros(int(at[-1]))
    chosen = np.flatnonzero((d.target < n) & (d.source >= n) & (d.source < n + graph.m))
    factor = d.source[chosen].astype(np.int64) - n
    slot = np.empty(len(chosen), dtype=np.int64)
    arity = np.diff(g.scope_start)
    for k in np.unique(arity[factor]) if len(chosen) else ():
        mine = np.flatnonzero(arity[factor] == k)
        own = g.scope[g.scope_start[factor[mine]][:, None] + np.arange(k)]
        slot[mine] = g.scope_start[factor[mine]] + (own == d.target[chosen[mine]][:, None]).argmax(axis=1)
    _copy(-messages, d.at[chosen], out, at[slot], d.size[d.target[chosen]])
    return out
