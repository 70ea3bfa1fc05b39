"""The reference methods: against definitions written out, brute force, finite differences and the fast methods."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from naive import graph_tables, labellings, local_polytope
from problems import grid_model, models, random_model, tree_model
from tightmap.moves.coordinate_descent import local_minimum, round_and_descend
from tightmap.moves.orders import node_order
from tightmap.reference.bcd import bcd
from tightmap.reference.brute_force import brute_force
from tightmap.reference.cqp import cqp, diagonal
from tightmap.reference.dense import softened, tables
from tightmap.reference.frank_wolfe import frank_wolfe
from tightmap.reference.line_search import line_search
from tightmap.reference.pgd import pgd
from tightmap.reference.simplex import project
from tightmap.reference.tensor import contract
from tightmap.reference.trws import trws
from tightmap.runtime import parallel
from tightmap.solvers.trws.engines import GeneralMessages

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are done before a second thread has woken up."""
    with parallel.using(1):
        yield


def relaxed_point(t, rng):
    return np.concatenate([rng.dirichlet(np.ones(c)) for c in np.diff(t.offset)])


def assert_no_single_change_improves(model, labels):
    """A local minimum of coordinate descent."""
    for i, c in enumerate(model.cardinalities):
        for s in range(c):
            other = labels.copy()
            other[i] = s
            assert model.energy(other) >= model.energy(labels) - 1e-9 * (1.0 + abs(model.energy(labels)))


# ------------------------------------------------------------------------------------------------- parts


@given(models(hard=0.2))
def test_tables_are_the_model(model):
    """Every labelling, all kinds of factor, repeated variables; the vertex of a labelling has its energy."""
    t = tables(model)
    soft = softened(t)
    for labels in labellings(model.cardinalities):
        x = np.array(labels, dtype=np.int64)
        assert t.energy(x) == pytest.approx(model.energy(x), rel=1e-9, abs=1e-9)
        assert soft.multilinear(soft.one_hot(x)) == pytest.approx(soft.energy(x), rel=1e-9, abs=1e-9)


@given(models(hard=0.3))
def test_softened_costs_separate_allowed_from_forbidden(model):
    t = tables(model)
    soft = softened(t)
    every = [np.array(x, dtype=np.int64) for x in labellings(np.diff(t.offset))]
    pairs = [(t.energy(x), soft.energy(x)) for x in every]
    allowed = [s for e, s in pairs if np.isfinite(e)]
    forbidden = [s for e, s in pairs if not np.isfinite(e)]
    assert allowed == pytest.approx([e for e, _ in pairs if np.isfinite(e)])
    assert np.isfinite(forbidden).all()
    assert not allowed or not forbidden or max(allowed) < min(forbidden)


def test_evidence_is_a_hard_constraint():
    model = random_model(np.random.default_rng(3), n=5, labels=3, factors=6, ragged=False)
    free = brute_force(model)
    model.clamp({0: (free.labels[0] + 1) % 3})
    held = brute_force(model)
    assert held.labels[0] == (free.labels[0] + 1) % 3
    assert held.energy == pytest.approx(model.energy(held.labels)) and held.energy > free.energy
    assert bcd(model).labels[0] == held.labels[0]


@given(models(), seeds)
def test_gradient_is_the_difference_of_energies(model, seed):
    """E is linear in every entry, so a difference of any width is the derivative."""
    t = tables(model)
    x = np.random.default_rng(seed).normal(size=len(t.unary))
    slope = t.gradient(x)
    for i, row in enumerate(t.rows):
        np.testing.assert_allclose(t.partial(x, i), slope[row], rtol=1e-9, atol=1e-9)
    for s in range(len(x)):
        step = np.zeros_like(x)
        step[s] = 0.5
        assert t.multilinear(x + step) - t.multilinear(x - step) == pytest.approx(slope[s], rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_contraction_is_the_sum_over_labellings(order):
    rng = np.random.default_rng(order)
    shape = tuple(rng.integers(1, 4, order))
    table, vectors = rng.normal(size=(5, *shape)), [rng.normal(size=(5, s)) for s in shape]
    for mode in range(order):
        expected = np.zeros((5, shape[mode]))
        for c, x in itertools.product(range(5), np.ndindex(*shape)):
            expected[c, x[mode]] += table[c][x] * np.prod([vectors[q][c, x[q]] for q in range(order) if q != mode])
        np.testing.assert_allclose(contract(table, mode, vectors), expected, atol=1e-12)  # five at once
        np.testing.assert_allclose(contract(table[0], mode, [v[0] for v in vectors]), expected[0], atol=1e-12)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), seeds)
