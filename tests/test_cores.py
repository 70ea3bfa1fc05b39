"""Bounds from cores: costs as Booleans say what a labelling costs, bounds never pass the optimum, and the end is it."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from conftest import data_file
from naive import brute_force, labellings
from problems import random_model
from tightmap.energy.energies import energy, unary_argmin
from tightmap.moves.feasibility.engine import Feasibility
from tightmap.solvers.exact import cores as module
from tightmap.solvers.exact.cores import Cores
from tightmap.solvers.exact.kept import KeptLabels
from tightmap.solvers.exact.levels import levels
from tightmap.solvers.exact.network import build_network


def some_model(seed):
    rng = np.random.default_rng(seed)
    return random_model(
        rng,
        n=int(rng.integers(2, 7)),
        labels=int(rng.integers(2, 4)),
        factors=int(rng.integers(1, 10)),
        order=int(rng.integers(2, 5)),
        hard=float(rng.choice([0.0, 0.2, 0.5])),
        integral=bool(rng.integers(2)),
    )


def network(model, upper=None, propagate=True):
    """The whole-number form of a model, hard constraints propagated; None where it has no factors or no labelling."""
    graph = model.graph()
    if graph.n == 0 or not Feasibility(graph).propagate():
        return None
    problem = Feasibility(graph)
    problem.propagate()
    kept = KeptLabels(graph.arrays.offset, problem.alive) if propagate else None
    if upper is None:
        upper = energy(graph, unary_argmin(graph)) + 1.0
    return build_network(graph, min(upper, graph.hopeless), None, kept)


def cost_of(net, labels):
    total = sum(int(u[x]) for u, x in zip(net.unary, labels, strict=True))
    return total + sum(int(t[tuple(labels[i] for i in scope)]) for scope, t in net.functions.items())


def test_booleans_say_what_a_labelling_costs():
    """For every labelling: forbidden where a function reaches the goal, otherwise floor plus the weights that hold."""
    seen = 0
    for seed in range(60):
        net = network(some_model(seed))
        goal = None if net is None else net.upper - net.constant
        found = None if net is None else levels(net, goal, 0)
        if found is None:
            continue
        first, last = len(found.variables), found.used
        weight = dict(zip(found.labels.tolist(), found.weights, strict=True))
        for labels in labellings(net.cards):
            functions = [u[x] for u, x in zip(net.unary, labels, strict=True)]
            functions += [t[tuple(labels[i] for i in scope)] for scope, t in net.functions.items()]
            taken = {int(found.offset[k]) + labels[i] for k, i in enumerate(found.variables)}
            fits = all(found.given.alive[at] for at in taken)
            for table in found.given.tables:
                for scope in table.scopes:
                    inner = [k for k in scope if k < first]
                    own = [labels[found.variables[k]] for k in inner]
                    rows = table.allowed[(table.allowed[:, : len(own)] == own).all(axis=1)]
                    assert len(rows) <= 1, "the Booleans follow from the labels"
                    fits = fits and len(rows) == 1
                    if len(rows):
                        extra = zip(scope[len(own) :], rows[0][len(own) :], strict=True)
                        taken |= {int(found.offset[k] + x) for k, x in extra}
            single = [i for i in range(len(net.cards)) if net.cards[i] == 1]
            assert fits == all(c < goal for i, c in enumerate(functions) if i not in single)
            if fits:
                assert found.floor + sum(w for at, w in weight.items() if at in taken) == cost_of(net, labels)
                seen += last > first
    assert seen > 200


@pytest.mark.parametrize("given", ["nothing", "optimum", "propagated", "no room"])
def test_bounds_never_pass_the_optimum_and_end_there(given, monkeypatch):
    if given == "no room":
        monkeypatch.setattr(module, "SPARE", 0)
    ended = 0
    for seed in range(100, 200):
        model = some_model(seed)
        net = network(model, propagate=given == "propagated")
        if net is None:
            continue
        found = Cores(net)
        if found.problem is None:
            continue
        costs = {labels: cost_of(net, labels) for labels in labellings(net.cards)}
        best = min(costs.values())
        if given == "optimum":
            found.offer(np.array(min(costs, key=costs.get), dtype=np.int64))
        for _ in range(10_000):
            assert found.lower <= best
            if found.closed:
                break
            found.step(np.inf, 1_000)
        assert found.closed and found.proven
        if found.labels is not None:
            assert costs[tuple(found.labels.tolist())] == found.best
        if best < net.upper - net.constant:
            assert best <= found.best < best + net.grain
            assert found.best - net.grain < found.lower <= best
        ended += found.cores > 0
    assert ended > 10


def complete_graph(monkeypatch):
    """Eight variables with costs of both signs on all pairs, and next to no room for new wishes."""
    monkeypatch.setattr(module, "SPARE", 1)
    rng = np.random.default_rng(4)
    model = tm.Model([2] * 8)
    pairs = [[i, j] for i in range(8) for j in range(i)]
    model.add_potts(pairs, rng.integers(-3, 4, len(pairs)))
    net = network(model, upper=100.0)
    found = Cores(net)
    room = len(found.engine.rules.offset)
    while not found.closed:
        found.step(np.inf, 10_000)
    assert net.bound(found.lower) <= brute_force(model)[0]
    return found, room


def test_room_for_new_wishes_is_made_when_it_is_needed(monkeypatch):
    found, room = complete_graph(monkeypatch)
    assert found.proven
    assert len(found.engine.rules.offset) > 2 * room


def test_no_room_for_new_wishes_ends_with_a_bound(monkeypatch):
    monkeypatch.setattr(module, "MOST", 1)
    found, _ = complete_graph(monkeypatch)
    assert not found.proven


def scheduling(rng, jobs, slots, teams):
    """Jobs that may be left out at a price; jobs of one team need different slots."""
    model = tm.Model([slots + 1] * jobs)
    model.add_unaries([[0.0] * slots + [float(p)] for p in rng.integers(1, 4, jobs)])
    for _ in range(teams):
        team = rng.permutation(jobs)[: slots + 2]
        for a in range(len(team)):
            for b in range(a):
                table = np.where(np.eye(slots + 1) > 0, np.inf, 0.0)
                table[slots, slots] = 0.0
                model.add_factors([[team[a], team[b]]], table[None])
    return model


def test_scheduling_is_proven_by_cores(monkeypatch):
    """Too many jobs for too few slots: every team is a core of its own, and no node of the other search is needed."""
    monkeypatch.setattr("tightmap.solvers.exact.solver.PROBE_BESIDE_HARD", 0)
    monkeypatch.setattr("tightmap.solvers.exact.solver.CORE_WORK", 0.0)
    model = scheduling(np.random.default_rng(0), 60, 3, 12)
    result = tm.solve(model, "exact", elimination=0)
    assert result.status is tm.Status.OPTIMAL
    assert "cores" in result.note and " 0 nodes" in result.note
    assert result.lower_bound == result.energy == model.energy(result.labels)
    other = tm.solve(scheduling(np.random.default_rng(1), 12, 2, 4), "exact", elimination=0)
    assert other.energy == tm.solve(scheduling(np.random.default_rng(1), 12, 2, 4), "exact", cores=False).energy


@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("families/bw_p34_10.uai.xz", 1.438410),
        ("families/54.uai", 3.155394),
        ("families/wcsp_13.uai", 0.489001),
        ("wcsp/404.wcsp.xz", 114.0),
    ],
)
def test_models_with_few_costs_and_many_constraints(name, optimum):
    result = tm.solve(tm.read(data_file(name)), "exact", time_limit=60.0)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(optimum, abs=1e-6)
