"""Model -> Graph keeps every energy, whatever the model looks like."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

import tightmap as tm
from naive import graph_energy, labellings
from problems import models, random_model
from tightmap.energy.energies import energy
from tightmap.graph.graph import Kind


def assert_same_energies(model):
    graph = model.graph()
    held = model.clamped
    for x in labellings(model.cardinalities):
        x = np.array(x, dtype=np.int64)
        if ((held >= 0) & (x != held)).any():
            continue
        expected = model.energy(x)
        inner = graph.restrict(x)
        assert (graph.lift(inner) == x).all()
        got = energy(graph, inner)
        users = graph.user_energy(got)
        if np.isinf(expected):
            assert got > graph.hard_threshold
        else:
            assert users == pytest.approx(expected, rel=1e-9, abs=1e-9)
            assert graph_energy(graph, inner) == pytest.approx(got, rel=1e-9, abs=1e-9)


def assert_canonical(graph):
    g = graph.arrays
    assert (g.cards >= 2).all()
    seen = set()
    for f in range(graph.m):
        scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
        assert len(scope) >= 2 and len(set(scope.tolist())) == len(scope)
        if g.kind[f] != Kind.SECOND_DIFFERENCE:
            assert (np.diff(scope) > 0).all()
        key = tuple(sorted(scope.tolist()))
        assert key not in seen
        seen.add(key)
        for p, i in enumerate(scope):
            mine = slice(g.adj_start[i], g.adj_start[i + 1])
            assert (f, p) in set(zip(g.adj_factor[mine].tolist(), g.adj_pos[mine].tolist(), strict=True))
    assert g.adj_start[-1] == len(g.scope)
    assert np.isfinite(g.unary).all() and np.isfinite(g.params).all()


@given(models())
def test_random_models_keep_their_energies(model):
    assert_same_energies(model)
    assert_canonical(model.graph())


@given(models(hard=0.3))
def test_hard_constraints_keep_the_feasible_set(model):
    assert_same_energies(model)


def test_evidence_conditions(rng=None):
    rng = np.random.default_rng(5)
    for _ in range(20):
        model = random_model(rng, n=5, hard=0.1)
        i = int(rng.integers(5))
        model.clamp({i: int(rng.integers(model.cardinalities[i]))})
        assert_same_energies(model)
        wrong = np.zeros(5, dtype=np.int64)
        if model.cardinalities[i] > 1:
            wrong[i] = (model.clamped[i] + 1) % model.cardinalities[i]
            assert model.energy(wrong) == np.inf


def test_degenerate_models():
    empty = tm.Model([])
    assert empty.energy([]) == 0.0 and empty.graph().n == 0
    ones = tm.Model([1, 1, 1])
    ones.add_factors([[0, 2]], [[4.0]])
    ones.add_constant(1.0)
    assert ones.graph().n == 0 and ones.graph().shift == 5.0
    alone = tm.Model([2, 3])
    assert alone.graph().m == 0
    repeated = tm.Model([3, 2])
    table = np.arange(18.0).reshape(3, 2, 3)
    repeated.add_factors([[0, 1, 0]], table)
    assert_same_energies(repeated)
    assert repeated.graph().order <= 2


@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (5, 2)])
def test_structure_is_recognised(shape):
    a, b = np.indices(shape)
    cases = {
        Kind.POTTS: 2.0 + 3.5 * (a != b),
        Kind.LINEAR: -1.0 + 0.3 * np.minimum(abs(a - b), 1.7),
        Kind.QUADRATIC: 0.7 * np.minimum((a - b) ** 2, 3.0),
    }
    for kind, table in cases.items():
        model = tm.Model(shape)
        model.add_factors([[0, 1]], table)
        graph = model.graph()
        if kind == Kind.QUADRATIC and min(shape) == 2 and max(shape) <= 3:
            continue
        if kind == Kind.LINEAR and max(shape) < 3:
            continue
        assert graph.arrays.kind.tolist() == [kind], (kind, shape)
        assert_same_energies(model)
    separable = tm.Model(shape)
    separable.add_factors([[0, 1]], 0.1 * a + 0.7 * b * b)
    assert separable.graph().m == 0
    assert_same_energies(separable)


def test_equal_and_proportional_tables_are_shared():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(3, 3))
    model = tm.Model(np.full(6, 3))
    tables = np.stack([base, 2.0 * base, base, -0.5 * base, rng.normal(size=(3, 3))])
    model.add_factors([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]], tables)
    g = model.graph().arrays
    assert len(np.unique(g.param)) == 2
    assert_same_energies(model)
    pn = tm.Model(np.full(4, 2))
    table = np.full((2, 2, 2), 5.0)
    table[0, 0, 0], table[1, 1, 1] = 1.0, 2.0
    pn.add_factors([[0, 1, 2], [1, 2, 3]], table)
    assert set(pn.graph().arrays.kind.tolist()) == {Kind.PN_POTTS}
    assert_same_energies(pn)


def test_quantum():
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, 3.0], [6.0, 0.0]])
    model.add_potts([[0, 1]], [9.0])
    model.add_constant(0.1)
    assert model.graph().quantum == 3.0
    model.add_unaries([[0.25, 0.0]], nodes=[0])
    assert model.graph().quantum == 0.25
    model.add_unaries([[0.1, 0.0]], nodes=[0])
    assert model.graph().quantum == 0.0


def test_graph_is_rebuilt_after_a_change_and_old_graphs_stay():
    model = tm.Model([2, 2])
    model.add_unaries([[1.0, 2.0], [0.0, 0.0]])
    before = model.graph()
    model.add_unaries([[5.0, 0.0]], nodes=[0])
    assert before.arrays.unary[0] == 1.0
    assert model.graph().arrays.unary[0] == 6.0


def test_a_large_potts_model_stays_small():
    model = tm.Model.grid(200, 200, 4)
    edges = model.edges()
    model.add_potts(edges, np.ones(len(edges)))
    model.add_potts(edges, np.ones(len(edges)))
    graph = model.graph()
    assert graph.m == len(edges) and (graph.arrays.weight == 2.0).all()
    assert graph.nbytes < 60 * graph.m + 60 * graph.n


@pytest.mark.parametrize("seed", range(6))
def test_factors_added_one_by_one_are_the_same_model_as_all_at_once(seed):
    """Small blocks are joined: unsorted scopes, repeated and fixed variables, hard, shared and simple tables."""
    rng = np.random.default_rng(seed)
    cards = [2, 3, 2, 3, 1]
    one, many = tm.Model(cards), tm.Model(cards)
    groups: dict[tuple[int, ...], list] = {}
    for _ in range(14):
        scope = rng.integers(0, 5, int(rng.integers(2, 4)))
        shape = tuple(cards[i] for i in scope)
        table = rng.integers(0, 4, shape).astype(float)
        if rng.random() < 0.3:
            table[tuple(rng.integers(0, shape))] = np.inf
        if rng.random() < 0.3:
            table[...] = 1.0
        one.add_factors([scope], table)
        groups.setdefault(shape, []).append((scope, table))
    for group in groups.values():
        many.add_factors([scope for scope, _ in group], np.array([table for _, table in group]))
    assert_same_energies(one)
    a, b = one.graph(), many.graph()
    assert a.m == b.m and (a.arrays.scope == b.arrays.scope).all() and (a.arrays.kind == b.arrays.kind).all()
    assert a.quantum == b.quantum and a.hard == b.hard


def test_proportional_tables_are_shared_among_many_that_are_not():
    rng = np.random.default_rng(0)
    base = rng.random((3, 3))
    tables = rng.random((200, 3, 3))
    tables[::10] = base * rng.random((20, 1, 1))
    tables[5::50, 0, 1] = np.inf
    tables[105] = tables[5]
    model = tm.Model([3] * 201)
    model.add_factors([[i, i + 1] for i in range(200)], tables)
    graph = model.graph()
    assert len(graph.arrays.params) == 9 * (200 - 19 - 1)
    x = rng.integers(0, 3, 201)
    while not np.isfinite(model.energy(x)):
        x = rng.integers(0, 3, 201)
    assert graph.user_energy(energy(graph, x)) == pytest.approx(model.energy(x))


@pytest.mark.parametrize("unit", [1.0, 3.0, 0.125, 0.1, 7.0 / 64.0])
def test_the_common_divisor_of_all_costs(unit):
    """Multiples of 2^-30 have one; the kernel that finds it takes weights of one number for all factors too."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        whole = rng.integers(-40, 41, (12, 3))
        model = tm.Model([3] * 12)
        model.add_unaries(unit * whole)
        model.add_potts([[i, i + 1] for i in range(11)], 6.0 * unit)
        fits = (unit * 2.0**30) % 1.0 == 0.0
        expected = unit * math.gcd(6, *np.abs(whole).ravel().tolist()) if fits else 0.0
        assert model.graph().quantum == expected
    model.add_unaries([[np.inf, 0.0, 0.0]] * 12)
    assert (model.graph().quantum > 0.0) == fits
    model.add_unaries([[0.0, 2.0**-31, 0.0]] * 12)  # too many bits
    assert model.graph().quantum == 0.0


