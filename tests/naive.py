"""Slow, obvious oracles, with those of tightmap.reference.  Nothing here shares code with the kernels it checks."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linprog

from tightmap.reference import brute_force as every_labelling
from tightmap.reference.dense import collect
from tightmap.reference.simplex import project
from tightmap.reference.tensor import contract


def labellings(cards):
    """Every labelling of variables with these label counts."""
    return itertools.product(*(range(int(c)) for c in cards))


def brute_force(model):
    """(smallest energy, a labelling that has it) by trying all labellings."""
    labels = every_labelling.brute_force(model).labels
    return model.energy(labels), labels


def dense_factor(graph, f):
    """Table of a canonical factor, entry by entry through the definitions in graph.Kind."""
    g = graph.arrays
    scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
    shape = tuple(int(g.cards[i]) for i in scope)
    p, w, kind = int(g.param[f]), float(g.weight[f]), int(g.kind[f])
    table = np.empty(shape)
    for x in labellings(shape):
        if kind == 0:
            v = g.params[p + int(np.ravel_multi_index(x, shape))]
        elif kind == 1:
            v = float(x[0] != x[1])
        elif kind == 2:
            v = min(abs(x[0] - x[1]), g.params[p])
        elif kind == 3:
            v = min((x[0] - x[1]) ** 2, g.params[p])
        elif kind == 4:
            v = g.params[p + 1 + x[0]] if len(set(x)) == 1 else g.params[p]
        elif kind == 5:
            v = g.params[p + pattern_order(len(x)).index(growth_string(x))]
        elif kind == 6:
            i = int(g.iparam[f])
            keys = list(g.ints[i + 1 : i + 1 + g.ints[i]])
            key = int(np.ravel_multi_index(x, shape))
            v = g.params[p + 1 + keys.index(key)] if key in keys else g.params[p]
        else:
            base = int(g.ints[g.iparam[f]])
            a, b, c = (g.params[base + g.offset[i] + s] for i, s in zip(scope, x, strict=True))
            v = min(abs(a - 2 * b + c), g.params[p])
        table[x] = w * v
    return scope, table


def growth_string(labels):
    """Restricted growth string of a label vector: groups numbered by first appearance."""
    seen = {}
    return tuple(seen.setdefault(l, len(seen)) for l in labels)


def pattern_order(k):
    """All restricted growth strings of length k, in lexicographic order."""
    return sorted({growth_string(x) for x in itertools.product(range(k), repeat=k)})


def graph_tables(graph):
    """A canonical graph as dense tables, for the methods of tightmap.reference."""
    g = graph.arrays
    return collect(graph.constant, g.cards, g.unary, [dense_factor(graph, f) for f in range(graph.m)])


def graph_energy(graph, x):
    """Energy of a canonical labelling by definition."""
    return graph_tables(graph).energy(np.asarray(x, dtype=np.int64))


def contraction(table, position, vectors):
    """sum over all other positions of table * product of vectors."""
    return contract(table, position, vectors)


def min_marginal(table, position, vectors):
    """min over all other positions of table + sum of vectors."""
    out = np.full(table.shape[position], np.inf)
    for x in labellings(table.shape):
        v = table[x] + sum(vectors[p][s] for p, s in enumerate(x) if p != position)
        out[x[position]] = min(out[x[position]], v)
    return out


def multilinear(graph, x):
    """Multilinear energy of flat relaxed vectors."""
    return graph_tables(graph).multilinear(x)


def bound_of_messages(graph, messages):
    """Sum of the minima of all reparametrised unaries and factors; messages[(f, p)] is a vector."""
    g = graph.arrays
    unary = [g.unary[g.offset[i] : g.offset[i + 1]].copy() for i in range(graph.n)]
    total = graph.constant
    for f in range(graph.m):
        scope, table = dense_factor(graph, f)
        for p, i in enumerate(scope):
            unary[i] += messages[f, p]
            shape = [1] * table.ndim
            shape[p] = -1
            table = table - messages[f, p].reshape(shape)
        total += table.min()
    return total + sum(u.min() for u in unary)


def local_polytope(graph):
    """Optimal value of the standard linear relaxation, by HiGHS."""
    g = graph.arrays
    cost = list(g.unary)
    rows, cols, vals, rhs = [], [], [], []
    r = 0
    for i in range(graph.n):
        for s in range(g.cards[i]):
            rows.append(r), cols.append(int(g.offset[i]) + s), vals.append(1.0)
        rhs.append(1.0)
        r += 1
    for f in range(graph.m):
        scope, table = dense_factor(graph, f)
        start = len(cost)
        cost += list(table.ravel())
        index = np.arange(table.size).reshape(table.shape)
        for p, i in enumerate(scope):
            for s in range(table.shape[p]):
                for e in np.take(index, s, axis=p).ravel():
                    rows.append(r), cols.append(start + int(e)), vals.append(1.0)
                rows.append(r), cols.append(int(g.offset[i]) + s), vals.append(-1.0)
                rhs.append(0.0)
                r += 1
    from scipy.sparse import coo_matrix

    a = coo_matrix((vals, (rows, cols)), shape=(r, len(cost)))
    solution = linprog(cost, A_eq=a.tocsr(), b_eq=rhs, bounds=(0, None), method="highs")
    assert solution.status == 0, solution.message
    return graph.constant + solution.fun


def simplex_projection(v):
    """Projection on the probability simplex."""
    return project(v, np.array([0, len(v)]))


def chain_of_changes(graph, labels, i, s):
    """x_i = s and the best answers of those around, each variable once: forbidden labels first, then plain gains."""
    g = graph.arrays
    tables = graph_tables(graph)
    scopes = [[int(v) for v in g.scope[g.scope_start[f] : g.scope_start[f + 1]]] for f in range(graph.m)]
    around = [[f for f, scope in enumerate(scopes) if v in scope] for v in range(graph.n)]
    x, changed, urgent, waiting = list(labels), [], [], []
    change = (i, s)
    while change is not None:
        j, label = change
        x[j] = label
        changed.append(j)
        for f in around[j]:
            urgent += [k for k in scopes[f] if k not in changed and k not in urgent]
        change = None
        while change is None and (urgent or waiting):
            pressing = bool(urgent)
            k = urgent.pop(0) if pressing else waiting.pop(0)
            if k in changed:
                continue
            costs = [tables.energy(np.array([*x[:k], t, *x[k + 1 :]])) for t in range(g.cards[k])]
            best = int(np.argmin(costs))
            gain = costs[x[k]] - costs[best]
            if gain <= 1e-9:
                continue
            if pressing and not (graph.hard > 0.0 and gain > 0.5 * graph.hard):
                waiting += [k] if k not in waiting else []
            else:
                change = (k, best)
    return x
