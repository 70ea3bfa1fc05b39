"""Expansion moves: the invariant of the duals, optimal moves on metrics, monotone energies on everything else."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tightmap as tm
from naive import brute_force, labellings
from problems import grid_model, random_model
from tightmap.canonical.build import lattice_graph
from tightmap.energy.energies import energy, lower_bound
from tightmap.graphcut import expansion
from tightmap.graphcut.expansion import Expansion
from tightmap.graphcut.network import Grid, edge, head
from tightmap.graphcut.pairwise import pair_model
from tightmap.graphcut.potts_bound import has_closed_form, potts_bounds
from tightmap.graphcut.settled_variables import without_settled_variables
from tightmap.graphcut.swap import Swaps


def metric_model(rng, n, labels, ragged):
    cards = rng.integers(2, labels + 1, n) if ragged else np.full(n, labels)
    model = tm.Model(cards)
    model.add_unaries([rng.normal(size=c) * 3 for c in cards])
    for i in range(n):
        for j in range(i):
            if rng.random() < 0.6:
                weight = float(rng.random() * 2)
                if rng.random() < 0.5:
                    model.add_potts([[i, j]], [weight])
                else:
                    model.add_truncated_linear([[i, j]], [weight], float(rng.integers(1, 4)))
    return model


def begin(graph, largest, labels=None):
    moves = Expansion(pair_model(graph), largest)
    moves.begin(np.zeros(graph.n, np.int64) if labels is None else labels)
    return moves


def best_expansion(graph, labels, c):
    can = np.flatnonzero((graph.arrays.cards > c) & (labels != c))
    best = energy(graph, labels)
    for choice in product((False, True), repeat=len(can)):
        x = labels.copy()
        x[can[np.array(choice, bool)]] = c
        best = min(best, energy(graph, x))
    return best


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_move_on_a_metric_is_the_best_one(seed, ragged, largest):
    rng = np.random.default_rng(seed)
    graph = metric_model(rng, 6, 4, ragged).graph()
    moves = begin(graph, largest, rng.integers(0, graph.arrays.cards).astype(np.int64))
    for _ in range(2):
        for c in rng.permutation(graph.max_labels):
            expected = best_expansion(graph, moves.labels, c)
            moves.move(int(c))
            assert energy(graph, moves.labels) == pytest.approx(expected, abs=1e-9)
            assert moves.cost + graph.constant == pytest.approx(expected, abs=1e-9)
    assert moves.truncated == 0


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_other_tables_never_raise_the_energy_and_keep_the_invariant(seed, largest):
    rng = np.random.default_rng(seed)
    kinds = ("dense", "shared", "weighted", "potts", "quadratic", "pn", "sparse", "pattern")
    model = random_model(rng, n=6, labels=4, factors=9, order=2, kinds=kinds)
    graph = model.graph()
    optimum = brute_force(model)[0]
    if graph.m == 0:
        return
    moves = begin(graph, largest, rng.integers(0, graph.arrays.cards).astype(np.int64))
    before = energy(graph, moves.labels)
    for _ in range(3):
        for c in range(graph.max_labels):
            changed = moves.move(c)
            after = energy(graph, moves.labels)
            assert after < before or changed == 0
            assert moves.cost + graph.constant == pytest.approx(after, abs=1e-9)
            before = after
    for share in (1.0, 0.5, 0.1):
        assert graph.user_bound(lower_bound(graph, moves.messages(graph, share))) <= optimum + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_neighbours_without_a_factor_have_duals_of_their_own(seed):
    """A grid with uneven label counts and gaps: kernels visit all neighbours, so that all of them need room."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 6, 12)
    pairs = [(i, i + 1) for i in range(12) if i % 4 < 3] + [(i, i + 4) for i in range(8)]
    pairs = [pair for pair in pairs if pair != (10, 11) and rng.random() < 0.8]
    model = tm.Model(cards)
    model.add_unaries([rng.random(c) for c in cards])
    model.add_potts(pairs, 1.0 + rng.random(len(pairs)))
    graph = model.graph()
    moves = begin(graph, True)
    net = moves.model.net
    assert isinstance(net, Grid) and not moves.uniform
    owner = np.zeros(len(moves.y), np.int64)
    for p in moves.model.node:
        for k in range(0, net.degree, 2):
            q = head(net, p, k)
            size = max(moves.model.cards[[p, q]]) if moves.model.cards[q] else 0
            first = moves.first[edge(net, p, k)]
            assert first + size <= len(owner)
            owner[first : first + size] += 1
    assert (owner == 1).all()
    while sum(moves.move(c) for c in range(graph.max_labels)):
        pass
    heights = [moves.h[moves.start[moves.model.node[i]] :][:c] for i, c in enumerate(cards)]
    lowest = all(h.min() == h[a] for h, a in zip(heights, moves.labels, strict=True))
    duals = [
        moves.y[moves.first[e] :][: max(cards[list(ends)])]
        for e, ends in zip(moves.model.number, graph.edges, strict=True)
    ]
    feasible = all(np.ptp(y) <= w for y, w in zip(duals, moves.model.edges.weight[moves.model.number], strict=True))
    assert moves.proven() == (lowest and feasible)


