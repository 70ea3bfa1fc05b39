"""Tables made ready for cuts: the same costs, zero diagonals, and nothing copied that need not be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model, random_model
from tightmap.energy.energies import energy
from tightmap.factors.pairs import DENSE, QUADRATIC
from tightmap.graph.graph import Kind
from tightmap.graphcut.expansion import Expansion
from tightmap.graphcut.pairwise import pair_model
from tightmap.graphcut.tables import cut_tables


def factor_cost(graph, f, a, b):
    """What a factor costs at two labels, by the energy of the model with and without it."""
    g = graph.arrays
    i, j = g.scope[2 * f], g.scope[2 * f + 1]
    labels = np.zeros(graph.n, np.int64)
    labels[i], labels[j] = a, b
    weight = g.weight.copy()
    weight[f] = 0.0
    return energy(graph, labels) - energy(replace(graph, arrays=g._replace(weight=weight)), labels)


def assert_same_costs(graph):
    g = graph.arrays
    kind, base, tables, unary, diagonal_of, diagonals = cut_tables(g, None)
    moved = np.array(g.unary, float)
    for f in range(graph.m):
        if kind[f] != DENSE:
            assert kind[f] == g.kind[f] <= QUADRATIC and base[f] == g.param[f]
            continue
        i, j = g.scope[2 * f], g.scope[2 * f + 1]
        high, wide = int(g.cards[i]), int(g.cards[j])
        table = g.weight[f] * tables[base[f] : base[f] + high * wide].reshape(high, wide)
        assert not np.diagonal(table).any()
        d = np.zeros(high)
        if diagonal_of[f] >= 0:
            d[: min(high, wide)] = g.weight[f] * diagonals[diagonal_of[f] : diagonal_of[f] + min(high, wide)]
        moved[g.offset[i] : g.offset[i] + high] += d
        for a in range(high):
            for b in range(wide):
                want = factor_cost(graph, f, a, b)
                assert table[a, b] + d[a] == pytest.approx(want, rel=1e-9, abs=1e-9 * (1.0 + graph.hard))
    assert unary == pytest.approx(moved, rel=1e-9, abs=1e-9 * (1.0 + graph.hard))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_random_models(seed, ragged):
    model = random_model(np.random.default_rng(seed), n=5, labels=4, factors=7, order=2, ragged=ragged)
    assert_same_costs(model.graph())


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_shared_proportional_and_own_tables_with_and_without_diagonals(seed, hard):
    rng = np.random.default_rng(seed)
    model = tm.Model([3, 4, 3, 4, 3, 2])
    shared = rng.random((3, 4))
    model.add_factors([[0, 1], [2, 3]], shared)
    model.add_factors([[4, 1]], 2.5 * shared)
    own = rng.random((2, 3, 3))
    if hard:
        own[0, 1, 2] = np.inf
    own[:, [0, 1, 2], [0, 1, 2]] = 0.0
    model.add_factors([[0, 2], [2, 4]], own)
    model.add_factors([[3, 5]], rng.random((4, 2)))
    model.add_potts([[1, 3]], [1.5])
    assert_same_costs(model.graph())


def test_other_kinds_of_pairs_become_tables():
    model = tm.Model([12, 12, 9])
    model.add_sparse([[0, 1]], [[1, 2], [3, 3]], [5.0, -2.0], 0.5)
    model.add_sparse([[1, 2]], [[0, 0]], [np.inf], 0.0)
    graph = model.graph()
    assert (graph.arrays.kind == Kind.SPARSE).any()
    assert_same_costs(graph)


def test_a_table_of_its_own_for_every_edge_is_not_copied():
    """As on photomontages: no table has a diagonal, so that the graph's own entries serve."""
    rng = np.random.default_rng(0)
    model = tm.Model.grid(6, 7, 3)
    model.add_unaries(rng.random((42, 3)))
    edges = model.edges()
    tables = rng.random((len(edges), 3, 3))
    tables[:, [0, 1, 2], [0, 1, 2]] = 0.0
    model.add_factors(edges, tables)
    graph = model.graph()
    assert cut_tables(graph.arrays, None)[2] is graph.arrays.params
    assert_same_costs(graph)


@pytest.mark.parametrize("seed", range(4))
def test_the_energy_of_moves_is_the_energy_of_the_model(seed):
    rng = np.random.default_rng(seed)
    graph = grid_model(rng, 5, 6, 3).graph() if seed % 2 else random_model(rng, 6, 3, 8, order=2, ragged=True).graph()
    moves = Expansion(pair_model(graph), True)
    moves.begin(rng.integers(0, graph.arrays.cards).astype(np.int64))
    before = energy(graph, moves.labels)
    for c in range(graph.max_labels):
        moves.move(c)
        after = energy(graph, moves.labels)
        assert after <= before + 1e-9 * (1.0 + abs(before))
        assert moves.cost + graph.constant == pytest.approx(after, rel=1e-9, abs=1e-6)
        before = after
