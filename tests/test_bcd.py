"""Block coordinate descent: Proposition 1 of the paper, blocks, incremental costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force
from problems import grid_model, models, random_model, tree_model
from tightmap.energy.energies import energy, multilinear_energy
from tightmap.moves.context import Context
from tightmap.moves.coordinate_descent import local_minimum, round_and_descend
from tightmap.moves.forests import Lines, forest_blocks, sweep_forests


def assert_local_minimum(graph, labels):
    value = energy(graph, labels)
    for i in range(graph.n):
        for s in range(graph.arrays.cards[i]):
            other = labels.copy()
            other[i] = s
            assert energy(graph, other) >= value - 1e-9 * (1 + abs(value))


@given(models(), st.integers(0, 2**32 - 1))
def test_from_relaxed_points_energy_never_rises(model, seed):
    graph = model.graph()
    if graph.n == 0:
        return
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.dirichlet(np.ones(c)) for c in graph.arrays.cards])
    labels = round_and_descend(graph, x)
    value = energy(graph, labels)
    assert value <= multilinear_energy(graph, x) + 1e-9 * (1 + abs(value))
    assert_local_minimum(graph, labels)
    # a fixed point stays (strict descent only)
    assert (local_minimum(graph, labels) == labels).all()


def test_corrected_proposition_five():
    """At a fractional stationary point BCD can strictly improve: two binary variables, F = [[0, 1], [1, 0]]."""
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], [[0.0, 1.0], [1.0, 0.0]])
    graph = model.graph()
    half = np.full(4, 0.5)
    assert multilinear_energy(graph, half) == 0.5
    assert energy(graph, round_and_descend(graph, half)) == 0.0


@given(models(max_variables=6), st.integers(0, 1000))
def test_kept_costs_find_local_minima_too(model, seed):
    plain = tm.solve(model, "bcd", seed=seed, incremental=False)
    kept = tm.solve(model, "bcd", seed=seed, incremental=True)
    graph = model.graph()
    for result in (plain, kept):
        assert_local_minimum(graph, graph.restrict(result.labels))


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic", "dense"])
@pytest.mark.parametrize("blocks", ["rows", "columns", "lines", "forests"])
def test_blocks_only_improve(kind, blocks):
    for seed in range(3):
        model = grid_model(np.random.default_rng(seed), 5, 6, 3, kind)
        graph = model.graph()
        labels = local_minimum(graph, np.zeros(graph.n, dtype=np.int64))
        before = energy(graph, labels)
        forests = forest_blocks(graph, blocks)
        sweep_forests(graph, forests, labels, Context())
        assert energy(graph, labels) <= before + 1e-9
        nodes = tm.solve(model, "bcd", restarts=0)
        lines = tm.solve(model, "bcd", restarts=0, blocks=blocks)
        assert lines.energy <= nodes.energy + 1e-9


@pytest.mark.parametrize("order", [2, 3])
def test_a_forest_block_is_exact(order):
    """On a tree one block holds everything; with order 3 the blocks are smaller but the result is still checked."""
    for seed in range(8):
        model = tree_model(np.random.default_rng(seed), 7, 3, order)
        optimum, _ = brute_force(model)
        result = tm.solve(model, "bcd", restarts=0, blocks="forests")
        if order == 2:
            assert result.energy == pytest.approx(optimum, abs=1e-9)
        else:
            assert_local_minimum(model.graph(), model.graph().restrict(result.labels))


def test_forest_blocks_of_random_models_are_exact_given_the_rest():
    rng = np.random.default_rng(0)
    for _ in range(20):
        model = random_model(rng, n=6, labels=3, factors=6, order=4, tidy=True)
        graph = model.graph()
        if graph.m == 0:
            continue
        forests = forest_blocks(graph, "forests")
        labels = np.array([rng.integers(c) for c in graph.arrays.cards])
        for b in range(len(forests.start) - 1):
            block = forests.order[forests.start[b] : forests.start[b + 1]]
            best = min(energy(graph, _with(labels, block, x)) for x in np.ndindex(*graph.arrays.cards[block].tolist()))
            at = slice(forests.start[b], forests.start[b + 1])
            only = type(forests)(np.array([0, len(block)]), forests.order[at], forests.parent[at], forests.link[at])
            sweep_forests(graph, only, labels, Context())
            assert energy(graph, labels) == pytest.approx(best, abs=1e-9)


def _with(labels, block, values):
    out = labels.copy()
    out[block] = values
    return out


def test_rows_need_a_grid():
    model = tm.Model([2, 2, 2])
    model.add_factors([[0, 1], [1, 2], [0, 2]], np.random.default_rng(0).normal(size=(3, 2, 2)))
    with pytest.raises(tm.ModelError, match="needs a grid"):
        tm.solve(model, "bcd", blocks="rows")


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 4)])
def test_lines_of_an_image(shape):
    index = np.arange(shape[0] * shape[1]).reshape(shape)
    mirror = index[:, ::-1]
    offsets = range(1 - shape[0], shape[1])
    expected = {
        "rows": list(index),
        "columns": list(index.T),
        "diagonals": [index.diagonal(k) for k in offsets],
        "antidiagonals": [mirror.diagonal(k) for k in offsets],
    }
    for kind, lines in expected.items():
        family = Lines(shape, kind)
        assert family.count == len(lines)
        for first in range(family.count):
            start, nodes = family.nodes(first, family.count)
            for k, line in enumerate(lines[first:]):
                assert nodes[start[k] : start[k + 1]].tolist() == line.tolist()


@pytest.mark.parametrize("incremental", [False, True])
def test_small_differences_beside_large_costs_are_descended(incremental):
    # 0.5 beside 2^40 is far above the rounding of a sum of two costs: no tie
    large = 2.0**40
    model = tm.Model([2, 2])
    model.add_unaries([[large, large + 0.5], [large + 1.0, large]])
    model.add_factors([[0, 1]], [[0.0, 0.25], [0.25, 0.0]])
    result = tm.solve(model, "bcd", restarts=0, incremental=incremental, init=[1, 0])
    assert result.labels.tolist() == [0, 1]


@pytest.mark.parametrize("incremental", [True, False])
def test_two_kinds_of_sweeps_that_disagree_about_rounding_end(incremental):
    """Columns and single nodes each took back what the other had gained beside hard constraints, for ever."""
    inf = np.inf
    model = tm.Model.grid(2, 7, 2)
    unaries = [
        [-0.9999999997372138, 1.0000000000862725],
        [0.999999999962539, -0.99999999999009],
        [1.0000000001046692, 2.0000000001247753],
        [-2.0000000000107723, 2.0000000000601754],
        [0.9999999997788672, inf],
        [0.9999999999216621, 1.0000000000580271],
        [-1.9999999999527305, -1.0000000001258942],
        [inf, -1.0000000000686438],
        [inf, 2.000000000052769],
        [inf, inf],
        [-1.9999999998957432, -2.8152918663643712e-11],
        [-2.000000000149818, 1.9999999999215896],
        [-5.661459137435977e-11, 1.9999999999050293],
        [1.9999999998271447, -0.99999999988318],
    ]
    model.add_unaries(unaries)
    scopes = [
        [0, 1],
        [1, 2],
        [2, 3],
        [3, 4],
        [4, 5],
        [5, 6],
        [7, 8],
        [8, 9],
        [9, 10],
        [10, 11],
        [11, 12],
        [12, 13],
        [0, 7],
        [1, 8],
        [2, 9],
        [3, 10],
        [4, 11],
        [5, 12],
        [6, 13],
    ]
    tables = [
        [[-1.0000000001449265, inf], [-1.9999999999496807, inf]],
        [[2.000000000042828, 2.00000000000267], [1.0000000000712272, inf]],
    ]
    index = [0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0]
    weights = [3.0, 0.5, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 3.0, 0.5, 0.1, 0.5, 0.1, 1.0, 1.0, 1.0, 0.1, 0.0]
    model.add_indexed_factors(scopes, tables, index, weights)
    options = {"restarts": 1, "order": "random", "blocks": "columns", "incremental": incremental}
    assert tm.solve(model, "bcd", seed=4, max_iterations=1000, **options).status is tm.Status.INFEASIBLE
    steps = 0

    def count(info):
        nonlocal steps
        steps += 1
        return steps > 200

    tm.solve(model, "bcd", seed=4, callback=count, **options)
    assert steps <= 200
