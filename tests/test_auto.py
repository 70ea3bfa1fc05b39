"""The plan that auto follows: which methods, by structure alone, and how they hand over to each other."""

import numpy as np
import pytest

import tightmap as tm
from tightmap.moves.context import Context
from tightmap.solvers.auto.plan import forbidden, plan
from tightmap.solvers.auto.solver import Auto
from tightmap.solvers.auto.triangles import LABELS, met_triangles
from tightmap.solvers.base import Init


def spins(height, width, seed=0):
    """A frustrated grid: couplings of both signs."""
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(height, width, 2)
    model.add_unaries(rng.normal(size=(height * width, 2)) * 0.1)
    edges = model.edges()
    model.add_factors(edges, rng.normal(size=(len(edges), 1, 1)) * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    return model


def irregular(n=60, labels=4, seed=0):
    rng = np.random.default_rng(seed)
    model = tm.Model([labels] * n)
    pairs = np.unique(np.sort(rng.integers(0, n, (4 * n, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    model.add_factors(pairs, rng.random((len(pairs), labels, labels)))
    return model


def methods(model):
    return [phase.method for phase in plan(model.graph())]


@pytest.mark.parametrize("labels", [5, 12])
def test_images_get_cuts_and_trws_and_squares_where_labels_are_few(labels):
    model = tm.Model.grid(20, 20, labels)
    model.add_unaries(np.random.default_rng(0).random((400, labels)))
    model.add_potts(model.edges(), np.full(len(model.edges()), 0.3))
    names = methods(model)
    assert {"expansion", "trws", "admm"} <= set(names)
    assert "mplp-c" not in names and ("srmp" in names) == (labels == 5)


def test_annealing_comes_first_where_there_are_no_cuts():
    assert [phase.method for phase in plan(irregular().graph()) if phase.early] == ["annealing"]
    result = tm.solve(irregular(200, 4), time_limit=0.5)
    assert "annealing (" in result.note
    assert result.energy == pytest.approx(irregular(200, 4).energy(result.labels))


def test_every_method_is_heard():
    """Whatever the weights say: no method waits for its first turn until the time is over."""
    model = irregular(200, 4)
    result = tm.solve(model, time_limit=3.0)
    for phase in plan(model.graph()):
        if not phase.follows:
            assert f"{phase.method} (" in result.note, result.note


def test_frustrated_grids_get_squares_and_other_models_clusters():
    phases = {phase.method: phase for phase in plan(spins(40, 40).graph())}
    assert phases["srmp"].options == {"clusters": "squares"} and phases["srmp"].follows == "trws"
    assert "mplp-c" in methods(irregular())


@pytest.mark.parametrize("model", [spins(30, 30), irregular(80, 5)], ids=["grid", "irregular"])
def test_the_bound_is_better_than_that_of_the_pairwise_relaxation(model):
    """trws ends when the tightening method begins, which goes on from its messages."""
    relaxed = tm.solve(model, "trws").lower_bound
    result = tm.solve(model, time_limit=4.0)
    assert relaxed < result.lower_bound <= result.energy
    assert result.lower_bound - relaxed > 0.05 * (result.energy - relaxed)
    assert result.energy == pytest.approx(model.energy(result.labels))


def glass(n, labels=2):
    """Couplings +-1 between all pairs: the linear relaxation says nothing about it."""
    rng = np.random.default_rng(1)
    pairs = [[i, j] for i in range(n) for j in range(i)]
    model = tm.Model([labels] * n)
    model.add_potts(pairs, rng.choice([-1.0, 1.0], len(pairs)))
    return model


def test_dense_binary_models_get_the_semidefinite_bound_and_others_do_not():
    assert "sdp" in methods(glass(30))
    assert "sdp" not in methods(glass(30, 3)) and "sdp" not in methods(spins(40, 40))
    result = tm.solve(glass(30), time_limit=60.0)
    assert result.status is tm.Status.OPTIMAL and "sdp (" in result.note


def test_large_models_with_the_semidefinite_bound_are_searched_only_where_they_are_narrow():
    rng = np.random.default_rng(0)
    n = 400
    band = [[i, i + k] for k in range(1, 7) for i in range(n - k)]
    far = [sorted(rng.choice(n, 2, replace=False)) for _ in range(6 * n)]
    for pairs, searched in ((band, True), (far, False)):
        model = tm.Model([2] * n)
        model.add_potts(pairs, rng.choice([-1.0, 1.0], len(pairs)))
        found = methods(model)
        assert "sdp" in found and ("exact" in found) == searched


def test_binary_pairs_begin_with_the_population_of_spins():
    for model in (glass(30), spins(20, 20)):
        assert [phase.method for phase in plan(model.graph()) if phase.early] == ["tabu"]


def test_large_sparse_pairs_get_cores_after_trws_and_small_or_dense_ones_do_not():
    phases = {phase.method: phase for phase in plan(spins(60, 60).graph())}
    assert phases["combilp"].follows == "trws"
    assert "combilp" not in methods(spins(20, 20))


def test_other_pairs_get_their_bound_with_labels_fixed_by_it():
    """What is left of them may be small enough to search; clusters go on from the same messages."""
    phases = {phase.method: phase for phase in plan(irregular().graph())}
    assert "trws" not in phases
    assert phases["combilp"].options == {"cores": False} and phases["combilp"].follows == ""
    assert phases["mplp-c"].follows == "combilp"


def seams(height, width, labels=4, seed=0, noise=0.0):
    """A table for every edge: what pictures differ by on both sides of a seam, and noise that is no metric."""
    rng = np.random.default_rng(seed)
    pictures = rng.random((height * width, labels))
    model = tm.Model.grid(height, width, labels)
    unary = rng.random((height * width, labels))
    unary[::7, 1:] = np.inf
    model.add_unaries(unary)
    edges = model.edges()
    a, b = pictures[edges[:, 0]], pictures[edges[:, 1]]
    tables = np.abs(a[:, :, None] - a[:, None]) + np.abs(b[:, :, None] - b[:, None])
    model.add_factors(edges, (1.0 - noise) * tables + noise * rng.random(tables.shape))
    return model


def test_tables_that_are_nearly_metrics_get_cuts_and_others_do_not():
    assert met_triangles(seams(8, 9).graph()) == 1.0
    assert met_triangles(seams(8, 9, noise=1.0).graph()) == pytest.approx(0.5, abs=0.05)
    assert "expansion" in methods(seams(20, 20)) and "expansion" not in methods(seams(20, 20, noise=1.0))
    result = tm.solve(seams(20, 20), time_limit=1.0)
    assert "expansion (tables that are nearly metrics)" in result.note


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e7])
def test_the_share_of_triangles_does_not_depend_on_the_unit(scale):
    rng = np.random.default_rng(3)
    model = tm.Model([3, 5, 4, 20, 20])
    for i, j in ((0, 1), (2, 1), (3, 4), (0, 3)):
        model.add_factors([[i, j]], scale * rng.random((model.cardinalities[i], model.cardinalities[j])))
    share = met_triangles(model.graph())
    assert 0.0 < share < 1.0
    slow = met = 0
    g = model.graph().arrays
    for f in range(len(g.kind)):
        high, wide = g.cards[g.scope[2 * f]], g.cards[g.scope[2 * f + 1]]
        t = g.weight[f] * g.params[g.param[f] : g.param[f] + high * wide].reshape(high, wide)
        few = min(high, wide)
        chosen = np.unique(np.linspace(0, few - 1, min(few, LABELS)).astype(int))
        for a in chosen:
            for b in chosen:
                for c in chosen:
                    if a != c and b != c:
                        slow += 1
                        met += t[a, b] + t[c, c] <= t[a, c] + t[c, b]
    assert share == pytest.approx(met / slow)


def chained(table, n=60, seed=0):
    """Hard tables of three binary variables each, soft unaries."""
    rng = np.random.default_rng(seed)
    model = tm.Model([2] * n)
    model.add_unaries(rng.random((n, 2)))
    model.add_factors([sorted(rng.choice(n, 3, replace=False)) for _ in range(n)], table)
    return model


def test_single_changes_come_first_between_loose_constraints_and_subgraphs_between_tight_ones():
    loose = np.zeros((2, 2, 2))
    loose[1, 0, 1] = np.inf
    tight = np.full((2, 2, 2), np.inf)
    tight[0, 0, 0] = tight[1, 1, 1] = 0.0
    assert forbidden(chained(loose).graph()) == pytest.approx(1 / 8)
    assert forbidden(chained(tight).graph()) == pytest.approx(3 / 4)
    assert forbidden(irregular().graph()) == 0.0
    for table, first in ((loose, "chains"), (tight, "lns")):
        assert [phase.method for phase in plan(chained(table).graph()) if phase.early] == [first]


def test_one_label_for_all_is_tried_before_anything_else():
    """Descent on a noisy image with strong weights ends in many small regions; a constant is far below."""
    rng = np.random.default_rng(4)
    model = tm.Model.grid(30, 30, 3)
    model.add_unaries(rng.random((900, 3)))
    model.add_potts(model.edges(), weights=3.0)
    state = Auto().start(model.graph(), Init(), Context(seed=0, threads=1))
    assert state.incumbent.energy <= model.unaries.reshape(900, 3).sum(axis=0).min() + 1e-9


def test_proofs_take_turns_without_a_time_limit():
    """The exact search and the clusters: neither has to wait for the end of the other."""
    rng = np.random.default_rng(8)
    model = tm.Model([9] * 14)
    model.add_unaries(rng.random((14, 9)))
    pairs = np.array([(i, j) for i in range(14) for j in range(i)])
    model.add_factors(pairs, rng.random((len(pairs), 9, 9)))
    solver = Auto()
    state = solver.start(model.graph(), Init(), Context(seed=0, threads=1))
    order: list[str] = []
    for _ in range(600):
        for runner in state.turns:
            if runner.phase.turn is not None and order[-1:] != [runner.phase.method]:
                order.append(runner.phase.method)
        if len(order) == 4 or solver.step(state).done:
            break
    assert order == ["exact", "mplp-c", "exact", "mplp-c"]


def test_easy_models_are_proven_before_any_other_method_begins():
    """With a time limit, the exact search has a moment of its own, hard constraints or not."""
    rng = np.random.default_rng(3)
    for hard in (0.0, np.inf):
        model = tm.Model([5] * 24)
        model.add_unaries(rng.random((24, 5)))
        for i in range(24):
            for j in range(i):
                if rng.random() < 0.4:
                    model.add_factors([[j, i]], np.where(np.eye(5) > 0, hard, 0.1 * rng.random((5, 5))))
        assert [phase.method for phase in plan(model.graph()) if phase.prepare < 0.1] == ["exact"]
        result = tm.solve(model, time_limit=20.0, threads=1)  # with more, others begin beside it on a slow machine
        assert result.status is tm.Status.OPTIMAL
        begun = [line.split()[0] for line in result.note.splitlines()]
        assert [word for word in begun if word != "presolved:"] == ["exact"]


def test_a_model_that_is_not_easy_leaves_the_exact_search_after_a_moment():
    model = irregular(200, 6)
    assert any(phase.prepare < 0.1 for phase in plan(model.graph()))
    result = tm.solve(model, time_limit=5.0)
    assert "annealing (" in result.note and "exact (" in result.note
