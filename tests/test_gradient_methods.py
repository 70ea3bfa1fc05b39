"""Projected gradient, Frank-Wolfe and the convex relaxation: line search, Propositions 2 and 5, certified bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from conftest import data_file
from naive import brute_force, dense_factor, graph_energy, labellings, multilinear, simplex_projection
from problems import grid_model, models, random_model
from tightmap.energy.energies import energy, gradient, multilinear_energy, one_hot
from tightmap.moves.coordinate_descent import local_minimum, round_and_descend
from tightmap.moves.simplex import simplex_threshold
from tightmap.moves.soften import softened
from tightmap.runtime import parallel
from tightmap.solvers.relaxed import line_search
from tightmap.solvers.relaxed.cqp import convex_bound, convex_diagonal
from tightmap.solvers.relaxed.descent import PAIRWISE, PLAIN, PROJECTED, Descent

RULES = (PLAIN, PAIRWISE, PROJECTED)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny models: waking a second thread for every pass takes longer than the pass."""
    with parallel.using(1):
        yield


def relaxed_point(graph, rng, sharpness=1.0):
    return np.concatenate([rng.dirichlet(np.full(c, sharpness)) for c in graph.arrays.cards])


def frank_wolfe_gap(graph, x):
    """By definition, over the vertices of every simplex."""
    g = graph.arrays
    slope = gradient(graph, x)
    rows = [slice(g.offset[i], g.offset[i + 1]) for i in range(graph.n)]
    return sum(slope[r] @ x[r] - slope[r].min() for r in rows)


# ------------------------------------------------------------------------------------------------- parts


@given(st.integers(1, 12), seeds, st.sampled_from([1e-3, 1.0, 1e6]), st.booleans())
def test_simplex_projection(length, seed, size, ties):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=length) * size
    if ties:
        u = np.round(u / size) * size
    projected = np.maximum(u - simplex_threshold(u, length), 0.0)
    np.testing.assert_allclose(projected, simplex_projection(u), atol=1e-9 * max(1.0, size))


@given(st.integers(2, 8), seeds)
def test_line_search_is_exact(degree, seed):
    """Against the supplement's exhaustive search on a fine grid."""
    rng = np.random.default_rng(seed)
    c = np.concatenate(([0.0], rng.normal(size=degree)))
    if degree == 2:
        along = line_search.quadratic(c[1], c[2])
    else:
        values = np.polynomial.polynomial.polyval(line_search.sample_points(degree), c)
        along = line_search.from_samples(degree, c[1], values)
    alpha, change = along.minimise()
    assert 0.0 <= alpha <= 1.0
    assert change == pytest.approx(np.polynomial.polynomial.polyval(alpha, c), abs=1e-10)
    assert change <= np.polynomial.polynomial.polyval(np.linspace(0.0, 1.0, 10_001), c).min() + 1e-12
    alpha, change = along.armijo()
    assert change <= 0.0 and (alpha == 0.0 or change <= 1e-4 * alpha * c[1])


def test_line_search_of_a_lower_degree():
    """Cliques of four whose energy along the segment happens to be linear or constant."""
    points = line_search.sample_points(4)
    assert line_search.from_samples(4, -1.0, -points).minimise() == (1.0, pytest.approx(-1.0))
    assert line_search.from_samples(4, 0.0, 0.0 * points).minimise() == (0.0, 0.0)


@given(models(hard=0.2, max_order=3))
def test_softened_costs_never_raise_an_energy(model):
    graph = model.graph()
    if graph.m == 0:
        return
    arrays = softened(graph, 1.0)
    soft = replace(graph, arrays=arrays)
    for x in labellings(graph.arrays.cards):
        labels = np.array(x)
        if np.isfinite(model.energy(graph.lift(labels))):
            assert graph_energy(soft, labels) == pytest.approx(graph_energy(graph, labels), rel=1e-9, abs=1e-6)
        else:
            assert graph_energy(soft, labels) <= graph_energy(graph, labels)


# ------------------------------------------------------------------------------------------------- descent


