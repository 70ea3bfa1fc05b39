"""The exact search: agreement with brute force, sound bounds at any time, elimination, integers, resumption."""

from __future__ import annotations

import itertools
import math
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force
from problems import grid_model, random_model, tree_model
from tightmap.energy.energies import energy
from tightmap.moves.context import Context
from tightmap.registry import make_solver
from tightmap.runtime import clock
from tightmap.runtime.pace import TimeUp
from tightmap.solvers.base import Init
from tightmap.solvers.exact import component, elimination
from tightmap.solvers.exact import solver as exact
from tightmap.solvers.exact.elimination import eliminate, eliminate_low_degrees, narrow, plan_elimination
from tightmap.solvers.exact.network import build_network, components
from tightmap.solvers.exact.solver import Exact

SEARCH = {"elimination": 0, "degree": 0, "cores": False}  # nothing is eliminated: all is left to the search
MESSAGES = {**SEARCH, "glimpse": 0}  # and the search does not begin before message passing has ended
CORES = {"elimination": 0, "degree": 0, "probe": 0}  # the search does not come first
NARROW = {"probe": 0}  # elimination with large tables, where it is possible
WAYS = (
    SEARCH, MESSAGES, CORES, {"elimination": 0, "degree": 1, "cores": False, "glimpse": 0},
    {"elimination": 0, "degree": 3}, NARROW, {},
)  # fmt: skip


def solve(model, probe=None, glimpse=None, **options):
    """``probe``: work of the search before cores are tried, 0: they are never waited for; ``glimpse``: of its first."""
    changed = {} if probe is None else {"PROBE": probe, "PROBE_BESIDE_HARD": probe}
    if probe == 0:
        changed |= {"CORE_WORK": 0.0}
    with ExitStack() as stack:
        for name, value in changed.items():
            stack.enter_context(patch.object(exact, name, value))
        if glimpse is not None:
            stack.enter_context(patch.object(component, "GLIMPSE", glimpse))
        return tm.solve(model, "exact", **options)


def check(model, **options):
    """Solve to the end; the optimum is found and proven, and no bound on the way is above it."""
    optimum = brute_force(model)[0]
    bounds = []
    result = solve(model, callback=lambda info: bounds.append(info.lower_bound), **options)
    if not np.isfinite(optimum):
        assert result.status is tm.Status.INFEASIBLE
        return result
    tiny = 1e-9 * max(1.0, abs(optimum))
    assert result.status is tm.Status.OPTIMAL
    assert abs(result.energy - optimum) <= tiny
    assert max(bounds, default=-np.inf) <= optimum + tiny
    assert result.lower_bound <= optimum + tiny
    return result


@settings(max_examples=250)
@given(seed=st.integers(0, 2**32 - 1), way=st.sampled_from(WAYS))
def test_random_models_of_all_orders(seed, way):
    rng = np.random.default_rng(seed)
    model = random_model(
        rng,
        n=int(rng.integers(1, 8)),
        labels=int(rng.integers(2, 4)),
        factors=int(rng.integers(0, 14)),
        order=int(rng.integers(2, 5)),
        hard=float(rng.choice([0.0, 0.1, 0.4, 0.7])),
        integral=bool(rng.integers(2)),
        ragged=bool(rng.integers(2)),
    )
    check(model, **way)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_dense_pairs_with_many_labels(seed):
    """Larger domains, all pairs: the search has to branch."""
    rng = np.random.default_rng(seed)
    n, labels = 4, int(rng.integers(5, 9))
    model = tm.Model([labels] * n)
    model.add_unaries(rng.integers(0, 9, (n, labels)))
    pairs = np.array([(i, j) for i in range(n) for j in range(i)])
    tables = rng.integers(0, 30, (len(pairs), labels, labels)).astype(float)
    tables[rng.random(tables.shape) < 0.2] = np.inf
    model.add_factors(pairs, tables)
    check(model, **SEARCH)


