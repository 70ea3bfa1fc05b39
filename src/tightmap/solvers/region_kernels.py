"""Kernels on the region graph: reparametrised tables, messages, sweeps, rounding, and the certificate.

Messages are stored negated: ``neg[at[e] + y]`` = -m_e(y).  ``buffers`` holds the scratch of one thread: the table of a
region, a message, and the workspace of the factor kernels.

The kernels are lean (see lean.py): neither they nor the factor kernels they call allocate anything.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, prange

from tightmap.energy import UNIT, certify
from tightmap.factors.kernels import minimum, minmarg
from tightmap.factors.tabulate import DENSE, tabulate
from tightmap.graph import FloatArray
from tightmap.lean import lean, lean_inline
from tightmap.solvers.cluster_kernels import (
    restricted_square,
    restricted_triplet,
    square_marginal,
    triplet_marginal,
)
from tightmap.solvers.regions import LARGEST_ARITY, NODE, SQUARE, STRUCT, TABLE, TRIPLET, Regions

BLOCK = 512  # regions per partial sum of a bound


class Buffers(NamedTuple):
    table: FloatArray
    vector: FloatArray
    work: FloatArray


def make_buffers(regions: Regions) -> Buffers:
    largest = max(regions.vector, regions.scratch)
    table = max(regions.table + LARGEST_ARITY, 7 * largest)  # 7: the pairs of a square and two rows
    return Buffers(np.empty(table), np.empty(largest), np.empty(largest))


@lean_inline
def potential(g, d, r, table):
    """table[x] = theta_r."""
    mode = d.mode[r]
    size = d.size[r]
    if mode == NODE:
        o = g.offset[r]
        for x in range(size):
            table[x] = g.unary[o + x]
    elif mode == TABLE:
        f = r - len(g.cards)
        if g.kind[f] == DENSE:
            w = g.weight[f]
            t = g.param[f]
            for x in range(size):
                table[x] = w * g.params[t + x]
        else:
            tabulate(g, f, table)
    else:
        for x in range(size):
            table[x] = 0.0


@lean_inline
def fill(g, d, r, neg, skip, table):
    """table[x] = theta_r + messages that enter - messages that leave, without the edge ``skip``."""
    size = d.size[r]
    potential(g, d, r, table)
    for k in range(d.in_start[r], d.in_start[r + 1]):
        a = d.at[d.in_edge[k]]
        for x in range(size):
            table[x] -= neg[a + x]
    first = d.out_start[r]
    last = d.out_start[r + 1]
    if d.scope_start[r + 1] - d.scope_start[r] == 2:  # a pair sends to its two variables: rows and columns
        c = d.size[d.target[first + 1]]
        if skip != first:
            a = d.at[first]
            for s in range(d.size[d.target[first]]):
                v = neg[a + s]
                for t in range(s * c, s * c + c):
                    table[t] += v
        if skip != first + 1:
            a = d.at[first + 1]
            for s in range(0, size, c):
                for t in range(c):
                    table[s + t] += neg[a + t]
        return
    for e in range(first, last):
        if e != skip:
            own = neg[d.at[e] :]
            m = d.map_at[e]
            for x in range(size):
                table[x] += own[d.maps[m + x]]


@lean_inline
def marginal(g, d, e, neg, out, buffers):
    """out[y] = min-marginal of the source of edge e on its target, without the message of e itself."""
    r = d.source[e]
    mode = d.mode[r]
    if mode == STRUCT:
        starts = d.at[d.out_start[r] : d.out_start[r + 1]]
        minmarg(g, r - len(g.cards), e - d.out_start[r], neg, starts, out, buffers.work)
    elif mode == TRIPLET:
        triplet_marginal(g, d, e, neg, out, buffers.table)
    elif mode == SQUARE:
        square_marginal(g, d, e, neg, out, buffers.table)
    else:
        table = buffers.table
        fill(g, d, r, neg, e, table)
        ny = d.size[d.target[e]]
        nx = d.size[r]
        m = d.map_at[e] + nx
        for y in range(ny):
            out[y] = table[d.maps[m + y]]
        for j in range(m + ny, m + nx, ny):
            for y in range(ny):
                v = table[d.maps[j + y]]
                out[y] = v if v < out[y] else out[y]


@lean_inline
def send(g, d, e, neg, buffers):
    """Recompute the message of edge e, with minimum 0; returns the minimum that was taken off."""
    out = buffers.vector
    marginal(g, d, e, neg, out, buffers)
    size = d.size[d.target[e]]
    low = out[0]
    for y in range(1, size):
        low = min(low, out[y])
    a = d.at[e]
    for y in range(size):
        neg[a + y] = low - out[y]
    return low


@lean
def sweep(g, d, neg, ahead, begin, end, buffers):
    """Visit positions begin..end of the sequence, forwards (ahead) or backwards; returns their part of the bound.

    Only after a whole backward pass do the parts add up to the bound of the messages.
    """
    low = 0.0
    for q in range(begin, end):
        b = d.sequence[q if ahead else len(d.sequence) - 1 - q]
        weight = d.weight_forward[b] if ahead else d.weight_backward[b]
        left = weight
        for k in range(d.in_start[b], d.in_start[b + 1]):
            e = d.in_edge[k]
            if ahead:
                if d.backward[e]:
                    send(g, d, e, neg, buffers)
            else:
                if d.forward[e] or d.counted[e]:
                    v = send(g, d, e, neg, buffers)
                    if d.counted[e]:
                        low += v
                left -= d.backward[e]
        size = d.size[b]
        theta = buffers.table
        fill(g, d, b, neg, -1, theta)
        share = 1.0 / weight
        for x in range(size):
            theta[x] *= share
        if not ahead and d.region_counted[b]:
            least = theta[0]
            for x in range(1, size):
                least = min(least, theta[x])
            low += left * least
        for k in range(d.in_start[b], d.in_start[b + 1]):
            e = d.in_edge[k]
            if (ahead and d.forward[e]) or (not ahead and d.backward[e]):
                a = d.at[e]
                for x in range(size):
                    neg[a + x] += theta[x]
    return low


# ------------------------------------------------------------------------------------------------- rounding


@lean
def _restricted_table(g, d, e, neg, labels, out, table, chosen):
    """Min-marginal over the entries of the source's table that agree with the labels chosen so far."""
    r = d.source[e]
    count = 1
    chosen[0] = 0
    for p in range(d.scope_start[r], d.scope_start[r + 1]):
        i = d.scope[p]
        c = g.cards[i]
        if labels[i] >= 0:
            for k in range(count):
                chosen[k] = chosen[k] * c + labels[i]
        else:
            for k in range(count - 1, -1, -1):  # from the end: the c copies of an entry land behind all unread ones
                x = chosen[k] * c
                for s in range(c):
                    chosen[k * c + s] = x + s
            count *= c
    potential(g, d, r, table)
    for y in range(d.size[d.target[e]]):
        out[y] = np.inf
    for k in range(count):
        x = chosen[k]
        v = table[x]
        for q in range(d.in_start[r], d.in_start[r + 1]):
            v -= neg[d.at[d.in_edge[q]] + x]
        for o in range(d.out_start[r], d.out_start[r + 1]):
            if o != e:
                v += neg[d.at[o] + np.int64(d.maps[d.map_at[o] + x])]
        y = d.maps[d.map_at[e] + x]
        out[y] = min(out[y], v)


