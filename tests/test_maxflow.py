"""tm.maxflow against scipy and by itself: grids of every dimension, edge lists, whole and real capacities, updates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

import tightmap as tm


def scipy_value(n, edges, forward, backward, source, sink):
    rows = [*edges[:, 0], *edges[:, 1], *([n] * n), *range(n)]
    columns = [*edges[:, 1], *edges[:, 0], *range(n), *([n + 1] * n)]
    data = np.concatenate((forward, backward, source, sink)).astype(np.int32)
    return maximum_flow(csr_matrix((data, (rows, columns)), shape=(n + 2, n + 2)), n, n + 1).flow_value


def grid_edges(shape, offsets):
    index = np.arange(int(np.prod(shape))).reshape(shape)
    pairs, cells = [], []
    for offset in offsets:
        tails = tuple(slice(max(0, -o), s - max(0, o)) for s, o in zip(shape, offset, strict=True))
        heads = tuple(slice(max(0, o), s - max(0, -o)) for s, o in zip(shape, offset, strict=True))
        pairs.append(np.column_stack((index[tails].reshape(-1), index[heads].reshape(-1))))
        cells.append(index[tails].shape)
    return pairs, cells


SHAPES = [
    ((7,), [(1,)]),
    ((5, 6), [(1, 0), (0, 1)]),
    ((5, 6), [(1, 0), (0, 1), (1, 1), (1, -1)]),
    ((3, 4, 5), [(1, 0, 0), (0, 1, 0), (0, 0, 1)]),
    ((3, 4, 3), [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, -1), (0, 1, -1), (1, -1, 1)]),
    ((5, 5), [(1, 2), (2, -1)]),
    ((2, 3, 2, 3), [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]),
    ((1, 4), [(1, 0), (0, 1)]),
]


@pytest.mark.parametrize("shape, offsets", SHAPES)
def test_grids_of_every_dimension(shape, offsets):
    rng = np.random.default_rng(len(offsets))
    pairs, cells = grid_edges(shape, offsets)
    for _ in range(5):
        source, sink = rng.integers(0, 9, (2, *shape))
        there = [rng.integers(0, 6, c) for c in cells]
        back = [rng.integers(0, 6, c) for c in cells]
        cut = tm.maxflow(source, sink, there, back, offsets=offsets)
        n = source.size
        edges = np.concatenate(pairs)
        flat = [np.concatenate([a.reshape(-1) for a in v]) for v in (there, back)]
        value = scipy_value(n, edges, *flat, source.reshape(-1), sink.reshape(-1))
        assert cut.value == value == cut.cost(cut.source_side)
        assert cut.source_side.shape == shape
        general = tm.maxflow(source.reshape(-1), sink.reshape(-1), *flat, edges=edges)
        assert general.value == value
        assert (general.source_side == cut.source_side.reshape(-1)).all()


@pytest.mark.parametrize("real", [False, True])
def test_updates_equal_fresh_calls(real):
    rng = np.random.default_rng(3)
    shape = (6, 7)
    draw = (lambda *s: rng.uniform(0, 9, s)) if real else (lambda *s: rng.integers(0, 9, s))
    capacity = [draw(5, 7), draw(6, 6)]
    source, sink = draw(*shape), draw(*shape)
    cut = tm.maxflow(source, sink, capacity)
    for size in (1.0, 1.0, 3.0, 1e9, 0.5):
        where = rng.random(shape) < 0.2
        source = np.where(where, (size * draw(*shape)).astype(source.dtype), source)
        sink = np.where(where, (size * draw(*shape)).astype(sink.dtype), sink)
        fresh = tm.maxflow(source, sink, capacity)
        assert cut.update(source, sink) is cut
        assert cut.value == pytest.approx(fresh.value, rel=1e-12, abs=2 * (cut.error + fresh.error))
        assert cut.cost(cut.source_side) == pytest.approx(cut.value, rel=1e-12)


def test_real_capacities_are_within_the_error():
    rng = np.random.default_rng(5)
    source, sink = 1e-7 * rng.uniform(0, 1, (2, 8, 8))
    cut = tm.maxflow(source, sink, 1e-8)
    whole = tm.maxflow(np.rint(source * 1e12).astype(int), np.rint(sink * 1e12).astype(int), 10**4)
    assert 0.0 < cut.error < 1e-15
    assert cut.value == pytest.approx(1e-12 * whole.value, abs=1e-10)


def test_infinite_capacities_tie_nodes():
    cut = tm.maxflow([np.inf, 0, 0], [0, 0, np.inf], [2, 3], edges=[[0, 1], [1, 2]])
    assert cut.value == 2 and cut.source_side.tolist() == [True, False, False]
    assert tm.maxflow([np.inf, 0], [0, np.inf], np.inf, edges=[[0, 1]]).value == np.inf
    assert tm.maxflow([np.inf], [np.inf], edges=np.zeros((0, 2), int)).value == np.inf


def test_nothing_and_one_node():
    assert tm.maxflow(np.zeros(0, int), np.zeros(0, int), edges=np.zeros((0, 2), int)).value == 0
    assert tm.maxflow([[3]], [[5]]).value == 3
    assert tm.maxflow(np.zeros((0, 4)), np.zeros((0, 4))).value == 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        (([1, 2], [1]), "shape"),
        (([1, -2], [1, 1]), "at least 0"),
        (([1, np.nan], [1, 1]), "at least 0"),
        ((["a"], ["b"]), "numbers"),
        ((1, 1), "one number per node"),
        (([1, 1], [1, 1], [1, 2]), "one entry per offset"),
        (([[1, 1]], [[1, 1]], [np.ones((2, 2)), 1]), "must have the shape"),
    ],
)
def test_wrong_arguments_get_one_sentence(arguments, said):
    with pytest.raises(tm.ModelError, match=said):
        tm.maxflow(*arguments)


def test_wrong_edges_get_one_sentence():
    with pytest.raises(tm.ModelError, match="outside"):
        tm.maxflow([1, 1], [1, 1], edges=[[0, 2]])
    with pytest.raises(tm.ModelError, match="not both"):
        tm.maxflow([1, 1], [1, 1], edges=[[0, 1]], offsets=[[1]])
    with pytest.raises(tm.ModelError, match="itself"):
        tm.maxflow([1, 1], [1, 1], offsets=[[0]])
    with pytest.raises(tm.ModelError, match="one per edge"):
        tm.maxflow([1, 1], [1, 1], [1, 2], edges=[[0, 1]])


def cheapest(source, sink, edges, there, back):
    """By brute force over all cuts."""
    costs = []
    for side in itertools.product((False, True), repeat=len(source)):
        inside = np.array(side)
        p, q = inside[edges[:, 0]], inside[edges[:, 1]]
        costs.append(sink[inside].sum() + source[~inside].sum() + there[p & ~q].sum() + back[q & ~p].sum())
    return min(costs)


@pytest.mark.parametrize("large", [1e9, 1e15, 1e200])
def test_large_numbers_that_mean_infinity_take_no_bits_of_the_others(large):
    """Seeds of a segmentation as users of other libraries write them."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        edges = rng.integers(0, 5, size=(8, 2))
        source, sink, there, back = (rng.random(k) for k in (5, 5, 8, 8))
        source[0] = sink[1] = there[0] = large
        cut = tm.maxflow(source, sink, there, edges=edges, reverse=back)
        assert cut.value == pytest.approx(cheapest(source, sink, edges, there, back), rel=1e-10)
        source, sink = rng.random(5) * large, rng.random(5) * large  # nothing is left of what was large before
        least = cheapest(source, sink, edges, there, back)
        assert cut.update(source, sink).value == pytest.approx(least, rel=1e-10)


