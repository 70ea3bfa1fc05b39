"""TRBP: its forests, its bounds against brute force and trees, and its messages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force, dense_factor, labellings
from problems import grid_model, models, random_model, tree_model
from tightmap.energy.energies import lower_bound, message_offsets
from tightmap.moves.forest_cover import forest_cover
from tightmap.solvers.trbp import forest_messages


@given(models(max_variables=6, tidy=True))
def test_cover_consists_of_forests(model):
    graph = model.graph()
    if graph.m == 0:
        return
    cover = forest_cover(graph)
    g = graph.arrays
    uses = np.zeros(graph.m)
    for begin, end in zip(cover.start[:-1], cover.start[1:], strict=True):
        component = {i: {i} for i in range(graph.n)}
        for e in range(begin, end):
            f = int(cover.factor[e])
            scope = [int(i) for i in g.scope[g.scope_start[f] : g.scope_start[f + 1]]]
            assert len({id(component[i]) for i in scope}) == len(scope)  # joins as many components as it has variables
            merged = set().union(*(component[i] for i in scope))
            for i in merged:
                component[i] = merged
            uses[f] += 1
    assert uses.min() >= 1
    assert np.allclose(cover.rho, uses / (len(cover.start) - 1))


@given(models(hard=0.1), st.integers(1, 30), st.sampled_from([0.0, 0.5, 0.9]))
def test_bound_and_energy_bracket_the_optimum(model, iterations, damping):
    optimum, _ = brute_force(model)
    result = tm.solve(model, "trbp", max_iterations=iterations, damping=damping)
    if math.isfinite(optimum):
        slack = 1e-9 * max(1.0, abs(optimum))
        assert result.lower_bound <= optimum + slack
        assert result.energy >= optimum - slack
        assert result.status is not tm.Status.INFEASIBLE
    else:
        assert result.status is not tm.Status.OPTIMAL


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("order", [2, 3])
def test_exact_on_forests(seed, order):
    model = tree_model(np.random.default_rng(seed), n=8, order=order)
    optimum = brute_force(model)[0]
    first = tm.solve(model, "trbp", max_iterations=1)
    assert first.lower_bound == pytest.approx(optimum, rel=1e-9)  # one forest, one dynamic program
    result = tm.solve(model, "trbp", damping=0.0)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(optimum, rel=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_bound_is_at_least_the_mean_of_the_forests(seed):
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, labels=3, factors=6, order=3, tidy=True).graph()
    if graph.m == 0:
        return
    g, cover, at = graph.arrays, forest_cover(graph), message_offsets(graph)
    messages = rng.normal(size=int(at[-1]))
    beliefs = g.unary.copy()
    for f in range(graph.m):
        for e in range(g.scope_start[f], g.scope_start[f + 1]):
            i = g.scope[e]
            beliefs[g.offset[i] : g.offset[i + 1]] += cover.rho[f] * messages[at[e] : at[e + 1]]
    total = graph.constant
    tables = [dense_factor(graph, f) for f in range(graph.m)]
    for begin, end in zip(cover.start[:-1], cover.start[1:], strict=True):
        best = math.inf
        for x in labellings(g.cards):
            value = sum(beliefs[g.offset[i] + x[i]] for i in range(graph.n))
            for f in cover.factor[begin:end]:
                scope, table = tables[f]
                value += table[tuple(x[i] for i in scope)] / cover.rho[f]
                value -= sum(messages[at[g.scope_start[f] + p] + x[i]] for p, i in enumerate(scope))
            best = min(best, value)
        total += best / (len(cover.start) - 1)
    bound = lower_bound(graph, forest_messages(graph, cover, messages, beliefs))
    assert bound >= total - 1e-8 * (1.0 + abs(total))


def test_it_comes_close_to_trws():
    model = grid_model(np.random.default_rng(3), 12, 12, labels=4, kind="linear", integral=False)
    trws, trbp = tm.solve(model, "trws"), tm.solve(model, "trbp")
    assert trbp.lower_bound >= trws.lower_bound - 0.02 * abs(trws.lower_bound)
    assert trbp.energy <= trws.energy + 0.05 * abs(trws.energy)
    # and either goes on with the messages of the other
    again = tm.solve(model, "trws", init=trbp, max_iterations=1)
    assert again.lower_bound >= trbp.lower_bound - 1e-6


def test_threads_change_nothing():
    model = grid_model(np.random.default_rng(6), 30, 30, labels=3, kind="dense")
    a, b = (tm.solve(model, "trbp", max_iterations=7, threads=t) for t in (1, 2))
    assert np.array_equal(a.labels, b.labels) and a.lower_bound == b.lower_bound


def test_options_are_checked():
    model = grid_model(np.random.default_rng(1))
    for wrong in ({"damping": 1.0}, {"sweeps": 0}, {"tolerance": -1.0}):
        with pytest.raises(tm.OptionError):
            tm.solve(model, "trbp", **wrong)