@lean
def _send_restricted(g, d, e, neg, labels, buffers, held, starts, chosen):
    """As send, over the labellings that agree with the labels chosen so far; other entries become 0 (never read)."""
    r = d.source[e]
    b = d.target[e]
    out = buffers.vector
    size = d.size[b]
    if d.mode[r] == STRUCT:
        first = d.out_start[r]
        k = d.out_start[r + 1] - first
        at = 0
        for p in range(k):
            i = d.target[first + p]
            starts[p] = at
            for s in range(g.cards[i]):
                free = labels[i] < 0 or labels[i] == s
                held[at + s] = neg[d.at[first + p] + s] if free else np.inf
            at += g.cards[i]
        minmarg(g, r - len(g.cards), e - first, held, starts, out, buffers.work)
    elif d.mode[r] == TRIPLET:
        restricted_triplet(g, d, e, neg, labels, out)
    elif d.mode[r] == SQUARE:
        restricted_square(g, d, e, neg, labels, out, buffers.table)
    else:
        _restricted_table(g, d, e, neg, labels, out, buffers.table, chosen)
    low = np.inf
    for y in range(size):
        low = min(low, out[y])
    for y in range(size):
        neg[d.at[e] + y] = low - out[y] if out[y] < np.inf else 0.0


@lean
def round_pass(g, d, neg, ahead, labels, begin, end, buffers, held, starts, chosen):
    """Label variables in the order of a sweep: each takes its best label given those before it.

    ``neg`` is a copy that is overwritten: regions that contain labelled variables send restricted messages.  ``labels``
    is -1 where nothing is chosen yet.
    """
    for q in range(begin, end):
        b = d.sequence[q if ahead else len(d.sequence) - 1 - q]
        for k in range(d.in_start[b], d.in_start[b + 1]):
            e = d.in_edge[k]
            r = d.source[e]
            for p in range(d.scope_start[r], d.scope_start[r + 1]):
                if labels[d.scope[p]] >= 0:
                    _send_restricted(g, d, e, neg, labels, buffers, held, starts, chosen)
                    break
        if d.mode[b] == NODE:
            theta = buffers.table
            fill(g, d, b, neg, -1, theta)
            best = 0
            for x in range(1, d.size[b]):
                if theta[x] < theta[best]:
                    best = x
            labels[b] = best