def test_arrays_that_change_later_do_not_change_the_network():
    source, sink = np.ones((2, 3)), np.zeros((2, 3))
    sink[0, 0] = 9.0
    along = [np.full((1, 3), 2.0), np.full((2, 2), 2.0)]
    cut = tm.maxflow(source, sink, along)
    along[0][:] = along[1][:] = 0.0
    assert cut.update(source * 2.0, sink).value == tm.maxflow(source * 2.0, sink, 2.0).value
    assert cut.cost(np.array([[True, False, False], [True, True, True]])) == 9.0 + 4.0 + 2.0 + 4.0


def test_networks_that_no_number_can_pay():
    assert tm.maxflow([1e308] * 2, [1e308] * 2, [1e308], edges=[[0, 1]]).value == np.inf
    with pytest.raises(tm.ModelError, match="edges: expected an array"):
        tm.maxflow([1, 2], [2, 1], 1, edges=[[0, 1], [0]])
    with pytest.raises(tm.ModelError, match="masked"):
        tm.maxflow(np.ma.array([1, 2], mask=[0, 1]), [2, 1], 1, edges=[[0, 1]])


@pytest.mark.parametrize("large", [np.uint64(2**64 - 1), np.int64(2**63 - 1), np.int64(2**62), np.uint64(2**63)])
def test_whole_numbers_of_any_width(large):
    """Users write the largest number of a type for infinity: neither it nor sums of it become negative."""
    kind = type(large)
    source, sink, there = (np.array(a, kind) for a in ([large, 0, large], [0, 3, large], [1, large]))
    cut = tm.maxflow(source, sink, there, edges=[[0, 1], [1, 2]])
    assert cut.value == pytest.approx(float(large), rel=1e-9) and cut.cost([1, 1, 1]) >= float(large)
    small = tm.maxflow(np.array([large, 0], kind), np.array([0, 3], kind), 2, edges=[[0, 1]])
    assert small.value == 2 and small.cost(small.source_side) == 2.0
    later = tm.maxflow([3, 0], [0, 2], 1, edges=[[0, 1]]).update(np.array([large, 0], kind), [0, 3])
    assert later.value == 1 and later.source_side.tolist() == [True, False]
    grid = tm.maxflow(np.array([large, 0, 0], kind), np.array([0, 0, large], kind), 4)
    assert grid.value == 4 and grid.update(np.array([large, 0, 0], kind), np.array([0, large, large], kind)).value == 4
    assert tm.maxflow(np.full(3, large), np.full(3, large)).cost([1, 1, 1]) == pytest.approx(3.0 * float(large))