def test_squares_of_differences_beyond_32_bits():
    model = tm.Model([50_000, 50_000])
    model.add_truncated_quadratic([[0, 1]], [1.0], np.inf)
    graph = model.graph()
    labels = np.array([0, 49_000])
    assert begin(graph, True, labels).cost == energy(graph, labels) == 49_000.0**2


def test_settled_variables_have_their_label_in_every_optimum_and_wherever_moves_stop():
    rng = np.random.default_rng(7)
    found = 0
    for trial in range(40):
        model = tm.Model.grid(2, 3, 3) if trial % 2 else tm.Model(rng.integers(2, 4, 5))
        model.add_unaries([rng.normal(size=c) * 4 for c in model.cardinalities])
        pairs = np.array([(i, j) for i in range(model.num_variables) for j in range(i) if rng.random() < 0.4])
        if not len(pairs):
            continue
        weights, limit = rng.random(len(pairs)), float(rng.integers(1, 4))
        add = (model.add_potts, model.add_truncated_linear, model.add_truncated_quadratic)[trial % 3]
        add(pairs, weights) if trial % 3 == 0 else add(pairs, weights, limit)
        graph = model.graph()
        small = without_settled_variables(pair_model(graph))
        if small.settled is None:
            continue
        label = small.settled[small.node]
        known = label >= 0
        found += int(known.sum())
        every = np.array(list(labellings(graph.arrays.cards)), np.int64)
        values = np.array([energy(graph, x) for x in every])
        for x in every[values <= values.min() + 1e-9]:
            assert (x[known] == label[known]).all()
        one, two = begin(graph, True), Expansion(small, True)
        two.begin(np.zeros(graph.n, np.int64))
        for moves in (one, two):
            while sum(moves.move(c) for c in range(graph.max_labels)):
                pass
            assert moves.cost + graph.constant == pytest.approx(energy(graph, moves.labels), abs=1e-9)
            if moves.truncated == 0:
                assert (moves.labels[known] == label[known]).all()
    assert found > 50  # the claim is not empty


def whole_grid(rng, kind, neighbours, size=1):
    model = tm.Model.grid(9, 8, 5)
    model.add_unaries(rng.integers(0, 40, (72, 5)) * size + rng.integers(0, 2, (72, 5)))
    edges = model.edges(neighbours)
    weights = rng.integers(1, 6, len(edges)) * size
    if kind == "potts":
        model.add_potts(edges, weights)
    else:
        (model.add_truncated_linear if kind == "linear" else model.add_truncated_quadratic)(edges, weights, 3)
    return model


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic"])
@pytest.mark.parametrize("most", [expansion.MOST, 20])
def test_moves_in_16_bits_are_those_in_32_bits(kind, most, monkeypatch):
    """Also where labels outgrow 16 bits on the way: as if these held no more than 20."""
    outgrown = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        pairs = without_settled_variables(pair_model(whole_grid(rng, kind, 4 + 4 * (seed % 2)).graph()))
        wide, narrow = Expansion(pairs, True), Expansion(pairs, True, compact=True)
        assert not wide.compact and narrow.compact
        monkeypatch.setattr(expansion, "MOST", most)
        for start in (np.zeros(72, np.int64), rng.integers(0, 5, 72)):
            for moves in (wide, narrow):
                moves.begin(start)
            assert narrow.h.dtype == narrow.y.dtype == np.int16 and not narrow.beyond
            for c in [*range(5), *range(4, -1, -1), *range(5)]:
                assert wide.move(c) == narrow.move(c)
                assert np.array_equal(wide.labels, narrow.labels)
                assert (wide.cost, wide.truncated) == (narrow.cost, narrow.truncated)
            outgrown += len(narrow.beyond)
        monkeypatch.undo()
    assert (outgrown > 0) == (most == 20)


