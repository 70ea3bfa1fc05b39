"""Alternating directions dual decomposition, AD3 (A. F. T. Martins et al., JMLR 2015), on dense tables of any order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.model.model import Model
from tightmap.reference.dense import softened, tables
from tightmap.reference.model import Outcome, Tables
from tightmap.reference.tensor import Vector

Sets = npt.NDArray[np.int64]  # labellings of a factor, one a row


def spread(vectors: list[Vector]) -> Vector:
    """The table sum_p h_p(x_p)."""
    total: Vector = np.zeros([len(h) for h in vectors])
    for p, h in enumerate(vectors):
        total = total + h.reshape([-1 if q == p else 1 for q in range(len(vectors))])
    return total


def marginals(sets: Sets, weights: Vector, shape: tuple[int, ...]) -> list[Vector]:
    """u_p(s), the weight of the labellings in the set that have label s at position p."""
    return [np.bincount(sets[:, p], weights, c).astype(np.float64) for p, c in enumerate(shape)]


def factor_program(table: Vector, linear: list[Vector], eta: float) -> list[Vector]:
    """argmin of <c, u> + <theta, v> + eta / 2 |u|^2 over distributions v with marginals u, by the active-set method."""
    costs = table + spread(linear)
    sets: Sets = np.array([np.unravel_index(np.argmin(costs), table.shape)])
    weights = np.ones(1)
    while True:
        # the optimum on the set alone: equal costs at the slope, and weights that add up to one
        agree = (sets[:, None] == sets[None]).sum(axis=2)
        system = np.block([[np.zeros((1, 1)), np.ones((1, len(sets)))], [np.ones((len(sets), 1)), agree]])
        solution = np.linalg.solve(system, np.concatenate(([1.0], -costs[tuple(sets.T)] / eta)))
        level, goal = -eta * solution[0], solution[1:]
        if (goal < 0.0).any():
            steps = np.full(len(goal), np.inf)
            steps[goal < 0.0] = weights[goal < 0.0] / (weights - goal)[goal < 0.0]
            out = int(np.argmin(steps))
            weights = np.delete(weights + steps[out] * (goal - weights), out)
            sets = np.delete(sets, out, axis=0)
            continue
        weights = goal
        u = marginals(sets, weights, table.shape)
        slope = costs + eta * spread(u)
        best = np.array(np.unravel_index(np.argmin(slope), table.shape))
        if slope.min() >= level - 1e-12 * (1.0 + np.abs(slope).max()) or (sets == best).all(axis=1).any():
            return u
        column = np.concatenate(([1.0], (sets == best).sum(axis=1)))
        dependence = np.linalg.solve(system, column)
        if len(best) - column @ dependence < 1e-9:  # the set spans it: it takes the place of one that gives way
            d = dependence[1:]
            steps = np.where(d > 1e-9, weights / np.where(d > 1e-9, d, 1.0), np.inf)
            out = int(np.argmin(steps))
            sets = np.vstack([np.delete(sets, out, axis=0), best])
            weights = np.append(np.delete(weights - steps[out] * d, out), steps[out])
        else:
            sets, weights = np.vstack([sets, best]), np.append(weights, 0.0)


def ad3(model: Model | Tables, iterations: int = 100, eta: float = 0.1) -> Outcome:
    """Iterations with a fixed penalty.  The trace has the bound D(lambda), both residuals and the best energy."""
    hard = tables(model)
    t = softened(hard)
    rows = t.rows
    factors = [(scope, table) for group in t.groups for scope, table in zip(group.scopes, group.tables, strict=True)]
    degree = np.bincount([i for scope, _ in factors for i in scope], minlength=len(rows))
    alone = [i for i in range(len(rows)) if degree[i] == 0]
    point = np.concatenate([np.full(r.stop - r.start, 1.0 / (r.stop - r.start)) for r in rows])
    for i in alone:
        point[rows[i]] = np.eye(len(point[rows[i]]))[np.argmin(t.unary[rows[i]])]
    lambdas = [[np.zeros(r.stop - r.start) for r in (rows[i] for i in scope)] for scope, _ in factors]
    best, energy = t.argmin(t.unary), np.inf
    trace = []
    for _ in range(iterations):
        copies = []
        for (scope, table), own in zip(factors, lambdas, strict=True):
            linear = [t.unary[rows[i]] / degree[i] + m - eta * point[rows[i]] for i, m in zip(scope, own, strict=True)]
            copies.append(factor_program(table, linear, eta))
        old = point.copy()
        for i in range(len(rows)):
            if degree[i]:
                point[rows[i]] = 0.0
        for (scope, _), q in zip(factors, copies, strict=True):
            for i, u in zip(scope, q, strict=True):
                point[rows[i]] += u / degree[i]
        bound = t.constant + sum(float(t.unary[rows[i]].min()) for i in alone)
        apart = 0.0
        for (scope, table), q, own in zip(factors, copies, lambdas, strict=True):
            for i, u, m in zip(scope, q, own, strict=True):
                m += eta * (u - point[rows[i]])
                apart += float(((u - point[rows[i]]) ** 2).sum())
            bound += float(
                (table + spread([t.unary[rows[i]] / degree[i] + m for i, m in zip(scope, own, strict=True)])).min()
            )
        moved = float(np.sqrt(((point - old) ** 2).sum()))
        labels = t.argmin(-point)
        if hard.energy(labels) < energy:
            best, energy = labels, hard.energy(labels)
        trace.append({"bound": bound, "primal": float(np.sqrt(apart)), "dual": moved, "energy": energy})
    return Outcome(best, hard.energy(best), trace)
