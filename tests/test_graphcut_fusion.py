"""Quadratisation, roof duality and fusion against enumeration."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tightmap as tm
from naive import brute_force, labellings
from problems import random_model
from tightmap.energy.energies import energy
from tightmap.graphcut.fusion import fuse, fuse_into, fuse_proposal
from tightmap.graphcut.qpbo import QPBO, SubmodularCut, best_choice
from tightmap.graphcut.quadratise import quadratise
from tightmap.moves.context import Context
from tightmap.runtime import clock


def choices(n):
    return np.arange(1 << n)[:, None] >> np.arange(n) & 1


def values(linear, first, second, weight, b):
    return b @ linear + (b[:, first] * b[:, second]) @ weight


@pytest.mark.parametrize("method", ["fix", "hocr"])
@pytest.mark.parametrize("seed", range(25))
def test_quadratic_minimised_over_auxiliaries_is_the_energy(seed, method):
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, labels=3, factors=4, order=4, integral=seed % 2 == 0).graph()
    if graph.n == 0:
        return
    x, z = (rng.integers(0, graph.arrays.cards).astype(np.int64) for _ in range(2))
    q = quadratise(graph, x, z, method)
    n, total = len(q.variables), len(q.linear)
    if total > 16:
        pytest.skip("too many auxiliaries to enumerate")
    b = choices(total)
    f = q.constant + values(q.linear, q.first, q.second, q.weight, b)
    low = np.full(1 << n, np.inf)
    np.minimum.at(low, np.arange(1 << total) & ((1 << n) - 1), f)
    for c in range(1 << n):
        mixed = x.copy()
        mixed[q.variables] = np.where(b[c, :n] == 1, z[q.variables], x[q.variables])
        assert energy(graph, mixed) - energy(graph, x) == pytest.approx(low[c] - low[0], abs=1e-8)


@pytest.mark.parametrize("degree", [3, 4, 5, 6])
@pytest.mark.parametrize("method", ["fix", "hocr"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_single_monomials(degree, method, sign):
    table = np.zeros((2,) * degree)
    table[(1,) * degree] = sign
    model = tm.Model([2] * degree)
    model.add_factors([list(range(degree))], table)
    q = quadratise(model.graph(), np.zeros(degree, np.int64), np.ones(degree, np.int64), method)
    b = choices(len(q.linear))
    f = q.constant + values(q.linear, q.first, q.second, q.weight, b)
    low = np.full(1 << degree, np.inf)
    np.minimum.at(low, np.arange(len(b)) & ((1 << degree) - 1), f)
    expected = np.zeros(1 << degree)
    expected[-1] = sign
    assert low == pytest.approx(expected)


@pytest.mark.parametrize("integral", [True, False])
def test_roof_duality_bound_autarky_and_persistency(integral):
    rng = np.random.default_rng(int(integral))
    for _ in range(60):
        n = int(rng.integers(1, 8))
        m = int(rng.integers(0, 12)) if n > 1 else 0
        first = rng.integers(0, n, m)
        second = (first + rng.integers(1, max(n, 2), m)) % n
        draw = (lambda k: rng.integers(-9, 10, k).astype(float)) if integral else (lambda k: rng.normal(size=k))
        linear, weight = draw(n), draw(m)
        roof = QPBO(linear, first, second, weight, 2.0)
        labels = roof.solve()
        b = choices(n)
        f = 2.0 + values(linear, first, second, weight, b)
        assert roof.bound <= f.min() + 1e-9
        known = labels >= 0
        overwritten = np.where(known, labels, b)
        assert (f[(overwritten << np.arange(n)).sum(axis=1)] <= f + 1e-9).all()
        if known.all():
            assert roof.bound == pytest.approx(f.min(), abs=1e-9)
        start = rng.integers(0, 2, n).astype(np.int8)
        better = roof.improve(start, np.flatnonzero(~known), rng)
        assert f[(better.astype(int) << np.arange(n)).sum()] <= f[(start.astype(int) << np.arange(n)).sum()] + 1e-9
        best = best_choice(linear, first, second, -np.abs(weight))
        g = values(linear, first, second, -np.abs(weight), b)
        assert g[(best.astype(int) << np.arange(n)).sum()] == pytest.approx(g.min(), abs=1e-9)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 2), (12,)])
@pytest.mark.parametrize("integral", [True, False])
def test_cuts_on_grids_without_lists_of_arcs(shape, integral):
    rng = np.random.default_rng(len(shape))
    index = np.arange(int(np.prod(shape))).reshape(shape)
    pairs = []
    for axis, size in enumerate(shape):
        a, b = (np.take(index, range(k, size - 1 + k), axis).reshape(-1) for k in (0, 1))
        pairs.append(np.column_stack((a, b)))
    edges = np.concatenate(pairs)
    for _ in range(10):
        swap = rng.random(len(edges)) < 0.5
        first, second = np.where(swap, edges[:, 1], edges[:, 0]), np.where(swap, edges[:, 0], edges[:, 1])
        draw = (lambda k: rng.integers(-9, 10, k).astype(float)) if integral else (lambda k: rng.normal(size=k))
        linear, weight = 3.0 * draw(index.size), -np.abs(draw(len(edges)))
        cut = SubmodularCut(linear, first, second, weight, 2.0)
        assert cut.margin > 0
        best = cut.solve()
        f = 2.0 + values(linear, first, second, weight, choices(index.size))
        assert f[(best.astype(int) << np.arange(index.size)).sum()] == pytest.approx(f.min(), abs=1e-9)
        assert cut.bound <= f.min() and cut.bound == pytest.approx(f.min(), abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_fusion_is_never_worse_than_either(seed):
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=7, labels=3, factors=9, order=4).graph()
    x, z = (rng.integers(0, graph.arrays.cards).astype(np.int64) for _ in range(2))
    fused = fuse(graph, x, z)
    assert energy(graph, fused) <= min(energy(graph, x), energy(graph, z))
    assert ((fused == x) | (fused == z)).all()
    assert energy(graph, fuse_proposal(graph, x, z, "hocr", rng)) <= energy(graph, x)


@pytest.mark.parametrize("seed", range(30))
def test_fusion_in_parts(seed):
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=9, labels=3, factors=9, order=3).graph()
    x, z = (rng.integers(0, graph.arrays.cards).astype(np.int64) for _ in range(2))
    whole, parts, small = x.copy(), x.copy(), x.copy()
    fuse_into(graph, whole, z)
    fuse_into(graph, parts, z, largest=graph.n)  # every region fits: the same network, region by region
    fuse_into(graph, small, z, largest=2)
    assert energy(graph, parts) == pytest.approx(energy(graph, whole))
    assert energy(graph, small) <= energy(graph, x)
    assert ((small == x) | (small == z)).all()
    late = x.copy()
    fuse_into(graph, late, z, largest=2, context=Context(deadline=clock.now() - 1.0))
    assert (late == x).all()


def test_fusion_of_submodular_choices_is_optimal():
    rng = np.random.default_rng(0)
    model = tm.Model.grid(4, 4, 3)
    model.add_unaries(rng.normal(size=(16, 3)))
    model.add_potts(model.edges(), rng.random(24))
    graph = model.graph()
    x, z = np.zeros(16, np.int64), np.full(16, 2)
    best = min(energy(graph, 2 * np.array(b)) for b in labellings([2] * 16))
    assert energy(graph, fuse(graph, x, z)) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(10))
def test_qpbo_solver_on_binary_models_of_any_order(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, n=7, labels=2, factors=8, order=4)
    optimum = brute_force(model)[0]
    result = tm.solve(model, "qpbo")
    assert result.lower_bound <= optimum + 1e-9
    assert result.energy >= optimum - 1e-9
    if result.status is tm.Status.OPTIMAL:
        assert result.energy == pytest.approx(optimum)


@pytest.mark.parametrize("seed", range(6))
def test_fusion_solver_descends(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, n=7, labels=3, factors=9, order=4)
    start = rng.integers(0, model.cardinalities)
    result = tm.solve(model, "fusion", init=start, trace=True)
    energies = [row["energy"] for row in result.trace]
    assert all(a >= b for a, b in pairwise(energies))
    assert result.energy <= model.energy(start)


def test_fusion_goes_on_from_a_better_labelling_and_keeps_what_was_better_in_its_own(monkeypatch):
    """Two independent halves: its own labelling is best in one of them, the better one that it is given in the other.

    One fusion is enough, which no constant labelling would be.
    """
    from tightmap.moves.context import Context
    from tightmap.solvers.base import Init
    from tightmap.solvers.cuts import fusion

    monkeypatch.setattr(fusion, "STEP_SECONDS", -1.0)

    costs = np.ones((6, 3))
    costs[[0, 1, 2, 3, 4, 5], [0, 1, 2, 2, 1, 0]] = 0.0  # no constant proposal is good anywhere else
    model = tm.Model([3] * 6)
    model.add_unaries(costs)
    model.add_factors([[0, 1, 2], [3, 4, 5]], np.zeros((3, 3, 3)))
    graph = model.graph()
    best = np.array([0, 1, 2, 2, 1, 0])
    own, given = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 2, 1, 2, 1, 0])
    solver = fusion.Fusion()
    state = solver.start(graph, Init(labels=own), Context())
    solver.adopt(state, given)
    assert state.energy == energy(graph, given)
    solver.step(state)
    np.testing.assert_array_equal(state.labels, best)
    solver.adopt(state, own)  # worse: nothing changes
    assert state.left is None


def test_cuts_that_take_too_long_are_given_up_and_may_take_longer_the_next_time(monkeypatch):
    """With a time limit only; a proposal that was given up is not taken for one that brings nothing."""
    from tightmap.solvers.base import Init
    from tightmap.solvers.cuts import fusion

    model = random_model(np.random.default_rng(0), n=8, labels=3, factors=10, order=3)
    graph = model.graph()
    solver, seconds = fusion.Fusion(), []

    def slow(graph, labels, proposal, method, rng, context):
        seconds.append(context.remaining())
        if len(seconds) <= 3:  # as if the cut were not over when its time is
            over = clock.now() + context.remaining()
            monkeypatch.setattr(clock, "now", lambda: over)
        return labels.copy()

    monkeypatch.setattr(fusion, "fuse_proposal", slow)
    start = clock.now()
    monkeypatch.setattr(clock, "now", lambda: start)
    state = solver.start(graph, Init(labels=np.zeros(graph.n, np.int64)), Context(deadline=start + 1000.0))
    first = fusion.ONE_CUT * 1000.0
    while len(seconds) < 4:
        assert not solver.step(state).done
    assert seconds[:4] == pytest.approx([first, 2 * first, 4 * first, 8 * first])
    unlimited = solver.start(graph, Init(labels=np.zeros(graph.n, np.int64)), Context())
    assert unlimited.patience == float("inf")
