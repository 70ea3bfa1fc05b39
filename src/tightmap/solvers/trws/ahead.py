"""Asking for memory before it is needed, on graphs whose neighbours are far apart in the order of visits.

A visit reads, for every edge, where its message is, its weight and its table, and each of these is in another cache
line when the edges lead anywhere.  Which lines they are is known long before.  So the numbers of the edges of the node
2 DISTANCE visits ahead are asked for, and, as they have come by then, the messages and tables of the node DISTANCE
visits ahead.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.pairs import DENSE
from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import get, prefetch

DISTANCE = 4
SCATTERED = 1 << 20  # bytes of other messages between the two uses of one, from which on asking pays
LINE = 8  # numbers in a cache line
MOST = 8  # lines of a message or table that are asked for; the machine follows longer ones by itself

inline = compiled(_nrt=False, forceinline=True)


@inline
def ask_for_edges(i, four, adj_start, adj_factor, start, weight, param, scope):
    """What is known of the edges of node i; ``four``: it is visited by four_labels.py, which needs no more."""
    for a in range(get(adj_start, i), get(adj_start, i + 1)):
        f = np.int64(get(adj_factor, a))
        prefetch(start, f)
        prefetch(weight, f)
        if not four:
            prefetch(param, f)
            prefetch(scope, 2 * f)


@inline
def ask_for_messages(i, four, c, towards, adj_start, adj_factor, later, start, param, kinds, messages, params):
    """The messages of the edges of node i, and the tables of those along which it sends."""
    for a in range(get(adj_start, i), get(adj_start, i + 1)):
        f = np.int64(get(adj_factor, a))
        base = get(start, f)
        if four:
            prefetch(messages, base)
            continue
        for q in range(0, min(c, MOST * LINE), LINE):
            prefetch(messages, base + q)
        if get(later, a) == towards and get(kinds, f) == DENSE:
            base = get(param, f)
            for q in range(0, min(c * c, MOST * LINE), LINE):
                prefetch(params, base + q)
