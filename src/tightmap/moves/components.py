"""Component fusion: take from a second labelling every connected region in which it is better.

Where two labellings differ, join variables that share a factor.  A factor then meets at most one of these regions, so
the energy difference of a region is a sum over its own variables and factors and the choices are independent: every
region whose difference is negative is swapped.  The result is the best of the 2^regions mixtures, for any order,
in one pass over the factors and without a cut.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import value
from tightmap.factors.potts import POTTS
from tightmap.graph.graph import Arrays
from tightmap.graph.one_form import one_form
from tightmap.moves.disjoint_sets import find_root
from tightmap.runtime.compiled import lean


@lean
def _join_regions(g, labels, proposal, parent):
    """Make ``parent`` a forest with one tree per region, its root the smallest variable; returns how many differ.

    Factors are visited only through variables that differ, so that close labellings are cheap to fuse.
    """
    n = len(g.cards)
    count = 0
    for i in range(n):
        parent[i] = i
        count += labels[i] != proposal[i]
    if count == 0:
        return 0
    for i in range(n):
        if labels[i] == proposal[i]:
            continue
        for t in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[t])
            for s in range(g.scope_start[f], g.scope_start[f] + g.adj_pos[t]):
                j = g.scope[s]
                if labels[j] != proposal[j]:
                    a = find_root(parent, i)
                    b = find_root(parent, np.int64(j))
                    if a < b:
                        parent[b] = a
                    elif b < a:
                        parent[a] = b
    return count


@one_form
@lean
def _share_out(g, labels, proposal, parent, size, largest):
    """Part of every variable that differs (others -1), to ``parent``; returns the number of parts.

    A part has whole regions, together at most ``largest`` variables; a larger region is cut by the numbers of its
    variables.
    """
    n = len(g.cards)
    if _join_regions(g, labels, proposal, parent) == 0:
        return 0
    for i in range(n):
        size[i] = 0
    for i in range(n):
        parent[i] = find_root(parent, i)  # roots come first, so that the way to the root is one step by now
        size[parent[i]] += labels[i] != proposal[i]
    part = 0
    room = largest
    for i in range(n):
        if labels[i] == proposal[i]:
            parent[i] = -1
            continue
        r = parent[i]
        if r != i and size[r] < 0:  # the part of its region, given when the root was visited
            parent[i] = -1 - size[r]
            continue
        need = size[i] if r == i and size[i] <= largest else 1
        if room < need:
            room = largest
            part += 1
        room -= need
        parent[i] = part
        if r == i and size[i] <= largest:
            size[i] = -1 - part
    return part + 1


def regions_in_parts(
    arrays: Arrays, labels: npt.NDArray[np.int64], proposal: npt.NDArray[np.int64], largest: int
) -> Iterator[npt.NDArray[np.int64]]:
    """The variables that differ, some at a time: at most so many, whole regions where these are not larger."""
    part = np.empty(len(arrays.cards), np.int32)
    parts = int(_share_out(arrays, labels, proposal, part, np.empty_like(part), largest)) if len(part) else 0
    for k in range(parts):
        yield np.flatnonzero(part == k)


@lean
def _fuse_components(g, labels, proposal, parent, delta, tolerance):
    n = len(g.cards)
    if _join_regions(g, labels, proposal, parent) == 0:
        return 0.0
    for i in range(n):
        delta[i] = 0.0
    for i in range(n):
        if labels[i] == proposal[i]:
            continue
        r = find_root(parent, i)
        delta[r] += g.unary[g.offset[i] + proposal[i]] - g.unary[g.offset[i] + labels[i]]
        for t in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[t])
            first = True  # a factor is counted once, at the first of its variables that differ
            for s in range(g.scope_start[f], g.scope_start[f] + g.adj_pos[t]):
                j = g.scope[s]
                if labels[j] != proposal[j]:
                    first = False
                    break
            if not first:
                continue
            if g.kind[f] == POTTS:  # written out: the call of ``value`` with all arrays costs ten times the work
                a = g.scope[g.scope_start[f]]
                b = g.scope[g.scope_start[f] + 1]
                delta[r] += g.weight[f] * ((proposal[a] != proposal[b]) - np.float64(labels[a] != labels[b]))
            else:
                delta[r] += value(g, f, proposal) - value(g, f, labels)
    gain = 0.0
    for i in range(n):
        if labels[i] != proposal[i] and parent[i] == i and delta[i] < -tolerance:
            gain -= delta[i]
    for i in range(n):
        if labels[i] != proposal[i] and delta[find_root(parent, i)] < -tolerance:
            labels[i] = proposal[i]
    return gain


def component_fusion(
    arrays: Arrays, incumbent: npt.NDArray[np.int64], proposal: npt.NDArray[np.int64], tolerance: float = 0.0
) -> float:
    """Improve ``incumbent`` in place with the better regions of ``proposal``; returns by how much the energy fell.

    Gains of at most ``tolerance`` are not taken.
    """
    n = len(arrays.cards)
    if n == 0:
        return 0.0
    parent = np.empty(n, np.int32)
    delta = np.empty(n)
    return float(_fuse_components(arrays, incumbent, proposal, parent, delta, tolerance))
