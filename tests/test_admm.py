"""ADMM: the closed-form updates, the invariances of the method, caching, threads, and what it leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import tightmap as tm
from naive import brute_force
from problems import grid_model, random_model
from tightmap.energy.energies import energy, gradient, multilinear_energy
from tightmap.factors.kernels import factor_spreads, incident_ranges, value, workspace
from tightmap.graph.stencil import find_stencil
from tightmap.graphcut.fusion import fuse_proposal
from tightmap.moves.context import Context
from tightmap.runtime import parallel
from tightmap.runtime.parallel import Teams
from tightmap.runtime.simd import LANES
from tightmap.solvers.admm.coarse import coarsen
from tightmap.solvers.admm.engine import Noise, Step
from tightmap.solvers.admm.fused_labelling import FusedLabelling
from tightmap.solvers.admm.general import GeneralSplitting, general_state, general_sweeps
from tightmap.solvers.admm.grid import GridSplitting
from tightmap.solvers.admm.grid_layout import fits
from tightmap.solvers.admm.kkt import copy_gradient, transposed
from tightmap.solvers.admm.ranges import capped
from tightmap.solvers.admm.run import AdmmState
from tightmap.solvers.admm.solver import ADMM
from tightmap.solvers.admm.updates import DECOMPOSITIONS, Form


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are done before a second thread has woken up."""
    with parallel.using(1):
        yield


def small_graph(order, seed=0):
    """Five variables of three labels, factors of every order up to the given one."""
    rng = np.random.default_rng(seed)
    model = tm.Model([3] * 5)
    model.add_unaries(rng.normal(size=(5, 3)))
    for k in range(2, order + 1):
        for _ in range(3):
            model.add_factors([rng.permutation(5)[:k]], rng.normal(size=(3,) * k))
    return model.graph()


def form(copies, decomposition="cyclic", symmetrize=True, all_simplex=False, unary_split=False, relax=1.0):
    return Form(copies, DECOMPOSITIONS[decomposition], symmetrize, all_simplex, unary_split, relax)


def potts_grid(seed, height=9, width=13, labels=4, diagonal=False):
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(height, width, labels)
    model.add_unaries(rng.random((height * width, labels)))
    index = np.arange(height * width).reshape(height, width)
    steps = [(index[:, :-1], index[:, 1:]), (index[:-1], index[1:])]
    if diagonal:
        steps += [(index[:-1, :-1], index[1:, 1:]), (index[:-1, 1:], index[1:, :-1])]
    for a, b in steps:
        edges = np.stack([a.ravel(), b.ravel()], axis=1)
        model.add_potts(edges, rng.random(len(edges)))
    return model


def decomposed_objective(graph, f, x):
    """F(x^1, .., x^D), term by term from dense tables."""
    g = graph.arrays
    total = 0.0
    for d in range(f.copies):
        share = 1.0 / f.copies if f.unary_split else float(d == 0)
        total += share * float(g.unary @ x[d])
    for c in range(len(g.kind)):
        scope = g.scope[g.scope_start[c] : g.scope_start[c + 1]]
        shape = tuple(g.cards[scope])
        table = np.empty(shape)
        labels = np.zeros(len(g.cards), np.int64)
        for index in np.ndindex(*shape):
            labels[scope] = index
            table[index] = value(g, c, labels)
        for rotation in range(f.copies) if f.symmetrize else [0]:
            part = table
            for q, i in enumerate(scope):
                copy = (q + rotation) % f.copies if f.symmetrize else q
                part = np.tensordot(x[copy][g.offset[i] : g.offset[i + 1]], part, axes=(0, 0))
            total += float(part) / (f.copies if f.symmetrize else 1)
    return total


