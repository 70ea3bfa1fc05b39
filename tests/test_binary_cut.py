"""Models of two labels by one cut, straight from the canonical arrays, against all labellings."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from naive import brute_force
from tightmap.canonical.build import lattice_graph
from tightmap.energy.energies import energy
from tightmap.graphcut.binary_cut import is_one_cut, minimum_by_one_cut
from tightmap.graphcut.qpbo import unit
from tightmap.moves.coordinate_descent import local_minimum

SHAPES = {"image": (3, 4), "volume": (2, 3, 2), "chain": (9,), "list": None}


def binary(shape: str, kind: str, integral: bool, rng: np.random.Generator) -> tm.Model:
    """Two labels, no frustrated pair."""
    size = SHAPES[shape]
    if size is None:
        model = tm.Model([2] * 9)
        edges = np.unique(np.sort([rng.choice(9, 2, replace=False) for _ in range(14)], axis=1), axis=0)
    else:
        model = tm.Model.grid(*size, 2) if len(size) == 2 else tm.Model.grid(size, 2)
        edges = model.edges()

    def draw(*count: int) -> np.ndarray:
        return rng.integers(-6, 7, count).astype(float) if integral else rng.normal(size=count)

    model.add_unaries(2.0 * draw(model.num_variables, 2))
    model.add_constant(1.25)
    weights = np.abs(draw(len(edges)))
    if kind == "potts":
        model.add_potts(edges, weights)
    elif kind == "linear":
        model.add_truncated_linear(edges, weights, 0.5)
    else:
        tables = draw(len(edges), 2, 2)
        tables[:, 0, 1] = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 1, 0] + weights
        model.add_factors(edges, tables)
    return model


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["potts", "linear", "tables"])
@pytest.mark.parametrize("integral", [False, True])
def test_one_cut_is_the_minimum(shape: str, kind: str, integral: bool) -> None:
    rng = np.random.default_rng(len(shape) + 10 * len(kind))
    for _ in range(5):
        model = binary(shape, kind, integral, rng)
        graph = model.graph()
        found = minimum_by_one_cut(graph)
        if found is None:  # rounding has made a pair of tables frustrated that only just is none
            assert kind == "tables" and not integral
            continue
        labels, bound = found
        least, _ = brute_force(model)
        value = energy(graph, labels)
        assert graph.user_energy(value) == pytest.approx(least, abs=1e-9)
        assert bound <= value and bound == pytest.approx(value, abs=1e-9)
        assert is_one_cut(graph) == graph.differences
        for method in ("qpbo", "expansion", "auto"):
            result = tm.solve(model, method)
            assert result.energy == pytest.approx(least, abs=1e-9)
            assert method == "expansion" or result.status is tm.Status.OPTIMAL


def test_a_frustrated_pair_takes_more_than_a_cut() -> None:
    model = tm.Model.grid(3, 4, 2)
    model.add_unaries(np.random.default_rng(0).normal(size=(12, 2)))
    weights = np.ones(len(model.edges()))
    weights[5] = -1.0
    model.add_potts(model.edges(), weights)
    assert not is_one_cut(model.graph())
    assert minimum_by_one_cut(model.graph()) is None
    lattice = lattice_graph(model, least=0)
    assert lattice is not None and minimum_by_one_cut(lattice) is None
    assert tm.solve(model, "qpbo").energy >= brute_force(model)[0] - 1e-9


@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("listed", [False, True])
def test_an_image_without_a_list_of_edges(neighbours: int, listed: bool) -> None:
    rng = np.random.default_rng(neighbours)
    for kind in ("potts", "quadratic"):
        model = tm.Model.grid(5, 7, 2)
        model.add_unaries(rng.normal(size=(35, 2)))
        edges = model.edges(neighbours)
        weights = rng.random(len(edges)) if listed else np.full(len(edges), 0.3)
        if kind == "potts":
            model.add_potts(edges, weights)
        else:
            model.add_truncated_quadratic(edges, weights, 0.75)
        lattice, graph = lattice_graph(model, least=0), model.graph()
        assert lattice is not None and lattice.lattice is not None and graph.lattice is None
        for largest in (False, True):
            one, other = minimum_by_one_cut(lattice, largest), minimum_by_one_cut(graph, largest)
            assert one is not None and other is not None
            assert np.array_equal(one[0], other[0])
            assert one[1] == pytest.approx(float(other[1]), rel=1e-12)
        assert not lattice.listed


def test_the_fewest_and_the_most_ones_of_equal_cuts() -> None:
    model = tm.Model.grid(3, 4, 2)
    model.add_unaries(np.zeros((12, 2)))
    model.add_potts(model.edges(), 1.0)
    fewest, most = minimum_by_one_cut(model.graph()), minimum_by_one_cut(model.graph(), largest=True)
    assert fewest is not None and most is not None
    assert fewest[0].sum() == 0 and most[0].sum() == 12
    assert tm.solve(model, "expansion", largest=False).labels.sum() == 0
    assert fewest[1] == 0.0 == most[1]


def test_sums_of_rounded_coefficients_fit_into_64_bits() -> None:
    for count in (10, 10**6, 10**8, 2**31):
        scale, error = unit(0.7, False, count, 2 * count)
        assert 2.0 * scale * 0.7 * 3 * count < 2.0**63 and error > 0.0
    assert unit(5.0, True, 10, 10) == (1.0, 0.0)
    assert unit(2.0**39, True, 10**8, 10**8)[1] > 0.0


@pytest.mark.parametrize("limit", [None, 60.0])
def test_auto_says_what_it_did(limit: float | None) -> None:
    rng = np.random.default_rng(0)
    model = tm.Model.grid(40, 40, 2)  # too large to eliminate all variables at once
    model.add_unaries(rng.normal(size=(1600, 2)))
    model.add_potts(model.edges(), rng.random(len(model.edges())))
    result = tm.solve(model, time_limit=limit)
    assert result.status is tm.Status.OPTIMAL and result.iterations == 1
    assert "one minimum cut" in result.note
    frustrated = tm.Model.grid(40, 40, 2)
    frustrated.add_unaries(rng.normal(size=(1600, 2)))
    frustrated.add_potts(model.edges(), rng.normal(size=len(model.edges())))
    assert "one minimum cut" not in tm.solve(frustrated, max_iterations=1).note


def test_a_run_that_ends_before_the_cut_has_descended() -> None:
    model = binary("image", "potts", False, np.random.default_rng(3))
    graph = model.graph()
    start = np.ones(12, np.int64)
    expected = energy(graph, local_minimum(graph, start))
    for method in ("auto", "qpbo", "expansion"):
        result = tm.solve(model, method, max_iterations=0, init=start)
        assert result.status is tm.Status.ITERATION_LIMIT
        assert result.energy == pytest.approx(graph.user_energy(expected), abs=1e-12)


@pytest.mark.parametrize("method", ["expansion", "qpbo", "auto"])
@pytest.mark.parametrize("huge", [3e11, 3e14])
def test_a_small_cost_beside_a_huge_one_is_not_overlooked(method, huge):
    """Capacities are whole numbers; descent sees what their grain hides."""
    model = tm.Model([2, 2])
    model.add_unaries([[-0.01, 0.0], [0.0, huge]])
    model.add_potts([[0, 1]], [6e-10])
    assert tm.solve(model, method).energy == pytest.approx(-0.01)
