"""One entry point per operation, for factors of every kind: value, slice, contraction, min-marginal, minimum, argmin.

Solvers call these and never look at a table.  All take the canonical ``Arrays`` g and a factor f; vectors of the
positions of f are read at ``x[start[p] : start[p] + cards]`` from one flat array, so that ``start`` decides which copy
of a variable a position sees.  ``work`` is scratch space of ``workspace(g)`` entries.

What they do for a kind is in the file of the kind; ``dispatch.py`` finds it there.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.dispatch import dispatch, only_pairs
from tightmap.factors.kinds import rows_by_kind
from tightmap.graph.graph import Arrays, FloatArray
from tightmap.runtime.compiled import compiled, inlined, lean, shared


def workspace(g: Arrays) -> int:
    """Entries of scratch space that the kernels below need for any factor of the graph."""
    labels, arity = int(g.cards.max(initial=1)), np.diff(g.scope_start)
    size = max(3 * (labels + 2), 4 * int(arity.max(initial=1)))
    for row, factors in rows_by_kind(g.kind):
        size = max(size, row.scratch(g, factors, int(arity[factors].max()), labels))
    return size + 16


@lean
def most_labels(cards):
    """The largest number of labels of a variable, at least 1.  A loop: ``max()`` takes a second to compile."""
    most = 1
    for i in range(len(cards)):
        most = max(most, cards[i])
    return most


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


_value = dispatch("value", "g, f, labels", __name__, "0.0")
_add_slice = dispatch("add_slice", "g, f, pos, labels, out, scale", __name__)
_contract = dispatch("contract", "g, f, pos, x, start, out, work", __name__)
_minmarg = dispatch("minmarg", "g, f, pos, h, start, out, work", __name__)
_tabulate = dispatch("tabulate", "g, f, size, table", __name__)
_spread = dispatch("spread", "g, f", __name__, "0.0")


def _every_kind(g, *_):
    """Of a Numba type: on models that are not all pairs the larger operations are long chains of functions."""
    return not only_pairs(g)


@lean
def value(g, f, labels):
    """Cost of factor f at a labelling of all canonical variables."""
    return _value(g, f, labels)


@shared(_every_kind)
def add_slice(g, f, pos, labels, out, scale):
    """out[s] += scale * cost of factor f when the variable at ``pos`` takes label s and the others stay."""
    _add_slice(g, f, pos, labels, out, scale)


@shared(_every_kind)
def contract(g, f, pos, x, start, out, work):
    """out[s] += sum over the labels of the other positions of cost * product of their vectors."""
    _contract(g, f, pos, x, start, out, work)


@shared(_every_kind)
def minmarg(g, f, pos, h, start, out, work):
    """out[s] = min over the labels of the other positions of cost + sum of their vectors (+inf entries allowed)."""
    _minmarg(g, f, pos, h, start, out, work)


@inlined
def write_table(g, f, size, table):
    """table[x] = cost of factor f at the labelling with C-order index x < size, the number of its labellings.

    ``table`` is longer than that by the order of the factor: nothing is allocated here.  For whoever writes small
    tables by the million: Potts and dense ones cost no call, which takes as long as sixteen entries.
    """
    _tabulate(g, f, size, table)


@shared(_every_kind)
def tabulate(g, f, table):
    """The same for whoever does not know the number of labellings, which is returned."""
    size = 1
    for p in range(g.scope_start[f], g.scope_start[f + 1]):
        size *= g.cards[g.scope[p]]
    write_table(g, f, size, table)
    return size


@compiled
def factor_spreads(g):
    """(m,) largest minus smallest cost of every factor (an upper bound for second differences)."""
    out = np.empty(len(g.kind))
    for f in range(len(g.kind)):
        out[f] = _spread(g, f)
    return out


def incident_ranges(g: Arrays) -> FloatArray:
    """(n,) sum of the ranges of the factors around every variable."""
    spread = np.repeat(factor_spreads(g), np.diff(g.scope_start))
    return np.bincount(g.scope, spread, minlength=len(g.cards)).astype(np.float64)


@lean
def _slices_change(g, f, pos, labels, cost, now, s):
    first = g.scope_start[f]
    i = g.scope[first + pos]
    for p in range(first, g.scope_start[f + 1]):
        j = g.scope[p]
        if j != i:
            row = cost[g.offset[j] : g.offset[j + 1]]
            add_slice(g, f, p - first, labels, row, -1.0)
            labels[i] = s
            add_slice(g, f, p - first, labels, row, 1.0)
            labels[i] = now


_change = dispatch("change", "g, f, pos, labels, cost, now, s", __name__, default=_slices_change)


@inlined
def change(g, f, pos, labels, cost, now, s):
    """Bring cost[offset[j] + l], the energy of label l at j given the others, up to date in what factor f adds to it,
    when the variable at ``pos`` is about to change from label ``now`` to s; ``labels`` are those before."""
    _change(g, f, pos, labels, cost, now, s)


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
