"""Single flips of spins and the population that tabu search keeps on binary pairwise models."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from conftest import data_file
from naive import brute_force
from problems import grid_model, random_model
from tightmap.energy.energies import energy
from tightmap.moves.context import Context
from tightmap.moves.spin_flips import cool, flip, flip_changes, flip_walk
from tightmap.moves.spins import row_norms, spins_of
from tightmap.runtime.compiled import INTERPRETED
from tightmap.solvers.search.spin_pool import POPULATION, SpinPool, suits


def dense(n, seed, linear=True):
    rng = np.random.default_rng(seed)
    model = tm.Model([2] * n)
    pairs = list(itertools.combinations(range(n), 2))
    if linear:
        model.add_factors(pairs, rng.normal(size=(len(pairs), 2, 2)))
    else:
        model.add_potts(pairs, rng.normal(size=len(pairs)))
    return model


def form(seed, n=20):
    """Rows of a form, spins, the changes by flips and the energy."""
    spins = spins_of(dense(n, seed).graph())
    a = spins.matrix
    now = np.random.default_rng(seed).choice([-1.0, 1.0], spins.count)
    change = np.empty(spins.count)
    value = flip_changes(a.indptr, a.indices, a.data, now, change)
    return spins, (a.indptr, a.indices, a.data), now, change, value


def value_of(spins, now):
    return 0.5 * float(now @ (spins.matrix @ now))


def test_changes_are_those_of_flips_and_are_kept():
    spins, rows, now, change, value = form(0)
    assert value == pytest.approx(value_of(spins, now))
    for i in (3, 5, 3, 20, 0):
        expected = value_of(spins, np.where(np.arange(spins.count) == i, -now, now)) - value_of(spins, now)
        assert change[i] == pytest.approx(expected)
        flip(*rows, now, change, i)
    fresh = np.empty(spins.count)
    flip_changes(*rows, now, fresh)
    np.testing.assert_allclose(change, fresh, atol=1e-12)


def cool_and_walk(left):
    """A cooling and a walk in calls of so many seconds; the energies at the end, and how many calls there were."""
    spins, rows, now, change, value = form(1, n=40)
    last = now[-1]
    best, values, random = now.copy(), np.array([value, value]), np.array([7], np.uint64)
    sweep, calls = 0, 0
    while sweep < 3000:
        sweep = cool(*rows, spins.n, now, change, best, 1.0, 0.05, sweep, 3000, random, values, 1e-9, left)
        calls += 1
    assert values[0] == pytest.approx(value_of(spins, now)) and values[1] == pytest.approx(value_of(spins, best))
    made, until = 0, np.zeros(spins.count, np.int64)
    while made < 20_000:
        more, _ = flip_walk(
            *rows, spins.n, now, change, best, until, made, 20_000 - made, 0, 5, 10, random, values, 1e-9, left
        )  # fmt: skip
        made += more
        calls += 1
    assert values[0] == pytest.approx(value_of(spins, now)) and values[1] == pytest.approx(value_of(spins, best))
    assert now[-1] == last  # the spin of the linear terms stays
    return values.tolist(), calls


def test_walks_and_cooling_know_their_energies_wherever_they_are_interrupted():
    whole, once = cool_and_walk(np.inf)
    pieces, often = cool_and_walk(1e-9)
    assert whole == pieces
    assert once == 2 < often


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_small_optima_are_found(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, n=int(rng.integers(2, 10)), labels=2, factors=14, order=2, hard=0.1 * (seed % 2))
    optimum = brute_force(model)[0]
    result = tm.solve(model, "tabu", rounds=4)
    if np.isfinite(optimum):
        assert result.energy == pytest.approx(optimum, rel=1e-9, abs=1e-9)


def test_a_population_is_of_different_labellings_and_takes_better_ones_from_elsewhere():
    graph = dense(30, 2, linear=False).graph()
    pool = SpinPool(graph, Context(), np.zeros(graph.n, np.int64), 5)
    assert not pool.spins.extra
    while pool.children < 3 * POPULATION:
        pool.advance()
    forms = [spins for _, spins in pool.pool]
    for a, b in itertools.combinations(forms, 2):
        assert abs(a @ b) < graph.n  # neither the same nor all flipped
    for value, spins in pool.pool:
        assert pool.spins.bound(value) == pytest.approx(energy(graph, pool.spins.labels(spins)))
    assert pool.champion_energy == pytest.approx(min(pool.spins.bound(v) for v, _ in pool.pool))
    # what two labellings share, up to a flip of all, their child has
    pool.pool = [(0.0, forms[0]), (0.0, -forms[0])]
    child = pool._cross()
    assert abs(child @ forms[0]) == graph.n
    best, pool.champion_energy, pool.pool = pool.champion, np.inf, []
    pool.adopt(best)
    assert len(pool.pool) == 1 and pool.champion_energy == energy(graph, best)


def test_only_binary_pairwise_models_are_searched_so():
    assert suits(dense(5, 0).graph())
    assert not suits(grid_model(np.random.default_rng(0), 3, 3, 3).graph())
    triple = tm.Model([2] * 3)
    triple.add_factors([[0, 1, 2]], np.random.default_rng(0).normal(size=(1, 2, 2, 2)))
    assert not suits(triple.graph())


@pytest.mark.skipif(INTERPRETED, reason="a minute of flips where kernels are not compiled")
@pytest.mark.parametrize(("name", "cut"), [("maxcut/G1.txt", 11624), ("maxcut/G11.txt", 564)])
def test_best_known_cuts(name, cut):
    result = tm.solve(tm.read(data_file(name)), "tabu", max_iterations=60, rounds=1000)
    assert result.energy == -cut


def test_a_cost_that_is_huge_beside_the_others_overflows_nowhere():
    model = tm.Model([2] * 4)
    model.add_unaries([[0.0, -2e208], [0.0, 7e6]], nodes=[0, 2])
    model.add_factors([[1, 3]], [[0.0, 0.0], [0.0, -200.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tm.solve(model, "tabu", threads=1, max_iterations=3)
    assert result.energy == -2e208


def test_norms_of_rows_round_as_plain_ones_do():
    rng = np.random.default_rng(0)
    row, values = np.sort(rng.integers(0, 6, size=40)), rng.normal(size=40) * 1000
    plain = np.sqrt(np.bincount(row, values**2, 7))
    assert (row_norms(values, row, 7) == plain).all()
