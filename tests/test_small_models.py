"""Small models: the minimum at once, many descents in one kernel, the layout of TRW-S; each against a plain version."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force
from problems import grid_model, models, random_model
from tightmap.driver import _options
from tightmap.energy.certificate import proves_infeasible
from tightmap.energy.energies import energy, unary_argmin
from tightmap.graph.graph import SHELF, SMALL, Kind
from tightmap.moves import at_once
from tightmap.moves.at_once import minimum_at_once
from tightmap.moves.context import Context, Incumbent
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.polish import Polisher
from tightmap.registry import make_solver
from tightmap.solvers.trws.general import CHUNK, build_sweeper


@settings(max_examples=200)
@given(models(max_variables=6, max_labels=4), st.sampled_from([0.0, 0.3, 0.8]), st.integers(0, 2**32 - 1))
def test_the_minimum_at_once_is_the_optimum(model, hard, seed):
    rng = np.random.default_rng(seed)
    if hard:
        model = random_model(rng, n=5, labels=3, factors=6, order=3, hard=hard, ragged=True)
    graph = model.graph()
    if graph.m == 0:
        return
    labels, found, bound = minimum_at_once(graph)
    optimum, _ = brute_force(model)
    result = tm.solve(model)
    if not np.isfinite(optimum):
        assert proves_infeasible(graph, bound) and result.status is tm.Status.INFEASIBLE
        return
    tiny = 1e-9 * max(1.0, abs(optimum))
    assert found == energy(graph, labels) and bound <= found
    assert abs(model.energy(graph.lift(labels)) - optimum) <= tiny
    assert graph.user_bound(bound) <= optimum + 1e-12 * max(1.0, abs(optimum))
    assert result.status is tm.Status.OPTIMAL and abs(result.energy - optimum) <= tiny
    assert result.iterations == 1 and "at once" in result.note


@pytest.mark.parametrize("scale", [1e-250, 1.0, 3e120])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_the_proof_does_not_depend_on_units_and_constants(scale, shift):
    model = tm.Model.grid(3, 4, 3)
    rng = np.random.default_rng(3)
    model.add_unaries(scale * (rng.normal(size=(12, 3)) + shift))
    model.add_factors(model.edges(), scale * rng.normal(size=(len(model.edges()), 3, 3)))
    assert tm.solve(model).status is tm.Status.OPTIMAL


def test_large_tables_are_left_to_the_methods(monkeypatch):
    model = tm.Model([3] * 9)
    model.add_potts([[i, j] for i in range(9) for j in range(i)], np.random.default_rng(0).normal(size=36))
    assert minimum_at_once(model.graph()) is None  # 3^9 entries
    assert tm.solve(model).energy == pytest.approx(brute_force(model)[0])
    wide = tm.Model([2] * (at_once.VARIABLES + 1))
    wide.add_potts([[i, i + 1] for i in range(at_once.VARIABLES)], 1.0)
    assert minimum_at_once(wide.graph()) is None


def one_by_one(model, seed, restarts):
    """The energies that descents from the cheapest unaries and from random labellings reach."""
    graph = model.graph()
    rng = np.random.default_rng(seed)
    cards = graph.arrays.cards.astype(np.int64)
    starts = [unary_argmin(graph), *(rng.integers(0, cards) for _ in range(restarts))]
    found = [local_minimum(graph, start) for start in starts]
    return [energy(graph, labels) for labels in found], found


@given(models(max_variables=6), st.integers(0, 1000), st.sampled_from([0, 1, 3, 40]))
def test_many_starts_reach_what_single_ones_reach(model, seed, restarts):
    graph = model.graph()
    if graph.m == 0:
        return
    costs, found = one_by_one(model, seed, restarts)
    result = tm.solve(model, "bcd", seed=seed, restarts=restarts, incremental=False)
    assert energy(graph, graph.restrict(result.labels)) == min(costs)
    assert any((graph.lift(labels) == result.labels).all() for labels in found)


def test_an_iteration_limit_is_kept_and_a_longer_one_goes_on():
    model = grid_model(np.random.default_rng(0), 4, 4, 3, "potts")
    whole = tm.solve(model, "bcd")
    assert whole.iterations > 256
    energies = []
    for most in (0, 1, 2, 3, 5, 10, 50, 200, whole.iterations, 10**6):
        result = tm.solve(model, "bcd", max_iterations=most)
        assert result.iterations == min(most, whole.iterations)
        energies.append(result.energy)
    assert energies == sorted(energies, reverse=True) and energies[-1] == whole.energy


def plain_sweeper(graph, order):
    """What the kernel computes, by sorting and counting."""
    g, n = graph.arrays, graph.n
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    ends = graph.edges.astype(np.int64)
    owner = np.repeat(np.arange(n), np.diff(g.adj_start))
    later = rank[ends[g.adj_factor, 1 - g.adj_pos.astype(np.int64)]] > rank[owner]
    after = np.bincount(owner, weights=later, minlength=n).astype(np.int64)
    before = np.diff(g.adj_start) - after
    first, last = np.sort(rank[ends], axis=1).T
    block = max(1, -(-int((last - first).max(initial=1)) // CHUNK))
    need = np.zeros((2, -(-n // CHUNK)), dtype=np.int64)
    for towards, a, b in ((1, first, last), (0, n - 1 - last, n - 1 - first)):
        own, other = b // CHUNK, a // CHUNK
        outside = own // block > other // block
        np.maximum.at(need[towards], own[outside], other[outside] % block + 1)
    sizes = g.cards[ends].max(axis=1).astype(np.int64)
    visits = np.argsort(first, kind="stable")  # messages lie in the order of the first visits
    start = np.empty(graph.m, dtype=np.int64)
    start[visits] = np.cumsum(sizes[visits]) - sizes[visits]
    four = g.cards == 4
    fits = (g.kind == Kind.POTTS) & (g.weight >= 0.0) & four[graph.edges].all(axis=1)
    four[graph.edges[~fits]] = False
    return later, 1.0 / np.maximum(1, np.maximum(after, before)), before, start, four, block, need


@pytest.mark.parametrize("seed", range(30))
def test_the_layout_of_sweeps(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 300))
    model = tm.Model(rng.choice([1, 2, 4, 4, 4], n))
    reach = int(rng.integers(1, n))
    pairs = np.sort(np.stack([rng.integers(0, n, 2 * n), rng.integers(0, n, 2 * n)], axis=1), axis=1)
    pairs = np.unique(pairs[(pairs[:, 0] < pairs[:, 1]) & (pairs[:, 1] - pairs[:, 0] <= reach)], axis=0)
    if len(pairs) == 0:
        pairs = np.array([[0, 1]])
    model.add_potts(pairs, rng.normal(size=len(pairs)) + 1.0)
    model.add_truncated_linear(pairs[:2], 1.0, 2.0)
    graph = model.graph()
    if graph.m == 0:
        return
    order = rng.permutation(graph.n) if seed % 2 else np.arange(graph.n)
    made = build_sweeper(graph, order)
    later, gamma, before, start, four, block, need = plain_sweeper(graph, order)
    assert (made.later == later).all() and (made.gamma == gamma).all() and (made.earlier == before).all()
    assert (made.start == start).all() and (made.four == four).all()
    assert made.block == block and (made.need == need).all()


def test_options_of_a_result():
    assert _options(make_solver("trws", {"order": "rcm"}))["order"] == "rcm"
    assert set(_options(make_solver("bcd", {}))) == {"restarts", "order", "blocks", "incremental"}


@given(models(max_variables=8, max_order=3), st.integers(0, 1000))
def test_polishing_again_gives_what_a_whole_descent_gives(model, seed):
    graph = model.graph()
    if graph.m == 0:
        return
    rng = np.random.default_rng(seed)
    polisher = Polisher(graph)
    labels = rng.integers(0, graph.arrays.cards.astype(np.int64))
    for _ in range(6):
        assert (polisher.local_minimum(labels, Context()) == local_minimum(graph, labels)).all()
        some = rng.random(graph.n) < 0.4
        labels = np.where(some, rng.integers(0, graph.arrays.cards.astype(np.int64)), polisher.settled)


@given(models(max_variables=8, max_order=3), st.integers(0, 1000))
def test_a_known_local_minimum_changes_nothing_but_the_visits(model, seed):
    graph = model.graph()
    if graph.m == 0:
        return
    rng = np.random.default_rng(seed)
    start, labels = rng.integers(0, graph.arrays.cards.astype(np.int64), (2, graph.n))
    incumbent = Incumbent(graph)
    incumbent.settled = local_minimum(graph, start)
    context = Context(incumbent=incumbent)
    assert (Polisher(graph, context).local_minimum(labels, context) == local_minimum(graph, labels)).all()


def test_a_local_minimum_of_another_graph_is_not_taken_for_one():
    rng = np.random.default_rng(0)
    graph, other = grid_model(rng, 4, 4, 3).graph(), grid_model(rng, 4, 4, 3).graph()
    incumbent = Incumbent(other)
    incumbent.settled = unary_argmin(other)
    assert Polisher(graph, Context(incumbent=incumbent)).settled is None


@pytest.mark.parametrize("method", ["trws", "expansion"])
@pytest.mark.parametrize("kind", ["potts", "linear", "dense"])
def test_what_a_small_graph_keeps_is_never_changed(method, kind):
    """Results of a second and third run, from other starts too, are those of a graph that has kept nothing."""
    rng = np.random.default_rng(7)
    model = grid_model(rng, 4, 5, 3, kind)
    start = rng.integers(0, 3, 20)
    for init in (None, start, None, start[::-1].copy(), None):
        again = tm.solve(model, method, init=init)
        assert SHELF in model.graph().__dict__
        assert again == tm.solve(pickle.loads(pickle.dumps(model)), method, init=init)
    assert SHELF not in pickle.loads(pickle.dumps(model.graph())).__dict__


def test_large_graphs_keep_nothing():
    model = grid_model(np.random.default_rng(0), 30, SMALL // 90 + 1, 3)
    made: list[int] = []
    for _ in range(2):
        model.graph().kept("something", lambda: made.append(0))
    assert len(made) == 2 and SHELF not in model.graph().__dict__


@pytest.mark.parametrize("labels", [2, 3, 5, 300])
def test_one_bound_for_all_draws_what_one_for_each_does(labels):
    """Random starts of a model must not depend on which of the two ways its label counts allow."""
    one, each = np.random.default_rng(4), np.random.default_rng(4)
    for count in (1, 7, 256):
        drawn = one.integers(0, labels, (count, 9))
        assert np.array_equal(drawn, each.integers(0, np.full(9, labels, np.int64), (count, 9)))