def augmented(graph, f, x, y, rho):
    """The augmented Lagrangian of supplement B."""
    if f.decomposition == DECOMPOSITIONS["cyclic"]:
        gaps = [(y[d], x[d - 1] - x[d]) for d in range(1, f.copies)]
    elif f.decomposition == DECOMPOSITIONS["star"]:
        gaps = [(y[d], x[0] - x[d]) for d in range(1, f.copies)]
    else:
        gaps = [(y[d], x[d] - x.mean(axis=0)) for d in range(f.copies)]
    return decomposed_objective(graph, f, x) + sum(float(m @ r) + rho / 2 * float(r @ r) for m, r in gaps)


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("decomposition", ["cyclic", "star", "symmetric"])
@pytest.mark.parametrize("symmetrize", [True, False])
def test_update_of_the_last_copy_minimises_the_lagrangian(order, decomposition, symmetrize):
    """One sweep leaves copy D where a numerical minimiser over non-negative vectors puts it, given the others."""
    graph = small_graph(order, seed=order)
    rng = np.random.default_rng(7)
    f = form(order, decomposition, symmetrize)
    n = len(graph.arrays.unary)
    x, y = rng.random((order, n)), rng.normal(size=(order, n))
    if decomposition == "symmetric":
        y -= y.mean(axis=0)
    rho = 50.0
    state = general_state(graph.arrays, f)
    state.x[:], state.y[:] = x.ravel(), y.ravel()
    general_sweeps(graph.arrays, f, state, rho, 0.0, 1, True, workspace(graph.arrays), np.inf)
    after = state.x.reshape(order, n).copy()

    def lagrangian(last):
        return augmented(graph, f, np.vstack([after[:-1], last]), y, rho)

    best = minimize(
        lagrangian,
        after[-1],
        method="L-BFGS-B",
        bounds=[(0, None if order == 2 else 1)] * n,
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    assert lagrangian(after[-1]) <= best.fun + 1e-9 * abs(best.fun)
    np.testing.assert_allclose(after[-1], best.x, atol=2e-4)


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("decomposition", ["cyclic", "star", "symmetric"])
def test_centres_are_stationary_in_every_copy(order, decomposition):
    """With every vector inside its set, an updated copy has zero gradient of the Lagrangian when it was updated."""
    graph = small_graph(order, seed=10 + order)
    f = form(order, decomposition)
    n = len(graph.arrays.unary)
    rng = np.random.default_rng(1)
    x, y = 0.4 + 0.2 * rng.random((order, n)), np.zeros((order, n))
    rho = 1e4
    state = general_state(graph.arrays, f)
    state.x[:] = x.ravel()
    state.dirty[0] = 0  # copy 1 is projected on simplices; look at the others
    general_sweeps(graph.arrays, f, state, rho, 0.0, 1, True, workspace(graph.arrays), np.inf)
    after = state.x.reshape(order, n)
    for d in range(1, order):
        at = np.vstack([after[: d + 1], x[d + 1 :]])
        step = 1e-5
        for s in range(0, n, 4):
            up, down = at.copy(), at.copy()
            up[d, s] += step
            down[d, s] -= step
            slope = (augmented(graph, f, up, y, rho) - augmented(graph, f, down, y, rho)) / (2 * step)
            assert abs(slope) < 1e-4 * rho


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("symmetrize", [True, False])
def test_decomposition_restores_energy_and_gradient(order, symmetrize):
    graph = small_graph(order, seed=20)
    f = form(order, symmetrize=symmetrize)
    x = np.random.default_rng(0).random(len(graph.arrays.unary))
    stacked = np.stack([x] * order)
    assert decomposed_objective(graph, f, stacked) == pytest.approx(multilinear_energy(graph, x) - graph.constant)
    parts = sum(copy_gradient(graph.arrays, f, stacked, d) for d in range(order))
    np.testing.assert_allclose(parts, gradient(graph, x), atol=1e-9)


def trajectory(g, f, rho, iterations, cached=True, eps=0.0, y0=None):
    state = general_state(g, f)
    state.x.reshape(f.copies, -1)[:] = np.repeat(1.0 / g.cards, g.cards)
    general_sweeps(g, f, state, rho, eps, iterations, cached, workspace(g), np.inf)
    return state.x.reshape(f.copies, -1).copy(), state.y.reshape(f.copies, -1).copy()


def test_scale_invariance():
    """(E, rho, y) -> (a E, a rho, a y) leaves the copies alone."""
    g = small_graph(3).arrays
    scaled = g._replace(unary=4.0 * g.unary, weight=4.0 * g.weight)
    for name in DECOMPOSITIONS:
        x, y = trajectory(g, form(3, name), 0.7, 40)
        x4, y4 = trajectory(scaled, form(3, name), 2.8, 40)
        np.testing.assert_allclose(x4, x, atol=1e-9)
        np.testing.assert_allclose(y4, 4.0 * y, atol=1e-8)


def test_two_copies_cyclic_is_star_and_half_symmetric():
    g = small_graph(2).arrays
    cyclic = trajectory(g, form(2, "cyclic", relax=1.5), 0.8, 30)
    star = trajectory(g, form(2, "star", relax=1.5), 0.8, 30)
    np.testing.assert_allclose(star[0], cyclic[0], atol=1e-12)
    cyclic = trajectory(g, form(2, "cyclic"), 0.8, 30)
    symmetric = trajectory(g, form(2, "symmetric"), 1.6, 30)
    np.testing.assert_allclose(symmetric[0], cyclic[0], atol=1e-9)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_cached_is_uncached_bit_for_bit(order, eps):
    g = small_graph(order, seed=3).arrays
    for name in DECOMPOSITIONS:
        a = trajectory(g, form(order, name), 2.0, 300, True, eps)
        b = trajectory(g, form(order, name), 2.0, 300, False, eps)
        assert all((p == q).all() for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("labels", [2, 3, 4, 5])  # up to four have kernels of their own
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_grid_sweeps_are_general_sweeps(labels, diagonal, dtype):
    """The tiled kernels do what the general ones do, over-relaxed too; width 13 leaves a partly empty tile."""
    graph = potts_grid(1, labels=labels, diagonal=diagonal).graph()
    stencil = find_stencil(graph)
    fast = GridSplitting(stencil, graph.arrays.unary, 0.0, dtype, 1, True)
    slow = GeneralSplitting(graph.arrays, form(2), 0.0, 1, True)
    assert fast.kappa == pytest.approx(slow.kappa)
    fast.reset(None)
    slow.reset(None)
    for rho in (0.5, 0.7):
        a = fast.iterate(8, Step(rho, 1.3))
        b = slow.iterate(8, Step(rho, 1.3))
        assert a[0] == pytest.approx(b[0], rel=1e-2 if dtype is np.float32 else 1e-9)
    np.testing.assert_allclose(fast.export()[0], slow.export()[0], atol=2e-4 if dtype is np.float32 else 1e-10)
    np.testing.assert_allclose(fast.export()[1], slow.export()[1], atol=2e-4 if dtype is np.float32 else 1e-10)


@pytest.mark.parametrize("labels", [3, 5])
def test_grid_sweeps_do_not_read_their_surroundings(labels):
    """What lies around the arrays in memory, NaN here, has no influence: corners have neighbours of weight 0 there."""
    graph = potts_grid(1, labels=labels, diagonal=True).graph()
    stencil = find_stencil(graph)
    rng = np.random.default_rng(0)
    residuals = set()
    for _ in range(60):
        for size in rng.integers(10, 400, 20):
            np.full(size, np.nan)
        engine = GridSplitting(stencil, graph.arrays.unary, 0.0, np.float64, 1, True)
        engine.reset(None)
        residuals.add(engine.iterate(8, Step(0.5, 1.3))[0])
    assert len(residuals) == 1


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
def test_grid_filters_are_the_tables(kind):
    rng = np.random.default_rng(5)
    model = tm.Model.grid(6, 8, 9)
    model.add_unaries(rng.random((48, 9)))
    add = model.add_truncated_linear if kind == "linear" else model.add_truncated_quadratic
    add(model.edges(), 0.2 + rng.random(len(model.edges())), 3.5)
    graph = model.graph()
    fast = GridSplitting(find_stencil(graph), graph.arrays.unary, 0.0, np.float64, 1, True)
    slow = GeneralSplitting(graph.arrays, form(2), 0.0, 1, True)
    for engine in (fast, slow):
        engine.reset(None)
        engine.iterate(10, Step(3.0, 1.0))
    np.testing.assert_allclose(fast.export()[0], slow.export()[0], atol=1e-10)


def test_grid_cache_and_strips_change_nothing():
    """Cached = uncached and one strip = three strips on two threads, bit for bit."""
    graph = potts_grid(2, height=21, width=30).graph()
    stencil = find_stencil(graph)
    results = []
    for strips, cached in ((1, True), (1, False), (3, True)):
        engine = GridSplitting(stencil, graph.arrays.unary, 1e-8, np.float32, 1, cached)
        engine.strips = np.linspace(0, 21, strips + 1).astype(np.int64)
        engine.teams = Teams(min(2, strips))
        engine.reset(None)
        parts = []
        for k in range(12):
            _, active = engine.iterate(20, Step(0.4 * 1.2**k, 1.0))
            parts.append(active)
        results.append(engine.export())
        assert cached or min(parts) == 1.0
        assert not cached or parts[-1] < 0.5  # frozen tiles are skipped
    for other in results[1:]:
        assert (other[0] == results[0][0]).all() and (other[1] == results[0][1]).all()


def test_coarse_energies_are_fine_energies():
    for diagonal in (False, True):
        graph = potts_grid(3, height=11, width=14, diagonal=diagonal).graph()
        stencil = find_stencil(graph)
        unary = graph.arrays.unary.reshape(graph.n, -1)
        for factor, offset in ((2, (0, 0)), (2, (1, 1)), (3, (2, 1)), (4, (0, 3))):
            coarse = coarsen(stencil, unary, factor, offset)
            labels = np.random.default_rng(factor).integers(0, 4, len(coarse.unary))
            shape = coarse.stencil
            total = coarse.unary[np.arange(len(labels)), labels].sum()
            for (down, right), weight in zip(shape.displacements, shape.weights, strict=True):
                first = np.flatnonzero(weight.ravel())
                other = first + down * shape.width + right
                total += (weight.ravel()[first] * (labels[first] != labels[other])).sum()
            fine = labels[coarse.square]
            assert total == pytest.approx(energy(graph, fine) - graph.constant)


def test_caps_and_ranges():
    graph = small_graph(3, seed=5)
    g = graph.arrays
    spread = factor_spreads(g)
    assert (spread >= 0).all() and spread.max() > 0
    ranges = incident_ranges(g)
    high = capped(g._replace(unary=g.unary * 1e6), ranges)
    low = np.minimum.reduceat(g.unary * 1e6, g.offset[:-1])
    assert (high <= np.repeat(low + ranges, g.cards) + 1e-9).all()


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("decomposition", ["cyclic", "star", "symmetric"])
def test_kkt_residuals_vanish_at_convergence(order, decomposition):
    """Propositions 3 and 4: agreement and multipliers make a stationary point of the energy."""
    graph = small_graph(order, seed=30 + order)
    engine = GeneralSplitting(graph.arrays, form(order, decomposition), 0.0, 1, True)
    engine.reset(None, Noise(1e-3, [0]))
    early = AdmmState(graph, engine, engine.form, 0.0).kkt()
    for rho in (0.3, 0.5, 1.0, 2.0, 4.0, 8.0):
        residual, _ = engine.iterate(2000, Step(rho * engine.kappa, 1.0))
    state = AdmmState(graph, engine, engine.form, 8.0 * engine.kappa)
    assert residual < 1e-12
    assert early["dual"] > 1e-2
    assert max(state.kkt().values()) < 1e-5
    g, x = engine.searched(graph.arrays), state.copies[0]
    slope = sum(copy_gradient(g, engine.form, state.copies, d) for d in range(order))
    gap = np.add.reduceat(x * slope, g.offset[:-1]) - np.minimum.reduceat(slope, g.offset[:-1])
    assert gap.max() < 1e-4 * np.abs(slope).max()


def test_transposed_multipliers_match_the_lagrangian():
    graph = small_graph(3)
    n = len(graph.arrays.unary)
    rng = np.random.default_rng(4)
    x, y = rng.random((3, n)), rng.normal(size=(3, n))
    for name in DECOMPOSITIONS:
        f = form(3, name)
        base = augmented(graph, f, x, y, 0.0) - decomposed_objective(graph, f, x)
        expected = sum(float(transposed(f, y, d) @ x[d]) for d in range(3))
        assert base == pytest.approx(expected)


def test_finds_optima_and_repeats():
    for seed in range(4):
        model = random_model(np.random.default_rng(seed), n=7, labels=3, factors=10, order=3, hard=0.1 * (seed % 2))
        best = brute_force(model)[0]
        first = tm.solve(model, "admm", seed=1)
        again = tm.solve(model, "admm", seed=1, threads=1)
        assert (first.labels == again.labels).all()
        assert first.energy <= best + 0.1 * abs(best) + 1e-9


@pytest.mark.parametrize("options", [
    {"preset": "paper", "restarts": 1}, {"preset": "fast"}, {"decomposition": "star"}, {"decomposition": "symmetric"},
    {"sets": "all_simplex"}, {"symmetrize": False}, {"unary_split": True}, {"cache": False}, {"precision": "double"},
    {"multiscale": False, "polish": False}, {"overrelax": 1.5, "rho0": 0.1, "growth": 1.01},
])  # fmt: skip
def test_every_option_gives_a_local_minimum(options):
    model = grid_model(np.random.default_rng(8), 5, 6, 3)
    result = tm.solve(model, "admm", max_iterations=300, **options)
    base = model.energy(result.labels)
    for i in range(30):
        for s in range(3):
            other = result.labels.copy()
            other[i] = s
            assert model.energy(other) >= base - 1e-9


def test_warm_start_from_a_result_and_from_labels():
    model = potts_grid(6, height=20, width=24)
    first = tm.solve(model, "admm", max_iterations=400)
    second = tm.solve(model, "admm", init=first, max_iterations=200)
    assert second.energy <= first.energy
    third = tm.solve(model, "admm", init=first.labels, max_iterations=50)
    assert third.energy <= first.energy


def test_trace_has_residual_and_rho():
    result = tm.solve(potts_grid(7), "admm", max_iterations=300, trace=True)
    assert {"residual", "rho", "active", "cycle"} <= set(result.trace[-1])
    assert result.iterations == 300


@pytest.mark.parametrize("name, value", [
    ("preset", "slow"), ("decomposition", "ring"), ("sets", "none"), ("rho0", -1.0), ("growth", 0.5),
    ("overrelax", 2.5), ("restarts", 0), ("precision", "half"), ("tolerance", -1.0),
])  # fmt: skip
def test_bad_options_are_named(name, value):
    with pytest.raises(tm.OptionError, match=name):
        ADMM(**{name: value})


def test_lanes_of_a_narrow_grid():
    """A grid narrower than one tile, and one with a single row."""
    for height, width in ((5, 3), (1, 9), (17, 1)):
        model = potts_grid(9, height=height, width=width, labels=3)
        result = tm.solve(model, "admm", max_iterations=200)
        assert result.feasible
    assert LANES == 8


def test_a_table_that_costs_nothing_is_not_for_the_grid_engine():
    """Truncated at zero, a table has no filter taps at all: sweeps that read the first would read something else."""
    rng = np.random.default_rng(10)
    model = tm.Model.grid(4, 5, 3)
    unaries = rng.random((20, 3))
    model.add_unaries(unaries)
    model.add_truncated_linear(model.edges(), np.ones(len(model.edges())), 0.0)
    stencil = find_stencil(model.graph())
    assert stencil is None or not fits(stencil)
    result = tm.solve(model, "admm", max_iterations=60)
    assert result.energy == pytest.approx(unaries.min(axis=1).sum())


def test_the_symmetric_decomposition_is_not_over_relaxed_by_halves():
    """Its multipliers were changed by what over-relaxation adds to two copies, its centres were not."""
    model = tm.Model([3] * 6)
    rng = np.random.default_rng(3)
    model.add_unaries(rng.random((6, 3)))
    model.add_factors([(i, j) for i in range(6) for j in range(i)], rng.random((15, 3, 3)))
    graph = model.graph()
    states = []
    for relax in (1.0, 1.6):
        engine = GeneralSplitting(graph.arrays, form(2, "symmetric"), 0.0, 1, True)
        engine.reset(None)
        engine.iterate(7, Step(0.5, relax, True))
        states.append(engine.export())
    for one, two in zip(*states, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("seed", range(3))
def test_no_constant_proposal_improves_a_polished_labelling_of_order_three(seed):
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(6, 7, 4)
    model.add_unaries(rng.random((42, 4)))
    place = np.arange(42).reshape(6, 7)
    triples = np.stack([place[:, :-2], place[:, 1:-1], place[:, 2:]], axis=-1).reshape(-1, 3)
    triples = np.concatenate([triples, np.stack([place[:-2], place[1:-1], place[2:]], axis=-1).reshape(-1, 3)])
    model.add_second_difference(triples, np.full(len(triples), 0.4), rng.normal(size=(42, 4)), 2.0)
    graph = model.graph()
    fused = FusedLabelling(graph, Context(), polish=True)
    assert fused.offer(rng.integers(0, 4, 42))
    before = fused.energy
    fused.polish()
    assert fused.labels is not None and fused.energy == energy(graph, fused.labels) <= before
    for label in range(4):
        better = fuse_proposal(graph, fused.labels, np.full(42, label))
        assert energy(graph, better) >= fused.energy - 1e-9
