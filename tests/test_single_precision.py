"""Unaries of large images in single precision, where that is exact: half the memory, and not a bit of difference."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import tightmap as tm
from tightmap.canonical import build
from tightmap.canonical.build import lattice_graph
from tightmap.energy.energies import energy, labelling_size, minima_size, unary_argmin
from tightmap.graph import pixel_costs
from tightmap.graph.graph import Graph
from tightmap.graph.pixel_costs import in_parts, in_single
from tightmap.graphcut.binary_cut import minimum_by_one_cut
from tightmap.graphcut.pairwise import pair_model
from tightmap.many.tasks import _add_model
from tightmap.model import model as models
from tightmap.moves.context import Context
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.lattice_lines import minimise_lines
from tightmap.moves.lattice_regions import fuse_regions, merge_regions
from tightmap.solvers.cuts import expansion as cuts

NEVER = 1 << 60


def image(kind: str, labels: int, neighbours: int, seed: int, grain: float = 1.0) -> tm.Model:
    """All costs are multiples of the grain."""
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(16, 19, labels)
    model.add_unaries(rng.integers(-20, 60, (16, 19, labels)) * grain)
    edges = model.edges(neighbours)
    weights = rng.integers(1, 9, len(edges)) * grain
    if kind == "potts":
        model.add_potts(edges, weights)
    elif kind == "quadratic":
        model.add_truncated_quadratic(edges, weights, 3.0)
    else:
        model.add_truncated_linear(edges, weights, 2.0)
    return model


def twins(monkeypatch: pytest.MonkeyPatch, *what: Any) -> tuple[tm.Model, tm.Model]:
    """The same model with its unaries in single and in double precision."""
    monkeypatch.setattr(models, "WORTH", 0)
    monkeypatch.setattr(pixel_costs, "PART", 100)
    one = image(*what)
    monkeypatch.setattr(models, "WORTH", NEVER)
    other = image(*what)
    assert one.single and not other.single
    return one, other


def test_only_what_is_exact_is_kept_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not image("potts", 3, 4, 0).single  # too small to be worth it
    monkeypatch.setattr(models, "WORTH", 0)
    for grain, exact in ((1.0, True), (2.0**-20, True), (1 / 3, False), (1e300, False), (1e-300, False)):
        assert image("potts", 3, 4, 0, grain).single == exact
    chain = tm.Model([3, 3])
    chain.add_unaries(np.ones((2, 3)))
    assert not chain.single  # no image
    for costs in (np.array([1.0, np.inf]), np.arange(6, dtype=np.int8).reshape(2, 3).T, np.array([2**62], np.uint64)):
        single = in_single(costs)
        assert single is not None and single.shape == costs.shape and (single == costs).all()
    for costs in (np.array([1.0, -np.inf]), np.array([np.nan]), np.array([2**24 + 1]), np.array([1j]), np.array(["1"])):
        assert in_single(costs) is None
    model = tm.Model.grid(2, 2, 2)
    for wrong in (np.nan, -np.inf):
        with pytest.raises(tm.ModelError, match="entry"):
            model.add_unaries(np.array([[0.0, 1.0], [2.0, wrong], [0.0, 1.0], [2.0, 3.0]]))
    with pytest.raises(tm.ModelError, match="expected"):
        model.add_unaries(np.zeros((4, 3)))
    with pytest.raises(tm.ModelError, match="masked"):
        model.add_unaries(np.ma.array(np.zeros((4, 2)), mask=np.eye(4, 2)))


def test_the_model_is_the_same_for_whoever_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = twins(monkeypatch, "linear", 4, 4, 1)
    labels = np.random.default_rng(0).integers(0, 4, 304)
    assert one.energy(labels) == other.energy(labels)
    sums: list[list[bytes]] = [[], []]
    for parts, model in zip(sums, (one, other), strict=True):

        class Sum:
            update = staticmethod(lambda data, parts=parts: parts.append(bytes(data)))

        _add_model(Sum, model)
    assert sums[0] == sums[1]
    for twin in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert twin.single and np.array_equal(twin.unaries, other.unaries)
    assert one.single
    more = copy.copy(one)
    more.add_unaries(np.full((304, 4), 1 / 3))
    other.add_unaries(np.full((304, 4), 1 / 3))
    assert np.array_equal(more.unaries, other.unaries) and one.single
    assert one.unaries.dtype == np.float64 and not one.unaries.flags.writeable and not one.single
    assert one.energy(labels) != more.energy(labels)


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic"])
@pytest.mark.parametrize("neighbours", [4, 8])
def test_kernels_find_the_same(kind: str, neighbours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (lattice_graph(m, least=0) for m in twins(monkeypatch, kind, 4, neighbours, 2, 2.0**-4))
    assert one is not None and other is not None
    assert one.unary.dtype == np.float32 and other.unary.dtype == np.float64 and not one.listed
    rng = np.random.default_rng(0)
    for name in ("n", "m", "quantum", "typical", "shift", "max_labels"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.quantum == 2.0**-4
    assert np.array_equal(np.concatenate([part for _, part in in_parts(one.unary)]), other.unary)
    assert np.array_equal(unary_argmin(one), unary_argmin(other)) and minima_size(one) == minima_size(other)
    labels, second = rng.integers(0, 4, (2, one.n))
    assert energy(one, labels) == energy(other, labels)
    assert labelling_size(one, labels) == labelling_size(other, labels)
    assert np.array_equal(local_minimum(one, labels), local_minimum(other, labels))

    def moved(graph: Graph) -> list[Any]:
        found = [labels.copy() for _ in range(3)]
        merge_regions(graph, found[0], Context(0))
        fuse_regions(graph, found[1], second, Context(0))
        minimise_lines(graph, found[2], Context(0), 2)
        return found

    assert np.array_equal(moved(one), moved(other))


def test_one_cut_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (lattice_graph(m, least=0) for m in twins(monkeypatch, "potts", 2, 4, 3))
    assert one is not None and other is not None and one.unary.dtype == np.float32
    mine, theirs = minimum_by_one_cut(one), minimum_by_one_cut(other)
    assert mine is not None and theirs is not None
    assert np.array_equal(mine[0], theirs[0]) and mine[1] == theirs[1]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("method", ["trws", "expansion", "admm", "auto", "swap", "bcd", "fastpd", "lns"])
def test_methods_find_the_same(method: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of many pixels has no list of its edges in either precision; one of few has it in double precision."""
    monkeypatch.setattr(build, "IMPLICIT", 0 if large else NEVER)
    monkeypatch.setattr(cuts, "RESTART_SIZE", 0)  # as on large models
    monkeypatch.setattr(cuts, "WORTH", 0)
    for kind, neighbours in (("potts", 4), ("linear", 8)):
        one, other = twins(monkeypatch, kind, 4, neighbours, 4)
        assert one.graph().lattice is not None and (other.graph().lattice is not None) == large
        mine, theirs = (tm.solve(m, method, max_iterations=20, trace=True) for m in (one, other))
        assert np.array_equal(mine.labels, theirs.labels)
        assert (mine.energy, mine.lower_bound, mine.status) == (theirs.energy, theirs.lower_bound, theirs.status)
        if method in ("trws", "expansion"):
            assert one.single and not one.graph().listed and mine.note == theirs.note


