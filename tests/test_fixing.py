"""Labels fixed by reduced costs, and the model that is left: against every labelling, for any messages."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from naive import brute_force
from problems import random_model
from test_combilp import SHAPES, all_labellings, lowest, random_blocks, slow_factor, slow_variable
from tightmap.energy.energies import energy
from tightmap.moves.context import Incumbent
from tightmap.solvers.combilp import fixing
from tightmap.solvers.combilp.blocks import Blocks, over_blocks
from tightmap.solvers.combilp.fixing import Rest, cut, fix_labels


def models(order, hard, count, integral=False):
    """Random models whose unaries are large beside the other costs, so that some labels can be fixed."""
    for seed in range(count):
        rng = np.random.default_rng(100 * order + int(100 * hard) + 7 * seed)
        model = random_model(rng, n=5, factors=6, order=order, hard=hard, integral=integral)
        for i, c in enumerate(model.cardinalities):
            model.add_unaries([np.round(rng.random(c) * 20.0)], [i])
        if model.graph().m:
            yield model, rng


def reduced_costs(blocks):
    g = blocks.graph.arrays
    extra = np.empty(len(g.unary))
    over_blocks(
        fixing._reduced_costs, blocks.all_v, g, blocks.messages, blocks.at, blocks.low_v, blocks.low_f, blocks.wrong_v,
        blocks.wrong_f, blocks.scratch, blocks.longest, extra,
    )  # fmt: skip
    return extra


@pytest.mark.parametrize(("order", "hard"), SHAPES)
def test_reduced_costs_are_those_of_the_formula_and_below_all_energies(order, hard):
    for model, rng in models(order, hard, 8):
        graph = model.graph()
        g = graph.arrays
        blocks = random_blocks(graph, rng, 0.5)
        extra = reduced_costs(blocks)
        energies = [(x, energy(graph, x)) for x in all_labellings(graph)]
        size = 1.0 + max(abs(e) for _, e in energies)
        for i in range(graph.n):
            expected = slow_variable(blocks, i) - blocks.low_v[i]
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f, p = int(g.adj_factor[a]), int(g.adj_pos[a])
                table = slow_factor(blocks, f)
                expected = expected + table.min(axis=tuple(q for q in range(table.ndim) if q != p)) - table.min()
            mine = extra[g.offset[i] : g.offset[i + 1]]
            np.testing.assert_allclose(mine, expected, atol=1e-9 * size)
            for s in range(g.cards[i]):
                least = min(e for x, e in energies if x[i] == s)
                assert lowest(blocks) + mine[s] <= least + 1e-12 * size


@pytest.mark.parametrize("integral", [False, True])
@pytest.mark.parametrize(("order", "hard"), SHAPES)
def test_what_is_left_has_all_better_labellings_at_their_costs(order, hard, integral, monkeypatch):
    monkeypatch.setattr(fixing, "GONE", 0.0)
    found = 0
    for model, rng in models(order, hard, 25, integral):
        graph = model.graph()
        everything = [(x, energy(graph, x)) for x in all_labellings(graph)]
        incumbent = Incumbent(graph)
        # the best labelling, or one of the better ones
        incumbent.offer(sorted(everything, key=lambda pair: pair[1])[int(rng.integers(3)) % len(everything)][0])
        target, size = cut(incumbent), 1.0 + abs(incumbent.energy) + graph.hard
        rest = fix_labels(random_blocks(graph, rng, 0.05), incumbent)
        optimum = min(e for _, e in everything)
        if not isinstance(rest, Rest):
            assert rest is None or rest <= optimum + 1e-12 * size
            continue
        found += 1
        assert rest.limit >= target - 1e-12 * size
        variables = rest.core.variables
        for x, e in everything:
            kept = all(x[i] in rest.labels[k] for k, i in enumerate(variables.tolist()))
            kept = kept and all(x[i] == rest.best[i] for i in range(graph.n) if i not in variables)
            assert kept or e >= target - 1e-12 * size
            if kept:
                mine = np.array([int(np.searchsorted(rest.labels[k], x[i])) for k, i in enumerate(variables)])
                value = rest.constant - rest.wrong + energy(rest.core.graph, mine.astype(np.int64))
                assert value <= e
                assert value == pytest.approx(e, abs=1e-9 * size)
    assert found >= 5


@pytest.mark.parametrize("options", [{"cores": False}, {}, {"fixing": False}])
@pytest.mark.parametrize("integral", [False, True])
@pytest.mark.parametrize(("order", "hard"), SHAPES)
def test_no_claim_is_wrong(order, hard, integral, options, monkeypatch):
    """Fixing is tried early and whatever is left, from a labelling that need not be the best."""
    monkeypatch.setattr(fixing, "GONE", 0.0)
    monkeypatch.setattr("tightmap.solvers.combilp.solver.CHECKS", 1)
    proven = 0
    for model, rng in models(order, hard, 12, integral):
        optimum, _ = brute_force(model)
        init = [int(rng.integers(c)) for c in model.cardinalities]
        result = tm.solve(model, "combilp", init=init, max_iterations=200, **options)
        if result.status is tm.Status.INFEASIBLE:
            assert optimum == np.inf
            continue
        assert result.lower_bound <= optimum + 1e-9 * (1.0 + abs(optimum))
        if result.status is tm.Status.OPTIMAL:
            proven += 1
            assert result.energy == pytest.approx(optimum, abs=1e-9)
    assert proven >= 6


def test_a_location_problem_is_proven_by_what_fixing_leaves():
    """Sites and shops: the relaxation is nearly tight, costs differ, and the search on the whole model takes longer."""
    rng = np.random.default_rng(3)
    sites, shops = 12, 30
    model = tm.Model([2] * sites + [sites] * shops)
    model.add_unaries(np.column_stack((np.zeros(sites), rng.integers(300, 900, sites))), np.arange(sites))
    model.add_unaries(rng.integers(0, 1000, (shops, sites)).astype(float), sites + np.arange(shops))
    for site in range(sites):
        closed = np.zeros((2, sites))
        closed[0, site] = np.inf
        model.add_factors([[site, sites + shop] for shop in range(shops)], closed)
    result = tm.solve(model, "combilp", cores=False)
    assert result.status is tm.Status.OPTIMAL
    assert "labels fixed" in result.note
    assert result.energy == tm.solve(model, "exact").energy


def test_where_all_labels_of_a_variable_are_gone_the_best_labelling_is_optimal():
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, 5.0], [0.0, 5.0]])
    model.add_factors([[0, 1]], [[0.0, 1.0], [1.0, 0.5]])
    graph = model.graph()
    incumbent = Incumbent(graph)
    incumbent.offer(np.zeros(2, np.int64))
    blocks = Blocks(graph, np.zeros(4))
    bound = fix_labels(blocks, incumbent)
    assert bound is not None and not isinstance(bound, Rest)
    assert incumbent.proven_by(bound)
