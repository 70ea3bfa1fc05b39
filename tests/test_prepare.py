"""prepare: new costs in an old structure give the canonical form, and the results, of a model made anew."""

from __future__ import annotations

import copy
from dataclasses import fields

import numpy as np
import pytest

import tightmap as tm
from problems import KINDS, grid_model, random_model
from tightmap.canonical import skeleton
from tightmap.canonical.build import build_graph
from tightmap.canonical.skeleton import Skeleton
from tightmap.graph.graph import STRUCTURE
from tightmap.moves import polish
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.polish import first_descent

STRUCTURED = ("potts", "linear", "quadratic", "pn", "second")


def assert_same_graph(a, b):
    """Bit by bit, and of the same types."""
    for field in fields(a):
        one, two = getattr(a, field.name), getattr(b, field.name)
        if field.name == "arrays":
            assert type(one) is type(two)
            for name, x, y in zip(one._fields, one, two, strict=True):
                assert x.dtype == y.dtype and x.flags.writeable and np.array_equal(x, y), name
        elif isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
            assert one is not None and two is not None and np.array_equal(one, two), field.name
        else:
            assert one == two, field.name
    assert (a.order, a.max_labels, a.uniform) == (b.order, b.max_labels, b.uniform)


def changed(rng, model, kind):
    """The model with other unaries, and perhaps other weights."""
    other = copy.copy(model)
    if kind in ("weights", "both", "zero"):
        weights = [np.round(4 * rng.normal(size=len(b))) + 0.5 * rng.integers(0, 2) for b in model.blocks]
        if kind == "zero":
            weights = [w * (rng.random(len(w)) < 0.7) for w in weights]
        other.replace_weights([np.abs(w) + 0.5 * (kind != "zero") for w in weights])  # tables may have +inf
    if kind != "weights":
        scale = {"tiny": 1e-9, "huge": 1e80}.get(kind, 3.0)
        costs = [rng.normal(size=c) * scale for c in model.cardinalities]
        if kind == "whole":
            costs = [np.round(c) for c in costs]
        if kind == "hard":
            costs = [np.where(rng.random(len(c)) < 0.3, np.inf, c) for c in costs]
        other.replace_unaries(costs)
    return other


CHANGES = ("real", "whole", "hard", "tiny", "huge", "weights", "both", "zero")


