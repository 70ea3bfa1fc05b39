"""What the sweeps of general.py need to know about the order of the nodes, in one pass over the edges.

A pass visits chunks of CHUNK nodes, and a block of chunks is so long that neighbours are in the same block or in the
next one; with several threads a chunk waits for the last chunk of the block before that holds a neighbour.  Messages
lie in the order in which the forward pass visits the first ends of their edges.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.pairs import POTTS
from tightmap.runtime.compiled import lean

CHUNK = 32  # nodes that are visited before the thread of the next block is told


@lean
def lay_out(g, order, rank, room, later, gamma, before, start, four, need):
    """Fills the arrays of a ``Sweeper``, those of which are zero that have to be.

    rank  (n,) place of every node in the order
    room  messages begin at multiples of this

    Returns the chunks per block, the entries of all messages, and how far apart the ends of edges are in the order,
    added up over all edges.
    """
    n = len(rank)
    m = len(g.kind)
    for i in range(n):
        four[i] = g.cards[i] == 4
    reach = 1
    apart = 0.0
    for f in range(m):
        i, j = g.scope[2 * f], g.scope[2 * f + 1]
        reach = max(reach, abs(rank[i] - rank[j]))
        apart += abs(rank[i] - rank[j])
        before[j if rank[i] < rank[j] else i] += 1
        if g.kind[f] != POTTS or not g.weight[f] >= 0.0 or g.cards[i] != 4 or g.cards[j] != 4:
            four[i] = 0
            four[j] = 0
    for i in range(n):
        begin, end = g.adj_start[i], g.adj_start[i + 1]
        gamma[i] = 1.0 / max(1, before[i], end - begin - before[i])
        for a in range(begin, end):
            j = g.scope[2 * np.int64(g.adj_factor[a]) + 1 - g.adj_pos[a]]
            later[a] = rank[j] > rank[i]
    entries = 0
    for r in range(n):
        i = order[r]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if later[a]:
                f = np.int64(g.adj_factor[a])
                start[f] = entries
                longer = max(g.cards[g.scope[2 * f]], g.cards[g.scope[2 * f + 1]])
                entries += (longer + room - 1) // room * room
    block = max(1, (reach + CHUNK - 1) // CHUNK)
    for f in range(m):
        i, j = rank[g.scope[2 * f]], rank[g.scope[2 * f + 1]]
        first, last = min(i, j), max(i, j)
        for towards in range(2):
            own = (last if towards == 1 else n - 1 - first) // CHUNK
            other = (first if towards == 1 else n - 1 - last) // CHUNK
            if own // block > other // block:
                need[towards, own] = max(need[towards, own], other % block + 1)
    return block, entries, apart
