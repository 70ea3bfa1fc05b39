"""The minimum of a small model at once: every variable is eliminated, in one kernel (moves/elimination.py).

    E(x) >= E(x*) - error  for every x,     error = 4 (n + m + 4) u S,     S = sum of the largest sizes of all terms,

where x* is the labelling that elimination finds and u = 2^-53.  Elimination adds up the terms of every labelling x in
some order, and of these computed sums c(x) it finds the least: rounded addition is monotone, so that taking minima on
the way changes nothing.  Both c(x) and the computed energy of x* are sums of fewer than 2 (n + m + 2) numbers, off by
at most so many units of the sum of their sizes, which is at most S, and a unit more for every product of a weight and a
table; hence E(x) >= c(x) - error / 3 >= c(x*) - error / 3 >= E(x*) - error.

A search that plans, shares time and builds tables in Python takes some milliseconds before it begins.  Where all tables
are small, this takes some microseconds and is a proof.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.energy.certificate import UNIT, Certified, certify
from tightmap.energy.energies import energy
from tightmap.factors.kernels import value
from tightmap.graph.graph import Graph
from tightmap.moves.context import Labels
from tightmap.moves.elimination import WIDTH, choose_subgraph, minimise_subgraph
from tightmap.runtime.compiled import compiled
from tightmap.runtime.random_numbers import start_state

VARIABLES = 32  # most variables,
FACTORS = 512  # factors,
TABLE = 1 << 12  # and entries of a table that elimination makes


@compiled
def _largest(g, f, labels):
    """The largest size of a cost of factor f; labels of its variables are all zero before and after."""
    largest = 0.0
    begin, end = g.scope_start[f], g.scope_start[f + 1]
    while True:
        largest = max(largest, abs(value(g, f, labels)))
        p = begin
        while p < end:
            i = g.scope[p]
            labels[i] += 1
            if labels[i] < g.cards[i]:
                break
            labels[i] = 0
            p += 1
        if p == end:
            return largest


@compiled
def _minimum(g, limit, labels, random):
    """Eliminates all variables; the sum of the largest sizes of all terms, or -1 where a table would be too large."""
    n = len(g.cards)
    region = np.arange(n)
    start = np.zeros(n + 1, np.int64)
    domain = np.empty(len(g.unary), np.int64)
    for i in range(n):
        start[i + 1] = start[i] + g.cards[i]
        for s in range(g.cards[i]):
            domain[start[i] + s] = s
    order, first, others = np.empty(n, np.int64), np.zeros(n + 1, np.int64), np.empty(n * WIDTH, np.int64)
    count = choose_subgraph(g, region, region, start, limit, 0.0, 0.0, random, order, first, others)
    if count < n:
        return -1.0
    room = 0
    for k in range(n):
        entries = 1
        for e in range(first[k], first[k + 1]):
            q = order[others[e]]
            entries *= start[q + 1] - start[q]
        room += entries
    noise, pool, choice = np.zeros(len(domain)), np.empty(room), np.empty(room, np.int64)
    size = 0.0
    labels[:] = 0
    for f in range(len(g.kind)):
        size += _largest(g, f, labels)
    for i in range(n):
        largest = 0.0
        for s in range(g.cards[i]):
            largest = max(largest, abs(g.unary[g.offset[i] + s]))
        size += largest
    minimise_subgraph(g, labels, region, region, start, domain, n, order, first, others, noise, pool, choice)
    return size


def is_small(graph: Graph) -> bool:
    """Whether it is worth trying: tables that elimination makes may still be too large."""
    return graph.n <= VARIABLES and graph.m <= FACTORS and len(graph.unary) <= TABLE


def minimum_at_once(graph: Graph) -> tuple[Labels, float, Certified] | None:
    """The optimal labelling of a small model, its energy and the bound that proves it; None where it is not small."""
    if not is_small(graph):
        return None
    labels = np.zeros(graph.n, dtype=np.int64)
    size = float(_minimum(graph.arrays, float(TABLE), labels, start_state(0)))
    if size < 0.0:
        return None
    found = energy(graph, labels)
    return labels, found, certify(graph, found, 4.0 * (graph.n + graph.m + 4) * UNIT * size, worst=False)