def test_capacities_and_steps_that_cannot_be():
    for wrong in (np.array([1, 2], "m8[s]"), np.array([1, 2], "M8[s]"), np.array(["1", "2"])):
        with pytest.raises(tm.ModelError, match="must be numbers"):
            tm.maxflow(wrong, [1, 2])
    with pytest.raises(tm.ModelError, match="edges must be whole"):
        tm.maxflow([1, 2], [2, 1], edges=np.array([[0, 1]], "m8[s]"))
    huge = np.array([np.longdouble("1e4000"), 0])
    if np.isfinite(huge).all():  # where long doubles have more range
        with pytest.raises(tm.ModelError, match="more than float64"):
            tm.maxflow(huge, [1, 2])
    with pytest.raises(tm.ModelError, match="would need"):
        tm.maxflow(np.ones((2,) * 24), np.zeros((2,) * 24))
    with pytest.raises(tm.ModelError, match="2 nodes"):
        tm.maxflow([1, 2], [2, 1]).cost([True])
    with pytest.raises(tm.ModelError, match="2 nodes"):
        tm.maxflow([1, 2], [2, 1]).cost(["a", "b"])


@pytest.mark.parametrize("step", [2, 5, -7, 2**62, -(2**63)])
def test_steps_beyond_the_grid_join_nothing(step):
    assert tm.maxflow([1, 2], [2, 1], offsets=[[step]]).value == 2
    assert tm.maxflow([9, 0], [0, 9], [3, 4], offsets=[[step], [1]]).value == 4