@pytest.mark.parametrize("kinds", [KINDS, STRUCTURED], ids=["all", "structured"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_form_is_the_one_of_a_model_made_anew(kinds, change):
    """Random models of every shape: repeated, fixed and one-label variables, hard constraints, whole numbers."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = random_model(
            rng,
            n=int(rng.integers(1, 7)),
            factors=int(rng.integers(0, 6)),
            kinds=kinds,
            hard=0.15 * (seed % 3 == 0),
            integral=seed % 4 == 0,
            tidy=seed % 2 == 0,
        )
        if seed % 8 == 7:
            model.clamp({0: 0})
        made = Skeleton(model)
        assert_same_graph(made.first, build_graph(model))
        for _ in range(3):
            other = changed(rng, model, change)
            assert_same_graph(made.graph(other), build_graph(other))


def test_large_structures_are_not_built_anew(monkeypatch):
    """The usual models take the short way: unaries and weights are filled in, hard unaries or not."""
    rng = np.random.default_rng(0)
    grids = [grid_model(rng, 8, 9, 3, kind) for kind in ("potts", "linear", "quadratic", "dense")]
    made = [Skeleton(model) for model in grids]
    changes = [[changed(rng, m, c) for c in ("real", "whole", "hard", "weights", "both")] for m in grids[:3]]
    changes.append([changed(rng, grids[3], c) for c in ("real", "whole", "hard")])
    expected = [[build_graph(m) for m in row] for row in changes]
    monkeypatch.setattr(skeleton, "build_graph", lambda model: pytest.fail("built anew"))
    for one, row, graphs in zip(made, changes, expected, strict=True):
        for model, graph in zip(row, graphs, strict=True):
            assert_same_graph(one.graph(model), graph)


@pytest.mark.parametrize("shape", [(7, 8), (16, 24)], ids=["small", "grid"])  # trws has an engine for each
@pytest.mark.parametrize("method", ["trws", "expansion", "bcd", "srmp", "admm", "auto"])
def test_results_are_those_of_fresh_calls(method, shape):
    """Cold and warm, along a sequence of frames of which each changes a little."""
    rng = np.random.default_rng(1)
    model = grid_model(rng, *shape, 3, integral=False)
    options = {"max_iterations": 12, "seed": 2}
    plan, last = tm.prepare(model, method, **options), None
    unaries = model.unaries.reshape(-1, 3).copy()
    weights = model.blocks[0].weights
    for frame in range(3):
        unaries[rng.random(len(unaries)) < 0.2] = rng.random(3)
        weights = weights * (1.0 + 0.1 * frame)
        fresh = copy.copy(model)
        fresh.replace_unaries(unaries)
        fresh.replace_weights(weights)
        assert plan.solve(unaries=unaries, weights=weights, warm=False) == tm.solve(fresh, method, **options)
        plan.last = last
        warm = plan.solve()
        assert warm == tm.solve(fresh, method, init=last, **options)
        assert warm.energy == fresh.energy(warm.labels) == plan.model.energy(warm.labels)
        last = warm


@pytest.mark.parametrize("what", ["costs", "labels", "both"])
def test_the_first_descent_of_a_plan_ends_where_any_other_does(what):
    """It visits only what differs from the end of the one before: other costs, other labels, and their neighbours."""
    moved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model = grid_model(rng, 9, 10, 3, integral=False)
        plan, last = Skeleton(model), None
        for _ in range(4):
            other = copy.copy(model)
            costs = model.unaries.reshape(-1, 3).copy()
            if what != "labels":
                costs[rng.random(len(costs)) < 0.1] = 10.0 * rng.random(3)
            other.replace_unaries(costs)
            graph = plan.graph(other)
            begin = rng.integers(0, 3, graph.n) if last is None or what != "costs" else last
            labels = begin.copy()
            assert first_descent(graph, labels, 10.0)
            assert np.array_equal(labels, local_minimum(graph, begin))
            moved += int((labels != begin).sum())
            model, last = other, labels
    assert moved


def test_the_first_descent_of_a_plan_visits_what_changed(monkeypatch):
    """The first run visits all variables, the next one those whose costs are other ones."""
    visited = []
    plain = polish.descend_within

    def descend_within(graph, labels, dirty, seconds):
        visited.append(int(dirty.sum()))
        return plain(graph, labels, dirty, seconds)

    monkeypatch.setattr(polish, "descend_within", descend_within)
    model = grid_model(np.random.default_rng(0), 9, 10, 3, integral=False)
    plan = tm.prepare(model, "bcd", max_iterations=1)
    settled = plan.solve()
    costs = model.unaries.reshape(-1, 3).copy()
    costs[[3, 50]] += 20.0  # for all labels alike
    plan.solve(unaries=costs, init=settled.labels)
    assert visited[0] == 90
    assert 2 <= visited[1] < 90


def frames_of(rng, model, count, integral):
    """Unaries of which each differ from those before in a fifth of the variables."""
    costs = [model.unaries[a:b].copy() for a, b in zip(model.offset, model.offset[1:], strict=False)]
    for _ in range(count):
        for c in costs:
            if rng.random() < 0.2:
                c[:] = rng.integers(-9, 10, len(c)) if integral else rng.normal(size=len(c))
        yield [c.copy() for c in costs]


@pytest.mark.parametrize("integral", [False, True])
@pytest.mark.parametrize("kind", ["potts", "linear", "ragged", "nonmetric"])
def test_flow_that_is_kept_from_frame_to_frame_changes_no_result(kind, integral):
    """Expansion goes on with network and duals where only unaries change, from the labels before or from any others."""
    rng = np.random.default_rng(len(kind))
    if kind == "ragged":
        model = tm.Model(rng.integers(2, 5, 40))
        edges = np.unique(np.sort([rng.choice(40, 2, replace=False) for _ in range(80)], axis=1), axis=0)
    else:
        model = tm.Model.grid(7, 8, 4)
        edges = model.edges(8)
    model.add_unaries([rng.integers(-9, 10, c).astype(float) for c in model.cardinalities])
    weights = rng.integers(1, 6, len(edges)).astype(float)
    if kind == "linear":
        model.add_truncated_linear(edges, weights, 2.0)
    elif kind == "nonmetric":
        model.add_truncated_quadratic(edges, weights, 5.0)
    else:
        model.add_potts(edges, weights)
    plan = tm.prepare(model, "expansion")
    last = plan.solve()
    for number, costs in enumerate(frames_of(rng, model, 8, integral)):
        fresh = copy.copy(model)
        fresh.replace_unaries(costs)
        init = rng.integers(0, model.cardinalities) if number == 5 else last
        warm = plan.solve(unaries=costs, init=init)
        assert warm == tm.solve(fresh, "expansion", init=init)
        shelf = plan.model.graph().__dict__[STRUCTURE]
        assert ("moves of expansion" in shelf) == (kind != "nonmetric" or "truncated" not in warm.note)
        last = warm
    again = plan.solve(warm=False)
    assert again == tm.solve(fresh, "expansion")


def test_kept_flow_does_not_outlast_other_weights_or_units():
    rng = np.random.default_rng(0)
    model = grid_model(rng, 7, 8, 3, integral=True)
    plan = tm.prepare(model, "expansion")
    plan.solve()
    plan.solve(unaries=np.round(9 * rng.random((56, 3))))
    for unaries in (rng.random((56, 3)), 1e6 * rng.random((56, 3)), np.round(9 * rng.random((56, 3)))):
        before = plan.last
        warm = plan.solve(unaries=unaries)
        fresh = copy.copy(model)
        fresh.replace_unaries(unaries)
        assert warm == tm.solve(fresh, "expansion", init=before)
    before, weights = plan.last, model.blocks[0].weights + 1.0
    warm = plan.solve(weights=weights)
    fresh.replace_weights(weights)
    assert warm == tm.solve(fresh, "expansion", init=before)


def test_what_follows_from_structure_and_weights_is_shared_between_frames():
    """And only that: other weights share nothing, nor does a model outside of the plan."""
    rng = np.random.default_rng(0)
    model = grid_model(rng, 16, 24, 3, integral=False)
    made = Skeleton(model)
    shelf = made.first.__dict__[STRUCTURE]
    assert made.graph(changed(rng, model, "real")).__dict__[STRUCTURE] is shelf
    assert STRUCTURE not in made.graph(changed(rng, model, "both")).__dict__
    assert STRUCTURE not in build_graph(model).__dict__


def test_bounds_stay_bounds_when_costs_change():
    """Messages and states of other costs are a start, never a claim."""
    from tightmap.testing.models import optimum

    for method in ("trws", "srmp", "mplp", "trbp", "exact"):
        rng = np.random.default_rng(3)
        model = random_model(rng, n=6, labels=3, factors=8, order=2, kinds=("dense", "potts"), tidy=True)
        plan = tm.prepare(model, method, max_iterations=30)
        for _ in range(4):
            result = plan.solve([rng.normal(size=c) for c in model.cardinalities])
            assert result.lower_bound <= optimum(plan.model) + 1e-9 <= result.energy + 2e-9


def test_bounds_of_the_grid_engine_stay_bounds():
    """Messages are taken over as they are, also under other weights; what is certified from them holds."""
    rng = np.random.default_rng(5)
    model = grid_model(rng, 16, 24, 3, integral=False)
    plan = tm.prepare(model, "trws", max_iterations=3)
    for frame in range(3):
        weights = model.blocks[0].weights * (0.5 + 0.5 * frame)
        result = plan.solve(rng.random((16 * 24, 3)) * 3, weights)
        assert result.note.startswith("grid engine")
        better = tm.solve(plan.model, "trws", max_iterations=200)
        assert result.lower_bound <= better.energy and better.lower_bound <= result.energy
        assert result.lower_bound <= better.lower_bound + 1e-6  # which is the best there is


def test_a_plan_is_left_as_it_was_by_wrong_costs():
    model = grid_model(np.random.default_rng(0), 4, 4, 3)
    before = model.unaries.copy()
    plan = tm.prepare(model, "bcd")
    first = plan.solve()
    for wrong in ({"unaries": np.zeros((3, 3))}, {"unaries": np.full((16, 3), np.nan)}, {"weights": [1.0, 2.0]}):
        with pytest.raises(tm.ModelError):
            plan.solve(**wrong)
    assert plan.solve(warm=False) == first and plan.last == first
    plan.solve(unaries=np.zeros((16, 3)), weights=2.0)
    assert np.array_equal(model.unaries, before) and tm.solve(model, "bcd") == first  # the model is the user's
    with pytest.raises(tm.OptionError, match="'sweeps' is no option of a run"):
        plan.solve(sweeps=3)
    for options in ({"init": [0] * 16}, {"colour": 1}):
        with pytest.raises(tm.OptionError):
            tm.prepare(model, "bcd", **options)
    assert plan.solve(max_iterations=1, trace=True, init=np.zeros(16, dtype=int)).iterations <= 1


def test_weights_of_several_blocks():
    model = tm.Model([3] * 4)
    model.add_potts([[0, 1], [1, 2]], [1.0, 2.0])
    model.add_factors([[2, 3]], np.ones((3, 3)) - np.eye(3), weights=[3.0])
    model.add_factors([[3, 0]], [[np.inf, 0, 0], [0, 1, 0], [0, 0, 2.0]])
    model.replace_weights([[4.0, 5.0], None, 6.0])
    assert [b.weights.tolist() for b in model.blocks] == [[4.0, 5.0], [3.0], [6.0]]
    assert model.energy([0, 1, 1, 2]) == 4.0 + 3.0
    for wrong, word in (([1.0], "3 blocks"), ([1.0, None, -1.0], "negative"), ([np.nan, 1.0, 1.0], "entry")):
        with pytest.raises(tm.ModelError, match=word):
            model.replace_weights(wrong)
    assert model.energy([0, 1, 1, 2]) == 7.0
