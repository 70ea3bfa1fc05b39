"""TRW-S sweeps on any pairwise model: any graph, any kinds of factor, ragged label counts, any order of the nodes.

One float64 message per edge (algorithms.md, 1.6): the slot of an edge holds the message to its later end after a
forward pass and to its earlier end after a backward pass.  At node i

    total = theta_i + sum of its slots,       h = gamma_i total - slot,       slot <- min_t [h(t) + theta_ij(t, .)] - delta,

for the edges to later nodes (forward) or to earlier ones (backward).  After a backward pass the reparametrisation
that moves ``slot`` from every edge to its earlier end and -h to its later end has the bound (trws_grid_bound.py)

    sum over edges of delta + sum_i (1 - gamma_i earlier_i) min total_i,

so that every pass certifies itself.  ``size`` adds up what rounding can amount to: sums of d terms of absolute value
at most a are wrong by at most d a units, and a message goes through at most 2 labels + 8 more operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from tightmap.energy import message_offsets
from tightmap.factors.kernels import add_slice, minmarg, workspace
from tightmap.graph import FloatArray, Graph, IntArray


class Sweeper(NamedTuple):
    """The order of the nodes and everything that depends on it, and the messages."""

    order: npt.NDArray[np.int64]  # (n,) nodes in the order of the forward pass
    later: npt.NDArray[np.uint8]  # per entry of adj_factor: the other end comes later
    gamma: FloatArray  # (n,)
    earlier: npt.NDArray[np.int64]  # (n,) number of earlier neighbours
    start: IntArray  # (m + 1,) slot of edge f is messages[start[f]:], as long as its larger end
    messages: FloatArray
    scratch: int


def build_sweeper(graph: Graph, order: npt.NDArray[np.int64]) -> Sweeper:
    g = graph.arrays
    rank = np.empty(graph.n, dtype=np.int64)
    rank[order] = np.arange(graph.n)
    ends = graph.edges.astype(np.int64)
    owner = np.repeat(np.arange(graph.n), np.diff(g.adj_start))
    other = ends[g.adj_factor, 1 - g.adj_pos.astype(np.int64)]
    later = rank[other] > rank[owner]
    after = np.bincount(owner, weights=later, minlength=graph.n).astype(np.int64)
    before = np.diff(g.adj_start) - after
    start = np.concatenate(([0], np.cumsum(g.cards[ends].max(axis=1).astype(np.int64))))
    return Sweeper(
        np.ascontiguousarray(order, dtype=np.int64),
        later.astype(np.uint8),
        1.0 / np.maximum(1, np.maximum(after, before)),
        before,
        start,
        np.zeros(int(start[-1])),
        workspace(g),
    )


@njit(cache=True, nogil=True)
def _round(g, sweeper, i, towards, labels, cost, known):
    """Label of node i given those chosen before it and the messages from the others; returns its share of the energy."""
    c = g.cards[i]
    known[:c] = g.unary[g.offset[i] : g.offset[i + 1]]
    cost[:c] = 0.0
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        f = g.adj_factor[a]
        if sweeper.later[a] == towards:
            base = sweeper.start[f]
            for s in range(c):
                cost[s] += sweeper.messages[base + s]
        else:
            add_slice(g, f, g.adj_pos[a], labels, known, 1.0)
    best = 0
    for s in range(c):
        cost[s] += known[s]
        if cost[s] < cost[best]:
            best = s
    labels[i] = best
    return known[best]


@njit(cache=True, nogil=True)
def half_sweep(g, sweeper, towards, labels, rounding):
    """One pass, forward (towards = 1) or backward (0); returns energy of the labels chosen, bound and size."""
    messages = sweeper.messages
    widest = g.cards.max()
    total = np.empty(widest)
    h = np.empty(widest)
    out = np.empty(widest)
    work = np.empty(sweeper.scratch)
    at = np.zeros(2, np.int64)
    n = len(sweeper.order)
    energy = 0.0
    bound = 0.0
    size = 0.0
    for k in range(n):
        i = sweeper.order[k] if towards == 1 else sweeper.order[n - 1 - k]
        c = g.cards[i]
        if rounding:
            energy += _round(g, sweeper, i, towards, labels, h, out)
        degree = g.adj_start[i + 1] - g.adj_start[i]
        largest = 0.0
        for s in range(c):
            u = g.unary[g.offset[i] + s]
            total[s] = u
            largest = max(largest, abs(u))
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            base = sweeper.start[g.adj_factor[a]]
            peak = 0.0
            for s in range(c):
                v = messages[base + s]
                total[s] += v
                peak = max(peak, abs(v))
            largest += peak
        gamma = sweeper.gamma[i]
        if towards == 0:
            low = total[0]
            for s in range(1, c):
                low = min(low, total[s])
            left = 1.0 - gamma * sweeper.earlier[i]
            if sweeper.earlier[i] * gamma == 1.0:
                left = 0.0
            bound += left * low
            size += 4.0 * (degree + 2) * largest + abs(low)
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if sweeper.later[a] != towards:
                continue
            f = g.adj_factor[a]
            p = g.adj_pos[a]
            base = sweeper.start[f]
            for s in range(c):
                h[s] = gamma * total[s] - messages[base + s]
            minmarg(g, f, 1 - p, h, at, out, work)
            j = g.scope[g.scope_start[f] + 1 - p]
            d = g.cards[j]
            delta = out[0]
            for t in range(1, d):
                delta = min(delta, out[t])
            peak = 0.0
            for t in range(d):
                v = out[t] - delta
                messages[base + t] = v
                peak = max(peak, v)
            bound += delta
            size += (8.0 + 2.0 * c) * (2.0 * largest + abs(delta) + peak)
    return energy, bound, size


@njit(cache=True, nogil=True)
def run(g, sweeper, iterations, rounding, labels, best, best_energy):
    """Iterations with rounding in both passes; ``best`` is replaced by better labellings.

    Returns the best energy (without the constant), and bound and size of the last pass.
    """
    bound = 0.0
    size = 0.0
    for _ in range(iterations):
        for towards in (1, 0):
            value, bound, size = half_sweep(g, sweeper, towards, labels, rounding)
            if rounding and value < best_energy:
                best_energy = value
                best[:] = labels
    return best_energy, bound, size


@njit(cache=True, nogil=True)
def _expand(g, sweeper, offsets, out):
    """A forward pass that also writes down the reparametrisation it ends with, in the layout of the certificate."""
    messages = sweeper.messages
    widest = g.cards.max()
    total = np.empty(widest)
    h = np.empty(widest)
    m = np.empty(widest)
    work = np.empty(sweeper.scratch)
    at = np.zeros(2, np.int64)
    for i in sweeper.order:
        c = g.cards[i]
        total[:c] = g.unary[g.offset[i] : g.offset[i + 1]]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            base = sweeper.start[g.adj_factor[a]]
            for s in range(c):
                total[s] += messages[base + s]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if sweeper.later[a] == 1:
                f = g.adj_factor[a]
                p = g.adj_pos[a]
                base = sweeper.start[f]
                own, theirs = offsets[2 * f + p], offsets[2 * f + 1 - p]
                for s in range(c):
                    h[s] = sweeper.gamma[i] * total[s] - messages[base + s]
                    out[own + s] = -h[s]
                minmarg(g, f, 1 - p, h, at, m, work)
                d = g.cards[g.scope[g.scope_start[f] + 1 - p]]
                delta = m[0]
                for t in range(1, d):
                    delta = min(delta, m[t])
                for t in range(d):
                    messages[base + t] = m[t] - delta
                    out[theirs + t] = m[t] - delta


def expanded_messages(graph: Graph, sweeper: Sweeper) -> FloatArray:
    """Messages of both ends of every edge (energy.message_offsets) after a backward pass; the slots stay as they are."""
    offsets = message_offsets(graph)
    out = np.zeros(int(offsets[-1]))
    _expand(graph.arrays, sweeper._replace(messages=sweeper.messages.copy()), offsets, out)
    return out


@njit(cache=True, nogil=True)
def _collapse(g, sweeper, offsets, given):
    widest = g.cards.max()
    h = np.empty(widest)
    m = np.empty(widest)
    work = np.empty(sweeper.scratch)
    at = np.zeros(2, np.int64)
    for i in range(len(g.cards)):
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if sweeper.later[a] == 1:
                f = g.adj_factor[a]
                p = g.adj_pos[a]
                d = g.cards[g.scope[g.scope_start[f] + 1 - p]]
                for t in range(d):
                    h[t] = -given[offsets[2 * f + 1 - p] + t]
                minmarg(g, f, p, h, at, m, work)
                low = m[0]
                for s in range(1, g.cards[i]):
                    low = min(low, m[s])
                for s in range(g.cards[i]):
                    sweeper.messages[sweeper.start[f] + s] = m[s] - low


def collapse_messages(graph: Graph, sweeper: Sweeper, given: FloatArray) -> None:
    """Fill the slots from messages of both ends: each edge sends to its earlier end, which cannot lower the bound."""
    _collapse(graph.arrays, sweeper, message_offsets(graph), given)
