"""The costs of all labels of all variables, kept up to date while single labels change.

cost[offset[i] + s] is the energy of label s at variable i given the labels of the others
(``coordinate_descent.initial_costs``).  A search that changes one label after the other reads its next move from these
costs; a change touches only the factors around one variable.
"""

from __future__ import annotations

from tightmap.factors.kernels import DENSE, POTTS, add_slice
from tightmap.graph.graph import Kind
from tightmap.runtime.compiled import lean

PN_POTTS = int(Kind.PN_POTTS)


@lean
def _change_table(g, f, pos, labels, cost, s):
    """A table of any order: the costs of the others change by the difference of two of its lines."""
    first = g.scope_start[f]
    last = g.scope_start[f + 1] - 1
    base = g.param[f]
    stride = 1
    own = 1
    for p in range(last, first - 1, -1):
        if p - first == pos:
            own = stride
        base += stride * labels[g.scope[p]]
        stride *= g.cards[g.scope[p]]
    jump = own * (s - labels[g.scope[first + pos]])
    w = g.weight[f]
    stride = 1
    for p in range(last, first - 1, -1):
        j = g.scope[p]
        c = g.cards[j]
        if p - first != pos:
            old = base - stride * labels[j]
            o = g.offset[j]
            for l in range(c):
                cost[o + l] += w * (g.params[old + jump] - g.params[old])
                old += stride
        stride *= c


@lean
def _change_pn(g, f, i, labels, cost, s):
    """P^n-Potts: j is concerned only when all but i and j share a label, and only at that label."""
    first = g.scope_start[f]
    last = g.scope_start[f + 1]
    for p in range(first, last):
        j = g.scope[p]
        if j == i:
            continue
        common = -1
        for q in range(first, last):
            if q != p and g.scope[q] != i:
                l = labels[g.scope[q]]
                if common < 0:
                    common = l
                elif l != common:
                    common = -2
                    break
        if common >= 0 and common < g.cards[j]:
            if labels[i] == common:
                cost[g.offset[j] + common] += g.weight[f] * (g.params[g.param[f]] - g.params[g.param[f] + 1 + common])
            elif s == common:
                cost[g.offset[j] + common] -= g.weight[f] * (g.params[g.param[f]] - g.params[g.param[f] + 1 + common])


@lean
def change_label(g, labels, cost, i, s):
    """Give variable i the label s, another than it has, and bring the costs of its neighbours up to date."""
    now = labels[i]
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        f = g.adj_factor[a]
        first = g.scope_start[f]
        kind = g.kind[f]
        if kind == POTTS:
            j = g.scope[first + 1 - g.adj_pos[a]]
            if now < g.cards[j]:
                cost[g.offset[j] + now] += g.weight[f]
            if s < g.cards[j]:
                cost[g.offset[j] + s] -= g.weight[f]
        elif kind == DENSE:
            _change_table(g, f, g.adj_pos[a], labels, cost, s)
        elif kind == PN_POTTS and g.scope_start[f + 1] - first > 2:
            _change_pn(g, f, i, labels, cost, s)
        else:
            for p in range(first, g.scope_start[f + 1]):
                j = g.scope[p]
                if j != i:
                    row = cost[g.offset[j] : g.offset[j + 1]]
                    add_slice(g, f, p - first, labels, row, -1.0)
                    labels[i] = s
                    add_slice(g, f, p - first, labels, row, 1.0)
                    labels[i] = now
    labels[i] = s
