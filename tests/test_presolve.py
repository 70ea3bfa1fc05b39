"""Presolve: the smaller model has the same minima, the way back costs what it says, bounds never pass the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import tightmap as tm
from conftest import data_file
from naive import brute_force, labellings
from problems import models, random_model
from test_cores import cost_of
from tightmap.energy.certificate import proves_infeasible
from tightmap.energy.energies import energy, unary_argmin
from tightmap.moves.context import Context, Incumbent
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.solvers.auto import presolve as module
from tightmap.solvers.auto.presolve import presolve
from tightmap.solvers.exact.dominance import dominated_labels
from tightmap.solvers.exact.network import build_network


@pytest.fixture(autouse=True, params=[0, 2])
def _whatever_is_left(monkeypatch, request):
    """Whatever is left, it is worth it; nothing is solved before.  Elimination leaves little of small models."""
    monkeypatch.setattr(module, "DEGREE", request.param)
    monkeypatch.setattr(module, "FEW", 0.0)
    monkeypatch.setattr(module, "WORTH", 2.0)
    monkeypatch.setattr("tightmap.moves.at_once.VARIABLES", -1)


def begin(model, labels=None):
    graph = model.graph()
    context = Context(incumbent=Incumbent(graph))
    context.incumbent.offer(local_minimum(graph, unary_argmin(graph), context) if labels is None else labels)
    return graph, context, presolve(graph, context.incumbent, context)


@settings(max_examples=150, deadline=None)
@given(models(max_variables=6, hard=0.3))
def test_the_smaller_model_costs_what_it_says(model):
    graph, context, smaller = begin(model)
    if smaller is None:
        return
    least = min(energy(graph, np.array(x)) for x in labellings(graph.arrays.cards))
    inner = smaller.graph
    found = []
    for labels in labellings(inner.arrays.cards):
        x = np.array(labels, np.int64)
        value = energy(inner, x)
        if inner.hard > 0.0 and value > inner.hard_threshold:
            continue  # no better than what was known before
        outward = smaller.outward(x)
        back = smaller.inward(outward)
        assert back is not None
        assert (back == x).all()
        outer = energy(graph, outward)
        found.append(outer)
        # the energy of a labelling of the smaller model bounds all that lead to it: what it says is what it costs
        bound = smaller.bound(value)
        if outer < min(context.incumbent.energy, graph.hopeless):
            assert bound <= outer
            assert outer - bound <= 2.0 * bound.error + 1e-9 * (abs(outer) + 1e-300)
    known = context.incumbent.energy
    assert min([known, *found]) <= least + 1e-9 * abs(least)


@settings(max_examples=100, deadline=None)
@given(models(max_variables=6, hard=0.3))
def test_auto_ends_with_the_optimum(model):
    least = brute_force(model)[0]
    result = tm.solve(model, time_limit=20.0, threads=1)
    assert result.status is (tm.Status.INFEASIBLE if np.isinf(least) else tm.Status.OPTIMAL)
    assert result.energy == pytest.approx(least, rel=1e-9, abs=1e-12)


def chain_with_partners(n=40, labels=6, seed=0):
    """Every second variable is the one before it, shifted; the others form a ring that is joined across."""
    rng = np.random.default_rng(seed)
    model = tm.Model([labels] * n)
    model.add_unaries(rng.random((n, labels)))
    shifted = np.where(np.roll(np.eye(labels), 1, axis=1) > 0, 0.0, np.inf)
    model.add_factors([[i, i + 1] for i in range(0, n, 2)], shifted)
    ends = [[i, (i + 2) % n] for i in range(0, n, 2)] + [[i, (i + 7) % n] for i in range(0, n, 2)]
    model.add_factors(ends, 2.0 * rng.random((len(ends), labels, labels)))
    return model


def test_partners_are_merged_and_what_went_is_told():
    model = chain_with_partners()
    graph, _, smaller = begin(model)
    assert smaller.graph.n <= graph.n // 2
    assert "20 that follow from another one" in smaller.report
    result = tm.solve(model, time_limit=10.0)
    assert "presolved: " in result.summary()
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(tm.solve(model, "exact").energy)
    told = [float(line.rsplit("energy ", 1)[1]) for line in result.note.splitlines() if "energy " in line]
    assert min(told) == pytest.approx(result.energy, rel=1e-8)  # of the whole model, not of what is left


def test_a_run_goes_on_with_the_same_smaller_model():
    model = chain_with_partners()
    first = tm.solve(model, time_limit=10.0, max_iterations=1)
    again = tm.solve(model, init=first, time_limit=10.0)
    assert again.state["presolve"] is first.state["presolve"]
    assert again.energy <= first.energy
    other = chain_with_partners(seed=1)
    assert tm.solve(other, init=again, time_limit=10.0).status is tm.Status.OPTIMAL


def test_nothing_is_proven_infeasible_that_is_not():
    """The best labelling at hand is the optimum: no other one is cheaper, and that is not a contradiction."""
    model = chain_with_partners(12)
    best = tm.solve(model, "exact")
    graph, context, smaller = begin(model, model.graph().restrict(best.labels))
    bound = smaller.bound(np.inf)
    assert not proves_infeasible(graph, bound)
    assert bound <= context.incumbent.energy


def test_images_and_models_too_large_stay_as_they_are(monkeypatch):
    model = tm.Model.grid(5, 6, 3)
    model.add_unaries(np.random.default_rng(0).random((30, 3)))
    model.add_potts(model.edges(), 0.3)
    assert begin(model)[2] is None
    monkeypatch.setattr(module, "VARIABLES", 10)
    assert begin(chain_with_partners())[2] is None


def test_no_time_for_it_leaves_the_model_as_it_is(monkeypatch):
    monkeypatch.setattr(module, "PART", 0.0)
    model = chain_with_partners()
    graph = model.graph()
    incumbent = Incumbent(graph)
    incumbent.offer(unary_argmin(graph))
    context = Context(deadline=0.0, incumbent=incumbent)
    assert presolve(graph, incumbent, context) is None


def test_another_run_follows_where_rounding_leaves_something_open(monkeypatch):
    """A smaller model that proves a little less than it should: the whole model is solved after it."""
    plain = module.Presolved.bound
    monkeypatch.setattr(module.Presolved, "bound", lambda self, b: plain(self, b) - 1e-3)
    model = chain_with_partners(12)
    result = tm.solve(model, time_limit=10.0)
    assert result.status is tm.Status.OPTIMAL


@pytest.mark.parametrize("name", ["wcsp/celar6sub0.wcsp", "families/comm_p01_10.uai.xz", "families/pedigree40.uai.xz"])
def test_real_models(name):
    model = tm.read(data_file(name))
    graph, _, smaller = begin(model)
    assert smaller.graph.n < graph.n
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = local_minimum(smaller.graph, rng.integers(0, smaller.graph.arrays.cards), Context())
        value, outer = smaller.graph.user_energy(energy(smaller.graph, x)), energy(graph, smaller.outward(x))
        if smaller.graph.hard == 0.0 or energy(smaller.graph, x) <= smaller.graph.hard_threshold:
            assert smaller.bound(energy(smaller.graph, x)) == pytest.approx(outer, rel=1e-9)
        assert np.isfinite(value)


def test_dominated_labels_stand_for_one_another():
    """Replacing a label by the one that stands for it never costs more, whatever the others are."""
    gone = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        model = random_model(rng, n=5, labels=4, factors=4, order=3, integral=bool(seed % 2), hard=0.1)
        graph = model.graph()
        if graph.n == 0 or graph.m == 0:
            continue
        network = build_network(graph, min(energy(graph, unary_argmin(graph)), graph.hopeless))
        instead = dominated_labels(network)
        costs = {x: cost_of(network, x) for x in labellings(network.cards)}
        for x, cost in costs.items():
            y = tuple(int(own[s]) for own, s in zip(instead, x, strict=True))
            if cost < network.upper:
                assert costs[y] <= cost
        gone += sum(int((own != np.arange(len(own))).sum()) for own in instead)
    assert gone > 100


def test_a_labelling_at_hand_is_kept_though_its_labels_have_gone():
    model = tm.Model([3] * 12)
    model.add_unaries(np.tile([0.0, 0.5, 9.0], (12, 1)))
    rng = np.random.default_rng(0)
    ends = [[i, j] for i in range(12) for j in range(i)]
    model.add_factors(ends, np.pad(rng.random((len(ends), 2, 2)), ((0, 0), (0, 1), (0, 1)), mode="edge"))
    smaller = begin(model, np.full(12, 2))[2]
    assert smaller.graph.arrays.cards.max() == 2
    assert smaller.inward(np.full(12, 2)) is not None
    assert "12 labels that others stand for" in smaller.report
