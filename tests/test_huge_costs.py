"""Costs near the largest number there is: refused in one sentence or solved, whichever factor or variable has them."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm

pytestmark = pytest.mark.filterwarnings("error")


def pair(table, weight, unary=0.0):
    model = tm.Model([2, 2])
    model.add_unaries([[unary, 0.0], [0.0, 0.0]])
    model.add_factors([[0, 1]], table, weight)
    return model


def sparse():
    model = tm.Model([9, 9])
    model.add_sparse([[0, 1]], [[0, 0]], [3.0], 3.0, 1e308)
    return model


def pn_potts():
    model = tm.Model([2, 2, 2])
    model.add_pn_potts([[0, 1, 2]], 1e200, [1e200, 1e200])
    return model


@pytest.mark.parametrize(
    "build",
    [
        lambda: pair(np.full((2, 2), 3.0), 1e308),
        lambda: pair(np.full((2, 2), 3.0), 1e308, unary=1.0),
        lambda: pair([[3.0, 3.0], [3.0, 1.0]], 1e308),
        lambda: pair([[np.inf, 3.0], [3.0, 1.0]], 1e308),
        lambda: pair([[1e200, 0.0], [0.0, -1e200]], -1e200),
        sparse,
        pn_potts,
    ],
)
def test_a_weight_times_a_cost_that_is_no_number_is_no_hard_constraint(build):
    """It was taken for +inf, and the model for one that is proven infeasible."""
    with pytest.raises(tm.ModelError, match="scale them down"):
        tm.solve(build())
    with pytest.raises(tm.ModelError, match="scale them down"):
        tm.prepare(build(), "trws")


def grid(where, large):
    """More factors and variables than are looked at to choose a unit; the second one of each is huge."""
    rng = np.random.default_rng(0)
    model = tm.Model.grid(70, 70, 3)
    unaries, edges = rng.random((4900, 3)), model.edges()
    weights, tables = np.full(len(edges), 0.3), rng.random((len(edges), 3, 3))
    if where == "unaries":
        unaries[1] = [large, large, 0.0]
    elif where == "weights":
        weights[1] = large
    else:
        tables[1, 0, 1] = large
    model.add_unaries(unaries)
    if where == "tables":
        model.add_factors(edges, tables)
    else:
        model.add_potts(edges, weights)
    return model


@pytest.mark.parametrize("where", ["unaries", "weights", "tables"])
@pytest.mark.parametrize("method", ["trws", "expansion", "admm", "srmp"])
def test_a_huge_cost_among_many_ordinary_ones(where, method):
    """Whether it is among those that are looked at to choose a unit or not: no overflow, and a bound."""
    for large in (1e200, 1e307):
        model = grid(where, large)
        result = tm.solve(model, method, max_iterations=20, time_limit=20.0)
        assert result.energy == model.energy(result.labels) < 6000.0
        assert result.lower_bound <= result.energy
    with pytest.raises(tm.ModelError, match="scale them down"):
        tm.solve(grid(where, 1.79e308), method)
