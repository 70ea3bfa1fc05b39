"""Slow oracles for region graphs: dense reparametrised tables, and the linear program of a region graph."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

import naive


def region_cost(regions, r):
    """(scope, dense cost) of a region."""
    graph = regions.graph
    g = graph.arrays
    if r < graph.n:
        return np.array([r]), g.unary[g.offset[r] : g.offset[r + 1]].copy()
    if r < graph.n + graph.m:
        return naive.dense_factor(graph, r - graph.n)
    scope = regions.scope(r)
    return scope, np.zeros(tuple(int(g.cards[i]) for i in scope))


def spread(values, part, scope):
    """A table on ``part`` as an array that broadcasts against tables on ``scope``."""
    where = [list(scope).index(i) for i in part]
    order = np.argsort(where)
    shape = [1] * len(scope)
    for axis in where:
        shape[axis] = values.shape[where.index(axis)]
    return values.transpose(order).reshape(shape)


def reparametrised_tables(regions, neg):
    """[(scope, table)] of all regions, by definition: cost + messages that enter - messages that leave."""
    d = regions.dag
    tables = [region_cost(regions, r) for r in range(len(d.mode))]
    scopes = [list(map(int, s)) for s, _ in tables]
    tables = [t.copy() for _, t in tables]
    for e in range(len(d.target)):
        a, b = int(d.source[e]), int(d.target[e])
        m = -neg[d.at[e] : d.at[e] + tables[b].size].reshape(tables[b].shape)
        tables[b] = tables[b] + m
        tables[a] = tables[a] - spread(m, scopes[b], scopes[a])
    return list(zip(scopes, tables, strict=True))


def region_polytope(regions):
    """Optimal value of the linear relaxation with a distribution per region and equal marginals along every edge."""
    d = regions.dag
    scopes, starts, cost = [], [], []
    for r in range(len(d.mode)):
        scope, table = region_cost(regions, r)
        scopes.append(list(map(int, scope)))
        starts.append(len(cost))
        cost += list(table.ravel())
    cards = regions.graph.arrays.cards
    rows, cols, vals, rhs = [], [], [], []
    r = 0
    for i in range(len(scopes)):
        size = int(np.prod([cards[v] for v in scopes[i]]))
        rows += [r] * size
        cols += list(range(starts[i], starts[i] + size))
        vals += [1.0] * size
        rhs.append(1.0)
        r += 1
    for e in range(len(d.target)):
        a, b = int(d.source[e]), int(d.target[e])
        where = [scopes[a].index(i) for i in scopes[b]]
        shape = tuple(int(cards[i]) for i in scopes[b])
        for k, x in enumerate(np.ndindex(*(int(cards[i]) for i in scopes[a]))):
            y = int(np.ravel_multi_index(tuple(x[p] for p in where), shape))
            rows.append(r + y), cols.append(starts[a] + k), vals.append(1.0)
        for y in range(int(np.prod(shape))):
            rows.append(r + y), cols.append(starts[b] + y), vals.append(-1.0)
            rhs.append(0.0)
        r += int(np.prod(shape))
    matrix = coo_matrix((vals, (rows, cols)), shape=(r, len(cost))).tocsr()
    solution = linprog(cost, A_eq=matrix, b_eq=rhs, bounds=(0, None), method="highs")
    assert solution.status == 0, solution.message
    return regions.graph.constant + solution.fun


def all_energies(model):
    """Array of the energies of all labellings, from the user's own blocks and unaries."""
    cards = tuple(int(c) for c in model.cardinalities)
    grid = np.indices(cards)
    total = np.full(cards, float(model.constant))
    for i in range(len(cards)):
        total = total + model.unaries[model.offset[i] : model.offset[i + 1]][grid[i]]
    for block in model.blocks:
        for row in range(len(block)):
            scope = block.scopes[row]
            table = block.dense(np.array([row]), tuple(cards[i] for i in scope))[0]
            total = total + table[tuple(grid[i] for i in scope)]
    return total
