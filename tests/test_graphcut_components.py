"""Component fusion against trying every mixture of the regions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tightmap.model.model as tm
from tightmap.moves.components import component_fusion, regions_in_parts


def random_model(rng: np.random.Generator) -> tm.Model:
    n = int(rng.integers(2, 8))
    cards = rng.integers(2, 4, n)
    model = tm.Model(cards)
    model.add_unaries([rng.integers(0, 9, c).astype(float) for c in cards])
    for _ in range(int(rng.integers(1, 7))):
        scope = rng.permutation(n)[: int(rng.integers(2, min(n, 3) + 1))]
        model.add_factors(scope[None], rng.integers(0, 9, tuple(cards[scope])).astype(float))
    if n >= 2:
        model.add_potts(np.array([[0, 1]]), np.array([3.0]))
    return model


def regions(graph, differing):
    """Connected sets of differing variables, the slow way: merge until nothing changes."""
    a = graph.arrays
    sets = [{int(i)} for i in differing]
    for f in range(graph.m):
        scope = {int(i) for i in a.scope[a.scope_start[f] : a.scope_start[f + 1]]} & {int(i) for i in differing}
        touched = [s for s in sets if s & scope]
        if len(touched) > 1:
            sets = [s for s in sets if not s & scope] + [set().union(*touched)]
    return sets


@pytest.mark.parametrize("seed", range(40))
def test_best_mixture_of_regions(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    graph = model.graph()
    cards = graph.arrays.cards
    first = rng.integers(0, cards)
    second = np.where(rng.random(len(cards)) < 0.5, rng.integers(0, cards), first)
    groups = regions(graph, np.flatnonzero(first != second))
    energies = []
    for choice in product((False, True), repeat=len(groups)):
        mixed = first.copy()
        for taken, group in zip(choice, groups, strict=True):
            if taken:
                mixed[list(group)] = second[list(group)]
        energies.append(model.energy(graph.lift(mixed)))
    before = model.energy(graph.lift(first))
    fused = first.copy()
    gain = component_fusion(graph.arrays, fused, second)
    after = model.energy(graph.lift(fused))
    assert after == min(energies)
    assert gain == pytest.approx(before - after)


@pytest.mark.parametrize("seed", range(40))
def test_parts_hold_whole_regions(seed):
    rng = np.random.default_rng(seed)
    graph = random_model(rng).graph()
    cards = graph.arrays.cards
    first = rng.integers(0, cards)
    second = np.where(rng.random(len(cards)) < 0.7, rng.integers(0, cards), first)
    largest = int(rng.integers(1, 4))
    parts = [set(p.tolist()) for p in regions_in_parts(graph.arrays, first, second, largest)]
    differing = np.flatnonzero(first != second)
    assert sorted(i for p in parts for i in p) == differing.tolist()
    assert all(0 < len(p) <= largest for p in parts)
    for group in regions(graph, differing):
        if len(group) <= largest:
            assert any(group <= p for p in parts)
