"""Block updates of MPLP on the region graph (Globerson and Jaakkola 2007).

One update takes a region A with its parts B_1..B_k, pulls the beliefs of the parts into A and hands them back in equal
shares of the min-marginals:

    t = theta_A + messages that enter A + sum_j (belief_j - m_j);   belief_j = (1/k) min-marginal of t on B_j.

Beliefs (theta_B + messages that enter - messages that leave) of all parts are kept up to date; ``neg`` are the negated
messages of the region graph.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.kernels import minmarg
from tightmap.graph.graph import IntArray
from tightmap.graph.one_form import one_form
from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.solvers.regions.cluster_kernels import triplet_product
from tightmap.solvers.regions.kernels import effort, fill
from tightmap.solvers.regions.regions import STRUCT, TRIPLET, Regions


def belief_offsets(regions: Regions) -> IntArray:
    """(R + 1,) where the belief of each region starts; regions that receive no messages have none."""
    d = regions.dag
    kept = np.zeros(len(d.mode), dtype=np.int64)
    kept[d.sequence] = d.size[d.sequence]
    return np.concatenate(([0], np.cumsum(kept)))


def block_entries(regions: Regions) -> int:
    """Largest number of entries of all parts of one region."""
    d = regions.dag
    return int(np.bincount(d.source, weights=d.size[d.target], minlength=1).max(initial=1))


@lean
def _give(d, e, neg, belief, belief_at, out, pulled, at, share):
    """Belief of the target of e becomes share * out; the message follows (pulled: belief without the message)."""
    b = belief_at[d.target[e]]
    a = d.at[e]
    for y in range(d.size[d.target[e]]):
        new = share * out[y]
        belief[b + y] = new
        neg[a + y] = pulled[at + y] - new


@one_form
@lean
def mplp_pass(g, d, neg, belief, belief_at, begin, end, buffers, pulled, starts, left):
    """Update regions begin..end that have parts; returns where it is: at the end, or where time was up."""
    out, table = buffers.vector, buffers.table
    until = end_of(left)
    spent = 0.0
    for r in range(begin, end):
        if spent > LOOK:
            spent = 0.0
            if late(until):
                return r
        if d.out_start[r + 1] == d.out_start[r]:
            continue
        first = d.out_start[r]
        k = d.out_start[r + 1] - first
        share = 1.0 / k
        spent += 50.0 + k * effort(g, d, r)
        at = 0
        for p in range(k):
            e = first + p
            starts[p] = at
            b = belief_at[d.target[e]]
            for y in range(d.size[d.target[e]]):
                pulled[at + y] = belief[b + y] + neg[d.at[e] + y]
            at += d.size[d.target[e]]
        if d.mode[r] == STRUCT:
            for p in range(k):
                minmarg(g, r - len(g.cards), p, pulled, starts, out, buffers.work)
                for y in range(d.size[d.target[first + p]]):
                    out[y] += pulled[starts[p] + y]
                _give(d, first + p, neg, belief, belief_at, out, pulled, starts[p], share)
            continue
        if d.mode[r] == TRIPLET:
            s = d.scope_start[r]
            ni, nj, nk = g.cards[d.scope[s]], g.cards[d.scope[s + 1]], g.cards[d.scope[s + 2]]
            for p in range(3):
                triplet_product(p, pulled, pulled[starts[1] :], pulled[starts[2] :], ni, nj, nk, out, table)
                for y in range(d.size[d.target[first + p]]):
                    out[y] += pulled[starts[p] + y]
                _give(d, first + p, neg, belief, belief_at, out, pulled, starts[p], share)
            continue
        # theta_A + entering + sum_j (belief_j - m_j) = reparametrised table + sum_j belief_j
        size = d.size[r]
        fill(g, d, r, neg, -1, table)
        for p in range(k):
            own = belief[belief_at[d.target[first + p]] :]
            m = d.map_at[first + p]
            for x in range(size):
                table[x] += own[d.maps[m + x]]
        for p in range(k):
            e = first + p
            ny = d.size[d.target[e]]
            m = d.map_at[e] + size
            for y in range(ny):
                out[y] = table[d.maps[m + y]]
            for j in range(m + ny, m + size, ny):
                for y in range(ny):
                    v = table[d.maps[j + y]]
                    out[y] = v if v < out[y] else out[y]
            _give(d, e, neg, belief, belief_at, out, pulled, starts[p], share)
        if belief_at[r + 1] > belief_at[r]:  # A is itself a part of larger regions: its own belief has changed
            for p in range(k):
                new = belief[belief_at[d.target[first + p]] :]
                m = d.map_at[first + p]
                for x in range(size):
                    table[x] -= new[d.maps[m + x]]
            for x in range(size):
                belief[belief_at[r] + x] = table[x]
    return end
