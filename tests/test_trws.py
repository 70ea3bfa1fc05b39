"""TRW-S: both engines against brute force, the linear relaxation, each other and a plain raster-order sweep."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightmap as tm
from conftest import data_file
from naive import brute_force, local_polytope
from problems import grid_model, models, tree_model
from tightmap.energy.certificate import certify
from tightmap.energy.energies import energy, lower_bound
from tightmap.graph.stencil import find_stencil
from tightmap.moves.context import Context
from tightmap.moves.orders import ORDERS, node_order
from tightmap.reference.trws import trws as reference_trws
from tightmap.runtime import clock
from tightmap.runtime.sync import Crew
from tightmap.solvers.base import Init
from tightmap.solvers.trws.engines import GeneralMessages, GridMessages, grid_stencil
from tightmap.solvers.trws.general import blocks
from tightmap.solvers.trws.solver import TRWS
from tightmap.solvers.trws.strips import DIRECTIONS, gammas, images_of_messages

PAIRWISE = ("dense", "shared", "weighted", "potts", "linear", "quadratic", "pn", "pattern", "sparse")


def grid_engine(graph, dtype, threads=1):
    engine = GridMessages(graph, find_stencil(graph), threads, dtype)
    engine.crew = Crew(threads)  # also where threads would not pay
    return engine


@given(models(max_order=2, kinds=PAIRWISE, hard=0.15), st.sampled_from(ORDERS), st.integers(1, 40))
def test_bound_and_energy_bracket_the_optimum(model, order, iterations):
    optimum, _ = brute_force(model)
    result = tm.solve(model, "trws", max_iterations=iterations, order=order)
    slack = 1e-9 * max(1.0, abs(optimum)) if math.isfinite(optimum) else 0.0
    if math.isfinite(optimum):
        assert result.lower_bound <= optimum + slack
        assert result.status is not tm.Status.INFEASIBLE
        if result.status is tm.Status.OPTIMAL:
            assert result.energy <= optimum + slack
    else:
        assert result.status is not tm.Status.OPTIMAL
    assert result.energy >= optimum - slack
    assert result.energy == pytest.approx(model.energy(result.labels), rel=1e-12)


@given(models(max_order=2, kinds=PAIRWISE, tidy=True))
def test_bound_is_monotone_and_below_the_linear_relaxation(model):
    graph = model.graph()
    if graph.m == 0:
        return
    relaxation = local_polytope(graph)
    engine = GeneralMessages(graph, node_order(graph, "index"))
    last = -math.inf
    for _ in range(12):
        raw, error = engine.iterate(1)
        assert raw >= last - 1e-9 * (1.0 + abs(raw))
        last = raw
        assert graph.constant + raw - error <= relaxation + 1e-7 * (1.0 + abs(relaxation))
        assert energy(graph, engine.labels) >= graph.constant + raw - error - 1e-9


def test_two_thousand_models_with_hard_constraints():
    """No bound above the optimum, no wrong proof: pairwise models small enough to tabulate all labellings."""
    rng = np.random.default_rng(11)
    proven = 0
    for k in range(2000):
        n = int(rng.integers(2, 6))
        cards = rng.integers(1 + k % 2, 4, size=n)
        model = tm.Model(cards)
        total = np.zeros(tuple(cards))
        for i, c in enumerate(cards):
            u = rng.normal(size=c) * 3
            u = np.round(u) if k % 3 == 0 else u
            model.add_unaries([u], nodes=[i])
            total = total + u.reshape([-1 if j == i else 1 for j in range(n)])
        for i, j in itertools.combinations(range(n), 2):
            if rng.random() < 0.7:
                table = rng.normal(size=(cards[i], cards[j])) * 3
                table = np.round(table) if k % 3 == 0 else table
                table = np.where(rng.random(table.shape) < 0.2 * (k % 4 == 1), np.inf, table)
                model.add_factors([[i, j]], table[None])
                total = total + table.reshape([cards[v] if v in (i, j) else 1 for v in range(n)])
        optimum = float(total.min())
        result = tm.solve(model, "trws", max_iterations=4)
        if math.isfinite(optimum):
            assert result.lower_bound <= optimum + 1e-9 * (1.0 + abs(optimum)), k
            assert result.status is not tm.Status.INFEASIBLE, k
            if result.status is tm.Status.OPTIMAL:
                proven += 1
                assert result.energy <= optimum + 1e-9 * (1.0 + abs(optimum)), k
        else:
            assert not result.feasible and result.status is not tm.Status.OPTIMAL, k
    assert proven > 1000


@pytest.mark.parametrize("seed", range(6))
def test_exact_on_trees(seed):
    model = tree_model(np.random.default_rng(seed), n=8, labels=3)
    result = tm.solve(model, "trws", order=ORDERS[seed % 3], tolerance=0.0, max_iterations=1000)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(brute_force(model)[0], rel=1e-12)


def test_exact_on_a_chain_after_one_iteration():
    rng = np.random.default_rng(0)
    model = tm.Model(np.full(40, 5))
    model.add_unaries(rng.normal(size=(40, 5)))
    tables = rng.normal(size=(39, 5, 5))
    model.add_factors(np.stack([np.arange(39), np.arange(1, 40)], axis=1), tables)
    best = model.unaries.reshape(40, 5)[0]
    for i in range(39):
        best = (best[:, None] + tables[i]).min(axis=0) + model.unaries.reshape(40, 5)[i + 1]
    result = tm.solve(model, "trws", max_iterations=1)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(best.min(), rel=1e-12)


# --------------------------------------------------------------------------------------- the grid engine


def any_grid(rng, height, width, labels, kind, neighbours, gaps=0.0, integral=False):
    """A grid of four, six or eight neighbours, a share of its edges left out or of weight zero."""
    model = tm.Model.grid(height, width, labels)
    unaries = rng.random((height * width, labels)) * 10
    model.add_unaries(np.round(unaries) if integral else unaries)
    edges = model.edges(4 if neighbours == 4 else 8)
    if neighbours == 6:
        edges = edges[edges[:, 1] - edges[:, 0] != width - 1]
    kept = edges[rng.random(len(edges)) >= 0.5 * gaps]
    weights = np.where(rng.random(len(kept)) < 0.5 * gaps, 0.0, np.ceil(rng.random(len(kept)) * 4))
    if kind == "potts":
        model.add_potts(kept, weights)
    elif kind == "quadratic":
        model.add_truncated_quadratic(kept, weights, 4.0)
    else:
        model.add_truncated_linear(kept, weights, {"linear": 2.0, "wide": 5.5, "untruncated": np.inf}[kind])
    return model


def raster_sweeps(graph, height, width, cost, sweeps):
    """TRW-S in raster order, one pixel after the other, in float32; cost(d) is the cost of a difference of labels."""
    labels = int(graph.arrays.cards[0])
    unary = graph.arrays.unary.reshape(height, width, labels)
    unary = (unary - unary.min(axis=2, keepdims=True)).astype(np.float32)
    weights = {(int(i), int(j)): np.float32(w) for (i, j), w in zip(graph.edges, graph.arrays.weight, strict=True)}
    table = np.array([[cost(abs(s - t)) for t in range(labels)] for s in range(labels)], np.float32)
    messages = {edge: np.zeros(labels, np.float32) for edge in weights}
    steps = [down * width + right for down, right in DIRECTIONS]
    eight = any(j - i not in steps[:2] for i, j in weights)
    for forward in [True, False] * sweeps:
        for i in range(height * width) if forward else range(height * width)[::-1]:
            later, earlier = [(i, i + step) for step in steps], [(i - step, i) for step in steps]
            counts = [sum(edge in weights for edge in edges) for edges in (later, earlier)]
            out, into = (later, earlier) if forward else (earlier, later)
            total = unary.reshape(-1, labels)[i]
            for edge in out + [into[d] for d in ((3, 1, 2, 0) if eight else (0, 1))]:
                total = total + messages.get(edge, np.float32(0.0))
            for edge in out:
                if edge in weights:
                    h = gammas(np.float32)[max(counts)] * total - messages[edge]
                    messages[edge] = (h[:, None] + weights[edge] * table).min(axis=0) - h.min()
    images = np.zeros((4 if eight else 2, height * width, labels), np.float32)
    for (i, j), message in messages.items():
        images[steps.index(j - i), i] = message
    return images.reshape(-1, height, width, labels)


COSTS = {"potts": lambda d: min(d, 1), "linear": lambda d: min(d, 2), "quadratic": lambda d: min(d * d, 4)}


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("neighbours", [4, 6, 8])
@pytest.mark.parametrize("shape", [(5, 6), (8, 9), (17, 3), (1, 9), (2, 3), (9, 17)])
def test_wavefront_equals_raster_order_bit_for_bit(kind, shape, neighbours):
    for gaps in (0.0, 0.3):
        model = any_grid(np.random.default_rng(3), *shape, 5, kind, neighbours, gaps, integral=True)
        graph = model.graph()
        engine = grid_engine(graph, np.float32)
        engine.iterate(3)
        expected = raster_sweeps(graph, *shape, COSTS[kind], 3)
        found = images_of_messages(engine.grid)
        assert found.any() and np.array_equal(found, expected)


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("neighbours", [4, 8])
def test_threads_change_nothing(kind, neighbours):
    model = any_grid(np.random.default_rng(4), 43, 70, 6, kind, neighbours)
    graph = model.graph()
    engines = [grid_engine(graph, np.float32, threads) for threads in (1, 2, 3)]
    results = [engine.iterate(5) for engine in engines]
    for engine, result in zip(engines, results, strict=True):
        assert result == results[0]
        assert engine.best_energy == engines[0].best_energy
        assert np.array_equal(engine.best, engines[0].best)
        assert np.array_equal(images_of_messages(engine.grid), images_of_messages(engines[0].grid))


@pytest.mark.parametrize("order", ORDERS)
def test_threads_change_nothing_on_general_graphs(order):
    rng = np.random.default_rng(9)
    n = 1500
    model = tm.Model(rng.integers(2, 5, size=n))
    model.add_unaries([rng.normal(size=c) for c in model.cardinalities])
    for i in range(n - 1):  # a band of edges, and numbers that hide it from the index order
        for j in {i + 1, min(n - 1, i + int(rng.integers(2, 60)))} - {i}:
            a, b = (i * 7) % n, (j * 7) % n
            model.add_factors([[a, b]], rng.normal(size=(1, model.cardinalities[a], model.cardinalities[b])))
    graph = model.graph()
    engines = [GeneralMessages(graph, node_order(graph, order)) for _ in range(3)]
    results = []
    for threads, engine in enumerate(engines, start=1):
        engine.crew = Crew(threads)
        results.append(engine.iterate(4))
    if order == "rcm":
        assert blocks(engines[0].sweeper) >= 4
    for engine, result in zip(engines, results, strict=True):
        assert result == results[0]
        assert np.array_equal(engine.best, engines[0].best)
        assert np.array_equal(engine.sweeper.messages, engines[0].sweeper.messages)


@pytest.mark.parametrize("order", ["index", "rcm"])
def test_asking_for_memory_ahead_changes_nothing(order):
    """Also where the last visits have nothing ahead of them, and with messages longer than a cache line."""
    rng = np.random.default_rng(10)
    n = 300
    model = tm.Model(rng.integers(2, 12, size=n))
    model.add_unaries([rng.normal(size=c) for c in model.cardinalities])
    for a, b in rng.permutation(n)[: 2 * (n // 2)].reshape(-1, 2).tolist() + [[i, i + 1] for i in range(n - 1)]:
        model.add_factors([[a, b]], rng.normal(size=(1, model.cardinalities[a], model.cardinalities[b])))
    graph = model.graph()
    plain, asking = (GeneralMessages(graph, node_order(graph, order)) for _ in range(2))
    assert plain.sweeper.ahead == 0
    asking.sweeper = asking.sweeper._replace(ahead=4)
    assert plain.iterate(3) == asking.iterate(3)
    assert np.array_equal(plain.sweeper.messages, asking.sweeper.messages)
    assert np.array_equal(plain.export(), asking.export())


def test_no_node_keeps_less_than_nothing():
    for dtype in (np.float32, np.float64):
        for k, gamma in enumerate(gammas(dtype)):
            assert 0.0 < Fraction(float(gamma)) * max(k, 1) <= 1
            assert float(gamma) == pytest.approx(1.0 / max(k, 1), rel=1e-7)


@pytest.mark.parametrize("kind", [*COSTS, "untruncated", "wide"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("neighbours", [4, 6, 8])
def test_grid_engine_against_general_engine(kind, dtype, neighbours):
    rng = np.random.default_rng(5)
    for height, width, labels, gaps in ((10, 12, 9, 0.0), (17, 23, 5, 0.2), (7, 9, 17, 0.0), (33, 3, 2, 0.4)):
        graph = any_grid(rng, height, width, labels, kind, neighbours, gaps).graph()
        stencil = find_stencil(graph)
        if stencil is None or stencil.height != height:  # the gaps have left another grid
            continue
        grid, general = grid_engine(graph, dtype), GeneralMessages(graph, node_order(graph, "index"))
        for _ in range(5):
            raw, error = grid.iterate(4)
            other, _ = general.iterate(4)
            assert raw == pytest.approx(other, rel=1e-5 if dtype == np.float32 else 1e-11)
            assert energy(graph, grid.best) - graph.constant == pytest.approx(grid.best_energy, rel=1e-6)
            assert energy(graph, general.best) - graph.constant == pytest.approx(general.best_energy, rel=1e-12)
            if dtype == np.float64:
                assert grid.best_energy == pytest.approx(general.best_energy, rel=1e-9)
            bound = certify(graph, graph.constant + raw, error)
            # the reparametrisation written out has at least this bound: its forward pass is half an iteration more
            assert lower_bound(graph, grid.export()) >= bound - 1e-4
            assert lower_bound(graph, general.export()) >= other + graph.constant - 1e-9 * abs(other)
        again = grid_engine(graph, dtype)
        again.load(grid.export())
        assert again.iterate(1)[0] >= raw - 1e-5 * abs(raw)


@pytest.mark.parametrize("kind", ["potts", "wide"])
def test_eight_neighbours_against_the_reference(kind):
    model = any_grid(np.random.default_rng(6), 5, 7, 3, kind, 8)
    engine = grid_engine(model.graph(), np.float64)
    for step in reference_trws(model, 6).trace:
        raw, _ = engine.iterate(1)
        assert raw + model.graph().constant == pytest.approx(step["bound"], rel=1e-10)


@given(
    st.integers(0, 2**32 - 1), st.sampled_from(list(COSTS)), st.booleans(), st.sampled_from([np.float32, np.float64])
)
def test_grid_bound_never_exceeds_the_optimum(seed, kind, integral, dtype):
    rng = np.random.default_rng(seed)
    height, width = ((2, 3), (3, 3), (4, 2))[seed % 3]
    labels = int(rng.integers(2, 4))
    if rng.random() < 0.5:
        model = grid_model(rng, height, width, labels=labels, kind=kind, integral=integral)
    else:
        model = any_grid(rng, height, width, labels, kind, 8 if width > 2 else 6, rng.choice([0.0, 0.4]), integral)
    if rng.random() < 0.3:  # some forbidden labels
        forbidden = np.where(rng.random((height * width, int(model.cardinalities[0]))) < 0.2, np.inf, 0.0)
        forbidden[:, 0] = 0.0
        model.add_unaries(forbidden)
    graph = model.graph()
    stencil = find_stencil(graph)
    if stencil is None or not {tuple(d) for d in stencil.displacements.tolist()} <= set(DIRECTIONS):
        return
    engine = grid_engine(graph, dtype)
    optimum, _ = brute_force(model)
    last = -math.inf
    for _ in range(8):
        raw, error = engine.iterate(2)
        assert graph.user_bound(certify(graph, graph.constant + raw, error)) <= optimum + 1e-12 * abs(optimum)
        assert raw >= last - 1e-4 * (1.0 + abs(raw))
        last = raw


@pytest.mark.parametrize("mixed", [False, True])
def test_four_labels_in_registers_change_nothing(mixed):
    """On eight neighbours, also beside variables and edges that are visited in the general way: bit by bit."""
    rng = np.random.default_rng(3)
    model = tm.Model.grid(9, 11, 4)
    model.add_unaries(rng.normal(size=(99, 4)))
    edges = model.edges(8)
    model.add_potts(
        edges, np.where(rng.random(len(edges)) < (0.05 if mixed else 0.0), -1.0, 1.0) * rng.random(len(edges))
    )
    graph = model.graph()
    fast, slow = (GeneralMessages(graph, node_order(graph, "index")) for _ in range(2))
    assert 0 < fast.sweeper.four.sum() <= graph.n and bool(fast.sweeper.four.all()) is not mixed
    slow.sweeper.four[:] = 0
    for _ in range(3):
        assert fast.iterate(2) == slow.iterate(2)
        assert fast.best_energy == slow.best_energy
        np.testing.assert_array_equal(fast.best, slow.best)
        np.testing.assert_array_equal(fast.sweeper.messages, slow.sweeper.messages)


def test_costs_far_from_zero_do_not_hurt_single_precision():
    rng = np.random.default_rng(12)
    model = grid_model(rng, 16, 16, labels=4, kind="potts")
    near = tm.solve(model, "trws", precision="single", max_iterations=32)
    model.add_unaries(np.repeat(1e9 * rng.integers(1, 9, size=(256, 1)), 4, axis=1))
    far = tm.solve(model, "trws", precision="single", max_iterations=32)
    assert np.array_equal(near.labels, far.labels)
    shift = model.energy(near.labels) - near.energy
    assert far.lower_bound == pytest.approx(near.lower_bound + shift, rel=1e-12)  # of 1e12: float64 has no more


def test_the_grid_engine_is_chosen_where_it_fits():
    rng = np.random.default_rng(0)
    assert grid_stencil(grid_model(rng, 20, 30, kind="linear").graph()) is not None
    assert grid_stencil(grid_model(rng, 20, 30, kind="dense").graph()) is None
    for neighbours in (6, 8):
        assert grid_stencil(any_grid(rng, 20, 30, 3, "quadratic", neighbours, 0.05).graph()) is not None
    assert grid_stencil(any_grid(rng, 20, 30, 3, "potts", 8, 0.5).graph()) is None
    assert grid_stencil(any_grid(rng, 9, 9, 3, "potts", 8).graph()) is None
    negative = tm.Model.grid(20, 30, 3)
    negative.add_potts(negative.edges(), -np.ones(len(negative.edges())))
    negative.add_unaries(rng.random((600, 3)))
    assert grid_stencil(negative.graph()) is None


@pytest.mark.parametrize("kind", ["potts", "dense"])
def test_warm_start_goes_on_where_the_first_run_ended(kind):
    model = grid_model(np.random.default_rng(8), 24, 24, labels=4, kind=kind, integral=False)
    first = tm.solve(model, "trws", max_iterations=10)
    again = tm.solve(model, "trws", max_iterations=1, init=first)
    cold = tm.solve(model, "trws", max_iterations=1)
    assert again.lower_bound >= first.lower_bound - 1e-6
    assert again.lower_bound > cold.lower_bound


def test_options_are_checked():
    model = grid_model(np.random.default_rng(1))
    for wrong in ({"order": "best"}, {"precision": "half"}, {"rounding": -1}, {"tolerance": -1.0}):
        with pytest.raises(tm.OptionError):
            tm.solve(model, "trws", **wrong)


def test_orders_are_permutations():
    graph = tree_model(np.random.default_rng(2), n=30).graph()
    for name in ORDERS:
        assert sorted(node_order(graph, name)) == list(range(graph.n))


@pytest.mark.data
def test_ring_is_proven():
    model = tm.read(data_file("inpainting/n4-triplepoint4-plain-ring.h5"))
    result = tm.solve(model, "trws", time_limit=60)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(484.590667, abs=1e-6)


def test_dear_bounds_and_labels_wait_under_a_time_limit(monkeypatch):
    """In models of millions of messages they take at most a quarter of the time; without a limit nothing is timed."""
    times = [100.0]
    monkeypatch.setattr(clock, "now", lambda: times[-1])
    model = grid_model(np.random.default_rng(0), 40, 40, 3)
    limited, unlimited = (TRWS().start(model.graph(), Init(), Context(deadline=d)) for d in (200.0, None))
    for state in (limited, unlimited):
        assert not state.too_soon(), "there is none yet"
        state.bound, state.looked, state.descent = 0.0, 100.0, 1.0
        state.engine.seconds |= {"pass": 0.5, "rounding": 0.75, "bound": 0.5}  # 1 + 0.5 + 0.5 seconds more
    for now, soon in ((101.0, True), (107.9, True), (108.1, False)):
        times.append(now)
        assert limited.too_soon() is soon
        assert not unlimited.too_soon()
