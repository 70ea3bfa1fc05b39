"""A large image needs no list of its edges: what is computed without one is what the list gives."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import tightmap as tm
from tightmap.canonical import build
from tightmap.canonical.build import canonical_form, lattice_graph
from tightmap.canonical.units import choose_unit
from tightmap.energy.energies import energy, labelling_size, minima_size, unary_argmin
from tightmap.graph.graph import Graph
from tightmap.graph.stencil import find_stencil
from tightmap.moves import lattice_descent, lattice_lines, lattice_regions
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context
from tightmap.moves.coordinate_descent import descend_within, local_minimum
from tightmap.moves.lattice_lines import minimise_lines
from tightmap.moves.lattice_regions import fuse_regions, merge_regions
from tightmap.moves.polish import Polisher
from tightmap.runtime import clock, parallel
from tightmap.solvers.admm.engine import Step
from tightmap.solvers.admm.grid import GridSplitting
from tightmap.solvers.base import Init
from tightmap.solvers.trws import solver as trws_solver
from tightmap.solvers.trws.engines import GridMessages
from tightmap.solvers.trws.solver import TRWS

KINDS = ("potts", "linear", "quadratic", "untruncated")


def image(kind: str, shape: tuple[int, int], labels: int, neighbours: int, listed: bool, seed: int) -> tm.Model:
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(*shape, labels)
    model.add_unaries(rng.random((*shape, labels)))
    model.add_constant(1.5)
    edges = model.edges(neighbours)
    weights = rng.random(len(edges)) - 0.2 if listed else np.full(len(edges), 0.3)
    if kind == "potts":
        model.add_potts(edges, weights)
    elif kind == "quadratic":
        model.add_truncated_quadratic(edges, weights, 3.0)
    else:
        model.add_truncated_linear(edges, weights, 1.5 if kind == "linear" else np.inf)
    return model


def both(model: tm.Model) -> tuple[Graph, Graph]:
    lattice = lattice_graph(model, least=0)
    assert lattice is not None
    return lattice, canonical_form(model, choose_unit(model, model.blocks)).graph


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (3, 8), (9, 4), (7, 11)])
def test_the_same_as_with_a_list_of_edges(kind: str, listed: bool, shape: tuple[int, int]) -> None:
    for neighbours in (4, 8):
        for labels in (2, 5):
            model = image(kind, shape, labels, neighbours, listed, labels)
            lattice, graph = both(model)
            assert "arrays" not in lattice.__dict__
            for name in ("n", "m", "order", "max_labels", "uniform", "quantum", "typical", "shift", "grid_shape"):
                assert getattr(lattice, name) == getattr(graph, name), name
            assert lattice.differences == graph.differences
            assert np.array_equal(lattice.unary, graph.unary)
            assert np.array_equal(unary_argmin(lattice), unary_argmin(graph))
            rng = np.random.default_rng(1)
            for _ in range(3):
                labels_of = rng.integers(0, labels, graph.n)
                value = energy(graph, labels_of)
                assert np.isclose(energy(lattice, labels_of), value, rtol=1e-13, atol=0)
                assert np.isclose(labelling_size(lattice, labels_of), labelling_size(graph, labels_of), rtol=1e-13)
                assert np.isclose(graph.user_energy(value), model.energy(labels_of), rtol=1e-12)
                assert np.array_equal(local_minimum(lattice, labels_of), local_minimum(graph, labels_of))
                assert np.array_equal(lattice.lift(labels_of), graph.lift(labels_of))
                assert np.array_equal(lattice.restrict(labels_of), graph.restrict(labels_of))
            assert np.isclose(minima_size(lattice), minima_size(graph), rtol=1e-13)
            one, other = find_stencil(lattice), find_stencil(graph)
            assert one is not None and other is not None
            for name in ("height", "width", "labels", "kind", "displacements", "weights", "profile"):
                assert np.array_equal(getattr(one, name), getattr(other, name)), name
            assert (find_stencil(lattice, 2, 1) is None) == (neighbours == 8)
            assert "arrays" not in lattice.__dict__
            for name, mine, theirs in zip(graph.arrays._fields, lattice.arrays, graph.arrays, strict=True):
                assert np.array_equal(mine, theirs), name
            assert type(lattice.arrays) is type(graph.arrays)
            assert np.array_equal(lattice.variables, graph.variables)
            assert np.array_equal(lattice.fixed, graph.fixed)


@pytest.mark.parametrize("neighbours", [4, 8])
def test_steps_in_any_order(neighbours: int) -> None:
    rng = np.random.default_rng(neighbours)
    usual = tm.Model.grid(5, 6, 3)
    edges = usual.edges(neighbours)
    step = edges[:, 1] - edges[:, 0]
    for _ in range(4):
        order = np.concatenate([np.flatnonzero(step == s) for s in rng.permutation(np.unique(step))])
        weights = rng.random(len(edges))
        model = tm.Model.grid(5, 6, 3)
        model.add_unaries(rng.random((30, 3)))
        model.add_truncated_linear(edges[order], weights, 1.5)
        lattice, graph = both(model)
        labels = rng.integers(0, 3, 30)
        assert energy(lattice, labels) == pytest.approx(energy(graph, labels), rel=1e-13)
        assert np.array_equal(local_minimum(lattice, labels), local_minimum(graph, labels))
        one, other = find_stencil(lattice), find_stencil(graph)
        assert one is not None and other is not None and np.array_equal(one.weights, other.weights)
        assert not {"arrays"} & set(lattice.__dict__)
    twice = tm.Model.grid(5, 6, 3)
    twice.add_unaries(rng.random((30, 3)))
    rows = edges[step == 1]
    twice.add_potts(np.concatenate([rows, rows, edges])[: len(edges)], 1.0)
    assert lattice_graph(twice, least=0) is None


def test_what_is_not_such_an_image() -> None:
    def made() -> tm.Model:
        return image("potts", (5, 6), 3, 4, True, 0)

    assert lattice_graph(made(), least=0) is not None
    assert lattice_graph(made()) is None  # too small to be worth it
    model = made()
    model.clamp({3: 1})
    assert lattice_graph(model, least=0) is None
    model = made()
    model.add_potts(model.edges()[:4], 1.0)
    assert lattice_graph(model, least=0) is None
    model = made()
    model.replace_weights(np.where(np.arange(model.num_factors) == 7, 0.0, 1.0))
    assert lattice_graph(model, least=0) is None
    model = made()
    hard = np.zeros((5, 6, 3))
    hard[2, 2, 1] = np.inf
    model.add_unaries(hard)
    assert lattice_graph(model, least=0) is None
    model = tm.Model.grid(5, 6, 3)
    model.add_unaries(np.zeros((30, 3)))
    model.add_potts(model.edges()[::-1], 1.0)
    assert lattice_graph(model, least=0) is None
    model = tm.Model.grid(5, 6, 3)
    model.add_unaries(np.ones((30, 3)))
    model.add_truncated_linear(model.edges(), 1.0, np.linspace(1.0, 2.0, len(model.edges())))
    assert lattice_graph(model, least=0) is None
    assert lattice_graph(tm.Model.grid(5, 6, 3), least=0) is None


def test_changed_arrays_are_what_counts() -> None:
    lattice, graph = both(image("linear", (5, 6), 3, 8, True, 0))
    labels = np.random.default_rng(0).integers(0, 3, graph.n)
    twice = lattice.arrays._replace(unary=2.0 * lattice.arrays.unary)
    changed, expected = replace(lattice, arrays=twice), replace(graph, arrays=twice)
    assert changed.lattice is None and np.array_equal(changed.unary, twice.unary)
    assert energy(changed, labels) == energy(expected, labels)
    assert np.array_equal(local_minimum(changed, labels), local_minimum(expected, labels))


def test_pickles_and_copies() -> None:
    lattice, graph = both(image("potts", (5, 6), 3, 4, False, 0))
    labels = np.random.default_rng(0).integers(0, 3, graph.n)
    for other in (pickle.loads(pickle.dumps(lattice)), copy.copy(lattice)):
        assert energy(other, labels) == energy(graph, labels)
        assert np.array_equal(other.arrays.scope, graph.arrays.scope)
        assert (other.n, other.m, other.typical) == (graph.n, graph.m, graph.typical)


def test_a_model_is_gone_when_nobody_holds_it() -> None:
    """Without a look for cycles, which may come late: images are large."""
    model = image("potts", (5, 6), 3, 4, False, 0)
    model._graph = lattice_graph(model, least=0)
    graph, held = model._graph, weakref.ref(model)
    gc.disable()
    try:
        del model
        assert held() is None
    finally:
        gc.enable()
    assert graph is not None and len(graph.arrays.cards) == 30  # which does not need it


def test_costs_that_are_added_later_change_nothing() -> None:
    model = image("potts", (5, 6), 3, 4, False, 0)
    lattice, graph = both(model)
    model.add_unaries(np.ones((30, 3)))
    model.add_potts([[0, 7]], 2.0)
    assert np.array_equal(lattice.arrays.unary, graph.arrays.unary)
    assert lattice.arrays.weight.shape == graph.arrays.weight.shape


def test_a_descent_without_time_ends_where_it_is() -> None:
    lattice, _ = both(image("linear", (60, 70), 4, 8, True, 3))
    labels = np.zeros(lattice.n, dtype=np.int64)
    descend_within(lattice, labels, np.ones(lattice.n, np.uint8), -1.0)
    assert (labels == 0).any()


@pytest.mark.parametrize("method", ["trws", "admm", "auto", "expansion", "bcd"])
def test_methods_find_the_same(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("potts", "linear"):
        results = []
        for least in (0, 10**9):
            monkeypatch.setattr(build, "IMPLICIT", least)
            model = image(kind, (12, 13), 3, 4, False, 4)
            assert (model.graph().lattice is not None) == (least == 0)
            results.append(tm.solve(model, method, max_iterations=40))
        one, other = results
        assert np.isclose(one.energy, other.energy, rtol=1e-9)
        assert np.isclose(one.lower_bound, other.lower_bound, rtol=1e-9)
        assert one.lower_bound <= one.energy


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic"])
@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("height", [5, 8, 9, 16, 23, 25, 32, 41])
def test_equal_weights_need_three_strips(kind: str, neighbours: int, height: int) -> None:
    lattice, _ = both(image(kind, (height, 21), 4, neighbours, False, height))
    every, few = find_stencil(lattice, 4, 1), find_stencil(lattice, 4, 1, images=False)
    assert every is not None and few is not None and every.equal is None and few.equal == 0.3
    assert few.weights.size == 0
    for dtype in (np.float32, np.float64):
        one, other = (GridMessages(lattice, stencil, 2, dtype) for stencil in (every, few))
        assert len(other.grid.weight) <= len(one.grid.weight)
        assert len(other.grid.gamma) == min(3, other.grid.strips) * other.grid.steps * 8
        for _ in range(3):
            assert one.iterate(2) == other.iterate(2)
            assert one.best_energy == other.best_energy and np.array_equal(one.best, other.best)
        assert np.array_equal(one.grid.messages, other.grid.messages)
        assert np.array_equal(one.grid.across, other.grid.across)


@pytest.mark.parametrize("neighbours", [4, 8])
def test_descents_that_remember_need_no_list_of_edges(neighbours: int) -> None:
    lattice, graph = both(image("linear", (14, 17), 4, neighbours, True, 5))
    one, other = Polisher(lattice), Polisher(graph)
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 4, graph.n)
    for _ in range(6):
        found = one.local_minimum(labels, Context())
        assert np.array_equal(found, other.local_minimum(labels, Context()))
        assert np.array_equal(found, local_minimum(graph, labels))
        labels = np.where(rng.random(graph.n) < 0.1, rng.integers(0, 4, graph.n), found)
    assert "arrays" not in lattice.__dict__


def test_trws_needs_no_list_of_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "IMPLICIT", 0)
    model = image("potts", (40, 41), 3, 4, False, 7)
    result = tm.solve(model, "trws", max_iterations=50, keep_state=False)
    assert result.iterations == 50 and "arrays" not in model.graph().__dict__
    # nor lists of what is the same for all variables
    assert model._offset is None and model.cardinalities.strides == (0,) and model.num_labels == 40 * 41 * 3
    assert np.array_equal(model.begins(slice(7, 900, 11)), model.offset[:-1][7:900:11])


def test_trws_makes_no_step_that_does_not_fit() -> None:
    lattice, _ = both(image("potts", (40, 41), 3, 4, False, 7))
    context = Context(deadline=clock.now() + 1000.0)
    state = TRWS().start(lattice, Init(), context)
    assert isinstance(state.engine, GridMessages)
    first = TRWS().step(state)
    assert not first.late and first.bound is not None and first.labels is not None
    state.engine.seconds = dict.fromkeys(state.engine.seconds, 200.0)  # there is time for one more, not for two
    last = TRWS().step(state)
    assert last.late and last.iterations == 1 and last.bound is not None and last.bound >= first.bound
    assert state.certified_at == state.iteration  # nothing is left to do at the end
    state.engine.seconds = dict.fromkeys(state.engine.seconds, 1e6)
    none = TRWS().step(state)
    assert none.late and none.iterations == 0
    assert TRWS().finish(state).bound == last.bound


@pytest.mark.parametrize("neighbours", [4, 8])
def test_admm_needs_no_images_of_equal_weights(neighbours: int) -> None:
    lattice, _ = both(image("linear", (13, 19), 4, neighbours, False, 8))
    every, none = find_stencil(lattice), find_stencil(lattice, images=False)
    assert every is not None and none is not None and none.weights.size == 0
    one, other = (GridSplitting(stencil, lattice.unary, 1e-8, np.float32, 1, True) for stencil in (every, none))
    assert np.array_equal(one.plan.weight, other.plan.weight) and other.plan.weight.any()
    assert np.isclose(one.kappa, other.kappa, rtol=1e-12)


def test_admm_ends_an_iteration_when_time_is_up() -> None:
    lattice, _ = both(image("linear", (40, 41), 4, 8, False, 8))
    stencil = find_stencil(lattice)
    assert stencil is not None
    engine = GridSplitting(stencil, lattice.unary, 1e-8, np.float32, 2, True)
    engine.strips = np.array([0, 20, 40])  # two threads, however small the model is
    engine.reset(None)
    before = engine.labels()
    engine.iterate(3, Step(1.0), left=-1.0)
    assert np.array_equal(engine.labels(), before)
    engine.iterate(3, Step(1.0))
    assert not np.array_equal(engine.labels(), before)


def test_admm_needs_no_list_of_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    model = image("potts", (40, 41), 3, 4, False, 9)
    listed = tm.solve(model, "admm", restarts=4)
    monkeypatch.setattr(build, "IMPLICIT", 0)
    model = image("potts", (40, 41), 3, 4, False, 9)
    found = tm.solve(model, "admm", restarts=4, keep_state=False)
    assert found.energy == model.energy(found.labels) and not model.graph().listed
    assert found.energy <= listed.energy + 0.005 * abs(listed.energy)


def naive_regions(graph: Graph, shape: tuple[int, int], neighbours: int, labels: np.ndarray) -> list[list[int]]:
    """Connected sets of pixels of one label."""
    ends = {tuple(sorted(e)) for e in graph.edges.tolist()}
    around: dict[int, list[int]] = {i: [] for i in range(graph.n)}
    for a, b in ends:
        around[a].append(b)
        around[b].append(a)
    left, found = set(range(graph.n)), []
    while left:
        region, queue = [], [left.pop()]
        while queue:
            i = queue.pop()
            region.append(i)
            more = [j for j in around[i] if j in left and labels[j] == labels[i]]
            left -= set(more)
            queue += more
        found.append(region)
    return found


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic"])
@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("listed", [False, True])
def test_regions_take_their_best_label(
    kind: str, neighbours: int, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lattice_regions, "ROUNDS", 100)
    for seed in range(4):
        shape = (9, 11)
        lattice, graph = both(image(kind, shape, 4, neighbours, listed, seed))
        start = local_minimum(graph, np.random.default_rng(seed).integers(0, 4, graph.n))
        found = start.copy()
        merge_regions(lattice, found)
        assert energy(graph, found) <= energy(graph, start) and "arrays" not in lattice.__dict__
        assert np.array_equal(local_minimum(graph, found), found)
        value = energy(graph, found)
        for region in naive_regions(graph, shape, neighbours, found):
            for label in range(4):
                other = found.copy()
                other[region] = label
                assert energy(graph, other) >= value - 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("shape", [(5, 4), (4, 37)])  # more columns than are minimised side by side
def test_lines_are_minimised(kind: str, neighbours: int, listed: bool, shape: tuple[int, int]) -> None:
    for seed in range(3):
        lattice, graph = both(image(kind, shape, 3, neighbours, listed, seed))
        found = np.random.default_rng(seed).integers(0, 3, graph.n)
        start = energy(graph, found)
        minimise_lines(lattice, found, rounds=100)
        value = energy(graph, found)
        assert value <= start and "arrays" not in lattice.__dict__
        assert np.array_equal(local_minimum(graph, found), found)
        numbers = np.arange(graph.n).reshape(shape)
        for line in [*numbers, *numbers.T]:
            if len(line) <= 5:
                for labels in product(range(3), repeat=len(line)):
                    other = found.copy()
                    other[line] = labels
                    assert energy(graph, other) >= value - 1e-9


@pytest.mark.parametrize("kind", ["potts", "linear"])
@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("listed", [False, True])
def test_fused_regions_are_those_of_component_fusion(kind: str, neighbours: int, listed: bool) -> None:
    for seed in range(6):
        lattice, graph = both(image(kind, (12, 13), 4, neighbours, listed, seed))
        rng = np.random.default_rng(seed)
        one = local_minimum(graph, rng.integers(0, 4, graph.n))
        other = local_minimum(graph, np.where(rng.random(graph.n) < 0.2, rng.integers(0, 4, graph.n), one))
        expected = one.copy()
        component_fusion(graph.arrays, expected, other)
        found = one.copy()
        assert fuse_regions(lattice, found, other) == (not np.array_equal(expected, one))
        assert "arrays" not in lattice.__dict__
        # regions are independent, so that the order in which they are taken does not matter; then both descend
        assert np.array_equal(found, local_minimum(graph, expected)) or energy(graph, found) <= energy(graph, expected)


def test_regions_and_descents_do_not_depend_on_threads_nor_on_the_sizes_of_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (lattice_descent, lattice_lines, lattice_regions):
        monkeypatch.setattr(module, "WORTH_THREADS", 0)
    for neighbours in (4, 8):
        lattice, graph = both(image("linear", (700, 90), 3, neighbours, True, 1))
        start = np.random.default_rng(2).integers(0, 3, graph.n)
        found = []
        for threads in (1, 2, 3):
            with parallel.using(threads):
                labels = local_minimum(lattice, start)
                assert np.array_equal(labels, local_minimum(graph, start))
                merge_regions(lattice, labels, most=50)
                fuse_regions(lattice, labels, local_minimum(lattice, np.roll(start, 1)), most=50)
                minimise_lines(lattice, labels)
                found.append(labels)
        assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
        labels = start.copy()
        with parallel.using(3):
            # all threads leave, whoever notices first that time is up
            descend_within(lattice, labels, np.ones(lattice.n, np.uint8), -1.0)
        merge_regions(lattice, labels, Context(deadline=clock.now() - 1.0))
        assert energy(lattice, labels) <= energy(lattice, start)


def test_trws_on_images_of_many_messages_rounds_where_it_certifies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trws_solver, "MANY", 0)
    monkeypatch.setattr(trws_solver, "STEP", 0)  # one iteration a step
    lattice, _ = both(image("potts", (40, 41), 3, 4, False, 7))
    made: list[tuple[bool, bool]] = []
    iterate = GridMessages.iterate
    monkeypatch.setattr(
        GridMessages, "iterate", lambda self, count, how, left: (made.append(how), iterate(self, count, how))[1]
    )
    for every, rounded in ((None, {1, 4, 16, 32}), (5, {1, 6, 11, 16, 21, 26, 31}), (0, {16, 32})):
        made.clear()
        solver = TRWS(rounding=every)
        state = solver.start(lattice, Init(), Context())
        while state.iteration < 32:
            solver.step(state)
        assert {k + 1 for k, how in enumerate(made) if how.rounding} == rounded
        assert {k + 1 for k, how in enumerate(made) if how.certify} == {1, 4, 16, 32}
