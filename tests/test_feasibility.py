"""Hard constraints: propagation against the definition, feasible labellings and proofs against brute force."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from conftest import data_file
from naive import labellings
from tightmap.moves.feasibility import engine
from tightmap.moves.feasibility.constraints import ENTRIES, constraints
from tightmap.moves.feasibility.engine import Feasibility
from tightmap.moves.feasibility.search import luby


def hard_model(seed, order=4, largest=1500):
    """Random tables of orders 1 to 4, dense and sparse, with anything from no to most entries forbidden."""
    rng = np.random.default_rng(seed)
    n, labels = int(rng.integers(2, 8)), int(rng.integers(2, 5))
    cards = rng.integers(2, labels + 1, n)
    while np.prod(cards) > largest:
        cards = rng.integers(2, labels + 1, n)
    model = tm.Model(cards)
    few = float(rng.choice([0.0, 0.15]))
    model.add_unaries([np.where(rng.random(c) < few, np.inf, rng.normal(size=c)) for c in cards])
    share = float(rng.choice([0.02, 0.1, 0.3, 0.5, 0.7]))
    for _ in range(int(rng.integers(1, 16))):
        scope = rng.permutation(n)[: int(rng.integers(1, min(n, order) + 1))]
        shape = tuple(cards[scope])
        table = np.where(rng.random(shape) < share, np.inf, rng.normal(size=shape))
        forbidden = np.argwhere(np.isinf(table))
        if rng.random() < 0.1:
            table.flat[rng.integers(table.size)] = np.inf
        elif len(scope) > 2 and len(forbidden) and rng.random() < 0.5:
            model.add_sparse(scope[None], forbidden, np.full(len(forbidden), np.inf), 0.5)
            continue
        elif len(scope) > 2 and len(forbidden) < table.size and rng.random() < 0.5:
            allowed = np.argwhere(~np.isinf(table))
            model.add_sparse(scope[None], allowed, np.ones(len(allowed)), np.inf)
            continue
        model.add_factors(scope[None], table[None])
    return model


def feasible_labellings(model, graph):
    """The feasible labellings of the canonical variables."""
    found = [x for x in labellings(model.cardinalities) if np.isfinite(model.energy(np.array(x)))]
    return {tuple(np.array(x)[graph.variables].tolist()) for x in found}


@pytest.mark.parametrize("seed", range(0, 400, 10))
def test_all_feasible_labellings_and_no_other(seed):
    """Each one found is forbidden before the next is looked for: a wrong conclusion or clause would lose some."""
    for one in range(seed, seed + 10):
        model = hard_model(one)
        graph = model.graph()
        expected, found = feasible_labellings(model, graph), set()
        problem = Feasibility(graph)
        assert problem.propagate() or not expected
        while problem.run():
            labels = tuple(problem.labels.tolist())
            assert labels in expected and labels not in found
            found.add(labels)
            if not problem.forbid(graph.arrays.offset[:-1] + problem.labels):
                break
        assert found == expected
        assert problem.impossible


def consistent_labels(model, graph):
    """Generalised arc consistency by its definition; None when a variable has no label left."""
    given = constraints(graph)
    g = graph.arrays
    alive = given.alive.copy()
    allowed = [(table.scopes, {tuple(t) for t in table.allowed.tolist()}) for table in given.tables]
    changed = True
    while changed:
        changed = False
        for labels in given.clauses:
            for row in labels:
                owners = np.searchsorted(g.offset, row, side="right") - 1
                left = [alive[g.offset[i] : g.offset[i + 1]].sum() for i in owners]
                sure = [count == 1 and alive[at] for count, at in zip(left, row, strict=True)]
                for k, at in enumerate(row):
                    if alive[at] and all(s for q, s in enumerate(sure) if q != k):
                        alive[at], changed = False, True
        for scopes, tuples in allowed:
            for scope in scopes:
                living = [t for t in tuples if all(alive[g.offset[i] + x] for i, x in zip(scope, t, strict=True))]
                for p, i in enumerate(scope):
                    for x in range(g.cards[i]):
                        if alive[g.offset[i] + x] and all(t[p] != x for t in living):
                            alive[g.offset[i] + x], changed = False, True
    return alive if given.impossible is False and np.logical_or.reduceat(alive, g.offset[:-1]).all() else None


def test_propagation_reaches_the_fixed_point():
    removed = 0
    for seed in range(1000, 1150):
        model = hard_model(seed, largest=300)
        graph = model.graph()
        if graph.n == 0:
            continue
        expected = consistent_labels(model, graph)
        problem = Feasibility(graph)
        if expected is None:
            assert not problem.propagate()
            continue
        assert problem.propagate()
        np.testing.assert_array_equal(problem.alive, expected)
        removed += int((~expected).sum())
    assert removed > 100


def pigeons(count, holes, order=2):
    """Everybody in a hole of their own."""
    model = tm.Model([holes] * count)
    model.add_factors([[i, j] for i in range(count) for j in range(i)], np.where(np.eye(holes) > 0, np.inf, 0.0))
    return model


def test_no_room_for_all_is_proven_with_little_memory(monkeypatch):
    """Restarts happen, clauses are forgotten, the arena grows, and the proof still ends."""
    forgotten, grown = [], []
    monkeypatch.setattr(engine, "CLAUSES", 50)
    monkeypatch.setattr(engine, "MORE", 5)
    forget, room = Feasibility._forget, Feasibility._make_room
    monkeypatch.setattr(Feasibility, "_forget", lambda self: forgotten.append(1) or forget(self))

    def make_room(self):
        before = len(self.store.arena)
        room(self)
        grown.append(len(self.store.arena) > before)

    monkeypatch.setattr(Feasibility, "_make_room", make_room)
    problem = Feasibility(pigeons(7, 6).graph())
    problem.store = problem.store._replace(arena=problem.store.arena[: len(problem.store.value) + 60].copy())
    assert problem.run() is False
    assert forgotten and any(grown)
    assert Feasibility(pigeons(7, 7).graph()).run() is True


def test_where_it_pauses_makes_no_difference():
    graph = pigeons(6, 5).graph()
    whole, parts = Feasibility(graph), Feasibility(graph)
    assert whole.run() is False
    steps = 0
    while parts.run(failures=7) is None:
        steps += 1
    assert steps > 3 and parts.impossible
    assert parts.failures == whole.failures


def test_no_time_at_all():
    problem = Feasibility(pigeons(9, 8).graph())
    assert problem.run(0.0) is None


def test_a_given_labelling_is_kept_where_it_can_be():
    """A feasible one comes back as it is; with one more label forbidden, the others stay."""
    rng = np.random.default_rng(3)
    model = tm.Model([3] * 30)
    labels = rng.integers(0, 3, 30)
    for i in range(29):
        table = np.where(rng.random((3, 3)) < 0.3, np.inf, 0.0)
        table[labels[i], labels[i + 1]] = 0.0
        model.add_factors([[i, i + 1]], table[None])
    graph = model.graph()
    problem = Feasibility(graph, labels)
    assert problem.run() and (problem.labels == labels).all()
    assert problem.failures == 0
    assert problem.forbid(graph.arrays.offset[10:11] + labels[10])
    assert problem.run() and problem.labels[10] != labels[10]
    assert (problem.labels == labels).sum() > 20


def test_factors_too_large_for_a_table():
    """Forbidden entries in a list, and allowed ones in a list, of 20 variables."""
    n = 20
    assert 2**n > ENTRIES
    ones = np.ones((1, n), np.int64)
    model = tm.Model([2] * n)
    model.add_unaries([[0.0, 1.0]] * n)
    model.add_sparse([range(n)], 0 * ones, [np.inf])  # not all zero
    model.add_sparse([range(n)], np.concatenate((ones, 0 * ones)), [0.0, 0.0], np.inf)  # all equal
    problem = Feasibility(model.graph())
    assert problem.run() and (problem.labels == 1).all()
    model.add_sparse([range(n)], ones, [np.inf])  # not all one
    assert Feasibility(model.graph()).run() is False


def test_factors_without_room_are_looked_at_in_the_end(monkeypatch):
    """All labellings are found, and no other, when the only way to see a table is to break it."""
    monkeypatch.setattr("tightmap.moves.feasibility.constraints.ROOM", 0)
    for seed in range(2000, 2030):
        model = hard_model(seed, largest=200)
        graph = model.graph()
        problem = Feasibility(graph)
        expected, found = feasible_labellings(model, graph), set()
        while problem.run():
            found.add(tuple(problem.labels.tolist()))
            if not problem.forbid(graph.arrays.offset[:-1] + problem.labels):
                break
        assert found == expected
        assert not problem.given.tables


def test_a_constant_that_forbids_everything():
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], np.zeros((2, 2)) + np.eye(2))
    model.add_constant(np.inf)
    assert Feasibility(model.graph()).run() is False


def test_restarts_follow_the_sequence_of_luby():
    assert [luby(k) for k in range(15)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


def random_clauses(rng, n, count):
    """Clauses of three literals, as tables with one forbidden entry each."""
    model = tm.Model([2] * n)
    model.add_unaries(rng.random((n, 2)))
    for _ in range(count):
        table = np.zeros((2, 2, 2))
        table[tuple(rng.integers(0, 2, 3))] = np.inf
        model.add_factors(rng.permutation(n)[None, :3], table[None])
    return model


@pytest.mark.parametrize("method", ["auto", "exact"])
def test_methods_find_feasible_labellings_and_proofs(method):
    """At the ratio where satisfiability is hardest, with time for little else."""
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(6):
        model = random_clauses(rng, 60, 255)
        possible = Feasibility(model.graph()).run()
        result = tm.solve(model, method, time_limit=5.0, max_iterations=30)
        assert result.feasible == possible
        assert (result.status is tm.Status.INFEASIBLE) == (not possible)
        seen.add(possible)
    assert seen == {True, False}


def test_labels_that_can_never_be_used_leave_the_exact_search():
    """A chain of implications fixes half of the variables; the optimum is that of brute force."""
    rng = np.random.default_rng(2)
    model = tm.Model([3] * 9)
    model.add_unaries(rng.normal(size=(9, 3)))
    model.add_unaries([[np.inf, 0.0, np.inf]] + [[0.0] * 3] * 8)
    for i in range(4):
        model.add_factors([[i, i + 1]], np.where(np.eye(3)[[1, 2, 0]] > 0, 0.0, np.inf)[None])
    pairs = [[i, j] for i in range(9) for j in range(i)]
    model.add_factors(pairs, rng.normal(size=(len(pairs), 3, 3)))
    for options in ({}, {"elimination": 0, "degree": 0}):
        result = tm.solve(model, "exact", **options)
        assert result.status is tm.Status.OPTIMAL
        assert result.energy == pytest.approx(min(model.energy(np.array(x)) for x in labellings([3] * 9)))
        kept = result.state.network.kept
        assert kept is not None and sum(kept.cards) == 5 + 4 * 3
        labels = np.array(result.labels)
        assert (kept.outward(kept.inward(labels)) == labels).all()
        labels[0] = 0
        assert kept.inward(labels) is None


@pytest.mark.parametrize(
    ("name", "possible"),
    [("sg_p01_20.uai", False), ("comm_p01_10.uai.xz", True), ("bw_p34_10.uai.xz", True), ("log-1.cnf.uai", True)],
)
def test_planning_and_satisfiability(name, possible):
    model = tm.read(data_file(f"families/{name}"))
    problem = Feasibility(model.graph())
    assert problem.run(30.0) is possible
    if possible:
        assert np.isfinite(model.energy(model.graph().lift(problem.labels)))
