"""Kernels that are compiled once for models of pairs and all others."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from tightmap.graph.graph import Arrays, PairArrays
from tightmap.graph.one_form import one_form
from tightmap.runtime.compiled import lean
from tightmap.runtime.linking import Compiled


@one_form
@lean
def _degree(i, g):
    return g.adj_start[i + 1] - g.adj_start[i]


@lean
def _twice(g, i):
    return _degree(i, g) + _degree(i, g)


def star() -> tm.Model:
    model = tm.Model([2] * 4)
    model.add_potts([[0, i] for i in range(1, 4)])
    return model


def test_one_form_for_both_kinds_of_models():
    pairs = star().graph().arrays
    assert type(pairs) is PairArrays
    every = Arrays(*pairs)
    assert [_degree(0, pairs), _degree(0, every), _degree(1, pairs)] == [3, 3, 1]
    if isinstance(_degree, Compiled):
        assert len(_degree.entry.overloads) == 1
    assert _twice(pairs, 0) == _twice(every, 0) == 6  # compiled callers pass on what they have
    if isinstance(_degree, Compiled):
        assert len(_twice.entry.overloads) == 2


@pytest.mark.parametrize("kind", ["dense", "potts", "linear", "quadratic"])
def test_region_graphs_of_pairs_are_those_of_any_model(kind):
    """The same model once as a model of pairs and once as one of any kinds: the same results to the last bit."""
    rng = np.random.default_rng(0)
    pairs = np.array([[i, j] for i in range(9) for j in range(i)])
    some = pairs[rng.random(len(pairs)) < 0.5]
    found = []
    for larger in (False, True):
        model = tm.Model([4] * 9)
        costs = np.random.default_rng(1)
        model.add_unaries(costs.random((9, 4)))
        if kind == "dense":
            model.add_factors(some, costs.random((len(some), 4, 4)))
        elif kind == "potts":
            model.add_potts(some, costs.random(len(some)))
        elif kind == "linear":
            model.add_truncated_linear(some, costs.random(len(some)), 2.0)
        else:
            model.add_truncated_quadratic(some, costs.random(len(some)), 3.0)
        arrays = model.graph().arrays
        assert type(arrays) is PairArrays
        if larger:
            graph = model.graph()
            object.__setattr__(graph, "arrays", Arrays(*arrays))
            assert type(model.graph().arrays) is Arrays
        found += [tm.solve(model, method, max_iterations=5, threads=1) for method in ("srmp", "mplp")]
    for one, other in ((found[0], found[2]), (found[1], found[3])):
        assert (one.energy, one.lower_bound) == (other.energy, other.lower_bound)
        assert np.array_equal(one.labels, other.labels)
