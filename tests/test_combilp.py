"""Exact search on the cores of message passing: bounds, proofs and moves of cost against slow, obvious versions."""

import itertools
import math

import numpy as np
import pytest

import tightmap as tm
from problems import random_model
from region_oracles import all_energies
from tightmap.energy.energies import energy, message_offsets
from tightmap.errors import ModelError, OptionError
from tightmap.moves.context import Context, Incumbent
from tightmap.registry import make_solver
from tightmap.solvers.combilp.blocks import Blocks
from tightmap.solvers.combilp.core import Neighbours, make_core, press
from tightmap.solvers.combilp.search import CoreSearch, Growth
from tightmap.testing.models import grid_model

SHAPES = [(order, hard) for order in (2, 3, 4) for hard in (0.0, 0.15)]


def graphs(order, hard, count, n=6):
    """Random models that have factors left in canonical form."""
    for seed in itertools.count(1000 * order + int(100 * hard)):
        model = random_model(np.random.default_rng(seed), n=n, factors=9, order=order, hard=hard)
        graph = model.graph()
        if graph.m:
            yield model, graph, np.random.default_rng(seed)
            count -= 1
        if count == 0:
            return


def random_blocks(graph, rng, size=2.0):
    return Blocks(graph, rng.normal(size=int(message_offsets(graph)[-1])) * size)


def slow_variable(blocks, i):
    g, at = blocks.graph.arrays, blocks.at
    row = g.unary[g.offset[i] : g.offset[i + 1]].copy()
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        p = at[g.scope_start[g.adj_factor[a]] + g.adj_pos[a]]
        row += blocks.messages[p : p + len(row)]
    return row


def slow_factor(blocks, f):
    """The reparametrised table, by the energy of the factor at every labelling."""
    from tightmap.factors.kernels import value

    g, at = blocks.graph.arrays, blocks.at
    scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
    table = np.zeros(g.cards[scope])
    labels = np.zeros(blocks.graph.n, np.int64)
    for x in np.ndindex(*table.shape):
        labels[scope] = x
        table[x] = value(g, f, labels)
        for p, s in enumerate(x):
            table[x] -= blocks.messages[at[g.scope_start[f] + p] + s]
    return table


def lowest(blocks):
    return math.fsum((blocks.graph.constant, *blocks.low_v, *blocks.low_f))


def all_labellings(graph):
    return [np.array(x, np.int64) for x in itertools.product(*(range(c) for c in graph.arrays.cards))]