def test_projection_is_the_nearest_point(sizes, seed):
    """p is the nearest point of a convex set exactly if no point of it is at an acute angle to v - p."""
    offset = np.concatenate(([0], np.cumsum(sizes)))
    v = np.random.default_rng(seed).normal(size=offset[-1]) * 3
    p = project(v, offset)
    assert (p >= 0.0).all()
    for a, b in itertools.pairwise(offset):
        assert p[a:b].sum() == pytest.approx(1.0)
        for vertex in np.eye(b - a):
            assert (v[a:b] - p[a:b]) @ (vertex - p[a:b]) <= 1e-9


@given(models(max_order=4), seeds)
def test_line_search_beats_the_grid_of_the_supplement(model, seed):
    t = tables(model)
    rng = np.random.default_rng(seed)
    x, s = relaxed_point(t, rng), relaxed_point(t, rng)
    alpha = line_search(t.multilinear, t.order, x, s - x)
    assert 0.0 <= alpha <= 1.0
    on_grid = min(t.multilinear(x + a * (s - x)) for a in np.linspace(0.0, 1.0, 101))
    assert t.multilinear(x + alpha * (s - x)) <= on_grid + 1e-9 * (1.0 + abs(on_grid))


def test_line_search_of_a_lower_degree():
    """Cliques of three or more whose energy along the segment is quadratic but for rounding."""
    for degree in (3, 4, 5):
        for bottom in np.linspace(0.01, 0.99, 99):
            alpha = line_search(lambda a, b=bottom: 7.3 * (a[0] - b) ** 2 + 11.6, degree, np.zeros(1), np.ones(1))
            assert alpha == pytest.approx(bottom, abs=1e-6)


# ------------------------------------------------------------------------------------------------- brute force, descent


@given(models(max_variables=4, hard=0.2))
def test_brute_force_finds_the_first_minimum(model):
    every = [np.array(x, dtype=np.int64) for x in labellings(model.cardinalities)]
    energies = [model.energy(x) for x in every]
    labels, energy, _ = brute_force(model)
    assert energy == pytest.approx(min(energies), rel=1e-9, abs=1e-9)
    assert model.energy(labels) == pytest.approx(energy, rel=1e-9, abs=1e-9)
    if sum(e <= min(energies) + 1e-6 for e in energies) == 1:
        assert (labels == every[int(np.argmin(energies))]).all()


def test_brute_force_refuses_what_it_cannot_try():
    with pytest.raises(tm.ModelError, match=r"1\.1e\+12 labellings"):
        brute_force(tm.Model([2] * 40))


@given(models(hard=0.1), seeds)
def test_descent_ends_in_a_local_minimum_not_above_its_start(model, seed):
    """Proposition 1, from relaxed points and from labels."""
    t = softened(tables(model))
    x = relaxed_point(t, np.random.default_rng(seed))
    labels, _, trace = bcd(model, x)
    energies = [t.multilinear(x)] + [row["energy"] for row in trace]
    assert (np.diff(energies) <= 1e-9 * (1.0 + np.abs(energies[1:]))).all()
    assert t.energy(labels) == pytest.approx(energies[-1], rel=1e-9, abs=1e-9)
    if np.isfinite(model.energy(labels)):
        assert_no_single_change_improves(model, labels)
    assert (bcd(model, labels).labels == labels).all()


@given(models(), seeds)
def test_fast_descent_goes_where_the_reference_goes(model, seed):
    graph = model.graph()
    if graph.n == 0:
        return
    t = graph_tables(graph)
    rng = np.random.default_rng(seed)
    start = rng.integers(0, graph.arrays.cards)
    x = relaxed_point(t, rng)
    assert (local_minimum(graph, start) == bcd(t, start).labels).all()
    assert (round_and_descend(graph, x) == bcd(t, x).labels).all()


# ------------------------------------------------------------------------------------------------- gradient methods


@settings(max_examples=30)
@given(models(), seeds, st.sampled_from([pgd, frank_wolfe]))
def test_gradient_methods_descend_to_a_stationary_point(model, seed, method):
    """Proposition 2; and rounding loses nothing (Theorem 1)."""
    t = tables(model)
    labels, energy, trace = method(model, relaxed_point(t, np.random.default_rng(seed)), iterations=300)
    values = np.array([row["energy"] for row in trace])
    assert (np.diff(values) <= 1e-9 * (1.0 + np.abs(values[1:]))).all()
    assert min(row["gap"] for row in trace) >= -1e-9
    assert energy <= values[-1] + 1e-9 * (1.0 + abs(values[-1]))
    assert energy == pytest.approx(model.energy(labels)) and energy >= brute_force(model).energy - 1e-9
    if len(trace) < 300:
        assert trace[-1]["gap"] <= 1e-6 * (1.0 + abs(values[-1]))