def test_it_branches_and_replays():
    """A frustrated model that consistency alone does not solve, against elimination."""
    rng = np.random.default_rng(5)
    model = tm.Model([2] * 26)
    pairs = np.array([(i, j) for i in range(26) for j in range(i) if rng.random() < 0.5])
    model.add_potts(pairs, rng.integers(-9, 10, len(pairs)))
    model.add_unaries(rng.integers(0, 5, (26, 2)))
    search = tm.solve(model, "exact", **SEARCH)
    other = solve(model, probe=0, elimination=1 << 24, cores=False)
    assert search.status is tm.Status.OPTIMAL and other.status is tm.Status.OPTIMAL
    assert search.energy == other.energy
    assert "bucket" in other.note and "nodes" in search.note


def test_elimination_is_exact_on_trees_and_narrow_grids():
    for seed in range(3):
        check(tree_model(np.random.default_rng(seed), n=8, order=3))
    model = grid_model(np.random.default_rng(1), 4, 60, 3, "dense", integral=False)
    whole = tm.solve(model, "exact")
    searched = tm.solve(model, "exact", elimination=0)
    assert whole.status is searched.status is tm.Status.OPTIMAL
    assert whole.energy == pytest.approx(searched.energy, rel=1e-9)


def test_components_are_solved_apart():
    rng = np.random.default_rng(3)
    model = tm.Model([3] * 12)
    for k in range(3):
        own = 4 * k + np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
        model.add_factors(own, rng.normal(size=(6, 3, 3)))
    net = build_network(model.graph(), 100.0)
    assert [len(part) for part in components(net)] == [4, 4, 4]
    whole, searched = tm.solve(model, "exact"), tm.solve(model, "exact", **SEARCH)
    assert searched.status is tm.Status.OPTIMAL
    assert searched.energy == pytest.approx(whole.energy, rel=1e-9)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), degree=st.integers(0, 4))
