"""Persistency and dead-end elimination against all optima of small models."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from naive import labellings
from problems import random_model
from tightmap.energy.energies import energy
from tightmap.graphcut.presolve import dead_ends, kovtun


def all_energies(graph):
    xs = np.array(list(labellings(graph.arrays.cards)), np.int64)
    return xs, np.array([energy(graph, x) for x in xs])


@pytest.mark.parametrize("integral", [True, False])
def test_every_optimum_has_the_labels_of_kovtun(integral):
    rng = np.random.default_rng(int(integral))
    found = 0
    for _ in range(40):
        n = int(rng.integers(2, 7))
        cards = rng.integers(2, 4, n)
        model = tm.Model(cards)
        model.add_unaries([rng.integers(0, 6, c) if integral else rng.normal(size=c) * 2 for c in cards])
        pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.5]
        if not pairs:
            continue
        weights = rng.integers(1, 4, len(pairs)) if integral else rng.random(len(pairs))
        model.add_potts(np.array(pairs), weights.astype(float))
        graph = model.graph()
        fixed = kovtun(graph)
        xs, values = all_energies(graph)
        for x in xs[values <= values.min() + 1e-9]:
            known = fixed >= 0
            assert (x[known] == fixed[known]).all()
            found += int(known.sum())
    assert found > 50  # the claim is not empty


def test_kovtun_names_what_it_cannot_use():
    model = tm.Model([3, 3, 3])
    model.add_potts([[0, 1]], [1.0])
    model.add_truncated_linear([[1, 2]], [1.0], 2.0)
    with pytest.raises(tm.ModelError, match=r"\(1, 2\)"):
        kovtun(model.graph())


@pytest.mark.parametrize("seed", range(25))
def test_an_optimum_survives_dead_end_elimination(seed):
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, labels=3, factors=4, order=3, integral=seed % 2 == 0).graph()
    if graph.n == 0:
        return
    alive = dead_ends(graph)
    xs, values = all_energies(graph)
    kept = alive[graph.arrays.offset[:-1] + xs].all(axis=1)
    assert kept.any()
    assert values[kept].min() == pytest.approx(values.min(), abs=1e-8)


def test_dead_ends_are_found():
    model = tm.Model([3, 3])
    model.add_unaries([[0.0, 10.0, 1.0], [0.0, 0.5, 9.0]])
    model.add_potts([[0, 1]], [1.0])
    alive = dead_ends(model.graph())
    assert not alive[1] and not alive[5] and alive[0]
