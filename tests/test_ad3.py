"""AD3: factor programs, the path of the plain version, bounds and their limit, absorbed factors, branching."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import naive
import tightmap as tm
from conftest import data_file
from problems import KINDS, grid_model, random_model, tree_model
from region_oracles import all_energies
from tightmap.energy.energies import energy, lower_bound
from tightmap.moves.context import Context, Incumbent
from tightmap.problems.segmentation import segmentation
from tightmap.reference.ad3 import ad3, factor_program, spread
from tightmap.runtime import parallel
from tightmap.solvers.decomposition.absorb import absorb
from tightmap.solvers.decomposition.ad3_run import Run
from tightmap.solvers.decomposition.branching import Search


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are done before a second thread has woken up."""
    with parallel.using(1):
        yield


def one_factor(rng, kind, order, labels=4):
    """A graph with a single factor of that kind; None where it was recognised as something without a factor."""
    for _ in range(20):
        model = random_model(rng, n=order, labels=labels, factors=1, order=order, kinds=(kind,), tidy=True)
        graph = model.graph()
        if graph.m == 1 and len(graph.arrays.scope) == order:
            return graph
    return None


def solved(graph, linear, eta, first=None):
    """Marginals of the program of the only factor: the linear costs are unaries, and the last point is zero.

    ``first``: other linear costs, whose active set is the start.
    """
    run = Run(graph, Context(), 1.0, 1.0, np.inf)
    for costs in (linear,) if first is None else (first, linear):
        run.unary, run.eta = np.concatenate(costs), eta
        run.point[:], run.multipliers[:], run.still[:] = 0.0, 0.0, 0
        for _ in run.iterate():
            pass
    return [run.copies[a:b] for a, b in itertools.pairwise(run.at)], int(run.sets.held[0])


def violation(table, linear, eta, u):
    """How far marginals are from optimal, relative to the costs.

    u minimises a convex function over a polytope exactly when no vertex lies below it along the slope: the value of
    the cheapest labelling at the slope equals <slope, u> + <theta, v> for the best v with marginals u, and that needs
    the labellings of minimal cost at the slope to span u.
    """
    from scipy.optimize import nnls

    slope = table + spread([c + eta * v for c, v in zip(linear, u, strict=True)])
    size = 1.0 + np.abs(slope).max()
    tight = np.argwhere(slope <= slope.min() + 1e-8 * size)
    columns = np.array([np.concatenate([np.eye(len(v))[x] for x, v in zip(row, u, strict=True)]) for row in tight]).T
    return nnls(columns, np.concatenate(u))[1]


@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_factors_are_optimal(kind):
    """The marginals are spanned by labellings that are cheapest at the slope: the KKT conditions, from any start."""
    rng = np.random.default_rng(KINDS.index(kind))
    done = 0
    for trial in range(30):
        order = 2 if kind in ("potts", "linear", "quadratic") else 3 if kind == "second" else 2 + trial % 3
        graph = one_factor(rng, kind, order)
        if graph is None:
            continue
        scope, table = naive.dense_factor(graph, 0)
        linear = [rng.normal(size=c) * rng.choice([0.1, 1.0, 5.0]) for c in graph.arrays.cards]
        eta = float(rng.choice([0.01, 1.0, 10.0]))
        other = [rng.normal(size=c) for c in graph.arrays.cards]
        own = [linear[i] for i in scope]
        for first in (None, other):
            u, _ = solved(graph, linear, eta, first)
            for v in u:
                assert v.min() >= 0.0 and v.sum() == pytest.approx(1.0, abs=1e-12)
            assert violation(table, own, eta, u) < 1e-8
        plain = factor_program(table, own, eta)
        np.testing.assert_allclose(np.concatenate(u), np.concatenate(plain), atol=1e-8)
        done += 1
    assert done > 10


def test_two_binary_variables_in_closed_form():
    rng = np.random.default_rng(3)
    for trial in range(100):
        graph = one_factor(rng, ("dense", "potts", "linear")[trial % 3], 2, labels=2)
        _, table = naive.dense_factor(graph, 0)
        linear = [rng.normal(size=2) for _ in range(2)]
        eta = float(rng.choice([0.05, 1.0, 20.0]))
        u, count = solved(graph, linear, eta)
        assert count == 0  # no active set
        assert violation(table, linear, eta, u) < 1e-8
        np.testing.assert_allclose(np.concatenate(u), np.concatenate(factor_program(table, linear, eta)), atol=1e-9)