@pytest.mark.parametrize(("order", "hard"), SHAPES)
def test_blocks_are_those_of_the_formulas(order, hard):
    for _, graph, rng in graphs(order, hard, 6):
        blocks = random_blocks(graph, rng)
        x = np.array([rng.integers(c) for c in graph.arrays.cards])
        own, joint = blocks.excess(x, blocks.all_v, blocks.all_f)
        for i in range(graph.n):
            row = slow_variable(blocks, i)
            assert blocks.low_v[i] == pytest.approx(row.min(), rel=1e-12, abs=1e-9)
            assert own[i] == pytest.approx(row[x[i]] - row.min(), rel=1e-12, abs=1e-9)
        g = graph.arrays
        for f in range(graph.m):
            table = slow_factor(blocks, f)
            here = table[tuple(x[g.scope[g.scope_start[f] : g.scope_start[f + 1]]])]
            assert blocks.low_f[f] == pytest.approx(table.min(), rel=1e-12, abs=1e-9)
            assert joint[f] == pytest.approx(here - table.min(), rel=1e-12, abs=1e-9)
        assert lowest(blocks) + own.sum() + joint.sum() == pytest.approx(energy(graph, x), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(("order", "hard"), SHAPES)
def test_pressing_keeps_every_energy_and_never_lowers_the_bound(order, hard):
    for _, graph, rng in graphs(order, hard, 6):
        blocks, near = random_blocks(graph, rng), Neighbours(graph)
        for count in (1, 2):
            before = lowest(blocks)
            core = set(rng.choice(graph.n, size=min(count, graph.n), replace=False).tolist())
            press(blocks, near, core, int(rng.integers(4)), set())
            assert (near.distance == near.far).all()
            size = 1e-9 * max(1.0, graph.hard, abs(before))
            assert lowest(blocks) >= before - size
            for _ in range(5):
                x = np.array([rng.integers(c) for c in graph.arrays.cards])
                own, joint = blocks.excess(x, blocks.all_v, blocks.all_f)
                assert lowest(blocks) + own.sum() + joint.sum() == pytest.approx(energy(graph, x), rel=1e-9, abs=size)


@pytest.mark.parametrize(("order", "hard"), SHAPES)
def test_a_core_is_the_sum_of_its_blocks_rounded_down(order, hard):
    for _, graph, rng in graphs(order, hard, 6):
        blocks, near = random_blocks(graph, rng), Neighbours(graph)
        members = set(rng.choice(graph.n, size=min(4, graph.n), replace=False).tolist())
        core = make_core(blocks, near, members, np.zeros(graph.n, np.int64))
        g = graph.arrays
        for _ in range(10):
            x = np.array([rng.integers(c) for c in g.cards])
            total = sum(slow_variable(blocks, i)[x[i]] for i in sorted(members))
            for f in core.factors.tolist():
                total += slow_factor(blocks, f)[tuple(x[g.scope[g.scope_start[f] : g.scope_start[f + 1]]])]
            found = energy(core.graph, x[core.variables])
            assert found == pytest.approx(total, rel=1e-12, abs=1e-9 * max(1.0, graph.hard))
        inside = {f for f in range(graph.m) if members.issuperset(near.members(f))}
        assert set(core.factors.tolist()) == inside


@pytest.mark.parametrize(("order", "hard"), SHAPES)
@pytest.mark.parametrize("size", [0.0, 1.0, 30.0])
def test_any_messages_give_valid_bounds_and_the_cores_end_with_the_optimum(order, hard, size):
    """Messages as bad as random ones: cores grow over the whole model, and no bound on the way is too high."""
    solver, context = make_solver("exact", {}), Context()
    for model, graph, rng in graphs(order, hard, 4):
        best = min(energy(graph, x) for x in all_labellings(graph))
        allowed = 1e-9 * max(abs(best), 1e-3)
        x = np.array([rng.integers(c) for c in graph.arrays.cards])
        incumbent = Incumbent(graph)
        incumbent.offer(x)
        search = CoreSearch(graph, random_blocks(graph, rng, size), incumbent)
        search.changed = True
        for _ in range(500):
            assert search.bound <= best + allowed
            if search.changed:
                assert search.look(graph.n + graph.m)
            elif not search.step(solver, context, 10**6) and not search.improve(context):
                growth = search.grow()
                assert growth is not Growth.TOO_LARGE
                if growth is Growth.NONE:
                    break
        assert search.bound <= best + allowed
        assert incumbent.energy == pytest.approx(best, rel=1e-9, abs=1e-9)
        if not hard:
            assert incumbent.proven_by(search.bound), model


@pytest.mark.parametrize(("order", "hard"), SHAPES)
def test_no_step_has_a_bound_above_the_optimum(order, hard):
    for model, _, _ in graphs(order, hard, 8):
        best = all_energies(model).min()
        seen = []
        result = tm.solve(model, "combilp", callback=lambda info, seen=seen: seen.append(info.lower_bound) and None)
        assert all(low <= best + 1e-9 * max(1.0, abs(best)) for low in seen if math.isfinite(best))
        if math.isfinite(best):
            assert result.energy == pytest.approx(best, rel=1e-9, abs=1e-9)
            assert result.status is tm.Status.OPTIMAL
        else:
            assert not result.feasible


@pytest.mark.parametrize("kind", ["potts", "linear", "dense"])
@pytest.mark.parametrize("integral", [True, False])
def test_grids_are_proven(kind, integral):
    for seed in range(3):
        model = grid_model(np.random.default_rng(seed), 6, 5, 3, kind, integral)
        result, truth = tm.solve(model, "combilp"), tm.solve(model, "exact")
        assert truth.status is tm.Status.OPTIMAL
        assert result.status is tm.Status.OPTIMAL
        assert result.energy == pytest.approx(truth.energy, rel=1e-12)


def large(seed=0, height=20, width=25):
    """Nearly tight: unaries matter more than the pairs, which are of both signs."""
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(height, width, 3)
    model.add_unaries(rng.normal(size=(height * width, 3)) * 3.0)
    model.add_factors(model.edges(), rng.normal(size=(len(model.edges()), 3, 3)) * 2.5)
    return model


def test_a_large_model_is_proven_where_only_cores_are_open():
    model = large()
    result = tm.solve(model, "combilp")
    relaxed = tm.solve(model, "trws")
    assert relaxed.status is not tm.Status.OPTIMAL and "core" in result.note
    assert result.status is tm.Status.OPTIMAL and result.energy <= relaxed.energy


def test_threads_change_nothing():
    one, two = (tm.solve(large(1), "combilp", threads=threads) for threads in (1, 2))
    assert (one.labels == two.labels).all() and one.lower_bound == two.lower_bound and one.status is two.status


def test_messages_of_another_run_are_gone_on_from():
    model = large(2)
    first = tm.solve(model, "trws", max_iterations=200)
    result = tm.solve(model, "combilp", init=first)
    assert result.status is tm.Status.OPTIMAL
    assert result.iterations < tm.solve(model, "combilp").iterations


def test_it_stops_by_itself_where_the_relaxation_is_loose():
    rng = np.random.default_rng(0)
    model = tm.Model.grid(20, 20, 2)
    model.add_factors(model.edges(), rng.choice([-1.0, 1.0], (len(model.edges()), 1, 1)) * np.array([[1, -1], [-1, 1]]))
    result = tm.solve(model, "combilp", max_iterations=60)
    assert result.lower_bound <= result.energy


def test_what_it_refuses_it_names():
    model = tm.Model([2] * 24)
    model.add_pn_potts([list(range(24))], [1.0], [0.0, 0.0])
    with pytest.raises(ModelError, match="combilp"):
        tm.solve(model, "combilp")
    with pytest.raises(OptionError, match="patience"):
        tm.solve(model, "combilp", patience=-1)


def test_cores_that_are_solved_one_after_the_other_are_not_given_up():
    """Neither bound nor energy changes before the last of them agrees with its border."""
    search = object.__new__(CoreSearch)
    for steps, last, advancing in ((30, 28, True), (30, 2, False), (1000, 999, False)):
        search.gaps, search.last_solved = [17.0] * steps, last
        assert not search.worthwhile
        assert search.advancing == advancing
