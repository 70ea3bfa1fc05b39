"""What the exact search removes before it begins: variables that follow from another one."""

from __future__ import annotations

from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightmap as tm
from naive import brute_force
from problems import random_model
from tightmap.moves.context import Context
from tightmap.runtime import clock
from tightmap.runtime.pace import TimeUp
from tightmap.solvers.exact import solver as exact
from tightmap.solvers.exact.elimination import eliminate_low_degrees
from tightmap.solvers.exact.functional import merge_functional
from tightmap.solvers.exact.network import build_network

WAYS = ({"elimination": 0, "degree": 0, "cores": False}, {"elimination": 0, "degree": 0}, {})
PROBES = (0, exact.PROBE)  # whether the search comes before cores and larger eliminations


def functional_table(rng, rows, columns):
    """Every row has one partner, or none; costs on the pairs that are left."""
    table = np.full((rows, columns), np.inf)
    if rng.random() < 0.5 and rows <= columns:
        partner = rng.permutation(columns)[:rows]  # one to one
    else:
        partner = rng.integers(columns, size=rows)
    costs = rng.integers(0, 5, rows).astype(float) if rng.random() < 0.5 else rng.normal(size=rows)
    alive = rng.random(rows) < 0.9
    table[np.flatnonzero(alive), partner[alive]] = costs[alive]
    return table


def with_functions(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    model = random_model(
        rng,
        n=n,
        labels=int(rng.integers(2, 4)),
        factors=int(rng.integers(0, 9)),
        order=int(rng.integers(2, 4)) if n > 2 else 2,
        hard=float(rng.choice([0.0, 0.2])),
        integral=bool(rng.integers(2)),
        ragged=bool(rng.integers(2)),
    )
    cards = model.cardinalities
    for _ in range(int(rng.integers(1, 4))):
        i, j = (int(k) for k in rng.choice(n, 2, replace=False))
        model.add_factors([[i, j]], [functional_table(rng, cards[i], cards[j])])
    return model


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1), way=st.sampled_from(WAYS), probe=st.sampled_from(PROBES))
def test_merged_variables_keep_the_optimum(seed, way, probe):
    model = with_functions(seed)
    optimum = brute_force(model)[0]
    with patch.multiple(exact, PROBE=probe, PROBE_BESIDE_HARD=probe):
        result = tm.solve(model, "exact", **way)
    if not np.isfinite(optimum):
        assert result.status is tm.Status.INFEASIBLE
        return
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(optimum, rel=1e-9, abs=1e-9)
    assert result.lower_bound <= optimum + 1e-9 * max(1.0, abs(optimum))


def cost(net, labels):
    total = net.constant + sum(int(net.unary[i][labels[i]]) for i in range(len(labels)) if i not in net.gone)
    return total + sum(int(t[tuple(labels[list(s)])]) for s, t in net.functions.items())


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_labelling_that_matters_costs_the_same(seed):
    """Labellings below the upper bound keep their cost and come back whole; all others cost the upper bound or more."""
    model = with_functions(seed)
    graph = model.graph()
    optimum = brute_force(model)[0]
    upper = optimum - graph.shift + 1.0 if np.isfinite(optimum) else 0.0
    whole, small = build_network(graph, upper), build_network(graph, upper)
    merged = merge_functional(small)
    assert merged == len(small.gone) == len(small.choices)
    assert all((t >= 0).all() for t in [*small.unary, *small.functions.values()])
    for given_labels in product(*map(range, graph.arrays.cards)):
        labels = np.array(given_labels, dtype=np.int64)
        before = cost(whole, labels)
        back = labels.copy()
        small.complete(back)
        after = cost(small, labels)
        if before < whole.upper:
            assert after == before and (back == labels).all()
        else:
            assert after >= whole.upper or (back != labels).any()


def test_a_chain_of_permutations_becomes_one_variable():
    rng = np.random.default_rng(1)
    model = tm.Model([5] * 9)
    chains = np.arange(5)[:, None]  # all labels follow from the first
    for i in range(8):
        partner, table = rng.permutation(5), np.full((5, 5), np.inf)
        table[np.arange(5), partner] = 0.0
        model.add_factors([[i, i + 1]], [table])
        chains = np.column_stack((chains, partner[chains[:, -1]]))
    model.add_unaries(rng.normal(size=(9, 5)))
    model.add_factors([(i, j) for i in range(9) for j in range(i - 1)], rng.normal(size=(28, 5, 5)))
    net = build_network(model.graph(), model.graph().hopeless)
    assert merge_functional(net) == 8 and not net.functions
    result = tm.solve(model, "exact", elimination=0, degree=0, cores=False)
    assert result.status is tm.Status.OPTIMAL and "8 variables merged" in result.note
    assert result.energy == pytest.approx(min(model.energy(x.tolist()) for x in chains), rel=1e-9)


class Counted(set):
    """A set that counts how many of its members were looked at, all of them together."""

    looks = 0

    def __iter__(self):
        Counted.looks += len(self)
        return super().__iter__()


def star(middle, leaves, table):
    """All leaves are joined to one variable, the first or the last one."""
    model = tm.Model([3] * (leaves + 1))
    model.add_unaries(np.random.default_rng(0).random((leaves + 1, 3)))
    edges = np.stack([np.full(leaves, middle), np.delete(np.arange(leaves + 1), middle)], axis=1)
    model.add_factors(edges, table)
    graph = model.graph()
    net = build_network(graph, graph.hopeless if graph.hard > 0.0 else 3.0 * leaves)
    net.touching = [Counted(mine) for mine in net.touching]
    Counted.looks = 0
    return net


@pytest.mark.parametrize("middle", [0, 300])
def test_the_middle_of_a_star_is_not_looked_at_for_every_leaf(middle):
    """Both took time that grows with the square of the leaves, and no limit was kept meanwhile."""
    net = star(middle, 300, np.random.default_rng(1).random((3, 3)))
    eliminate_low_degrees(net, 2, 1 << 16)
    assert len(net.gone) == 301 and Counted.looks < 30 * 300
    net = star(middle, 300, np.where(np.eye(3) > 0, 0.0, np.inf))
    assert merge_functional(net) == 300 and Counted.looks < 30 * 300


def test_presolving_ends_with_the_time():
    context = Context(deadline=clock.now() - 1.0)
    net = star(0, 20, np.where(np.eye(3) > 0, 0.0, np.inf))
    assert merge_functional(net, context) == 0
    with pytest.raises(TimeUp):
        eliminate_low_degrees(net, 2, 1 << 16, context)
    assert not net.gone