@pytest.mark.parametrize("method", [pgd, frank_wolfe])
def test_a_stationary_point_between_labellings_stays(method):
    """The corrected Proposition 5: no gradient method moves here, and BCD still improves."""
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], [[0.0, 1.0], [1.0, 0.0]])
    _, energy, trace = method(model, np.full(4, 0.5))
    assert trace == [{"energy": 0.5, "gap": 0.0}]
    assert energy == 0.0


@settings(max_examples=30)
@given(models(max_order=2, hard=0.05))
def test_convex_relaxation_is_convex_and_below(model):
    t = softened(tables(model))
    d = diagonal(t)
    zero = t.gradient(np.zeros(len(d)))
    hessian = np.array([t.gradient(e) - zero for e in np.eye(len(d))]) + 2.0 * np.diag(d)
    assert np.linalg.eigvalsh(hessian).min(initial=0.0) >= -1e-9 * t.scale
    labels, energy, trace = cqp(model, iterations=200)
    optimum = brute_force(t).energy
    values = [row["energy"] for row in trace]
    assert (np.diff(values) <= 1e-9 * (1.0 + np.abs(values[1:]))).all()
    assert max(row["bound"] for row in trace) <= optimum + 1e-9 * (1.0 + abs(optimum))
    assert min(row["gap"] for row in trace) >= -1e-9 * t.scale
    if len(trace) == 200:  # Jaggi 2013, Theorem 2: the gap after so many steps of Frank-Wolfe on a convex function
        curvature = np.linalg.eigvalsh(hessian).max() * 2 * len(t.rows)
        assert min(row["gap"] for row in trace) <= 27 / 4 * curvature / 202
    assert t.energy(labels) >= optimum - 1e-9 * (1.0 + abs(optimum))
    assert energy == pytest.approx(model.energy(labels))


# ------------------------------------------------------------------------------------------------- TRW-S


def assert_bound_rises_below_the_optimum(model):
    optimum = brute_force(model).energy
    slack = 1e-9 * (1.0 + abs(optimum)) if np.isfinite(optimum) else 0.0
    labels, energy, trace = trws(model, 8)
    bounds = np.array([row["bound"] for row in trace])
    assert (np.diff(bounds) >= -1e-9 * (1.0 + np.abs(bounds[1:]))).all()
    assert bounds[-1] <= optimum + slack
    assert energy >= optimum - slack
    assert energy == pytest.approx(model.energy(labels))


@given(models(max_order=2, hard=0.1))
def test_bound_of_any_pairwise_model(model):
    assert_bound_rises_below_the_optimum(model)


@pytest.mark.parametrize("seed", range(10))
def test_bound_of_complete_graphs(seed):
    """Every variable is in many cycles, so that what it sends has to be averaged right."""
    rng = np.random.default_rng(seed)
    model = tm.Model([3] * 5)
    model.add_unaries(rng.normal(size=(5, 3)))
    model.add_factors(list(itertools.combinations(range(5), 2)), rng.normal(size=(10, 3, 3)))
    assert_bound_rises_below_the_optimum(model)


@pytest.mark.parametrize("seed", range(4))
def test_trees_are_solved(seed):
    model = tree_model(np.random.default_rng(seed), n=8, labels=3)
    labels, energy, trace = trws(model, 10)
    assert energy == pytest.approx(brute_force(model).energy) == pytest.approx(trace[-1]["bound"])
    assert model.energy(labels) == pytest.approx(energy)


def test_bound_is_below_the_linear_relaxation_and_the_fast_one():
    for seed in range(4):
        graph = grid_model(np.random.default_rng(seed), 3, 4, 3, "dense", integral=False).graph()
        t = graph_tables(graph)
        engine = GeneralMessages(graph, node_order(graph, "index"))
        trace = trws(t, 12).trace
        for row in trace:
            assert graph.constant + engine.iterate(1)[0] == pytest.approx(row["bound"], rel=1e-9, abs=1e-9)
        assert graph.constant + engine.best_energy == pytest.approx(trace[-1]["energy"])
        relaxation = local_polytope(graph)
        assert trace[-1]["bound"] <= relaxation + 1e-7
        assert trace[-1]["bound"] >= relaxation - 0.05 * abs(relaxation)


def test_methods_of_pairs_refuse_larger_factors():
    model = tm.Model([2] * 3)
    model.add_pn_potts([[0, 1, 2]])
    for method in (cqp, trws):
        with pytest.raises(tm.ModelError, match="factor of 3 variables"):
            method(model)
