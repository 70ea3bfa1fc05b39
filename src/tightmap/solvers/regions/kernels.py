"""Kernels on the region graph: reparametrised tables, messages from any region, and the certificate.

Messages are stored negated: ``neg[at[e] + y]`` = -m_e(y).

The kernels are lean (see runtime/compiled.py): neither they nor the factor kernels they call allocate anything.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tightmap.energy.certificate import UNIT, certify
from tightmap.factors.kernels import minmarg, write_table
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.graph.one_form import one_form
from tightmap.runtime.compiled import lean, shared
from tightmap.runtime.pace import EVER, LOOK, end_of, late
from tightmap.runtime.simd import get, pointer, put
from tightmap.solvers.regions.cluster_kernels import (
    lane_room,
    restricted_square,
    restricted_triplet,
    square_marginal,
    triplet_marginal,
)
from tightmap.solvers.regions.regions import LARGEST_ARITY, NODE, SQUARE, STRUCT, TABLE, TRIPLET, Regions
from tightmap.solvers.regions.sends import largest_of, least_of, send_potts, send_rows, send_triple, subtract

POTTS = int(Kind.POTTS)  # dense tables come before it
BLOCK = 512  # minima of so many regions are added up to one partial sum of a bound


class Buffers(NamedTuple):
    table: FloatArray  # of a region
    vector: FloatArray  # a message
    work: FloatArray  # of the factor kernels
    held: FloatArray  # messages of a factor, +inf for labels that are ruled out
    chosen: IntArray  # table indices, or starts of messages
    theta: FloatArray  # of the region that a sweep visits
    share: FloatArray  # what it hands back to each of its messages


def make_buffers(regions: Regions) -> Buffers:
    largest = max(regions.vector, regions.scratch)
    order, labels = regions.graph.order, regions.graph.max_labels
    # a square needs room for its six pairs and two rows, or for its lanes
    table = max(regions.table + LARGEST_ARITY, 7 * largest, lane_room(labels))
    return Buffers(
        np.empty(table),
        np.empty(largest),
        np.empty(largest),
        np.empty(order * labels),
        np.empty(max(regions.table, order), dtype=np.int64),
        np.zeros(largest),
        np.zeros(largest),
    )


@shared()
def fill(g, d, r, neg, skip, table):
    """table[x] = theta_r + messages that enter - messages that leave, without the edge ``skip``."""
    size = d.size[r]
    mode = d.mode[r]
    if mode == NODE:
        o = g.offset[r]
        for x in range(size):
            table[x] = g.unary[o + x]
    elif mode == TABLE:
        f = r - len(g.cards)
        write_table(g, f, size, table)
    else:
        for x in range(size):
            table[x] = 0.0
    for k in range(d.in_start[r], d.in_start[r + 1]):
        a = d.at[d.in_edge[k]]
        for x in range(size):
            table[x] -= neg[a + x]
    first = d.out_start[r]
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
    for e in range(first, d.out_start[r + 1]):
        if e != skip:
            own = neg[d.at[e] :]
            m = d.map_at[e]
            for x in range(size):
                table[x] += own[d.maps[m + x]]


@lean
def _agreeing(g, d, r, labels, chosen):
    """Indices of the entries of the table of region r that agree with the labels chosen so far; returns how many."""
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
    return count


@shared()
def marginal(g, d, e, neg, labels, restricted, buffers):
    """Min-marginal of the source of edge e on its target, without the message of e itself, into buffers.vector.

    ``restricted``: over the labellings that agree with the labels chosen so far (those >= 0); +inf where there is none.
    """
    r = d.source[e]
    mode = d.mode[r]
    out = buffers.vector
    if mode == STRUCT:
        first = d.out_start[r]
        h = neg
        starts = d.at[first : d.out_start[r + 1]]
        if restricted:
            h = buffers.held
            starts = buffers.chosen
            at = 0
            for p in range(d.out_start[r + 1] - first):
                i = d.target[first + p]
                starts[p] = at
                for s in range(g.cards[i]):
                    free = labels[i] < 0 or labels[i] == s
                    h[at + s] = neg[d.at[first + p] + s] if free else np.inf
                at += g.cards[i]
        minmarg(g, r - len(g.cards), e - first, h, starts, out, buffers.work)
    elif mode == TRIPLET:
        if restricted:
            restricted_triplet(g, d, e, neg, labels, out)
        else:
            triplet_marginal(g, d, e, neg, out, buffers.table)
    elif mode == SQUARE:
        if restricted:
            restricted_square(g, d, e, neg, labels, out, buffers.table)
        else:
            square_marginal(g, d, e, neg, out, buffers.table)
    else:
        table = buffers.table
        fill(g, d, r, neg, e, table)
        ny = d.size[d.target[e]]
        nx = d.size[r]
        m = d.map_at[e]
        if restricted:
            for y in range(ny):
                out[y] = np.inf
            for k in range(_agreeing(g, d, r, labels, buffers.chosen)):
                x = buffers.chosen[k]
                y = d.maps[m + x]
                out[y] = min(out[y], table[x])
            return
        m += nx
        for y in range(ny):
            out[y] = table[d.maps[m + y]]
        for j in range(m + ny, m + nx, ny):
            for y in range(ny):
                v = table[d.maps[j + y]]
                out[y] = v if v < out[y] else out[y]


@lean
def effort(g, d, r):
    """About how many nanoseconds a message of region r takes."""
    if d.mode[r] != STRUCT:
        return 1.0 + d.size[r] * (d.out_start[r + 1] - d.out_start[r])
    entries = 1.0
    for p in range(d.scope_start[r], d.scope_start[r + 1]):
        entries *= g.cards[d.scope[p]]
    return entries


@one_form
@lean
def minima(g, d, neg_array, low, error, begin, end, buffers, left):
    """Add up the minima of regions begin..end in low and error, for the certificate; returns where it is."""
    n = len(g.cards)
    neg, out, theta = pointer(neg_array), pointer(buffers.vector), pointer(buffers.theta)
    unary, offset, params = pointer(g.unary), pointer(g.offset), pointer(g.params)
    kinds, weights, param = pointer(g.kind), pointer(g.weight), pointer(g.param)
    sizes, modes, target, at = pointer(d.size), pointer(d.mode), pointer(d.target), pointer(d.at)
    in_start, in_edge, out_start = pointer(d.in_start), pointer(d.in_edge), pointer(d.out_start)
    until = end_of(left)
    spent = 0.0
    for b in range(begin, end):
        if spent > LOOK:
            spent = 0.0
            if late(until):
                return b
        size, mode = get(sizes, b), get(modes, b)
        first, last = get(out_start, b), get(out_start, b + 1)
        magnitude = 0.0
        if mode == NODE:
            o = get(offset, b)
            for s in range(size):
                put(theta, s, get(unary, o + s))
            magnitude = largest_of(unary, o, size)
            for k in range(get(in_start, b), get(in_start, b + 1)):
                subtract(theta, neg, get(at, get(in_edge, k)), size)
            least = least_of(theta, 0, size)
        elif size > 0:
            fill(g, d, b, neg_array, -1, buffers.table)
            least = buffers.table[0]
            for x in range(1, size):
                least = min(least, buffers.table[x])
        else:  # without a table: from a message that leaves it
            a, own = get(at, first), get(sizes, get(target, first))
            kind = POTTS + 1
            if mode == STRUCT and last - first <= 3:
                kind = get(kinds, b - n)
            if kind <= POTTS:
                w, t = get(weights, b - n), get(param, b - n)
                a1, c1 = get(at, first + 1), get(sizes, get(target, first + 1))
                if kind == POTTS:
                    send_potts(neg, a1, c1, w, own, out)
                elif last - first == 2:
                    send_rows(params, t, w, neg, a1, c1, own, out)
                else:
                    a2, c2 = get(at, first + 2), get(sizes, get(target, first + 2))
                    send_triple(params, t, w, neg, a2, a1, 0, c2, 0, c1, c1 * c2, 1, c2, own, out)
                    spent += own * c1 * c2
                spent += own * c1
            else:
                spent += effort(g, d, b)
                marginal(g, d, first, neg_array, d.in_start, False, buffers)
            least = np.inf
            for y in range(own):
                v = get(out, y) + get(neg, a + y)
                least = v if v < least else least
        terms = 10.0  # 8 for products inside the factor kernels, 2 for the sum
        for k in range(get(in_start, b), get(in_start, b + 1)):
            magnitude += largest_of(neg, get(at, get(in_edge, k)), size)
            terms += 1.0
        for e in range(first, last):
            magnitude += largest_of(neg, get(at, e), get(sizes, get(target, e)))
            terms += 1.0
        # the cost of b itself at the minimum is |minimum| plus messages at most
        magnitude += abs(least)
        low[b // BLOCK] += least
        error[b // BLOCK] += UNIT * (2.0 * terms * magnitude + BLOCK * abs(least))
        spent += 20.0 + size * terms
    return end


@one_form
@lean
def reparametrised(g, d, neg, regions, start, out, buffer):
    """out[start[k]:] = reparametrised table of regions[k]; ``buffer`` is scratch for one table."""
    for k in range(len(regions)):
        fill(g, d, regions[k], neg, -1, buffer)
        for x in range(d.size[regions[k]]):
            out[start[k] + x] = buffer[x]


def certified_bound(regions: Regions, neg: FloatArray, left: float = EVER) -> tuple[float, float]:
    """The certified lower bound of the messages of a region graph; and its raw value, before allowances.

    Both are -inf when time is up before they are known.
    """
    graph, d = regions.graph, regions.dag
    count = (len(d.mode) + BLOCK - 1) // BLOCK
    low, error = np.zeros(count), np.zeros(count)
    count = len(d.mode)
    if minima(graph.arrays, d, neg, low, error, 0, count, make_buffers(regions), left) < count:
        return -math.inf, -math.inf
    raw = math.fsum((graph.constant, *low.tolist()))
    return certify(graph, raw, math.fsum(error.tolist())), raw