def test_what_16_bits_may_not_hold_begins_in_32_bits():
    rng = np.random.default_rng(0)
    for size, small in ((100, True), (800, False)):  # of 39 times the size, and four times ten times the size around
        pairs = pair_model(whole_grid(rng, "potts", 4, size).graph())
        moves = Expansion(pairs, True, compact=True)
        moves.begin(np.zeros(72, np.int64))
        assert pairs.unary.dtype == np.int32 and pairs.scale == 1.0
        assert moves.compact == small and moves.y.dtype == (np.int16 if small else np.int32)
    assert not Expansion(
        pair_model(metric_model(rng, 6, 4, False).graph()), True, compact=True
    ).compact  # no whole costs


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic"])
@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("whole", [True, False])
def test_an_image_needs_no_list_for_its_cuts(kind, neighbours, whole):
    """The arrays for cuts are those that its list of edges gives, bit by bit."""
    for seed, equal in product(range(3), (False, True)):
        rng = np.random.default_rng(seed)
        model = whole_grid(rng, kind, neighbours)
        if not whole:
            model.replace_unaries(rng.normal(size=(72, 5)))
            model.replace_weights(rng.random(model.num_factors) - 0.1)
        if equal:
            model.replace_weights(np.full(model.num_factors, 3.0))
        lattice, graph = lattice_graph(model, least=0), model.graph()
        assert lattice is not None and graph.lattice is None
        one, other = pair_model(lattice), pair_model(graph)
        assert not lattice.listed and one.unary.dtype == (np.int32 if whole else np.float64)
        for name in ("node", "cards", "room", "unary"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        for name, mine, theirs in zip(one.edges._fields, one.edges, other.edges, strict=True):
            assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs), name
        assert np.array_equal(one.net.strides, other.net.strides) and one.net.degree == other.net.degree
        assert (one.scale, one.around) == (other.scale, other.around)


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic"])
def test_grids_in_integers_equal_lists_in_floats(kind):
    rng = np.random.default_rng(5)
    model = grid_model(rng, 9, 8, 4, kind)
    graph = model.graph()
    grid, lists = pair_model(graph), None
    assert grid.unary.dtype == np.int32 and hasattr(grid.net, "strides")
    shuffled = tm.Model(model.cardinalities)
    order = rng.permutation(graph.n)  # variable i of the grid becomes order[i]
    shuffled.add_unaries(graph.arrays.unary.reshape(graph.n, -1)[np.argsort(order)])
    a = graph.arrays
    edges = order[graph.edges]
    limit = float(a.params[a.param[0]]) if kind != "potts" else 1.0
    if kind == "potts":
        shuffled.add_potts(edges, a.weight)
    elif kind == "linear":
        shuffled.add_truncated_linear(edges, a.weight, limit)
    else:
        shuffled.add_truncated_quadratic(edges, a.weight, limit)
    other = shuffled.graph()
    lists = pair_model(other)
    assert lists.unary.dtype == np.float64 and hasattr(lists.net, "heads")
    one, two = Expansion(grid, False), Expansion(lists, False)
    one.begin(np.zeros(graph.n, np.int64))
    two.begin(np.zeros(graph.n, np.int64))
    for _ in range(3):
        for c in range(4):
            one.move(c)
            two.move(c)
            if kind != "quadratic":  # a truncated move depends on which end of an edge is its tail
                assert one.cost == pytest.approx(two.cost)
                assert (one.labels == two.labels[order]).all()
    assert one.cost + graph.constant == pytest.approx(energy(graph, one.labels))
    assert two.cost + other.constant == pytest.approx(energy(other, two.labels))


@pytest.mark.parametrize("seed", range(6))
def test_binary_submodular_models_are_solved(seed):
    rng = np.random.default_rng(seed)
    model = metric_model(rng, 8, 2, False)
    optimum = brute_force(model)[0]
    for method in ("expansion", "fastpd", "qpbo", "swap"):
        assert tm.solve(model, method).energy == pytest.approx(optimum)
    result = tm.solve(model, "qpbo")
    assert result.status is tm.Status.OPTIMAL


def test_duals_that_prove_a_labelling_optimal():
    rng = np.random.default_rng(3)
    proven = 0
    for _ in range(60):
        cards = rng.integers(2, 5, 6) if rng.random() < 0.5 else np.full(6, 3)
        model = tm.Model(cards)
        model.add_unaries([rng.integers(0, 9, c) for c in cards])
        pairs = np.array([(i, j) for i in range(6) for j in range(i) if rng.random() < 0.5])
        if not len(pairs):
            continue
        model.add_potts(pairs, rng.integers(1, 4, len(pairs)).astype(float))
        graph = model.graph()
        moves = begin(graph, True)
        for c in range(graph.max_labels):
            moves.move(c)
            if moves.proven():
                proven += 1
                value = graph.user_energy(energy(graph, moves.labels))
                assert value == pytest.approx(brute_force(model)[0], abs=1e-9)
    assert proven > 20  # the claim is not empty


