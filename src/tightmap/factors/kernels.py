"""One entry point per operation, for factors of every kind: value, slice, contraction, min-marginal, minimum, argmin.

Solvers call these and never look at a table.  All take the canonical ``Arrays`` g and a factor f; vectors of the
positions of f are read at ``x[start[p] : start[p] + cards]`` from one flat array, so that ``start`` decides which copy
of a variable a position sees.  ``work`` is scratch space of ``workspace(g)`` entries.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tightmap.factors.dense import dense_add_slice, dense_contract, dense_key, dense_minmarg
from tightmap.factors.difference import (
    difference_add_slice,
    difference_contract,
    difference_minmarg,
    difference_value,
)
from tightmap.factors.pattern import pattern_rank
from tightmap.factors.pn_potts import pn_add_slice, pn_contract, pn_minmarg, pn_value
from tightmap.factors.potts import potts_add_slice, potts_contract, potts_minmarg
from tightmap.factors.second_difference import second_add_slice, second_contract, second_minmarg, second_value
from tightmap.factors.sparse import sparse_add_slice, sparse_contract, sparse_lookup, sparse_minmarg
from tightmap.graph import Arrays, Kind

DENSE = int(Kind.DENSE)
POTTS = int(Kind.POTTS)
LINEAR = int(Kind.LINEAR)
QUADRATIC = int(Kind.QUADRATIC)
PN_POTTS = int(Kind.PN_POTTS)
PATTERN = int(Kind.PATTERN)
SPARSE = int(Kind.SPARSE)
SECOND = int(Kind.SECOND_DIFFERENCE)


def workspace(g: Arrays) -> int:
    """Entries of scratch space that the kernels below need for any factor of the graph."""
    size = 3 * (int(g.cards.max(initial=1)) + 2)
    arity = int(np.diff(g.scope_start).max(initial=1))
    size = max(size, 4 * arity)
    dense = g.kind == DENSE
    if dense.any():
        sizes = np.multiply.reduceat(g.cards[g.scope].astype(np.int64), g.scope_start[:-1])
        size = max(size, int(sizes[dense].max()))
    if (g.kind == SECOND).any():
        size = max(size, 2 * int(g.cards.max()) * (int(g.cards.max()) + 1) + 32)  # see second_minmarg
    return size + 16


@njit(cache=True, nogil=True)
def pattern_value(g, f, labels):
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    own = np.empty(k, np.int64)
    for p in range(k):
        own[p] = labels[g.scope[a + p]]
    return g.params[g.param[f] + pattern_rank(own)]


@njit(cache=True, nogil=True)
def value(g, f, labels):
    """Cost of factor f at a labelling of all canonical variables."""
    kind = g.kind[f]
    a = g.scope_start[f]
    w = g.weight[f]
    if kind == POTTS:
        return w if labels[g.scope[a]] != labels[g.scope[a + 1]] else 0.0
    if kind == DENSE:
        return w * g.params[g.param[f] + dense_key(g, f, labels)]
    if kind == LINEAR or kind == QUADRATIC:
        return w * difference_value(kind == QUADRATIC, g.params[g.param[f]], labels[g.scope[a]], labels[g.scope[a + 1]])
    if kind == PN_POTTS:
        return w * pn_value(g, f, labels)
    if kind == PATTERN:
        return w * pattern_value(g, f, labels)
    if kind == SPARSE:
        return w * sparse_lookup(g, f, dense_key(g, f, labels))
    return w * second_value(g, f, labels)


@njit(cache=True, nogil=True)
def add_slice(g, f, pos, labels, out, scale):
    """out[s] += scale * cost of factor f when the variable at ``pos`` takes label s and the others stay."""
    kind = g.kind[f]
    a = g.scope_start[f]
    w = scale * g.weight[f]
    n = g.cards[g.scope[a + pos]]
    if kind == POTTS:
        potts_add_slice(n, w, labels[g.scope[a + 1 - pos]], out)
    elif kind == DENSE:
        dense_add_slice(g, f, pos, labels, out, scale)
    elif kind == LINEAR or kind == QUADRATIC:
        other = labels[g.scope[a + 1 - pos]]
        difference_add_slice(n, w, kind == QUADRATIC, g.params[g.param[f]], other, out)
    elif kind == PN_POTTS:
        pn_add_slice(g, f, pos, labels, out, scale)
    elif kind == SPARSE:
        sparse_add_slice(g, f, pos, labels, out, scale)
    elif kind == SECOND:
        second_add_slice(g, f, pos, labels, out, scale)
    else:
        k = g.scope_start[f + 1] - a
        own = np.empty(k, np.int64)
        for p in range(k):
            own[p] = labels[g.scope[a + p]]
        for s in range(n):
            own[pos] = s
            out[s] += w * g.params[g.param[f] + pattern_rank(own)]


@njit(cache=True, nogil=True)
def _cost_at(g, f, own):
    """Weighted cost of a sparse or pattern factor at the labels of its positions."""
    if g.kind[f] == PATTERN:
        return g.weight[f] * g.params[g.param[f] + pattern_rank(own)]
    a = g.scope_start[f]
    key = 0
    for p in range(len(own)):
        key = key * g.cards[g.scope[a + p]] + int(own[p])
    return g.weight[f] * sparse_lookup(g, f, key)


@njit(cache=True, nogil=True)
def _advance(g, f, own):
    """Next labelling of the positions in C order; False after the last."""
    a = g.scope_start[f]
    for p in range(len(own) - 1, -1, -1):
        own[p] += 1
        if own[p] < g.cards[g.scope[a + p]]:
            return True
        own[p] = 0
    return False


@njit(cache=True, nogil=True)
def _enumerate_contract(g, f, pos, x, start, out):
    own = np.zeros(g.scope_start[f + 1] - g.scope_start[f], np.int64)
    more = True
    while more:
        product = _cost_at(g, f, own)
        for p in range(len(own)):
            if p != pos:
                product *= x[start[p] + own[p]]
        out[own[pos]] += product
        more = _advance(g, f, own)


@njit(cache=True, nogil=True)
def _enumerate_minmarg(g, f, pos, h, start, out, work):
    """By trying all labellings; their labels are kept in the workspace, so that nothing is allocated."""
    a = g.scope_start[f]
    own = work[: g.scope_start[f + 1] - a]
    for p in range(len(own)):
        own[p] = 0.0
    for s in range(g.cards[g.scope[a + pos]]):
        out[s] = np.inf
    more = True
    while more:
        v = _cost_at(g, f, own)
        for p in range(len(own)):
            if p != pos:
                v += h[start[p] + int(own[p])]
        s = int(own[pos])
        if v < out[s]:
            out[s] = v
        more = _advance(g, f, own)


@njit(cache=True, nogil=True)
def contract(g, f, pos, x, start, out, work):
    """out[s] += sum over the labels of the other positions of cost * product of their vectors."""
    kind = g.kind[f]
    a = g.scope_start[f]
    n = g.cards[g.scope[a + pos]]
    if kind == POTTS:
        c = g.cards[g.scope[a + 1 - pos]]
        potts_contract(n, c, g.weight[f], x, start[1 - pos], out)
    elif kind == DENSE:
        dense_contract(g, f, pos, x, start, out, work)
    elif kind == LINEAR or kind == QUADRATIC:
        c = g.cards[g.scope[a + 1 - pos]]
        limit = g.params[g.param[f]]
        difference_contract(n, c, g.weight[f], kind == QUADRATIC, limit, x, start[1 - pos], out, work)
    elif kind == PN_POTTS:
        pn_contract(g, f, pos, x, start, out)
    elif kind == SPARSE:
        sparse_contract(g, f, pos, x, start, out)
    elif kind == SECOND:
        second_contract(g, f, pos, x, start, out, work)
    else:
        _enumerate_contract(g, f, pos, x, start, out)


@njit(cache=True, nogil=True)
def minmarg(g, f, pos, h, start, out, work):
    """out[s] = min over the labels of the other positions of cost + sum of their vectors (+inf entries allowed)."""
    kind = g.kind[f]
    a = g.scope_start[f]
    n = g.cards[g.scope[a + pos]]
    if kind == POTTS:
        c = g.cards[g.scope[a + 1 - pos]]
        potts_minmarg(n, c, g.weight[f], h, start[1 - pos], out)
    elif kind == DENSE:
        dense_minmarg(g, f, pos, h, start, out, work)
    elif kind == LINEAR or kind == QUADRATIC:
        c = g.cards[g.scope[a + 1 - pos]]
        limit = g.params[g.param[f]]
        difference_minmarg(n, c, g.weight[f], kind == QUADRATIC, limit, h, start[1 - pos], out, work)
    elif kind == PN_POTTS:
        pn_minmarg(g, f, pos, h, start, out)
    elif kind == SECOND:
        second_minmarg(g, f, pos, h, start, out, work)
    elif kind == SPARSE:
        if not sparse_minmarg(g, f, pos, h, start, out):
            _enumerate_minmarg(g, f, pos, h, start, out, work)
    else:
        _enumerate_minmarg(g, f, pos, h, start, out, work)


@njit(cache=True, nogil=True)
def minimum(g, f, h, start, out, work):
    """min over all labellings of factor f of cost + sum of the vectors; ``out`` is scratch for one position."""
    minmarg(g, f, 0, h, start, out, work)
    best = np.inf
    for s in range(g.cards[g.scope[g.scope_start[f]]]):
        v = out[s] + h[start[0] + s]
        best = v if v < best else best
    return best


@njit(cache=True, nogil=True)
def argmin(g, f, h, start, own, out, work):
    """Labels of the positions that attain ``minimum``; entries of ``own`` that are >= 0 on entry stay fixed.

    One position after the other takes the best label of its min-marginal given those before it (lowest index on ties).
    """
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    length = 0
    for p in range(k):
        length = max(length, g.cards[g.scope[a + p]])
    held = np.empty(k * length)
    at = np.empty(k, np.int64)
    for p in range(k):
        at[p] = p * length
        for s in range(g.cards[g.scope[a + p]]):
            held[at[p] + s] = h[start[p] + s] if own[p] < 0 or own[p] == s else np.inf
    for p in range(k):
        if own[p] < 0:
            minmarg(g, f, p, held, at, out, work)
            best = np.inf
            own[p] = 0
            for s in range(g.cards[g.scope[a + p]]):
                v = out[s] + held[at[p] + s]
                if v < best:
                    best = v
                    own[p] = s
            for s in range(g.cards[g.scope[a + p]]):
                if s != own[p]:
                    held[at[p] + s] = np.inf