@given(models(), seeds, st.sampled_from(RULES), st.sampled_from(["exact", "armijo"]))
def test_descent_is_monotone_and_ends_stationary(model, seed, rule, search):
    """Proposition 2: the energy never rises, and where the method stops no vertex is a descent direction."""
    graph = model.graph()
    if graph.m == 0:
        return
    descent = Descent(graph, graph.arrays, rule, search, True, 1e-7, 400)
    descent.begin(relaxed_point(graph, np.random.default_rng(seed)))
    tiny = 1e-9 * (1.0 + abs(descent.value))
    before = descent.value
    while descent.iterate():
        assert descent.value <= before + tiny
        assert descent.gap >= 0.0
        before = descent.value
    x = descent.take_pending_step()
    assert descent.value == pytest.approx(multilinear_energy(graph, x), rel=1e-8, abs=1e-8)
    assert (x >= 0.0).all()
    np.testing.assert_allclose(np.add.reduceat(x, graph.arrays.offset[:-1]), 1.0, atol=1e-9)
    gap = frank_wolfe_gap(graph, x)
    assert gap >= -1e-9
    if descent.gap <= 1e-7 * (1.0 + abs(descent.value)):
        assert gap <= 1e-6 * (1.0 + abs(descent.value))
    # rounding does not lose what was gained (Proposition 1)
    labels = round_and_descend(graph, x)
    assert energy(graph, labels) <= descent.value + 1e-7 * (1.0 + abs(descent.value))


@settings(max_examples=25)
@given(models(max_variables=4, max_labels=3), seeds)
def test_iterates_are_those_of_the_textbook(model, seed):
    """Three steps of Algorithms 2 and 3, written out: nothing is skipped, the line search tries a fine grid."""
    graph = model.graph()
    if graph.m == 0:
        return
    g = graph.arrays
    rows = [slice(g.offset[i], g.offset[i + 1]) for i in range(graph.n)]
    for rule in (PLAIN, PROJECTED):
        descent = Descent(graph, g, rule, "exact", False, 0.0, 400)
        x = relaxed_point(graph, np.random.default_rng(seed))
        descent.begin(x)
        for _ in range(3):
            slope = gradient(graph, x)
            s = np.zeros_like(x)
            for r in rows:
                if rule == PLAIN:
                    s[r.start + np.argmin(slope[r])] = 1.0
                else:
                    s[r] = simplex_projection(x[r] - slope[r] / descent.scale)
            grid = np.linspace(0.0, 1.0, 1 + 2 * graph.order)
            p = np.polynomial.Polynomial.fit(
                grid, [multilinear(graph, x + a * (s - x)) for a in grid], graph.order, domain=[0, 1], window=[0, 1]
            )
            fine = np.linspace(0.0, 1.0, 20_001)
            alpha = fine[np.argmin(p(fine))]
            if not descent.iterate():
                assert alpha <= 1e-4 or p(0.0) - p(alpha) <= 1e-6 * (1.0 + abs(p(0.0)))
                break
            x = descent.take_pending_step().copy()
            # two minima can be equally deep, so what is compared is how deep the step went
            assert descent.value == pytest.approx(p(alpha), rel=1e-6, abs=1e-6)
            assert multilinear(graph, x) == pytest.approx(descent.value, rel=1e-8, abs=1e-8)


@given(models(), seeds, st.sampled_from(["pgd", "fw"]))
def test_labellings_that_are_stationary_stay(model, seed, method):
    """Proposition 5, for labellings: what BCD ends at, projected gradient and Frank-Wolfe do not improve."""
    graph = model.graph()
    if graph.m == 0:
        return
    labels = local_minimum(graph, np.random.default_rng(seed).integers(0, graph.arrays.cards))
    full = graph.lift(labels)
    assert tm.stationarity(model, full) <= 1e-9 * (1.0 + abs(energy(graph, labels)))
    result = tm.solve(model, method, init=full, restarts=0)
    assert result.iterations == 0
    assert (result.labels == full).all()


def test_corrected_proposition_five():
    """At a stationary point between labellings neither method moves, and BCD still improves."""
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], [[0.0, 1.0], [1.0, 0.0]])
    half = np.full((2, 2), 0.5)
    assert tm.stationarity(model, half) == 0.0
    for method in ("pgd", "fw"):
        result = tm.solve(model, method, init=half, restarts=0)
        assert result.iterations == 0
        assert result.energy == 0.0 < multilinear_energy(model.graph(), half.ravel())


