"""The semidefinite relaxation: bounds that no energy is below, proofs of dense models, and its parts one by one."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from conftest import data_file
from naive import brute_force
from problems import random_model
from tightmap.energy.energies import energy
from tightmap.moves.context import Context
from tightmap.moves.spins import spins_of
from tightmap.solvers.sdp.dual import certified_shift
from tightmap.solvers.sdp.mixing import mix_dense
from tightmap.solvers.sdp.node import Node, Relaxation, Whole, enumerate_all
from tightmap.solvers.sdp.triangles import PATTERNS, Triangles


def complete(n, seed, weights="signs", linear=False, scale=1.0):
    """All pairs, with weights +-1, whole numbers or real ones."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations(range(n), 2))
    draw = {
        "signs": lambda size: rng.choice([-1.0, 1.0], size),
        "whole": lambda size: rng.integers(-9, 10, size).astype(float),
        "real": lambda size: rng.normal(size=size),
    }[weights]
    model = tm.Model([2] * n)
    model.add_potts(pairs, draw(len(pairs)) * scale)
    if linear:
        model.add_unaries(draw((n, 2)) * scale)
    return model


def all_spins(n):
    return np.array(list(itertools.product((-1.0, 1.0), repeat=n)))


def symmetric(rng, n):
    a = rng.normal(size=(n, n))
    a += a.T
    np.fill_diagonal(a, 0.0)
    return a


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_bound_above_the_optimum(seed):
    """Models of every kind of pair, with and without hard constraints, in unusual units, with constants."""
    rng = np.random.default_rng(seed)
    model = random_model(
        rng,
        n=int(rng.integers(1, 10)),
        labels=2,
        factors=int(rng.integers(1, 25)),
        order=2,
        hard=float(rng.choice([0.0, 0.0, 0.2])),
        integral=bool(rng.integers(2)),
    )
    model.add_constant(float(rng.choice([0.0, 1e3, -1e9])))
    optimum = brute_force(model)[0]
    bounds = []
    options = [{}, {"triangles": 0, "exact": 0}, {"exact": 0}][rng.integers(3)]
    result = tm.solve(model, "sdp", callback=lambda info: bounds.append(info.lower_bound), max_iterations=40, **options)
    tiny = 1e-12 * abs(optimum) if np.isfinite(optimum) else 0.0
    assert max([result.lower_bound, *bounds]) <= optimum + tiny
    if result.status is tm.Status.OPTIMAL:
        assert abs(result.energy - optimum) <= 1e-9 * max(1.0, abs(optimum - model.constant))
    if not options and np.isfinite(optimum):
        assert result.energy == pytest.approx(optimum, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e-12, 3e-300, 1e200])
@pytest.mark.parametrize("constant", [0.0, 1e15])
def test_proofs_in_every_unit(scale, constant):
    for seed in range(4):
        model = complete(8, seed, "real", linear=seed % 2 == 0, scale=scale)
        model.add_constant(constant * scale)
        best = brute_force(model)[0]
        plain = tm.solve(model, "sdp", triangles=0, exact=0)
        proven = tm.solve(model, "sdp")
        assert plain.lower_bound <= best and proven.lower_bound <= best
        assert proven.status is tm.Status.OPTIMAL and proven.energy == pytest.approx(best, rel=1e-12)


def test_one_huge_cost_does_not_keep_the_search_from_its_end():
    """Beside a cost of 2, the others are 1e-234 in the unit of the canonical form, and their squares vanish."""
    model = complete(14, 1, "real", linear=True, scale=1e-322)
    model.add_unaries([[2.0, 2.0]], nodes=[3])
    result = tm.solve(model, "sdp", time_limit=60)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(2.0)


def without_warnings(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return tm.solve(model, "sdp", max_iterations=3000)


def test_a_cost_beside_couplings_that_hardly_exist():
    model = tm.Model([2] * 4)
    model.add_unaries([[-2.0, 0.0]], nodes=[1])
    model.add_factors([[0, 2]], [[-1e-322, -1e-322], [-1e-322, 0.0]])
    model.add_potts([[2, 3]], 1e-322)
    result = without_warnings(model)
    assert result.status is tm.Status.OPTIMAL and result.energy == -2.0


def test_a_search_without_any_bound_ends():
    """Couplings of every size: no multipliers prove anything at some nodes, and no bound is no gain."""
    model = tm.Model.grid(7, 2, 2)
    edges = [[0, 1], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7]]
    edges += [[6, 8], [8, 10], [9, 11], [10, 12], [11, 13]]
    powers = [-56, 112, 267, 221, -273, -51, -123, -279, -171, -171, 126, 205, 32, -16, 85, -24, -182]
    model.add_potts(edges, [2.0 * 10.0**power for power in powers])
    result = without_warnings(model)
    assert result.status in (tm.Status.CONVERGED, tm.Status.OPTIMAL)
    assert result.energy == 0.0 >= result.lower_bound