# ------------------------------------------------------------------------------------------------- the certificate


@lean
def _minimum_of(g, d, r, neg, buffers):
    """Smallest entry of the reparametrised table of a region."""
    mode = d.mode[r]
    first = d.out_start[r]
    if mode == STRUCT:
        starts = d.at[first : d.out_start[r + 1]]
        return minimum(g, r - len(g.cards), neg, starts, buffers.vector, buffers.work)
    out = buffers.vector
    size = d.size[r]
    if mode == TRIPLET or mode == SQUARE:
        if mode == TRIPLET:
            triplet_marginal(g, d, first, neg, out, buffers.table)
        else:
            square_marginal(g, d, first, neg, out, buffers.table)
        size = d.size[d.target[first]]
        for y in range(size):
            out[y] += neg[d.at[first] + y]
    else:
        out = buffers.table
        fill(g, d, r, neg, -1, out)
    low = out[0]
    for x in range(1, size):
        low = min(low, out[x])
    return low


@lean
def _largest(neg, a, size):
    v = 0.0
    for x in range(a, a + size):
        v = max(v, abs(neg[x]))
    return v


@lean
def _bound_block(g, d, neg, b, low, error, buffers):
    n = len(g.cards)
    total = 0.0
    wrong = 0.0
    for r in range(b * BLOCK, min(len(d.mode), (b + 1) * BLOCK)):
        best = _minimum_of(g, d, r, neg, buffers)
        total += best
        magnitude = abs(best)
        terms = 2
        if r < n:
            magnitude += _largest(g.unary, g.offset[r], d.size[r])
        for k in range(d.in_start[r], d.in_start[r + 1]):
            magnitude += _largest(neg, d.at[d.in_edge[k]], d.size[r])
            terms += 1
        for e in range(d.out_start[r], d.out_start[r + 1]):
            magnitude += _largest(neg, d.at[e], d.size[d.target[e]])
            terms += 1
        # the table's own entry at the minimum is |best| plus messages at most; 8: products inside the kernels
        wrong += (terms + 8.0) * 2.0 * magnitude
    low[b] = total
    error[b] = wrong + BLOCK * abs(total)


@njit(cache=True, nogil=True, parallel=True)
def _bounds(g, d, neg, low, error, table, vector, scratch):
    for b in prange(len(low)):
        buffers = Buffers(np.empty(table), np.empty(vector), np.empty(scratch))
        _bound_block(g, d, neg, b, low, error, buffers)


def certified_bound(regions: Regions, neg: FloatArray) -> tuple[float, float]:
    """The certified lower bound of the messages of a region graph; and its raw value, before allowances."""
    graph = regions.graph
    count = (len(regions.dag.mode) + BLOCK - 1) // BLOCK
    low, error = np.zeros(count), np.zeros(count)
    sizes = make_buffers(regions)
    _bounds(graph.arrays, regions.dag, neg, low, error, *(len(b) for b in sizes))
    raw = math.fsum((graph.constant, *low.tolist()))
    return certify(graph, raw, UNIT * math.fsum(error.tolist())), raw
