"""Messages are carried from one region graph of a model to another, and to and from the form of energy/energies.py."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.graph.graph import FloatArray
from tightmap.runtime.compiled import lean
from tightmap.solvers.regions.regions import Regions, build_regions


def carry(old: Regions, messages: FloatArray, new: Regions) -> FloatArray:
    """The same (negated) messages on another region graph of the same model with at least the same clusters.

    An edge that is gone because a region came to lie between its ends is replaced by the path through that region.
    Where nothing leads to its end any more (from factors to factors in a graph of edges to variables only), its message
    is dropped: any messages are valid, only the bound starts lower.
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
    lost = np.flatnonzero(~same)
    if len(lost):
        cards = new.graph.arrays.cards
        _push(cards, b, out, a.source[lost], a.target[lost], a.at[lost], messages, np.empty(64, np.int64))
    return out


@lean
def _copy(old, start, new, to, length):
    for e in range(len(start)):
        for s in range(length[e]):
            new[to[e] + s] = old[start[e] + s]


@lean
def _inside(d, part, whole):
    """Are all variables of region ``part`` in region ``whole``?"""
    for p in range(d.scope_start[part], d.scope_start[part + 1]):
        found = False
        for q in range(d.scope_start[whole], d.scope_start[whole + 1]):
            found |= d.scope[q] == d.scope[p]
        if not found:
            return False
    return True


@lean
def _push(cards, d, out, sources, targets, starts, messages, digits):
    """Add messages from regions to parts of them, along edges: down through regions that lie between."""
    for k in range(len(sources)):
        source, target = sources[k], targets[k]
        while source != target:
            e = -1
            for o in range(d.out_start[source], d.out_start[source + 1]):
                if d.target[o] == target or (e < 0 and _inside(d, target, d.target[o])):
                    e = o
            if e < 0:
                break
            child = d.target[e]
            first = d.scope_start[child]
            arity = d.scope_start[child + 1] - first
            for y in range(d.size[child]):
                rest = y
                for p in range(arity - 1, -1, -1):
                    digits[p] = rest % cards[d.scope[first + p]]
                    rest //= cards[d.scope[first + p]]
                x = 0
                for q in range(d.scope_start[target], d.scope_start[target + 1]):
                    i = d.scope[q]
                    for p in range(arity):
                        if d.scope[first + p] == i:
                            x = x * cards[i] + digits[p]
                out[d.at[e] + y] += messages[starts[k] + x]
            source = child


def from_plain(regions: Regions, messages: FloatArray) -> FloatArray:
    """Negated messages of a region graph from messages to variables in the layout of energies.message_offsets."""
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