def test_costs_in_double_precision_take_the_place_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that needs the list needs no more memory than it would have needed anyway."""
    one, other = twins(monkeypatch, "potts", 3, 4, 5)
    graph = one.graph()
    assert graph.lattice is not None and not graph.listed
    held = weakref.ref(graph.unary)
    assert np.array_equal(graph.arrays.unary, other.graph().unary)
    gc.collect()
    assert held() is None and graph.unary is graph.arrays.unary and one.given_unaries is graph.arrays.unary
    assert energy(graph, np.zeros(304, np.int64)) == energy(other.graph(), np.zeros(304, np.int64))


def test_what_is_no_image_has_its_costs_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "WORTH", 0)
    model = image("potts", 3, 4, 6)
    model.add_factors([[0, 5]], np.ones((3, 3)))
    assert model.single and model.graph().lattice is None
    assert not model.single and model.graph().arrays.unary is model.given_unaries


def test_sums_with_other_costs_are_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are no whole numbers: cuts then count in float64, whatever the precision of the unaries is.

    Before version 2 of NumPy single precision plus a number of double precision was single precision.
    """
    monkeypatch.setattr(cuts, "WORTH", 0)
    found = []
    for worth in (0, NEVER):
        monkeypatch.setattr(models, "WORTH", worth)
        rng = np.random.default_rng(7)
        model = tm.Model.grid(12, 12, 3)
        model.add_unaries(rng.integers(0, 40, (144, 3)) / 16.0)
        model.add_potts(model.edges(), 1 / 3)
        assert model.single == (worth == 0)
        costs = pair_model(model.graph()).unary
        assert costs.dtype == np.float64 and np.array_equal(costs, model.unaries)
        found.append(tm.solve(model, "expansion"))
    assert np.array_equal(found[0].labels, found[1].labels)
