"""Multilinear energy, gradient and certificate against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import bound_of_messages, brute_force, multilinear
from problems import models
from tightmap.energy.certificate import certify
from tightmap.energy.energies import gradient, lower_bound, message_offsets, multilinear_energy, one_hot


@given(models(), st.integers(0, 2**32 - 1))
def test_multilinear_energy_and_gradient(model, seed):
    rng = np.random.default_rng(seed)
    graph = model.graph()
    if graph.n == 0:
        return
    x = rng.random(len(graph.arrays.unary))
    assert multilinear_energy(graph, x) == pytest.approx(multilinear(graph, x), rel=1e-9, abs=1e-9)
    slope = gradient(graph, x)
    # E is linear in every entry, so a finite difference of any size is exact
    for e in range(len(x)):
        y = x.copy()
        y[e] += 1.0
        difference = multilinear_energy(graph, y) - multilinear_energy(graph, x)
        assert slope[e] == pytest.approx(difference, rel=1e-8, abs=1e-8)
    labels = np.array([rng.integers(c) for c in model.cardinalities])
    vertex = one_hot(graph, graph.restrict(labels))
    value = graph.user_energy(multilinear_energy(graph, vertex))
    assert value == pytest.approx(model.energy(labels), rel=1e-9, abs=1e-9)


@given(models(hard=0.1), st.integers(0, 2**32 - 1))
def test_any_messages_give_a_bound(model, seed):
    rng = np.random.default_rng(seed)
    graph = model.graph()
    optimum, _ = brute_force(model)
    if graph.n == 0:
        return
    at = message_offsets(graph)
    messages = rng.normal(size=int(at[-1])) * rng.choice([0.0, 1.0, 10.0])
    bound = lower_bound(graph, messages)
    assert graph.user_bound(bound) <= optimum + 1e-12 * abs(optimum)
    g = graph.arrays
    parts = {
        (f, p): messages[at[g.scope_start[f] + p] : at[g.scope_start[f] + p + 1]]
        for f in range(graph.m)
        for p in range(g.scope_start[f + 1] - g.scope_start[f])
    }
    exact = bound_of_messages(graph, parts)
    if graph.quantum == 0.0:
        assert bound == pytest.approx(exact, rel=1e-9, abs=1e-9)
        assert bound <= exact
    else:
        steps = (bound - graph.constant) / graph.quantum
        assert steps == pytest.approx(round(steps), abs=1e-9)
        assert exact - 1e-9 * (1 + abs(exact)) <= bound < exact + graph.quantum


@given(models(max_order=2))
def test_quantum_rounding_never_exceeds_the_optimum(model):
    graph = model.graph()
    optimum, _ = brute_force(model)
    if graph.n and graph.quantum > 0:
        for part in (1e-12, 0.3, 0.999):
            raw = optimum - graph.shift - part * graph.quantum
            assert graph.user_bound(certify(graph, raw, 0.0)) <= optimum + 1e-12 * abs(optimum)