@pytest.mark.parametrize("n", range(3, 13))
def test_triangles_and_branching_prove_small_complete_graphs(n):
    for seed, weights in enumerate(("signs", "whole", "real")):
        model = complete(n, seed, weights, linear=seed == 1)
        result = tm.solve(model, "sdp")
        assert result.status is tm.Status.OPTIMAL
        assert result.energy == pytest.approx(brute_force(model)[0], abs=1e-9)
    # max-cut of the complete graph itself: half of the vertices on either side
    even = tm.Model([2] * n)
    even.add_potts(list(itertools.combinations(range(n), 2)), -1.0)
    result = tm.solve(even, "sdp")
    assert (result.status, result.energy) == (tm.Status.OPTIMAL, -(n // 2) * ((n + 1) // 2))


def test_triangles_alone_are_tight_on_a_frustrated_triangle():
    """Vectors at 120 degrees give 9/4 for the cut of a triangle; the inequality says 2."""
    model = tm.Model([2] * 3)
    model.add_potts([[0, 1], [0, 2], [1, 2]], -1.0 / 3.0)
    plain = tm.solve(model, "sdp", triangles=0, exact=0)
    tight = tm.solve(model, "sdp", exact=0)
    assert plain.lower_bound == pytest.approx(-0.75, abs=1e-4) and plain.status is not tm.Status.OPTIMAL
    assert tight.lower_bound == pytest.approx(-2.0 / 3.0, abs=1e-3)


def test_better_than_the_linear_relaxation_on_dense_models():
    for seed in range(3):
        model = complete(20, seed, "whole", linear=True)
        linear = tm.solve(model, "trws", max_iterations=500)
        plain = tm.solve(model, "sdp", triangles=0, exact=0)
        tight = tm.solve(model, "sdp", exact=0)
        assert linear.lower_bound < plain.lower_bound <= tight.lower_bound <= tight.energy
        assert tight.energy - tight.lower_bound < 0.3 * (tight.energy - linear.lower_bound)


def test_spin_glass_on_thirty_variables_is_proven():
    result = tm.solve(complete(30, 0), "sdp", time_limit=60)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == tm.solve(complete(30, 0), "tabu", max_iterations=20).energy


def test_a_dense_graph_of_eighty_vertices_is_proven():
    model = tm.read(data_file("families/g05_80.0.mc"))
    result = tm.solve(model, "sdp", time_limit=150)
    assert (result.status, result.energy, result.lower_bound) == (tm.Status.OPTIMAL, -929.0, -929.0)


def test_large_graphs_are_bounded_within_a_few_per_cent():
    result = tm.solve(tm.read(data_file("maxcut/G1.txt")), "sdp", time_limit=60)
    assert -12095.0 <= result.lower_bound <= -11624.0 <= result.energy <= -11590.0


def test_the_result_does_not_depend_on_slices_of_time():
    """A limit that is never reached changes nothing, and iterations are counted the same."""
    model = complete(40, 1, "real", linear=True)
    one, two = (tm.solve(model, "sdp", max_iterations=12, time_limit=limit) for limit in (None, 1000.0))
    assert (one.lower_bound, one.energy, one.iterations) == (two.lower_bound, two.energy, two.iterations)


def test_too_many_variables_are_refused_in_words():
    model = tm.Model([2] * 6000)
    model.add_potts([[0, 1]], 1.0)
    with pytest.raises(tm.ModelError, match="'sdp' takes at most 5000 variables"):
        tm.solve(model, "sdp")
    three = tm.Model([3, 2])
    three.add_potts([[0, 1]], 1.0)
    with pytest.raises(tm.ModelError, match="'sdp'"):
        tm.solve(three, "sdp")


# ------------------------------------------------------------------------------------------------- the parts


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_form_of_spins_is_the_energy(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, n=5, labels=2, factors=8, order=2, ones=False)
    graph = model.graph()
    if graph.m == 0:
        return
    spins = spins_of(graph)
    for x in itertools.product((0, 1), repeat=graph.n):
        labels = np.array(x)
        s = spins.of(labels).astype(float)
        form = 0.5 * float(s @ (spins.matrix @ s))
        value = energy(graph, labels)
        assert spins.bound(form) == pytest.approx(value, rel=1e-12, abs=1e-11)
        assert (spins.labels(spins.of(labels)) == labels).all()
        if spins.extra:
            assert (spins.labels(-spins.of(labels)) == labels).all()


def exact_smallest_pivot_is_positive(matrix, y, t):
    """Is W + Diag(y) + t I positive definite?  Gaussian elimination with fractions: no rounding at all."""
    n = len(y)
    a = [[Fraction(float(v)) for v in row] for row in matrix]
    for i in range(n):
        a[i][i] = Fraction(float(y[i])) + Fraction(float(t))
    for i in range(n):
        if a[i][i] <= 0:
            return False
        for r in range(i + 1, n):
            factor = a[r][i] / a[i][i]
            for c in range(i, n):
                a[r][c] -= factor * a[i][c]
    return True


@pytest.mark.parametrize("size", [1.0, 1e-8, 1e12])
def test_shifts_are_proven_in_exact_arithmetic(size):
    rng = np.random.default_rng(3)
    for n in (2, 3, 5, 9, 14):
        matrix = symmetric(rng, n) * size
        vectors = rng.normal(size=(n, 8))
        norms = np.zeros(n)
        mix_dense(matrix, vectors, np.empty(8), norms, 300)
        for y in (norms, np.abs(rng.normal(size=n)) * size):
            shift = certified_shift(matrix.copy(), y)
            assert exact_smallest_pivot_is_positive(matrix, y, shift.t)
            smallest = np.linalg.eigvalsh(matrix + np.diag(y))[0]
            assert shift.t <= -smallest + 1e-9 * np.abs(matrix).max()
            spins = all_spins(n)
            assert shift.bound <= (0.5 * ((spins @ matrix) * spins).sum(axis=1)).min() + 1e-12 * size


def test_a_shift_is_next_to_the_least_one_and_stops_when_time_is_up():
    rng = np.random.default_rng(0)
    for n in (200, 203):  # whole fours of rows, and some more
        matrix = symmetric(rng, n)
        y = np.abs(matrix).sum(axis=1) * 0.05
        shift = certified_shift(matrix.copy(), y)
        least = -np.linalg.eigvalsh(matrix + np.diag(y))[0]
        assert least <= shift.t <= least + 1e-6 * y.mean()
        assert certified_shift(matrix.copy(), y, context=Context(deadline=0.0)).bound == -np.inf


def test_triangle_inequalities_hold_for_all_spins_and_are_found():
    for s in all_spins(3):
        for a, b, c in PATTERNS:
            assert a * s[0] * s[1] + b * s[0] * s[2] + c * s[1] * s[2] >= -1.0
    v = np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    found, count = Triangles.none().with_violated(v @ v.T, 10, 0.01)
    assert count == 1 and found.pattern.tolist() == [0] and found.slack(v @ v.T)[0] == pytest.approx(-0.5)
    again, more = found.with_violated(v @ v.T, 10, 0.01)
    assert more == 0 and len(again) == 1


def test_all_violated_triangles_are_found_and_no_others():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(9, 3))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    gram = v @ v.T
    expected = {
        (i, j, l, p)
        for i, j, l in itertools.combinations(range(9), 3)
        for p, (a, b, c) in enumerate(PATTERNS)
        if a * gram[i, j] + b * gram[i, l] + c * gram[j, l] < -1.01
    }
    found, _ = Triangles.none().with_violated(gram, 10_000, 0.01)
    got = {(*m, p) for m, p in zip(found.members.tolist(), found.pattern.tolist(), strict=True)}
    assert expected and got == expected


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_node_is_the_form_with_spins_fixed(seed):
    """Values, bounds and inherited inequalities of a node, against all spins that agree with what is fixed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 9))
    matrix = symmetric(rng, n)
    spins = np.zeros(n, np.int8)
    spins[0] = 1
    vectors = rng.normal(size=(n, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    whole = Whole.of(matrix)
    work = Relaxation(whole, Node(spins, vectors, Triangles.none()))
    every = all_spins(n)
    values = 0.5 * ((every @ matrix) * every).sum(axis=1)
    for _ in range(3):
        for _ in range(3):
            work.improve(Context())
            work.certify(Context())
        agree = (every[:, work.node.spins != 0] == work.node.spins[work.node.spins != 0]).all(axis=1)
        assert work.node.bound <= values[agree].min() + 1e-9
        child = work.children()[int(rng.integers(2))]
        assert (child.triangles.gamma >= 0.0).all() and (np.diff(child.triangles.members, axis=1) > 0).all()
        assert child.triangles.gamma.sum() <= work.best.gamma.sum() + 1e-12
        agree = (every[:, child.spins != 0] == child.spins[child.spins != 0]).all(axis=1)
        work = Relaxation(whole, child)
        work.certify(Context())  # with what it has inherited
        assert work.node.bound <= values[agree].min() + 1e-9
        found = enumerate_all(Relaxation(whole, Node(child.spins, child.vectors, child.triangles)))
        assert 0.5 * found @ matrix @ found == pytest.approx(values[agree].min())