@pytest.mark.parametrize("method", ["pgd", "fw", "cqp"])
def test_threads_and_warm_start(method, monkeypatch):
    """The same vectors, bit by bit, on one and on two threads; and a finished run has nothing left to do."""
    monkeypatch.setattr("tightmap.solvers.relaxed.descent.SMALL", 0)
    model = grid_model(np.random.default_rng(8), 30, 41, 3, "linear", integral=False)
    one, two = (tm.solve(model, method, threads=t, seed=3) for t in (1, 2))
    assert (one.labels == two.labels).all()
    assert one.state.x.tobytes() == two.state.x.tobytes()
    again = tm.solve(model, method, init=one, **({} if method == "cqp" else {"restarts": 0}))
    assert again.energy <= one.energy
    assert again.iterations <= 3


@pytest.mark.parametrize("method", ["pgd", "fw", "cqp"])
@pytest.mark.parametrize("search", ["exact", "armijo", "nonmonotone", "diminishing"])
def test_every_line_search_ends_in_a_local_minimum(method, search):
    model = random_model(np.random.default_rng(5), n=9, labels=4, factors=14, order=2)
    result = tm.solve(model, method, line_search=search, iterations=150)
    assert tm.stationarity(model, result) <= 1e-9 * (1.0 + abs(result.energy))


@pytest.mark.parametrize("method", ["pgd", "fw"])
def test_order_six(method):
    rng = np.random.default_rng(12)
    model = tm.Model([2] * 9)
    model.add_unaries(rng.normal(size=(9, 2)))
    for _ in range(6):
        model.add_factors([rng.permutation(9)[:6]], rng.normal(size=(2,) * 6))
    result = tm.solve(model, method, restarts=20)
    assert result.energy == pytest.approx(brute_force(model)[0])


def test_wrong_options_are_named():
    model = grid_model(np.random.default_rng(0), 2, 2)
    for method, options in [
        ("pgd", {"line_search": "wolfe"}),
        ("pgd", {"step_rule": "long"}),
        ("fw", {"steps": "away"}),
        ("fw", {"restarts": -1}),
        ("fw", {"first": "zero"}),
        ("cqp", {"steps": "newton"}),
        ("cqp", {"tolerance": -1.0}),
        ("pgd", {"iterations": 0}),
        ("pgd", {"hard_cost": 0.0}),
    ]:
        with pytest.raises(tm.OptionError, match=next(iter(options))):
            tm.solve(model, method, **options)


# ------------------------------------------------------------------------------------------------- stationarity


@given(models(hard=0.1), seeds)
def test_stationarity_is_the_frank_wolfe_gap(model, seed):
    graph = model.graph()
    rng = np.random.default_rng(seed)
    vectors = [rng.dirichlet(np.ones(c)) for c in model.cardinalities]
    x = np.concatenate([vectors[i] for i in graph.variables]) if graph.n else np.zeros(0)
    expected = frank_wolfe_gap(graph, x) if graph.n else 0.0
    assert tm.stationarity(model, vectors) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_stationarity_of_a_labelling_adds_up_single_gains():
    rng = np.random.default_rng(4)
    model = random_model(rng, n=6, labels=3, factors=9, order=3)
    labels = rng.integers(0, model.cardinalities)
    gains = 0.0
    for i, c in enumerate(model.cardinalities):
        options = [np.where(np.arange(len(labels)) == i, s, labels) for s in range(c)]
        gains += model.energy(labels) - min(model.energy(o) for o in options)
    assert tm.stationarity(model, labels) == pytest.approx(gains)
    with pytest.raises(tm.ModelError):
        tm.stationarity(model, None)


# ------------------------------------------------------------------------------------------------- convex relaxation


def convex_hessian(graph, arrays, d):
    h = 2.0 * np.diag(d)
    for f in range(graph.m):
        (i, j), table = dense_factor(graph, f)
        a, b = arrays.offset[i], arrays.offset[j]
        h[a : a + table.shape[0], b : b + table.shape[1]] += table
        h[b : b + table.shape[1], a : a + table.shape[0]] += table.T
    return h


