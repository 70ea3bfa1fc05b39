"""Tables of factors of every kind, written into scratch space while a kernel needs one.

Messages between factors of more than one variable are min-marginals of reparametrised tables.  Such a table exists only
for as long as it takes to send one message; only the exact search keeps the tables of all factors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.factors.difference import difference_value
from tightmap.factors.pattern import IN_ORDER, pattern_rank
from tightmap.graph.graph import Graph, Kind
from tightmap.runtime.compiled import compiled, lean

DENSE = int(Kind.DENSE)
POTTS = int(Kind.POTTS)
LINEAR = int(Kind.LINEAR)
QUADRATIC = int(Kind.QUADRATIC)
PN_POTTS = int(Kind.PN_POTTS)
PATTERN = int(Kind.PATTERN)
SPARSE = int(Kind.SPARSE)


@lean
def _tabulate_second(g, f, table):
    a = g.scope_start[f]
    base = g.ints[g.iparam[f]]
    limit = g.params[g.param[f]]
    w = g.weight[f]
    first, middle, last = g.scope[a], g.scope[a + 1], g.scope[a + 2]
    ends = g.params[base + g.offset[last] : base + g.offset[last] + g.cards[last]]
    x = 0
    for s in range(g.cards[first]):
        for t in range(g.cards[middle]):
            v = g.params[base + g.offset[first] + s] - 2.0 * g.params[base + g.offset[middle] + t]
            for r in range(len(ends)):
                d = abs(v + ends[r])
                table[x + r] = w * (d if d < limit else limit)
            x += len(ends)


@lean
def tabulate(g, f, table):
    """table[x] = cost of factor f at the labelling with C-order index x; returns the number of entries.

    ``table`` is as long as that and the order of the factor together: nothing is allocated here.
    """
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    size = 1
    for p in range(k):
        size *= g.cards[g.scope[a + p]]
    w = g.weight[f]
    t = g.param[f]
    kind = g.kind[f]
    if kind == DENSE:
        for x in range(size):
            table[x] = w * g.params[t + x]
    elif kind == POTTS or kind == LINEAR or kind == QUADRATIC:
        c = g.cards[g.scope[a + 1]]
        for s in range(g.cards[g.scope[a]]):
            for r in range(c):
                if kind == POTTS:
                    table[s * c + r] = 0.0 if s == r else w
                else:
                    table[s * c + r] = w * difference_value(kind == QUADRATIC, g.params[t], s, r)
    elif kind == SPARSE:
        for x in range(size):
            table[x] = w * g.params[t]
        i = g.iparam[f]
        for e in range(g.ints[i]):
            table[g.ints[i + 1 + e]] = w * g.params[t + 1 + e]
    elif kind == PN_POTTS:
        for x in range(size):
            table[x] = w * g.params[t]
        low = g.cards[g.scope[a]]
        step = 0
        stride = 1
        for p in range(k - 1, -1, -1):
            low = min(low, g.cards[g.scope[a + p]])
            step += stride
            stride *= g.cards[g.scope[a + p]]
        for s in range(low):
            table[s * step] = w * g.params[t + 1 + s]
    elif kind == PATTERN:
        own = table[size : size + k]  # the labels of the entry that is next
        for p in range(k):
            own[p] = 0.0
        for x in range(size):
            table[x] = w * g.params[t + pattern_rank(own, IN_ORDER[: len(own)], -1, 0)]
            for p in range(k - 1, -1, -1):
                own[p] += 1.0
                if own[p] < g.cards[g.scope[a + p]]:
                    break
                own[p] = 0.0
    else:
        _tabulate_second(g, f, table)
    return size


@compiled
def _tabulate_all(g, begin, flat):
    for f in range(len(g.kind)):
        tabulate(g, f, flat[begin[f] :])  # what it needs beyond the table is the place of the next one


def all_tables(graph: Graph) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Every factor as a table: that of factor f is flat[begin[f]:begin[f + 1]]."""
    g = graph.arrays
    begin = np.zeros(graph.m + 1, np.int64)
    if graph.m == 0:
        return np.zeros(0), begin
    np.cumsum(np.multiply.reduceat(g.cards[g.scope].astype(np.int64), g.scope_start[:-1]), out=begin[1:])
    flat = np.empty(int(begin[-1]) + graph.order)
    _tabulate_all(g, begin, flat)
    return flat[: begin[-1]], begin