def test_integers_and_elimination_keep_the_optimum(seed, degree):
    """Scaled costs are below the true ones by less than one unit a term; eliminated labels come back."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, n=6, labels=3, factors=8, order=3, tidy=True)
    graph = model.graph()
    optimum = brute_force(model)[0]
    optimum -= graph.shift  # in canonical units
    net = build_network(graph, optimum + 1.0)
    eliminate_low_degrees(net, degree, 1000)
    left = [i for i in range(graph.n) if i not in net.gone]
    plan = plan_elimination(net.cards, left, net.functions, 20.0, 100_000)
    assert plan is not None and sorted(plan.order) == left
    entries, given = 0, set(net.functions)
    for i in plan.order:
        entries += net.cards[i] * math.prod(net.cards[j] for j in net.neighbours(i))
        eliminate(net, i)
        made = sum(table.size for scope, table in net.functions.items() if scope not in given)
        assert made <= plan.room * (1.0 + 1e-9)
    assert entries <= plan.entries * (1.0 + 1e-9)
    assert net.bound(0) <= optimum + 1e-12 and net.bound(0) == pytest.approx(optimum, abs=1e-9)
    found = np.zeros(graph.n, dtype=np.int64)
    net.complete(found)
    assert energy(graph, found) == pytest.approx(optimum, abs=1e-9)


def test_large_tables_are_eliminated_after_a_search(monkeypatch):
    """Where elimination is neither little work nor too much, the search has its chance first."""
    model = grid_model(np.random.default_rng(4), 6, 30, 3, "dense", integral=True)
    at_once = tm.solve(model, "exact", cores=False)
    monkeypatch.setattr(exact, "CHEAP", 0)
    monkeypatch.setattr(component, "GLIMPSE", 0)
    monkeypatch.setattr(exact, "PATIENCE", 0.01)
    monkeypatch.setattr(exact, "FIRST_WORK", 1000)
    later = tm.solve(model, "exact", cores=False)
    assert at_once.energy == later.energy and "bucket" in at_once.note and "bucket" in later.note
    assert later.iterations > at_once.iterations
    monkeypatch.setattr(exact, "ENTRY", 1.0)  # seconds: it never fits
    late = tm.solve(model, "exact", cores=False, time_limit=0.5)
    assert "bucket" not in late.note and late.lower_bound <= at_once.energy


def test_an_elimination_that_the_clock_ends_changes_nothing():
    net = build_network(grid_model(np.random.default_rng(4), 3, 3, 3, "dense").graph(), 100.0)
    scopes, constant = set(net.functions), net.constant
    with pytest.raises(TimeUp):
        eliminate(net, 4, Context(deadline=clock.now() - 1.0))
    assert set(net.functions) == scopes and net.constant == constant and not net.choices and 4 not in net.gone
    eliminate(net, 4)
    assert 4 in net.gone and not net.touching[4]


def test_the_order_of_least_entries_is_taken():
    """A square of variables with 2, 50, 50 and 50 labels: either of the neighbours of the first one has to go first."""
    cards, scopes = [2, 50, 50, 50], [(0, 1), (1, 2), (2, 3), (0, 3)]
    plan = plan_elimination(cards, range(4), scopes, 20.0, 10_000)
    assert plan is not None and plan.entries < elimination.EASY
    with patch.object(elimination, "EASY", 0.0):  # otherwise the first order is good enough, which leaves 50^3 entries
        plan = plan_elimination(cards, range(4), scopes, 20.0, 10_000)
    assert plan is not None and plan.order[0] in (1, 3)
    assert plan.entries == pytest.approx(2 * 5000 + 100, abs=10.0) and plan.room == pytest.approx(202.0)
    assert plan_elimination(cards, range(4), scopes, 12.0, 10_000) is None  # 5000 entries are too many
    assert plan_elimination(cards, range(4), scopes, 20.0, 1) is None


def test_a_label_that_another_one_dominates_is_dropped():
    """Label 0 of the hub is never better than label 1, whatever the others are, and costs more: the root sees it."""
    rng = np.random.default_rng(2)
    model = tm.Model([2] + [3] * 5)
    for i in range(6):
        for j in range(i):
            table = rng.integers(0, 20, (3, 3)).astype(float)
            if j == 0:
                table = table[:, :1] + np.column_stack((rng.integers(0, 5, 3), np.zeros(3)))
            model.add_factors([[i, j]], table)
    model.add_unaries([[1.0, 0.0]], [0])
    solver = exact.Exact(**SEARCH)
    state = solver.start(model.graph(), Init(), Context())
    while state.parts is None:
        solver.step(state)
    part = state.parts[0]
    part._open_root()
    place = int(np.flatnonzero(part.variables == 0)[0])
    assert 0 not in part.state.domain[0, part.net.node[place, 0] :][: part.state.value[1 + 17 + place]]
    check(model, **SEARCH)


def test_width_is_recognised():
    assert narrow(grid_model(np.random.default_rng(1), 3, 40, 2).graph(), 4.0, 12.0, 100_000)
    assert not narrow(grid_model(np.random.default_rng(1), 12, 12, 2).graph(), 6.0, 20.0, 100_000)
    assert not narrow(grid_model(np.random.default_rng(1), 3, 40, 2).graph(), 4.0, 12.0, 50)
    wide = tm.Model([9] * 40)
    wide.add_potts([(i, j) for i in range(40) for j in range(i)], 1.0)
    assert not narrow(wide.graph(), 20.0, 24.0, 10**6)


def test_a_labelling_from_outside_prunes():
    model = hard_model(n=22)
    best = tm.solve(model, "exact", elimination=0)
    solver = exact.Exact(elimination=0)
    state = solver.start(model.graph(), Init(), Context())
    for _ in range(3):
        solver.step(state)
    solver.adopt(state, model.graph().restrict(best.labels))
    assert state.best_energy == best.energy
    while not state.done:
        assert solver.step(state).bound <= best.energy - model.graph().shift
    assert state.bound == energy(model.graph(), state.best) == best.energy - model.graph().shift


def hard_model(seed=2, n=40, labels=4):
    rng = np.random.default_rng(seed)
    model = tm.Model([labels] * n)
    pairs = np.array([(i, j) for i in range(n) for j in range(i) if rng.random() < 0.3])
    model.add_factors(pairs, rng.integers(0, 40, (len(pairs), labels, labels)))
    return model


def test_interrupted_runs_are_sound_and_go_on():
    model = hard_model(n=22)
    full = tm.solve(model, "exact", elimination=0)
    assert full.status is tm.Status.OPTIMAL
    part = tm.solve(model, "exact", elimination=0, max_iterations=4)
    assert part.lower_bound <= full.energy <= part.energy
    rest = tm.solve(model, "exact", elimination=0, init=part)
    assert rest.status is tm.Status.OPTIMAL and rest.energy == full.energy
    assert rest.iterations < full.iterations
    again = tm.solve(model, "exact", elimination=0, init=part)
    assert again.iterations == rest.iterations and (again.labels == rest.labels).all()


def test_bounds_rise_and_energies_fall():
    rows = tm.solve(hard_model(), "exact", elimination=0, max_iterations=12, trace=True).trace
    bounds, energies = [r["lower_bound"] for r in rows], [r["energy"] for r in rows]
    assert bounds == sorted(bounds) and energies == sorted(energies, reverse=True)
    assert bounds[-1] <= energies[-1] and bounds[-1] > bounds[0]


def test_a_large_tree_of_open_nodes_is_kept_in_order(monkeypatch):
    """Small steps make many bursts: the tree grows and is compacted, and the answer stays the same."""
    monkeypatch.setattr(component, "GLIMPSE", 0)
    model = hard_model(n=24, labels=3)
    expected = tm.solve(model, "exact", elimination=0)
    monkeypatch.setattr(exact, "STEP_WORK", 3000)
    result = tm.solve(model, "exact", elimination=0)
    assert result.status is tm.Status.OPTIMAL and result.energy == expected.energy
    assert result.iterations > 10 * expected.iterations


def test_tables_that_are_too_large_are_refused():
    model = tm.Model([2] * 24)
    model.add_pn_potts([list(range(24))], [1.0], [0.0, 0.5], disagreement=1.0)
    with pytest.raises(tm.ModelError, match="'exact' takes factors of at most"):
        tm.solve(model, "exact")
    with pytest.raises(tm.OptionError, match="degree"):
        tm.solve(model, "exact", degree=-1)
    with pytest.raises(tm.OptionError, match="elimination"):
        tm.solve(model, "exact", elimination=-1)


@pytest.mark.parametrize("weight", [0.2, -3e-11])
def test_costs_that_no_better_labelling_has_are_not_taken_for_whole_numbers(weight):
    """All costs below the distance to the sum of minima are whole, but that distance itself is not."""
    model = tm.Model([2, 2, 2, 2])
    model.add_unaries([[-1.0, 0.0], [-3.0, 0.0], [0.0, -2.0], [0.0, -3.0]])
    model.add_potts([[0, 1]], [weight])
    assert check(model).energy == brute_force(model)[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_first_labelling_of_great_cost_does_not_blur_the_proof(way):
    """Descent ends at 1e11, the optimum costs about -1: what is a tie beside the first is none beside the second."""
    inf, deep = np.inf, 1.0667757324909484
    model = tm.Model([2, 3, 3])
    model.add_factors([[0, 2]], [[[0.0, 0.0, 0.0], [0.0, -1.0, 0.0]]])
    model.add_factors([[0, 1]], [[[0.0, inf, 1e11], [0.0, 0.0, inf]]])
    model.add_factors([[2, 1]], [[[inf, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, -deep, 0.0]]])
    assert check(model, **way).lower_bound > -deep - 1e-9


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), way=st.sampled_from(WAYS))
def test_great_costs_beside_small_ones(seed, way):
    """Finite costs of very different sizes and hard ones; a labelling of great cost to start from."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    model = tm.Model(rng.integers(1, 4, n).tolist())
    cards = model.cardinalities
    for _ in range(int(rng.integers(1, 8))):
        i, j = (int(k) for k in rng.choice(n, 2, replace=False))
        table = rng.normal(size=(cards[i], cards[j]))
        great = float(rng.choice([1e5, 1e8, 1e11, 1e14, np.inf]))
        table[rng.random(table.shape) < 0.4] = great
        model.add_factors([[i, j]], [table])
    optimum, first = brute_force(model)[0], [int(rng.integers(c)) for c in cards]
    result = solve(model, init=first, **way)
    if not np.isfinite(optimum):
        assert result.status is tm.Status.INFEASIBLE
        return
    blur = model.graph().slack  # great costs were added to small ones where the model became a graph
    assert result.status is tm.Status.OPTIMAL or 0.0 < result.energy - result.lower_bound <= 4.0 * blur
    assert result.lower_bound <= optimum + 1e-12 * abs(optimum)
    assert result.energy - optimum <= 1e-9 * abs(optimum) + 4.0 * blur


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_labellings_from_outside_while_a_dive_is_under_way(seed):
    """Small steps stop in the middle of dives; a better labelling then closes the dive, and nothing is lost."""
    rng = np.random.default_rng(seed)
    n, labels = int(rng.integers(4, 7)), int(rng.integers(2, 5))
    model = tm.Model([labels] * n)
    pairs = np.array([(i, j) for i in range(n) for j in range(i)])
    model.add_factors(pairs, rng.integers(0, 30, (len(pairs), labels, labels)))
    graph = model.graph()
    optimum = brute_force(model)[0] - graph.shift
    solver = exact.Exact(**SEARCH)
    with patch.object(exact, "STEP_WORK", int(rng.integers(50, 2000))):
        state = solver.start(graph, Init(), Context())
        while not state.done:
            assert solver.step(state).bound <= optimum
            if rng.random() < 0.3:
                solver.adopt(state, graph.restrict(rng.integers(0, labels, n)))
    assert state.bound == optimum == energy(graph, state.best)


