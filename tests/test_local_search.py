"""Tabu search and both annealings: consistent, never worse than where they start, and they find small optima."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force
from problems import grid_model, models, random_model
from tightmap.energy.energies import energy
from tightmap.moves.context import Context
from tightmap.moves.coordinate_descent import initial_costs, local_minimum
from tightmap.moves.forests import root_blocks
from tightmap.moves.kept_costs import change_label, costs_touched
from tightmap.registry import solver_class
from tightmap.solvers.base import Init
from tightmap.solvers.search.annealing import ITERATION, PROPOSAL, UPDATE, metropolis
from tightmap.solvers.search.forest_annealing import random_forest
from tightmap.solvers.search.tabu import walk


@given(models(max_variables=6), st.integers(0, 2**32 - 1))
def test_a_change_keeps_the_costs(model, seed):
    graph = model.graph()
    if graph.n == 0:
        return
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, graph.arrays.cards).astype(np.int64)
    kept, fresh = np.empty(len(graph.arrays.unary)), np.empty(len(graph.arrays.unary))
    initial_costs(graph.arrays, labels, kept)
    for _ in range(4):
        i = int(rng.integers(graph.n))
        new = (labels[i] + 1 + int(rng.integers(graph.arrays.cards[i] - 1))) % graph.arrays.cards[i]
        change_label(graph.arrays, labels, kept, i, int(new))
    initial_costs(graph.arrays, labels, fresh)
    np.testing.assert_allclose(kept, fresh, rtol=1e-9, atol=1e-9)


def test_the_walk_knows_its_energy():
    model = grid_model(np.random.default_rng(0), 6, 6, 3, "dense")
    graph = model.graph()
    labels = np.zeros(graph.n, dtype=np.int64)
    cost = np.empty(len(graph.arrays.unary))
    initial_costs(graph.arrays, labels, cost)
    start = energy(graph, labels)
    value = np.array([start, start])
    best, tabu = labels.copy(), np.zeros(len(cost), dtype=np.int64)
    walk(graph.arrays, labels, cost, best, tabu, 0, 500, 0, 5, np.array([1], dtype=np.uint64), value, 1.0, np.inf)
    assert value[0] == pytest.approx(energy(graph, labels))
    assert value[1] == pytest.approx(energy(graph, best))
    assert value[1] <= energy(graph, local_minimum(graph, np.zeros(graph.n, dtype=np.int64)))


def test_metropolis_knows_its_energy():
    model = random_model(np.random.default_rng(3), n=12, labels=3, factors=20, order=3)
    graph = model.graph()
    labels = np.zeros(graph.n, dtype=np.int64)
    best, cost = labels.copy(), np.empty(len(graph.arrays.unary))
    initial_costs(graph.arrays, labels, cost)
    value = np.array([energy(graph, labels), np.inf])
    random = np.array([1], dtype=np.uint64)
    touched = costs_touched(graph)
    after, left, budget, first, made = metropolis(
        graph.arrays, touched, labels, cost, best, value, 2.0, 0.9, 30, 0, 0, random, 10**12, np.inf
    )
    assert left == first == made == 0
    assert 0 < budget < 10**12
    assert after == pytest.approx(2.0 * 0.9**30)
    assert value[0] == pytest.approx(energy(graph, labels))
    assert value[1] == pytest.approx(energy(graph, best))
    assert value[1] <= value[0]


@given(models(max_variables=6))
def test_costs_touched_are_those_of_the_neighbours_in_every_factor(model):
    graph = model.graph()
    g = graph.arrays
    expected = np.zeros(graph.n, dtype=np.int64)
    for f in range(graph.m):
        scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
        for i in scope:
            expected[i] += sum(int(g.cards[j]) for j in scope if j != i)
    np.testing.assert_array_equal(costs_touched(graph), expected)


def test_an_iteration_of_annealing_is_so_much_work_not_so_many_proposals():
    """Where each proposal is accepted and brings hundreds of costs up to date, an iteration still ends soon."""
    model = tm.Model([2, 400, 2])
    model.add_sparse([[0, 1]], [[0, 0]], [1.0], 1.0)  # all labellings cost the same: nothing is ever refused
    model.add_sparse([[1, 2]], [[0, 0]], [1.0], 1.0)
    graph = model.graph()
    solver = solver_class("annealing")(sweeps=10_000)
    state = solver.start(graph, Init(), Context())
    while solver.step(state).iterations == 0:
        pass
    sweep = (1 + 399 + 1) * PROPOSAL + (1 * 400 + 399 * 4 + 1 * 400) * UPDATE
    assert state.sweeps - state.left == -(-ITERATION // sweep)


@pytest.mark.parametrize("method", ["tabu", "anneal", "sa"])
def test_a_labelling_from_elsewhere_is_taken_only_when_better(method):
    graph = grid_model(np.random.default_rng(0), 5, 5, 3, "dense").graph()
    solver = solver_class(method)()
    state = solver.start(graph, Init(), Context())
    solver.step(state)
    first = energy(graph, solver.finish(state).labels)
    optimal = graph.restrict(tm.solve(grid_model(np.random.default_rng(0), 5, 5, 3, "dense"), "lns", cycles=2).labels)
    solver.adopt(state, np.zeros(graph.n, np.int64))
    assert energy(graph, solver.finish(state).labels) <= first
    solver.adopt(state, optimal)
    assert energy(graph, solver.finish(state).labels) == pytest.approx(energy(graph, optimal))


@pytest.mark.parametrize(("method", "enough"), [("tabu", 10), ("anneal", 8), ("sa", 10)])
def test_small_optima_are_found(method, enough):
    """Single labels find them all; forests are small where factors are of order 4, so annealing may miss a few."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(10):
        model = random_model(rng, n=7, labels=3, factors=9, order=4)
        optimum, _ = brute_force(model)
        value = tm.solve(model, method, **({"cycles": 6} if method != "tabu" else {})).energy
        assert value >= optimum - 1e-9
        found += value <= optimum + 1e-9
    assert found >= enough


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_random_forests_are_maximal_induced_forests(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, n=9, labels=2, factors=14, order=3, tidy=True)
    graph = model.graph()
    g = graph.arrays
    n = graph.n
    member = np.zeros(n, dtype=np.uint8)
    buffers = np.arange(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    state = np.array([seed + 1], dtype=np.uint64)
    chosen = random_forest(g, state, *buffers, member, np.inf)
    assert sorted(chosen) == np.flatnonzero(member).tolist()

    def is_forest(nodes):
        nodes = np.array(sorted(nodes), dtype=np.int64)
        return root_blocks(g, np.array([0, len(nodes)]), nodes)[3]

    assert is_forest(chosen)
    for extra in set(range(n)) - set(chosen.tolist()):
        assert not is_forest([*chosen, extra])


@pytest.mark.parametrize(("options", "words"), [({"rounds": -1}, "at least 0"), ({"strength": 0.0}, "strength")])
def test_tabu_options(options, words):
    with pytest.raises(tm.OptionError, match=words):
        tm.solve(grid_model(np.random.default_rng(0), 3, 3, 2), "tabu", **options)


def test_gains_of_rounding_do_not_keep_a_cycle_alive():
    """Labels that cost the same but for the last bits, so that every sweep seems to gain a little."""
    triple = [
        [[1.830323142742752e-10, -2.000000000170745], [-1.0, -1.0], [-2.0, 1.0]],
        [[-2.0000000001342295, 1.0000000000102056], [0.0, 0.0], [1.0, 1.0]],
        [[-1.999999999990669, -0.9999999998154327], [1.0, 2.0], [-1.0, 0.0]],
    ]
    model = tm.Model([3, 3, 3, 2])
    model.add_unaries(
        [
            [-1.999999999957436, 2.0000000000105573, 0.9999999998132953],
            [1.0000000002452831, 0.999999999993818, 1.00000000009288],
            [-0.99999999994997, 0.9999999998295112, -2.000000000140582],
            [2.0000000000536033, 1.0000000001221687],
        ]
    )
    pair = [
        [1.0000000000476155, 0.999999999966411, -2.000000000144566],
        [-0.999999999958059, -1.9999999998086084, 8e-12],
    ]
    model.add_factors([[3, 0]], pair)
    model.add_factors([[1, 2, 3]], triple, weights=[0.5])
    model.clamp({0: 0, 2: 0})
    result = tm.solve(model, "forest-annealing", seed=99, max_iterations=2000)
    assert result.status is not tm.Status.ITERATION_LIMIT


def test_annealing_between_hard_constraints_also_knows_what_soft_changes_cost():
    """From a feasible labelling most changes break a constraint: as the only unit of temperatures that is too hot."""
    rng = np.random.default_rng(0)
    model = tm.Model([6] * 60)
    pairs = np.column_stack(np.triu_indices(60, 1))
    pairs = pairs[rng.choice(len(pairs), 600, replace=False)]
    tables = rng.integers(0, 100, (600, 6, 6)).astype(float)
    tables[rng.random(tables.shape) < 0.15] = np.inf
    hidden = rng.integers(0, 6, 60)
    tables[np.arange(600), hidden[pairs[:, 0]], hidden[pairs[:, 1]]] = 50.0
    model.add_factors(pairs, tables)
    graph = model.graph()
    solver = solver_class("annealing")()
    state = solver.start(graph, Init(labels=graph.restrict(hidden)), Context(seed=0))
    assert state.hot < 0.01 * graph.hard < 0.5 * graph.hard < state.melting
    firsts, lasts = [], []
    while state.cycle < 4:
        if state.left == state.sweeps:
            firsts.append(state.temperature)
            lasts.append(state.temperature * state.cooling)
        solver.step(state)
    assert min(firsts[0::2]) > 10.0 * max(firsts[1::2])
    assert max(lasts) < 0.1 * state.hot
