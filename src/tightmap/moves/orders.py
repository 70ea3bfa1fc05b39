"""Orders in which sequential methods visit the variables.

A sequential sweep carries information from the first variable to the last, along edges.  The order decides how many
earlier and later neighbours a variable has, and with it how the sweep shares messages out: long monotone chains are
good, jumps back and forth are not.  On images the raster order is right; where the numbering means nothing, an order
that keeps neighbours close together converges faster.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Graph
from tightmap.runtime.compiled import compiled

ORDERS = ("index", "greedy", "rcm")


def node_order(graph: Graph, name: str) -> npt.NDArray[np.int64]:
    """A permutation of the variables: "index", "greedy" or "rcm" (reverse Cuthill-McKee)."""
    if name == "index" or graph.m == 0:
        return np.arange(graph.n, dtype=np.int64)
    from scipy.sparse import coo_array  # half a second of imports that the common case does not need
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    g = graph.arrays
    factors = np.repeat(np.arange(graph.m), np.diff(g.scope_start))
    member = coo_array((np.ones(len(factors), dtype=np.int32), (g.scope, factors)), shape=(graph.n, graph.m)).tocsr()
    near = (member @ member.T).tocsr()
    near.setdiag(0)
    near.eliminate_zeros()
    if name == "rcm":
        return np.ascontiguousarray(reverse_cuthill_mckee(near, symmetric_mode=True), dtype=np.int64)
    return _greedy(near.indptr.astype(np.int64), near.indices.astype(np.int64))


@compiled
def _greedy(start, neighbours):
    """Next is always a variable with the most neighbours already placed, less those still to come (lowest index first).

    This keeps the number of edges between placed and unplaced variables small at every moment.
    """
    n = len(start) - 1
    score = np.empty(n, np.int64)
    placed = np.zeros(n, np.bool_)
    order = np.empty(n, np.int64)
    heap = [(np.int64(0), np.int64(0))]
    heap.pop()
    for i in range(n):
        score[i] = start[i + 1] - start[i]  # unplaced less placed neighbours: small is good
        heap.append((score[i], np.int64(i)))
    heapq.heapify(heap)
    filled = 0
    while filled < n:
        value, i = heapq.heappop(heap)
        if placed[i] or value != score[i]:
            continue  # an old entry: the variable was placed, or its score has changed since
        placed[i] = True
        order[filled] = i
        filled += 1
        for a in range(start[i], start[i + 1]):
            j = neighbours[a]
            if not placed[j]:
                score[j] -= 2
                heapq.heappush(heap, (score[j], j))
    return order
