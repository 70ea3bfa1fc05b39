"""One entry point per operation, for factors of every kind: value, slice, contraction, min-marginal, minimum, argmin.

Solvers call these and never look at a table.  All take the canonical ``Arrays`` g and a factor f; vectors of the
positions of f are read at ``x[start[p] : start[p] + cards]`` from one flat array, so that ``start`` decides which copy
of a variable a position sees.  ``work`` is scratch space of ``workspace(g)`` entries.

Pairs are here, everything else in ``higher.py``.
"""

from __future__ import annotations

import numpy as np

from tightmap.factors.dense import pair_add_slice, pair_contract, pair_minmarg
from tightmap.factors.difference import (
    difference_add_slice,
    difference_contract,
    difference_minmarg,
    difference_value,
)
from tightmap.factors.higher import higher_add_slice, higher_contract, higher_minmarg, higher_value
from tightmap.factors.pattern_kernels import pattern_workspace
from tightmap.factors.potts import potts_add_slice, potts_contract, potts_minmarg
from tightmap.graph.graph import Arrays, Kind
from tightmap.runtime.compiled import compiled, lean

DENSE = int(Kind.DENSE)
POTTS = int(Kind.POTTS)
LINEAR = int(Kind.LINEAR)
QUADRATIC = int(Kind.QUADRATIC)
SECOND = int(Kind.SECOND_DIFFERENCE)
PATTERN = int(Kind.PATTERN)
SPARSE = int(Kind.SPARSE)


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
    labels, arities = int(g.cards.max(initial=1)), np.diff(g.scope_start)
    if (g.kind == PATTERN).any():
        size = max(size, pattern_workspace(int(arities[g.kind == PATTERN].max()), labels))
    if (g.kind == SPARSE).any():
        size = max(size, int(arities[g.kind == SPARSE].max()) * (labels + 3) + 2)  # see _cheapest_default
    return size + 16


@lean
def labellings(g, f):
    """Number of labellings of factor f, a float: more than the nanoseconds that an operation on all of it takes."""
    count = 1.0
    for p in range(g.scope_start[f], g.scope_start[f + 1]):
        count *= g.cards[g.scope[p]]
    return count


@lean
def load_unary(g, i, out):
    """out = unary of variable i.  A loop: for slices Numba would compile the text of an error message, in seconds."""
    base = g.offset[i]
    for s in range(g.cards[i]):
        out[s] = g.unary[base + s]


@lean
def value(g, f, labels):
    """Cost of factor f at a labelling of all canonical variables."""
    kind = g.kind[f]
    a = g.scope_start[f]
    w = g.weight[f]
    i, j = g.scope[a], g.scope[a + 1]
    if kind == POTTS:
        return w if labels[i] != labels[j] else 0.0
    if kind == DENSE and g.scope_start[f + 1] - a == 2:
        return w * g.params[g.param[f] + labels[i] * g.cards[j] + labels[j]]
    if kind == LINEAR or kind == QUADRATIC:
        return w * difference_value(kind == QUADRATIC, g.params[g.param[f]], labels[i], labels[j])
    return higher_value(g, f, labels)


@lean
def add_slice(g, f, pos, labels, out, scale):
    """out[s] += scale * cost of factor f when the variable at ``pos`` takes label s and the others stay."""
    kind = g.kind[f]
    a = g.scope_start[f]
    w = scale * g.weight[f]
    n = g.cards[g.scope[a + pos]]
    if kind == POTTS:
        potts_add_slice(n, w, labels[g.scope[a + 1 - pos]], out)
    elif kind == DENSE and g.scope_start[f + 1] - a == 2:
        pair_add_slice(g, f, pos, labels, out, scale)
    elif kind == LINEAR or kind == QUADRATIC:
        other = labels[g.scope[a + 1 - pos]]
        difference_add_slice(n, w, kind == QUADRATIC, g.params[g.param[f]], other, out)
    else:
        higher_add_slice(g, f, pos, labels, out, scale)


@lean
def contract(g, f, pos, x, start, out, work):
    """out[s] += sum over the labels of the other positions of cost * product of their vectors."""
    kind = g.kind[f]
    a = g.scope_start[f]
    n = g.cards[g.scope[a + pos]]
    if kind == POTTS:
        c = g.cards[g.scope[a + 1 - pos]]
        potts_contract(n, c, g.weight[f], x, start[1 - pos], out)
    elif kind == DENSE and g.scope_start[f + 1] - a == 2:
        pair_contract(g, f, pos, x, start[1 - pos], out)
    elif kind == LINEAR or kind == QUADRATIC:
        c = g.cards[g.scope[a + 1 - pos]]
        limit = g.params[g.param[f]]
        difference_contract(n, c, g.weight[f], kind == QUADRATIC, limit, x, start[1 - pos], out, work)
    else:
        higher_contract(g, f, pos, x, start, out, work)


@lean
def minmarg(g, f, pos, h, start, out, work):
    """out[s] = min over the labels of the other positions of cost + sum of their vectors (+inf entries allowed)."""
    kind = g.kind[f]
    a = g.scope_start[f]
    n = g.cards[g.scope[a + pos]]
    if kind == POTTS:
        c = g.cards[g.scope[a + 1 - pos]]
        potts_minmarg(n, c, g.weight[f], h, start[1 - pos], out)
    elif kind == DENSE and g.scope_start[f + 1] - a == 2:
        pair_minmarg(g, f, pos, h, start[1 - pos], out)
    elif kind == LINEAR or kind == QUADRATIC:
        c = g.cards[g.scope[a + 1 - pos]]
        limit = g.params[g.param[f]]
        difference_minmarg(n, c, g.weight[f], kind == QUADRATIC, limit, h, start[1 - pos], out, work)
    else:
        higher_minmarg(g, f, pos, h, start, out, work)


@lean
def minimum(g, f, h, start, out, work):
    """min over all labellings of factor f of cost + sum of the vectors; ``out`` is scratch for one position."""
    minmarg(g, f, 0, h, start, out, work)
    best = np.inf
    for s in range(g.cards[g.scope[g.scope_start[f]]]):
        v = out[s] + h[start[0] + s]
        best = v if v < best else best
    return best


@compiled
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