@pytest.mark.parametrize("seed", range(30))
def test_a_bound_is_one_also_where_nothing_better_is_left(seed):
    """Where the first labelling is the best one, all others are cut off at once: that proves its energy, no more."""
    rng = np.random.default_rng(seed)
    model = tm.Model([3, 2])
    model.add_unaries(nodes=[0], costs=[rng.normal(size=3) * 3])
    model.add_unaries(nodes=[1], costs=[rng.normal(size=2) * 3])
    model.add_factors([[0, 1]], rng.normal(size=(3, 2)) * 4)
    graph = model.graph()
    labellings = [np.array(x) for x in itertools.product(range(3), range(2))]
    best = min(labellings, key=lambda x: energy(graph, x))
    solver = make_solver("exact", {})
    state = solver.start(graph, Init(labels=best), Context())
    for _ in range(20):
        progress = solver.step(state)
        assert progress.bound <= energy(graph, best) + 1e-12 * graph.magnitude(energy(graph, best))
        if progress.done:
            break
    assert progress.done


def test_a_model_that_eliminates_itself_takes_two_steps():
    """Cores of large models are searched by the hundred, and are given up by the number of their steps."""
    rng = np.random.default_rng(0)
    model = tm.Model([4] * 6)
    model.add_unaries(rng.random((6, 4)))
    model.add_factors([[i, i + 1] for i in range(5)], rng.random((5, 4, 4)))
    solver = Exact(elimination=0, cores=False)
    state = solver.start(model.graph(), Init(), Context())
    assert [solver.step(state).done for _ in range(2)] == [False, True]
