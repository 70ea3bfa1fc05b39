"""The table engine of TRW-S does what the general one does, on graphs of every shape."""

import numpy as np
import pytest

import tightmap as tm
from tightmap.graph.graph import Kind
from tightmap.solvers.trws import engines, streams
from tightmap.solvers.trws.engines import GeneralMessages, Passes


def random_pairs(seed, cards, edges, kinds):
    """A graph of some edges whose costs are of these kinds in turns."""
    rng = np.random.default_rng(seed)
    n = len(cards)
    model = tm.Model(cards)
    model.add_unaries([rng.normal(size=c) for c in cards])
    pairs = sorted({tuple(sorted(rng.choice(n, 2, replace=False))) for _ in range(edges)})
    for k, (i, j) in enumerate(pairs):
        if rng.random() < 0.5:
            i, j = j, i
        kind = kinds[k % len(kinds)]
        if kind == "dense":
            model.add_factors([[i, j]], rng.normal(size=(cards[i], cards[j])))
        elif kind == "hard":
            table = rng.normal(size=(cards[i], cards[j]))
            table[rng.random(table.shape) < 0.2] = np.inf
            model.add_factors([[i, j]], table)
        elif kind == "potts":
            model.add_potts([[i, j]], [rng.random()])
        elif kind == "repulsive":
            model.add_potts([[i, j]], [-rng.random()])
        elif kind == "linear":
            model.add_truncated_linear([[i, j]], [rng.random()], 2.0)
        else:
            model.add_truncated_quadratic([[i, j]], [rng.random()], 3.0)
    return model


ALL = ("dense", "hard", "potts", "repulsive", "linear", "quadratic")
SHAPES = {
    "two labels": ([2] * 30, 60, ALL),
    "three labels": ([3] * 30, 70, ("dense",)),
    "up to eight labels": ([1 + k % 8 for k in range(40)], 90, ALL),
    "eight labels": ([8] * 12, 66, ("dense", "potts")),
    "nine labels": ([9] * 12, 40, ("dense", "potts", "repulsive")),
    "from one to forty labels": ([(1, 7, 8, 9, 16, 17, 40)[k % 7] for k in range(25)], 70, ("dense", "hard", "potts")),
    "Potts of five labels": ([5] * 40, 100, ("potts",)),
    "a star": ([4] * 20, 400, ("dense", "repulsive")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_both_engines_send_the_same_messages(shape):
    cards, edges, kinds = SHAPES[shape]
    graph = random_pairs(1, cards, edges, kinds).graph()
    order = np.random.default_rng(2).permutation(graph.n)
    plain, tables = (GeneralMessages(graph, order, tables=which) for which in (False, True))
    assert tables.streams is not None and plain.streams is None
    for k in range(6):
        how = Passes(rounding=k % 2 == 0)
        (low, error), (found, allowed) = plain.iterate(1, how), tables.iterate(1, how)
        assert found == pytest.approx(low, rel=1e-12, abs=1e-12)
        assert 0.0 < allowed < 2.0 * error
    np.testing.assert_allclose(tables.export(), plain.export(), rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(tables.best, plain.best)
    assert tables.best_energy == pytest.approx(plain.best_energy, rel=1e-12, abs=1e-12)


def test_messages_go_from_one_engine_to_the_other():
    cards, edges, kinds = SHAPES["from one to forty labels"]
    graph = random_pairs(3, cards, edges, kinds).graph()
    order = np.arange(graph.n)
    plain, tables, fresh = (GeneralMessages(graph, order, tables=which) for which in (False, True, True))
    low, _ = tables.iterate(5)
    plain.load(tables.export())
    fresh.load(plain.export())
    for engine in (plain, fresh):
        assert engine.iterate(1)[0] >= low - 1e-9 * abs(low)
    assert not plain.take_over(tables)  # messages have other places there
    assert fresh.take_over(tables)
    np.testing.assert_array_equal(fresh.sweeper.messages, tables.sweeper.messages)


@pytest.mark.parametrize("labels", [3, 12])
def test_threads_change_nothing(labels, monkeypatch):
    monkeypatch.setattr(engines, "WORTH_THREADS", 0)
    n = 2000
    model = tm.Model([labels] * n)
    rng = np.random.default_rng(0)
    model.add_unaries(rng.random((n, labels)))
    near = np.array([(i, i + step) for step in (1, 2, 30) for i in range(n - step)])
    model.add_factors(near, rng.random((len(near), labels, labels)))
    graph = model.graph()
    one, two = (GeneralMessages(graph, np.arange(n), threads, tables=True) for threads in (1, 2))
    assert two.crew.threads == 2
    assert one.iterate(5) == two.iterate(5)
    np.testing.assert_array_equal(one.sweeper.messages, two.sweeper.messages)
    np.testing.assert_array_equal(one.best, two.best)


def test_where_tables_are_laid_out(monkeypatch):
    def suited(cards, kinds, edges=40):
        return streams.suits(random_pairs(0, cards, edges, kinds).graph())

    assert not suited([3] * 20, ("dense",))  # a few edges
    monkeypatch.setattr(streams, "FEWEST", 1)
    assert suited([3] * 20, ("dense",)) and suited([20] * 20, ("dense", "potts")) and suited([8] * 20, ALL)
    assert not suited([12] * 20, ("dense", "linear"))  # distances of many labels have a quicker way
    assert not suited([4] * 20, ("potts",))  # so have four labels
    one_table = tm.Model([20] * 200)
    pairs = [[i, j] for i in range(200) for j in range(i + 1, i + 6) if j < 200]
    one_table.add_factors(pairs, np.random.default_rng(0).random((20, 20)))
    graph = one_table.graph()
    assert (graph.arrays.kind == Kind.DENSE).all() and not streams.suits(graph)  # a thousand copies of one table
    monkeypatch.setattr(streams, "LARGEST", 1000)
    assert not suited([3] * 20, ("dense",))
