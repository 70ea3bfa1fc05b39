"""The kernels of the exact search, one by one, against slow and obvious versions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tightmap as tm
from naive import brute_force
from tightmap.runtime.bits import highest_bit, lowest_bit
from tightmap.solvers.exact import trailed_costs as ec
from tightmap.solvers.exact.component import Component
from tightmap.solvers.exact.consistency import next_marked
from tightmap.solvers.exact.network import build_network, components
from tightmap.solvers.exact.search import count_degrees
from tightmap.solvers.exact.trailed_costs import mark, unmark
from tightmap.solvers.exact.wide_functions import has_free_tuple


def component_of(model: tm.Model) -> Component:
    net = build_network(model.graph(), 1e6)
    return Component(net, components(net)[0], net.upper, net.grain, True, None)


def triples(seed: int, n: int = 7, labels: int = 3, tables: int = 9) -> tm.Model:
    rng = np.random.default_rng(seed)
    model = tm.Model([labels] * n)
    model.add_unaries(rng.integers(0, 3, (n, labels)).astype(float))
    for _ in range(tables):
        scope = rng.choice(n, int(rng.integers(2, 5)), replace=False)
        model.add_factors([scope], rng.integers(0, 3, [labels] * len(scope)).astype(float))
    return model


@pytest.mark.parametrize("position", [0, 1, 31, 32, 62, 63])
def test_highest_and_lowest_bit(position: int) -> None:
    rng = np.random.default_rng(position)
    below = int(rng.integers(0, 1 << 62)) & ((1 << position) - 1)
    assert highest_bit(np.uint64((1 << position) | below)) == position
    above = (int(rng.integers(0, 1 << 62)) << (position + 1)) & (2**64 - 1)
    assert lowest_bit(np.uint64((1 << position) | above)) == position


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 130])
def test_marks_are_found_in_both_directions(n: int) -> None:
    rng = np.random.default_rng(n)
    state = component_of(tm.Model([2] * 3)).state
    state = state._replace(flag=np.zeros((6, n // 64 + 1), dtype=np.uint64))
    one, other = set(np.flatnonzero(rng.random(n) < 0.1).tolist()), set(np.flatnonzero(rng.random(n) < 0.1).tolist())
    for row, these in ((ec.ARC, one), (ec.LOOSE, other)):
        for i in these:
            mark(state, row, i)
    for at in range(n):
        up, down = [i for i in one | other if i >= at], [i for i in one | other if i <= at]
        assert next_marked(state, ec.ARC, ec.LOOSE, at, 1) == min(up, default=-1)
        assert next_marked(state, ec.ARC, ec.LOOSE, at, -1) == max(down, default=-1)
    for i in range(n):
        assert unmark(state, ec.ARC, i) == (i in one)
    assert not state.flag[ec.ARC].any()


@pytest.mark.parametrize("seed", range(6))
def test_a_free_tuple_is_found_where_there_is_one(seed: int) -> None:
    """Before and after propagation, which moves cost, and with labels that are gone."""
    part = component_of(triples(seed))
    for turn in range(2):
        net, s = part.net, part.state
        sizes = s.value[1 + len(net.unary) :]
        for f in range(len(net.wide) - 1):
            slots = net.slot[net.wide[f, 0] : net.wide[f + 1, 0]]
            alive = [s.domain[0, net.node[i, ec.OFF] :][: sizes[i]].tolist() for i in slots[:, 0]]
            for p, x in [(q, y) for q, own in enumerate(alive) for y in own]:
                expected = False
                for labels in itertools.product(*[[x] if q == p else own for q, own in enumerate(alive)]):
                    cost = net.tables[net.wide[f, 1] + int(np.dot(slots[:, 2], labels))]
                    cost -= sum(s.value[slots[q, 1] + y] for q, y in enumerate(labels))
                    others = sum(s.value[1 + net.node[slots[q, 0], ec.OFF] + y] for q, y in enumerate(labels) if q != p)
                    expected = expected or cost + others == 0
                assert has_free_tuple(net, s, f, p, x) == expected
        if turn == 0:
            part._open_root()


@pytest.mark.parametrize("seed", range(6))
def test_degrees_count_functions_to_open_variables(seed: int) -> None:
    """After a part of a search, which decides variables and opens them again."""
    part = component_of(triples(seed, 12, 3, 30))
    part._open_root()
    part._search(3_000_000)
    net, s = part.net, part.state
    count_degrees(net, s)
    sizes = s.value[1 + len(net.unary) :]
    for i in range(len(part.variables)):
        arcs = net.arc[net.node[i, ec.ARCS] : net.node[i + 1, ec.ARCS]]
        wide = net.node[i + 1, ec.NEAR] - net.node[i, ec.NEAR]
        assert s.degree[0, i] == wide + sum(sizes[arc[ec.TO]] != 1 for arc in arcs)
    assert part.nodes > 1


def test_sites_come_before_the_shops_that_choose_among_them() -> None:
    model = tm.Model([20, 20, 20, 2, 2])
    model.add_factors([[i, j] for i in range(3) for j in (3, 4)], np.eye(20)[:, :2])
    assert components(build_network(model.graph(), 1e6))[0] == [3, 4, 0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["whole", "ties", "float", "hard"])
def test_wide_models_against_brute_force(seed: int, kind: str) -> None:
    rng = np.random.default_rng([seed, 77])
    cards = [int(c) for c in rng.integers(1, 5, 7)]
    model = tm.Model(cards)
    for _ in range(int(rng.integers(3, 12))):
        scope = rng.choice(7, int(rng.integers(1, 5)), replace=False)
        shape = [cards[i] for i in scope]
        costs = rng.integers(0, 2 if kind == "ties" else 9, shape).astype(float)
        if kind == "float":
            costs = rng.normal(0.0, 3.0, shape)
        if kind == "hard":
            costs[rng.random(shape) < 0.3] = np.inf
        model.add_factors([scope], costs)
    least = brute_force(model)[0]
    result = tm.solve(model, "exact", elimination=0, degree=0)
    if least == np.inf:
        assert result.status is tm.Status.INFEASIBLE
    else:
        assert result.status is tm.Status.OPTIMAL
        assert result.energy == pytest.approx(least, rel=1e-9, abs=1e-9)
        assert result.lower_bound <= least + 1e-9