@given(models(max_order=2))
def test_convex_along_the_simplices(model):
    graph = model.graph()
    if graph.m == 0:
        return
    g = graph.arrays
    d, _ = convex_diagonal(g)
    centre = np.zeros((len(d), len(d)))
    for i in range(graph.n):
        r = slice(g.offset[i], g.offset[i + 1])
        centre[r, r] = np.eye(g.cards[i]) - 1.0 / g.cards[i]
    h = centre @ convex_hessian(graph, g, d) @ centre
    assert np.linalg.eigvalsh(h).min() >= -1e-9 * (1.0 + np.abs(h).max())


def test_potts_needs_half_the_weights_only():
    model = tm.Model([7, 7, 7])
    model.add_potts([[0, 1], [1, 2]], [2.0, 3.0])
    d, _ = convex_diagonal(model.graph().arrays)
    np.testing.assert_allclose(d, np.repeat([1.0, 2.5, 1.5], 7))


@given(models(max_order=2, hard=0.1), seeds)
def test_every_point_gives_a_valid_bound(model, seed):
    graph = model.graph()
    if graph.m == 0:
        return
    optimum, _ = brute_force(model)
    arrays = softened(graph, 1.0)
    d, size = convex_diagonal(arrays)
    descent = Descent(graph, arrays, PROJECTED, "exact", True, 0.0, 10, d)
    soft = replace(graph, arrays=arrays)
    for sharpness in (0.05, 1.0):
        x = relaxed_point(graph, np.random.default_rng(seed), sharpness)
        descent.begin(x)
        bound = convex_bound(graph, arrays, d, size, descent.x, descent.grad)
        users = graph.user_bound(bound)
        assert users <= optimum + 1e-12 * abs(optimum) if np.isfinite(optimum) else bound < np.inf
        if graph.quantum == 0.0:  # without rounding up to a possible energy it is value - gap, by definition
            slope = gradient(soft, x) + d * (2.0 * x - 1.0)
            gap = slope @ x - np.minimum.reduceat(slope, arrays.offset[:-1]).sum()
            exact = multilinear(soft, x) + (d * x) @ (x - 1.0) - gap
            assert exact - 1e-9 * (1.0 + abs(exact) + size.sum()) <= bound <= exact + 1e-12 * (1.0 + abs(exact))


@given(models(max_order=2, hard=0.1))
def test_convex_bounds_hold_throughout(model):
    optimum, _ = brute_force(model)
    result = tm.solve(model, "cqp", trace=True)
    assert result.energy >= optimum - 1e-9 * abs(optimum) if np.isfinite(optimum) else not result.feasible
    if np.isfinite(optimum):
        assert result.lower_bound <= optimum + 1e-12 * abs(optimum)
        assert all(row["lower_bound"] <= optimum + 1e-12 * abs(optimum) for row in result.trace)


def test_all_steps_find_the_same_convex_minimum():
    model = random_model(
        np.random.default_rng(2), n=8, labels=4, factors=14, order=2, kinds=("dense", "potts"), ones=False
    )
    graph = model.graph()
    d, size = convex_diagonal(graph.arrays)
    values, bounds = [], []
    for rule, search in ((PLAIN, "exact"), (PAIRWISE, "exact"), (PROJECTED, "exact"), (PROJECTED, "nonmonotone")):
        descent = Descent(graph, graph.arrays, rule, search, True, 1e-4, 20_000, d)
        descent.begin(relaxed_point(graph, np.random.default_rng(1)))
        while descent.iterate():
            pass
        descent.take_pending_step()
        descent.refresh()
        values.append(descent.value)
        bounds.append(convex_bound(graph, graph.arrays, d, size, descent.x, descent.grad))
    spread = 3e-4 * (1.0 + abs(values[0]))
    assert max(values) - min(values) <= spread
    assert max(bounds) <= min(values) and min(bounds) >= max(values) - spread
    labels = np.array([0] * graph.n)
    vertex = one_hot(graph, labels)
    assert energy(graph, labels) == pytest.approx(multilinear(graph, vertex) + (d * vertex) @ (vertex - 1.0))


@pytest.mark.data
@pytest.mark.parametrize(("method", "published"), [("pgd", 49.45), ("fw", 56.10), ("cqp", 118.90)])
def test_matching_is_no_worse_than_published(method, published):
    """matching0 of the paper, whose energies are 190 higher than those of the file."""
    result = tm.solve(tm.read(data_file("matching/matching0.dd")), method)
    assert result.feasible
    assert result.energy + 190.0 <= 1.02 * published
