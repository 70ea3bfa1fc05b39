"""Chains of changes: the same as in plain Python, undone without a trace, and strong beside hard constraints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force, chain_of_changes
from problems import models, random_model
from tightmap.energy.energies import energy
from tightmap.moves.context import Context
from tightmap.moves.coordinate_descent import initial_costs
from tightmap.moves.kept_costs import costs_touched
from tightmap.registry import solver_class
from tightmap.solvers.base import Init
from tightmap.solvers.search.chains import BATCH, anneal, follow, room_for, undo


def seeded(seed):
    return np.array([seed + 1], dtype=np.uint64)


def assignment(rng, n):
    """Objects to places, each place once, costs of all pairs: without a chain every labelling next to one is worse."""
    model = tm.Model([n] * n)
    model.add_unaries(rng.random((n, n)))
    apart = np.where(np.eye(n) > 0, np.inf, 0.0)
    for a in range(n):
        for b in range(a):
            model.add_factors([[a, b]], apart + rng.random((n, n)))
    return model


@settings(deadline=None)
@given(st.one_of(models(max_variables=6), models(max_variables=6, hard=0.3)), st.integers(0, 2**32 - 2))
def test_a_chain_is_that_of_plain_python(model, seed):
    rng = np.random.default_rng(seed)
    for i, c in enumerate(model.cardinalities):
        model.add_unaries([rng.random(c)], [i])  # no two labels of a variable cost the same
    graph = model.graph()
    if graph.n == 0:
        return
    g, touched, chain, random = graph.arrays, costs_touched(graph), room_for(graph.n), seeded(seed)
    cost, fresh = np.empty(len(g.unary)), np.empty(len(g.unary))
    labels = rng.integers(0, g.cards).astype(np.int64)
    initial_costs(g, labels, cost)
    for _ in range(3):
        i = int(rng.integers(graph.n))
        s = int((labels[i] + 1 + rng.integers(g.cards[i] - 1)) % g.cards[i])
        before = labels.copy()
        expected = chain_of_changes(graph, before.tolist(), i, s)
        d, _ = follow(g, labels, cost, i, s, graph.hard, 1e-9, chain, touched, random)
        assert labels.tolist() == expected
        size = abs(energy(graph, labels)) + abs(energy(graph, before)) + 1.0
        assert d == pytest.approx(energy(graph, labels) - energy(graph, before), abs=1e-9 * size)
        assert not chain.queued.any()
        if rng.random() < 0.5:
            undo(g, labels, cost, chain)
            np.testing.assert_array_equal(labels, before)
        initial_costs(g, labels, fresh)
        np.testing.assert_allclose(cost, fresh, rtol=1e-9, atol=1e-9 * size)


def test_annealing_knows_its_energies():
    model = random_model(np.random.default_rng(3), n=12, labels=3, factors=20, order=3)
    graph = model.graph()
    labels = np.zeros(graph.n, dtype=np.int64)
    best, cost = labels.copy(), np.empty(len(graph.arrays.unary))
    initial_costs(graph.arrays, labels, cost)
    value = np.full(2, energy(graph, labels))
    chain, touched = room_for(graph.n), costs_touched(graph)
    after, left = anneal(
        graph.arrays, labels, cost, best, value, 20.0, 0.999, 300, graph.hard, 1e-9, chain, touched, seeded(1), np.inf
    )
    assert left == 0
    assert after == pytest.approx(20.0 * 0.999**300)
    assert value[0] == pytest.approx(energy(graph, labels))
    assert value[1] == pytest.approx(energy(graph, best))
    assert value[1] < value[0] - 1e-3  # it ended above the best: what it copied was not just the last labelling


def test_two_objects_exchange_their_places():
    """The only way from one feasible labelling to the next."""
    model = assignment(np.random.default_rng(0), 6)
    graph = model.graph()
    labels = np.arange(6)
    cost = np.empty(len(graph.arrays.unary))
    initial_costs(graph.arrays, labels, cost)
    follow(graph.arrays, labels, cost, 0, 3, graph.hard, 1e-9, room_for(6), costs_touched(graph), seeded(0))
    assert labels[0] == 3
    assert sorted(labels) == list(range(6))


def test_where_a_slice_of_time_ends_changes_nothing(monkeypatch):
    """Iterations are batches of chains, however many calls they take."""
    model = assignment(np.random.default_rng(1), 9)
    found = []
    for seconds in (1e9, 1e-9):
        monkeypatch.setattr("tightmap.solvers.search.chains.SLICE", seconds)
        monkeypatch.setattr("tightmap.solvers.search.chains.BATCH", 300)
        monkeypatch.setattr("tightmap.solvers.search.chains.LOOK", 500)
        found.append(tm.solve(model, "chains", cycles=3, sweeps=30))
    assert found[0].iterations == found[1].iterations > 3
    np.testing.assert_array_equal(found[0].labels, found[1].labels)


def test_an_iteration_is_a_batch():
    graph = assignment(np.random.default_rng(1), 5).graph()
    solver = solver_class("chains")(sweeps=10_000)
    state = solver.start(graph, Init(), Context())
    total = state.left
    while solver.step(state).iterations == 0:
        pass
    assert total - state.left == BATCH


def test_optima_of_assignments_are_found():
    rng = np.random.default_rng(5)
    for _ in range(5):
        model = assignment(rng, 6)
        assert tm.solve(model, "chains").energy == pytest.approx(brute_force(model)[0])