def test_many_programs_with_ties():
    """Costs of few different values: labellings that depend on one another, and sets that must not cycle."""
    rng = np.random.default_rng(4)
    for _ in range(100):
        model = tm.Model(rng.integers(2, 4, size=4))
        model.add_factors([[0, 1, 2, 3]], rng.integers(0, 2, size=tuple(model.cardinalities)).astype(float))
        graph = model.graph()
        if graph.m != 1:
            continue
        linear = [rng.integers(-1, 2, size=c) * 0.5 for c in graph.arrays.cards]
        u, count = solved(graph, linear, 0.5)
        scope, table = naive.dense_factor(graph, 0)
        assert violation(table, [linear[i] for i in scope], 0.5, u) < 1e-8
        assert count <= 1 + int((graph.arrays.cards - 1).sum())


# ------------------------------------------------------------------------------------------------- iterations


def iterated(graph, iterations, eta=0.1, **options):
    run = Run(graph, Context(), eta, options.pop("relaxation", 1.0), np.inf)
    run.eta = eta
    for _ in range(iterations):
        for _ in run.iterate():
            pass
    return run


@pytest.mark.parametrize("order", [2, 3, 4])
def test_the_path_of_the_plain_version(order):
    """The same bound, residuals and point after the same iterations, factor by factor from a warm start."""
    for seed in range(4):
        rng = np.random.default_rng(10 * order + seed)
        graph = random_model(rng, n=6, labels=3, factors=7, order=order, tidy=True).graph()
        trace = ad3(naive.graph_tables(graph), iterations=25, eta=0.7).trace[-1]
        run = iterated(graph, 25, 0.7)
        assert run.bound() == pytest.approx(trace["bound"], abs=1e-6)
        assert run.primal * np.sqrt(len(run.copies)) == pytest.approx(trace["primal"], abs=1e-6)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_bounds_converge_to_the_linear_program(order):
    """D(lambda) is never above the optimum of the relaxation, in the end it is there, and no labelling is below."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=6, labels=3, factors=9, order=order, tidy=True).graph()
        program = naive.local_polytope(graph)
        run = iterated(graph, 0, 1.0)
        run.balance = 4.0
        seen = []
        for k in range(1500):
            for _ in run.iterate():
                pass
            if k % 20 == 0 or run.period_over:
                seen.append(run.bound())
        assert max(seen) <= program + 1e-7 * (1.0 + abs(program))
        assert seen[-1] >= program - 1e-5 * (1.0 + abs(program))
        assert energy(graph, run.polished(run.labelling())) >= program - 1e-7 * (1.0 + abs(program))


def test_multipliers_reparametrise():
    """Nothing is left at the variables, and the energy of every labelling is that of the reparametrised tables."""
    graph = random_model(np.random.default_rng(1), n=6, labels=3, factors=8, order=3, tidy=True).graph()
    run = iterated(graph, 30)
    run.bound()
    g = graph.arrays
    total = g.unary.copy()
    messages = {}
    for f in range(graph.m):
        for p in range(g.scope_start[f], g.scope_start[f + 1]):
            i, m = g.scope[p], run.messages[run.at[p] : run.at[p + 1]]
            total[g.offset[i] : g.offset[i + 1]] += m
            messages[f, p - int(g.scope_start[f])] = m
    inside = np.repeat(np.diff(g.adj_start) > 0, g.cards)
    assert np.abs(total[inside]).max() < 1e-9
    assert naive.bound_of_messages(graph, messages) == pytest.approx(float(lower_bound(graph, run.messages)), abs=1e-9)


def test_factors_that_stand_still_change_nothing():
    """The same path, bit for bit, when nothing is ever skipped; and late in a run nearly everything is."""
    graph = grid_model(np.random.default_rng(2), 6, 7, 3).graph()
    first, second = iterated(graph, 0), iterated(graph, 0)
    for _ in range(120):
        for _ in first.iterate():
            pass
        second.still[:] = 0
        for _ in second.iterate():
            pass
    assert first.solved < graph.m / 2 and second.solved == graph.m
    assert (first.point == second.point).all() and (first.multipliers == second.multipliers).all()


def test_scaling_all_costs_changes_nothing():
    model = random_model(np.random.default_rng(6), n=6, factors=8, order=3, tidy=True)
    results = []
    for factor in (1.0, 2.0**20):
        scaled = tm.Model(model.cardinalities)
        scaled.add_unaries(
            [factor * model.unaries[a:b] for a, b in zip(model.offset[:-1], model.offset[1:], strict=True)]
        )
        for block in model.blocks:
            shape = tuple(int(c) for c in model.cardinalities[block.scopes[0]])
            scaled.add_factors(block.scopes, factor * block.dense(np.arange(len(block)), shape))
        results.append(tm.solve(scaled, "ad3", max_iterations=200))
    assert (results[0].labels == results[1].labels).all()
    assert results[1].lower_bound == pytest.approx(2.0**20 * results[0].lower_bound, rel=1e-9)


# ------------------------------------------------------------------------------------------------- the whole method


@pytest.mark.parametrize("order", [2, 3])
def test_forests_are_proven(order):
    for seed in range(4):
        model = tree_model(np.random.default_rng(seed), n=7, order=order)
        result = tm.solve(model, "ad3")
        assert result.status is tm.Status.OPTIMAL
        assert result.energy == pytest.approx(all_energies(model).min(), abs=1e-9)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_exact_is_brute_force(order):
    nodes = 0
    for seed in range(12):
        rng = np.random.default_rng(100 * order + seed)
        hard = 0.15 if seed % 3 == 0 else 0.0
        kinds = ("dense",) if seed % 4 else KINDS
        model = random_model(
            rng, n=7, labels=3, factors=18, order=order, kinds=kinds, hard=hard, integral=seed % 2 == 0, ragged=False
        )
        result = tm.solve(model, "ad3", exact=True)
        best = all_energies(model).min()
        if np.isinf(best):
            assert result.status is tm.Status.INFEASIBLE
            continue
        assert result.status is tm.Status.OPTIMAL
        assert result.energy == pytest.approx(best, rel=1e-9, abs=1e-9)
        nodes += "search tree" in result.note
    assert nodes > 0  # some relaxations were not tight


def test_search_keeps_only_what_it_may():
    """Nodes that share the multipliers of the root, where there is no memory for their own, end the same."""
    model = grid_model(np.random.default_rng(4), 3, 4, 3, "dense", integral=False)
    graph = model.graph()
    ends = []
    for memory in (1 << 28, 0):
        incumbent = Incumbent(graph)
        run = iterated(graph, 50, 1.0)
        incumbent.offer(run.polished(run.labelling()))
        search = Search(run, incumbent, incumbent.offer, lambda: np.inf, 1e-7)
        search._roomy = lambda count, memory=memory: memory > 0
        bounds = [b for b in search.work(run.bound()) if b is not None]
        assert all(a <= b + 1e-9 for a, b in itertools.pairwise(bounds))
        assert search.nodes > 1
        ends.append((incumbent.energy, bounds[-1]))
    assert ends[0] == pytest.approx(ends[1])
    assert incumbent.energy == pytest.approx(all_energies(model).min())


def test_absorbed_factors():
    """The same energies, fewer factors, a relaxation that is at least as tight, messages of the original layout."""
    tighter = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model = random_model(rng, n=6, labels=3, factors=9, order=4, tidy=True)
        model.add_potts([[0, 1], [2, 3], [4, 5], [1, 2]], rng.normal(size=4) * 3)
        graph = model.graph()
        whole = absorb(graph)
        assert whole.graph.m <= graph.m
        for x in rng.integers(0, graph.arrays.cards, size=(20, graph.n)):
            assert naive.graph_energy(whole.graph, x) == pytest.approx(naive.graph_energy(graph, x), abs=1e-9)
        if whole.place is None:
            continue
        before, after = naive.local_polytope(graph), naive.local_polytope(whole.graph)
        assert after >= before - 1e-7
        tighter += after > before + 1e-4
        messages = rng.normal(size=len(whole.place))
        assert (whole.take(whole.give(messages)) == messages).all()
    assert tighter > 0


def test_messages_are_handed_over():
    """From trws to ad3 nothing is lost, and trws goes on from ad3."""
    model = grid_model(np.random.default_rng(8), 8, 9, 3, "dense")
    for one, other in (("trws", "ad3"), ("ad3", "trws"), ("ad3", "ad3")):
        first = tm.solve(model, one, max_iterations=40)
        second = tm.solve(model, other, init=first, max_iterations=1)
        assert second.lower_bound >= first.lower_bound - 1e-6 * abs(first.lower_bound)


def test_segmentation_is_proven():
    result = tm.solve(segmentation(2, size=16), "ad3", exact=True)
    assert result.status is tm.Status.OPTIMAL


def test_matching_bound():
    """Hard constraints do not blur the bound: after some hundred iterations it is near that of the relaxation."""
    result = tm.solve(tm.read(data_file("matching/matching0.dd")), "ad3", max_iterations=150)
    assert result.lower_bound >= -178.6


@pytest.mark.parametrize(
    "method, options",
    [
        ("ad3", {}),
        ("bundle", {"planes": 3, "passes": 1, "tolerance": 0.0}),
        ("subgradient", {"steps": "diminishing"}),
    ],
)
def test_slow_convergence_ends_by_itself(method, options):
    # hard costs beside each other let the bound rise by tiny steps for ever
    model = tm.Model([2, 2, 2, 2])
    model.add_unaries([[-1.0, 1.0], [1.0, -1.0], [2.0, 1.0], [-1.0, 1.0]])
    table = [[np.inf, 1.0 - 2.9e-7], [1.0 - 1.8e-7, np.inf]]
    model.add_factors([[0, 1], [0, 2], [0, 3], [1, 2]], table)
    assert tm.solve(model, method, **options).status in (tm.Status.CONVERGED, tm.Status.OPTIMAL, tm.Status.INFEASIBLE)
