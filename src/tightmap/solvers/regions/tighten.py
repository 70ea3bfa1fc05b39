"""Which clusters raise the bound most: triplets by guaranteed gain, and frustrated cycles (Sontag et al. 2008, 2012).

Given the reparametrised pairs b_ij of a region graph, adding the triplet (i, j, k) raises the bound by at least

    gain = min_x (b_ij + b_ik + b_jk) - min b_ij - min b_ik - min b_jk >= 0.

For sparse graphs the useful clusters are longer cycles.  Each variable is split in two by one of its labels (s or not
s); a pair then prefers that the two sides agree, or that they differ, with a strength.  A cycle with an odd number of
"differ" cannot satisfy all its pairs, and triangulating it raises the bound by at least its weakest strength.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import FloatArray, IntArray
from tightmap.moves.context import Labels
from tightmap.runtime.compiled import compiled, lean
from tightmap.solvers.regions.kernels import reparametrised
from tightmap.solvers.regions.regions import Regions

TRIPLET_WORK = 200_000_000  # a search for triplets ends after it has looked at so many table entries
MOST_TRIANGLES = 4_000_000  # no more triangles are listed
LONGEST = 64  # longer cycles are passed over


class Pairs(NamedTuple):
    """All pair regions with their reparametrised tables."""

    region: IntArray  # (P,)
    ends: IntArray  # (P, 2)
    start: IntArray  # (P + 1,)
    table: FloatArray
    low: FloatArray  # (P,) minima


def reparametrised_pairs(regions: Regions, neg: FloatArray) -> Pairs:
    """Tables of all pairs; regions that compute without tables (STRUCT) are tabulated for the occasion."""
    d, cards = regions.dag, regions.graph.arrays.cards.astype(np.int64)
    region = np.flatnonzero(np.diff(d.scope_start) == 2)
    ends = d.scope[d.scope_start[region][:, None] + np.arange(2)].astype(np.int64)
    size = cards[ends].prod(axis=1)
    start = np.concatenate(([0], np.cumsum(size)))
    table = np.empty(int(start[-1]))
    whole = d._replace(mode=np.where(d.mode == 1, 2, d.mode).astype(np.uint8), size=d.size.copy())
    whole.size[region] = size
    buffer = np.empty(int(size.max(initial=1)) + 8)
    reparametrised(regions.graph.arrays, whole, neg, region, start, table, buffer)
    low = np.minimum.reduceat(table, start[:-1]) if len(region) else np.zeros(0)
    return Pairs(region, ends, start, table, low)


def reparametrised_singles(regions: Regions, neg: FloatArray) -> FloatArray:
    """Costs of all labels, one variable after the other."""
    d, cards = regions.dag, regions.graph.arrays.cards.astype(np.int64)
    start = np.concatenate(([0], np.cumsum(cards)))
    costs = np.empty(int(start[-1]))
    buffer = np.empty(int(cards.max(initial=1)) + 8)
    reparametrised(regions.graph.arrays, d, neg, np.arange(len(cards)), start, costs, buffer)
    return costs


# ------------------------------------------------------------------------------------------------- triplets


@compiled
def _triangles(ends, start, neighbour, edge, most):
    """(T, 3) pairs (ij, ik, jk) of all triangles i < j < k; neighbours are ascending."""
    out = np.empty((1024, 3), np.int64)
    count = 0
    for e in range(len(ends)):
        i, j = ends[e]
        a, b = start[i], start[j]
        while a < start[i + 1] and b < start[j + 1]:
            if neighbour[a] < neighbour[b]:
                a += 1
            elif neighbour[a] > neighbour[b]:
                b += 1
            else:
                if neighbour[a] > j:
                    if count == len(out):
                        if count >= most:
                            return out[:count]
                        grown = np.empty((2 * count, 3), np.int64)
                        for c in range(count):
                            for k in range(3):
                                grown[c, k] = out[c, k]
                        out = grown
                    out[count, 0] = e
                    out[count, 1] = edge[a]
                    out[count, 2] = edge[b]
                    count += 1
                a += 1
                b += 1
    return out[:count]


@lean
def _gain(table, start, low, ij, ik, jk, ni, nj, nk):
    """Guaranteed gain of one triplet, and about how many entries were looked at."""
    best = np.inf
    rest = low[ik] + low[jk]
    looked = ni * nj
    for x in range(ni):
        for y in range(nj):
            v = table[start[ij] + x * nj + y]
            if v + rest >= best:
                continue
            looked += nk
            a = start[ik] + x * nk
            b = start[jk] + y * nk
            least = np.inf
            for z in range(nk):
                u = table[a + z] + table[b + z]
                least = u if u < least else least
            best = min(best, v + least)
    return best - low[ij] - rest, looked


@compiled
def _best_triplets(table, start, low, ends, cards, triangles, limit, order, wanted, least, work):
    """Gains of triangles, in the order of their upper limits, until no other can be among the best ``wanted``."""
    gains = np.zeros(len(triangles))
    top = np.zeros(wanted)  # the best so far, ascending
    for t in order:
        if limit[t] <= max(top[0], least) or work <= 0:
            break
        ij, ik, jk = triangles[t]
        ni, nj, nk = cards[ends[ij, 0]], cards[ends[ij, 1]], cards[ends[ik, 1]]
        gain, looked = _gain(table, start, low, ij, ik, jk, ni, nj, nk)
        work -= looked
        gains[t] = gain
        if gain > top[0]:
            at = 0
            while at + 1 < wanted and top[at + 1] < gain:
                top[at] = top[at + 1]
                at += 1
            top[at] = gain
    return gains


def best_triplets(
    regions: Regions, pairs: Pairs, labels: Labels, wanted: int, least: float
) -> tuple[list[tuple[int, ...]], float]:
    """Triplets on existing pairs with the largest guaranteed gains (all above ``least``), and the sum of the gains."""
    if len(pairs.region) < 3:
        return [], 0.0
    n, cards = regions.graph.n, regions.graph.arrays.cards.astype(np.int64)
    order = np.lexsort((pairs.ends[:, 1], pairs.ends[:, 0]))
    unique = np.ones(len(order), dtype=bool)
    unique[1:] = (np.diff(pairs.ends[order], axis=0) != 0).any(axis=1)
    order = order[unique]  # of several regions on one pair only the first counts
    both = np.concatenate((pairs.ends[order], pairs.ends[order][:, ::-1]))
    owner = np.concatenate((order, order))
    by = np.lexsort((both[:, 1], both[:, 0]))
    start = np.concatenate(([0], np.cumsum(np.bincount(both[:, 0], minlength=n))))
    triangles = _triangles(pairs.ends[order], start, both[by, 1], owner[by], MOST_TRIANGLES)
    triangles[:, 0] = order[triangles[:, 0]]
    known = {c for c in regions.clusters if len(c) == 3}
    # at any labelling the three pairs exceed their minima by at least the gain
    at = pairs.start[:-1] + labels[pairs.ends[:, 0]] * cards[pairs.ends[:, 1]] + labels[pairs.ends[:, 1]]
    excess = pairs.table[at] - pairs.low
    limit = excess[triangles].sum(axis=1)
    visit = np.argsort(-limit, kind="stable")
    gains = _best_triplets(
        pairs.table,
        pairs.start,
        pairs.low,
        pairs.ends,
        cards,
        triangles,
        limit,
        visit,
        wanted + len(known),
        least,
        TRIPLET_WORK,
    )
    chosen: list[tuple[int, ...]] = []
    total = 0.0
    for t in np.argsort(-gains, kind="stable"):
        if len(chosen) == wanted or gains[t] <= least:
            break
        scope = (*pairs.ends[triangles[t, 0]].tolist(), int(pairs.ends[triangles[t, 1], 1]))
        if scope not in known:
            chosen.append(scope)
            total += float(gains[t])
    return chosen, total


# ------------------------------------------------------------------------------------------------- cycles


@compiled
def _strengths(table, start, ends, cards, node_at, least):
    """Projected edges (P',) as (u, v, strength): positive where the sides of u and v prefer to agree."""
    count = 0
    for e in range(len(ends)):
        count += cards[ends[e, 0]] * cards[ends[e, 1]]
    u = np.empty(count, np.int64)
    v = np.empty(count, np.int64)
    strength = np.empty(count)
    origin = np.empty(count, np.int64)
    count = 0
    for e in range(len(ends)):
        i, j = ends[e]
        ni, nj = cards[i], cards[j]
        b = table[start[e] : start[e + 1]]
        order = np.argsort(b)
        row = np.full(ni * 2, np.inf)  # smallest and second smallest of every row, and where the smallest is
        row_at = np.zeros(ni, np.int64)
        column = np.full(nj * 2, np.inf)
        column_at = np.zeros(nj, np.int64)
        for s in range(ni):
            for t in range(nj):
                x = b[s * nj + t]
                if x < row[2 * s]:
                    row[2 * s + 1] = row[2 * s]
                    row[2 * s] = x
                    row_at[s] = t
                elif x < row[2 * s + 1]:
                    row[2 * s + 1] = x
                if x < column[2 * t]:
                    column[2 * t + 1] = column[2 * t]
                    column[2 * t] = x
                    column_at[t] = s
                elif x < column[2 * t + 1]:
                    column[2 * t + 1] = x
        for s in range(ni if ni > 2 else 1):
            for t in range(nj if nj > 2 else 1):
                rest = np.inf  # smallest entry outside row s and column t
                for x in order:
                    if x // nj != s and x % nj != t:
                        rest = b[x]
                        break
                agree = min(b[s * nj + t], rest)
                differ = min(
                    row[2 * s + 1 if row_at[s] == t else 2 * s], column[2 * t + 1 if column_at[t] == s else 2 * t]
                )
                if abs(differ - agree) > least:
                    u[count] = node_at[i] + s
                    v[count] = node_at[j] + t
                    strength[count] = differ - agree
                    origin[count] = e
                    count += 1
    return u[:count], v[:count], strength[:count], origin[:count]


class Forest(NamedTuple):
    """A spanning forest that grows by edges; every node knows its way to the root of its tree."""

    tree: IntArray  # (nodes,) number of the tree
    size: IntArray  # (trees,) nodes
    up: IntArray  # (nodes,) parent, -1 at a root
    depth: IntArray
    flip: npt.NDArray[np.uint8]  # parity of the negative edges up to the root
    head: IntArray  # (nodes,) edges of the forest as linked lists
    link: IntArray  # (2 nodes,)
    other: IntArray
    sign: npt.NDArray[np.uint8]
    queue: IntArray  # (nodes,) scratch


@lean
def _join(forest, filled, a, b, negative):
    """Add the edge (a, b): the smaller of the two trees is hung, newly rooted, below the other one's node."""
    if forest.size[forest.tree[a]] > forest.size[forest.tree[b]]:
        a, b = b, a
    forest.size[forest.tree[b]] += forest.size[forest.tree[a]]
    forest.up[a] = b
    forest.depth[a] = forest.depth[b] + 1
    forest.flip[a] = forest.flip[b] ^ negative
    forest.tree[a] = forest.tree[b]
    forest.queue[0] = a
    begin, end = 0, 1
    while begin < end:
        x = forest.queue[begin]
        begin += 1
        l = forest.head[x]
        while l >= 0:
            y = forest.other[l]
            if y != forest.up[x]:
                forest.up[y] = x
                forest.depth[y] = forest.depth[x] + 1
                forest.flip[y] = forest.flip[x] ^ forest.sign[l]
                forest.tree[y] = forest.tree[b]
                forest.queue[end] = y
                end += 1
            l = forest.link[l]
    for _ in range(2):
        forest.other[filled] = b
        forest.sign[filled] = negative
        forest.link[filled] = forest.head[a]
        forest.head[a] = filled
        filled += 1
        a, b = b, a


@lean
def _path(forest, a, b, out, at, most):
    """Write the nodes from b to a within their tree to out[at:]; returns how many, 0 for more than ``most``."""
    x, y = a, b
    steps = 1
    while x != y:
        if forest.depth[x] >= forest.depth[y]:
            x = forest.up[x]
        else:
            y = forest.up[y]
        steps += 1
        if steps > most:
            return 0
    count = 0
    while b != y:
        out[at + count] = b
        b = forest.up[b]
        count += 1
    out[at + count] = y
    last = at + steps - 1
    while a != x:
        out[last] = a
        a = forest.up[a]
        last -= 1
    return steps


@compiled
def _odd_cycles(forest, u, v, strength, order, most):
    """Cycles with an odd number of negative edges, strongest bottleneck first: a spanning forest with parities.

    An edge whose ends are connected with the wrong parity closes such a cycle with the path in the forest.  Returns
    the cycles one after the other, their starts and their bottlenecks.
    """
    cycles = np.empty(LONGEST * (most + 1), np.int64)
    start = np.zeros(most + 1, np.int64)
    bottleneck = np.zeros(most)
    found, filled, searches = 0, 0, 0
    for k in order:
        a, b = u[k], v[k]
        negative = 1 if strength[k] < 0.0 else 0
        if forest.tree[a] != forest.tree[b]:
            _join(forest, filled, a, b, negative)
            filled += 2
        elif forest.flip[a] ^ forest.flip[b] != negative:
            searches += 1
            if found == most or searches > 20 * most:
                break
            length = _path(forest, a, b, cycles, start[found], LONGEST)
            if length > 0:
                bottleneck[found] = abs(strength[k])
                found += 1
                start[found] = start[found - 1] + length
    return cycles[: start[found]], start[: found + 1], bottleneck[:found]


def _empty_forest(nodes: int) -> Forest:
    none = np.full(nodes, -1)
    zero = np.zeros(nodes, np.int64)
    flip, sign = np.zeros(nodes, np.uint8), np.zeros(2 * nodes, np.uint8)
    lists = none.copy(), np.full(2 * nodes, -1), np.empty(2 * nodes, np.int64), sign
    return Forest(np.arange(nodes), np.ones(nodes, np.int64), none, zero, flip, *lists, np.empty(nodes, np.int64))


def frustrated_cycles(regions: Regions, pairs: Pairs, wanted: int, least: float) -> tuple[list[tuple[int, ...]], float]:
    """Triplets (and the pairs they need) that triangulate frustrated cycles, and the sum of the strengths."""
    cards = regions.graph.arrays.cards.astype(np.int64)
    node_at = np.concatenate(([0], np.cumsum(cards)))
    owner = np.repeat(np.arange(len(cards)), cards)
    u, v, strength, _ = _strengths(pairs.table, pairs.start, pairs.ends, cards, node_at, least)
    order = np.argsort(-np.abs(strength), kind="stable")
    nodes, start, bottleneck = _odd_cycles(_empty_forest(int(node_at[-1])), u, v, strength, order, wanted)
    known_pairs = set(map(tuple, pairs.ends.tolist()))
    known = set(regions.clusters)
    added: list[tuple[int, ...]] = []
    total = 0.0
    for k in range(len(bottleneck)):
        cycle = owner[nodes[start[k] : start[k + 1]]].tolist()
        if len(set(cycle)) < len(cycle) or len(cycle) < 3:
            continue
        fresh = False
        for a, b in pairwise(cycle[1:]):
            triplet = tuple(sorted((cycle[0], a, b)))
            if triplet in known:
                continue
            for pair in ((triplet[0], triplet[1]), (triplet[0], triplet[2]), (triplet[1], triplet[2])):
                if pair not in known_pairs:
                    known_pairs.add(pair)
                    added.append(pair)
            known.add(triplet)
            added.append(triplet)
            fresh = True
        total += float(bottleneck[k]) if fresh else 0.0
    return added, total
