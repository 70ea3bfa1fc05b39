"""Subgraphs of small width: their minimum is exact, moves and crossing never raise the energy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force
from problems import grid_model, models, random_model
from tightmap.energy.energies import energy
from tightmap.moves.context import Context
from tightmap.moves.elimination import WIDTH, ball, choose_subgraph, minimise_subgraph
from tightmap.solvers.base import Init
from tightmap.solvers.search.lns import LNS, cross, move


def subgraph(graph, labels, domains, limit, seed):
    """Kept variables, and the labelling after their minimisation."""
    n = graph.n
    random = np.array([seed], dtype=np.uint64)
    place, region = np.full(n, -1), np.empty(n, dtype=np.int64)
    count = ball(graph.arrays, seed % n, n, 0.0, random, place, region)
    region = region[:count]
    start = np.concatenate(([0], np.cumsum([len(domains[i]) for i in region])))
    domain = np.concatenate([domains[i] for i in region])
    order, first, others = np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty(n * WIDTH, np.int64)
    kept = choose_subgraph(graph.arrays, region, place, start, float(limit), 0.1, 1.0, random, order, first, others)
    for q in range(kept):
        table = np.diff(start)[order[q]] * np.prod(np.diff(start)[order[others[first[q] : first[q + 1]]]], initial=1)
        assert table <= limit
    out = labels.copy()
    work = minimise_subgraph(
        graph.arrays, out, region, place, start, domain, kept, order, first, others,
        np.zeros(len(domain)), np.empty(1 << 14), np.empty(1 << 14, np.uint8),
    )  # fmt: skip
    assert work >= 0
    return region[order[:kept]], out


@given(models(max_variables=6), st.integers(1, 2**32 - 1), st.sampled_from([4, 9, 30, 5000]))
def test_the_minimum_over_a_subgraph_is_exact(model, seed, limit):
    graph = model.graph()
    if graph.n == 0 or graph.m == 0:
        return
    rng = np.random.default_rng(seed)
    cards = graph.arrays.cards.astype(np.int64)
    labels = rng.integers(0, cards)
    domains = [np.unique([labels[i], *rng.integers(0, cards[i], 2)]) for i in range(graph.n)]
    domains = [d if len(d) > 1 else np.arange(cards[i]) for i, d in enumerate(domains)]
    if max(len(d) for d in domains) > limit:
        return
    kept, out = subgraph(graph, labels, domains, limit, seed)
    assert len(kept) > 0
    least = np.inf
    trial = labels.copy()
    for choice in np.ndindex(*[len(domains[i]) for i in kept]):
        trial[kept] = [domains[i][c] for i, c in zip(kept, choice, strict=True)]
        least = min(least, energy(graph, trial))
    assert energy(graph, out) == pytest.approx(least, rel=1e-9, abs=1e-9)
    untouched = np.setdiff1d(np.arange(graph.n), kept)
    assert (out[untouched] == labels[untouched]).all()


def test_large_enough_tables_free_everything():
    model = grid_model(np.random.default_rng(0), 4, 4, 2, "dense")
    graph = model.graph()
    kept, out = subgraph(graph, np.zeros(graph.n, np.int64), [np.arange(2)] * graph.n, 1 << 16, 1)
    assert len(kept) == graph.n
    assert graph.user_energy(energy(graph, out)) == pytest.approx(brute_force(model)[0])


@given(models(max_variables=6), st.integers(1, 2**32 - 1))
def test_moves_and_crossing_never_raise_the_energy(model, seed):
    graph = model.graph()
    if graph.n == 0 or graph.m == 0:
        return
    rng = np.random.default_rng(seed)
    state = LNS().start(graph, Init(), Context(seed=seed % 1000))
    cards = graph.arrays.cards
    a, b = rng.integers(0, cards).astype(np.int64), rng.integers(0, cards).astype(np.int64)
    value, other = energy(graph, a), energy(graph, b)
    size = int(rng.integers(1, graph.n + 1))
    move(
        graph.arrays, a, int(rng.integers(graph.n)), size, 2, 16.0, 0.0, 1.0, 0.5, 0.0, 1.0, state.random, state.buffers
    )
    assert energy(graph, a) <= value + 1e-9 * (1 + abs(value))
    value = min(energy(graph, a), other)
    cross(graph.arrays, a, b, 4096.0, 0.0, 1.0, state.random, state.buffers)
    assert energy(graph, a) <= value + 1e-9 * (1 + abs(value))


def test_small_optima_are_found():
    rng = np.random.default_rng(1)
    for _ in range(10):
        model = random_model(rng, n=7, labels=3, factors=9, order=4)
        assert tm.solve(model, "lns", cycles=2).energy == pytest.approx(brute_force(model)[0])


def test_a_labelling_from_elsewhere_is_taken_only_when_better():
    graph = grid_model(np.random.default_rng(0), 5, 5, 3, "dense").graph()
    solver = LNS(cycles=1)
    state = solver.start(graph, Init(labels=np.zeros(graph.n, np.int64)), Context())
    before = state.best_home.copy()
    solver.adopt(state, np.zeros(graph.n, np.int64))
    assert (state.best_home == before).all()
    better = solver.start(graph, Init(), Context())
    while not solver.step(better).done:
        pass
    solver.adopt(state, better.best_home)
    assert state.best_home_energy == better.best_home_energy < energy(graph, before)


@pytest.mark.parametrize("options", [{"cycles": 0}, {"table": 2}, {"table": 1 << 21}])
def test_options(options):
    with pytest.raises(tm.OptionError, match="lns"):
        tm.solve(grid_model(np.random.default_rng(0), 3, 3, 2), "lns", **options)


def test_it_ends_where_differences_are_far_smaller_than_energies():
    """Ties are taken within rounding; what they cost and what is won back must not keep a cycle going for ever."""
    rng = np.random.default_rng(97)
    model = tm.Model([2] * 7)
    model.add_unaries(rng.normal(size=(7, 2)) * 1e-9)
    model.add_factors([[0, i] for i in range(1, 7)], rng.normal(size=(6, 2, 2)) * 1e-9)
    model.add_unaries([[1.0, -2.0], [1.0, 2.0], [-2.0, 0.0]], nodes=[1, 0, 4])
    for seed in range(8):
        result = tm.solve(model, "lns", seed=seed, threads=1, time_limit=60.0)
        assert result.status is tm.Status.CONVERGED
        assert result.energy == model.energy(result.labels)