def test_small_differences_beside_large_costs_are_kept():
    """0.004 beside 1e11 is a cost, not the rounding of a table that is nearly a sum of unaries."""
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], [[0.0, -1e11], [0.004, -1e11]])
    graph = model.graph()
    for labels in np.ndindex(2, 2):
        canonical = graph.user_energy(energy(graph, np.array(labels)))
        assert canonical == pytest.approx(model.energy(labels), rel=1e-15)


@pytest.mark.parametrize("constant", [0.0, 0.3, -1000.1])
@pytest.mark.parametrize("kind, power", [(Kind.LINEAR, 1), (Kind.QUADRATIC, 2)])
def test_differences_with_the_rounding_of_a_constant_are_recognised(constant, kind, power):
    labels = np.arange(60)
    gap = np.abs(labels[:, None] - labels).astype(float) ** power
    model = tm.Model([60, 60])
    model.add_factors([[0, 1]], constant + 0.1 * np.minimum(gap, 37.0))
    assert model.graph().arrays.kind.tolist() == [kind]


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (4, 4), (3, 5), (2, 2, 2), (3, 2, 4)])
@pytest.mark.parametrize("seed", range(4))
def test_plain_tables_are_told_as_the_array_operations_tell_them(shape, seed, monkeypatch):
    """The kernel that sees constants, sums and tables without structure changes nothing but the time."""
    rng = np.random.default_rng(seed)
    k, gap = len(shape), np.abs(np.arange(shape[0])[:, None] - np.arange(shape[1]))
    general = rng.random(shape)
    lines = [rng.random(s).reshape([-1 if p == q else 1 for q in range(k)]) for p, s in enumerate(shape)]
    forbidding = rng.random(shape)
    forbidding[(0,) * k] = math.inf
    tables = [general, np.full(shape, 3.0), np.broadcast_to(sum(lines), shape), forbidding, 2.0 * general]
    same_diagonal = rng.random(shape)
    same_diagonal[tuple(np.arange(min(shape)) for _ in range(k))] = 0.5
    one_entry, along_one = np.zeros(shape), np.zeros(shape)
    one_entry[(1,) * k] = along_one[1] = 1.0
    tables += [same_diagonal, one_entry, along_one, 0.3 + 1e-15 * rng.random(shape)]
    if k == 2:
        tables += [0.7 * np.minimum(gap, 2.0), (gap > 0) * 1.5, gap**2.0]

    def graph_of(chosen):
        model = tm.Model(list(shape) * len(chosen))
        for f, table in enumerate(chosen):
            model.add_factors([range(f * k, f * k + k)], np.array(table))
        return model.graph()

    picks = [[t] for t in tables] + [[tables[j] for j in rng.permutation(5)], tables]
    quick = [graph_of(chosen) for chosen in picks]
    monkeypatch.setattr(
        "tightmap.canonical.recognise._forms", lambda flat, shape: (np.zeros(len(flat), np.uint8), np.zeros(len(flat)))
    )
    for chosen, found in zip(picks, quick, strict=True):
        plain = graph_of(chosen)
        assert (found.constant, found.shift, found.slack, found.quantum, found.hard) == (
            plain.constant, plain.shift, plain.slack, plain.quantum, plain.hard,
        )  # fmt: skip
        for mine, theirs in zip(found.arrays, plain.arrays, strict=True):
            assert np.array_equal(mine, theirs)