def best_swap(graph, labels, a, b):
    can = np.flatnonzero(((labels == a) | (labels == b)) & (graph.arrays.cards > max(a, b)))
    best = energy(graph, labels)
    for choice in product((a, b), repeat=len(can)):
        x = labels.copy()
        x[can] = choice
        best = min(best, energy(graph, x))
    return best


@pytest.mark.parametrize("integral", [False, True])
@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic", "dense"])
def test_no_swap_is_better_where_the_method_stops(kind, integral):
    rng = np.random.default_rng(len(kind))
    for trial in range(6):
        if trial % 2 and kind != "dense":
            model = grid_model(rng, 3, 3, 3, kind)
        else:
            model = tm.Model(rng.integers(2, 5, 7))
            pairs = np.array([(i, j) for i in range(7) for j in range(i) if rng.random() < 0.6])
            weights = rng.integers(1, 5, len(pairs)).astype(float) if integral else rng.random(len(pairs)) + 0.1
            if kind == "potts":
                model.add_potts(pairs, weights)
            elif kind == "dense":  # semi-metric up to a shift of one entry: every swap is a cut, many are no metric
                for (i, j), w in zip(pairs, weights, strict=True):
                    shape = tuple(model.cardinalities[[i, j]])
                    table = rng.integers(0, 6, shape).astype(float)
                    table[np.arange(min(shape)), np.arange(min(shape))] = 0.0
                    table[0, 1], table[1, 0] = -w, 2.0 * w
                    model.add_factors([[i, j]], table)
            else:
                add = model.add_truncated_linear if kind == "linear" else model.add_truncated_quadratic
                add(pairs, weights, 3.0)
            model.add_unaries(
                [rng.integers(0, 9, c) if integral else rng.normal(size=c) * 3 for c in model.cardinalities]
            )
        graph = model.graph()
        swaps = Swaps(pair_model(graph), rng.integers(0, graph.arrays.cards))
        value, count = energy(graph, swaps.labels), -1
        while count < swaps.swaps:
            count = swaps.swaps
            swaps.again()
            while not swaps.swept:
                assert swaps.advance() is None
            after = energy(graph, swaps.labels)
            assert after < value or count == swaps.swaps
            value = after
        for a in range(graph.max_labels):
            for b in range(a + 1, graph.max_labels):
                assert best_swap(graph, swaps.labels, a, b) == pytest.approx(value, abs=1e-9)


def test_the_result_says_what_was_done():
    rng = np.random.default_rng(0)
    metric = metric_model(rng, 6, 3, False)
    assert "all moves were exact" in tm.solve(metric, "expansion").note
    other = random_model(rng, n=6, labels=3, factors=9, order=2, kinds=("dense",), tidy=True)
    assert "truncated" in tm.solve(other, "expansion", nonmetric="truncate").note
    assert "QPBO" in tm.solve(other, "expansion", nonmetric="qpbo").note
    triple = tm.Model([2, 2, 3])
    triple.add_factors([[0, 1, 2]], np.arange(12.0).reshape(2, 2, 3) ** 2)
    for method in ("expansion", "fastpd", "swap"):
        with pytest.raises(tm.ModelError, match=r"\(0, 1, 2\)"):
            tm.solve(triple, method)
    with pytest.raises(tm.ModelError, match=r"\(0, 1, 2\)"):
        tm.solve(triple, "qpbo")


@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_duals_on_potts_models_are_those_of_the_messages(seed):
    rng = np.random.default_rng(seed)
    model = grid_model(rng, 9, 40, 5, "potts") if seed % 2 else tm.Model(np.full(30, 4))
    if seed % 2 == 0:
        model.add_unaries(rng.normal(size=(30, 4)))
        pairs = np.array([(i, j) for i in range(30) for j in range(i) if rng.random() < 0.2])
        model.add_potts(pairs, rng.normal(size=len(pairs)) if seed else rng.random(len(pairs)))
    graph = model.graph()
    moves = begin(graph, False)
    while sum(moves.move(c) for c in range(graph.max_labels)):
        pass
    assert has_closed_form(graph, moves)
    shares = [1.0, 0.5, 0.3]
    bounds = potts_bounds(graph, moves, shares)
    for share, bound in zip(shares, bounds, strict=True):
        assert bound == pytest.approx(lower_bound(graph, moves.messages(graph, share)), abs=1e-9)


def test_fastpd_bounds_and_warm_starts():
    model = grid_model(np.random.default_rng(1), 10, 12, 4, "potts")
    result = tm.solve(model, "fastpd")
    assert -np.inf < result.lower_bound <= result.energy
    assert lower_bound(model.graph(), result.state.messages) == pytest.approx(result.lower_bound)
    assert tm.solve(model, "trws", init=result, max_iterations=5).lower_bound >= result.lower_bound - 1e-9
