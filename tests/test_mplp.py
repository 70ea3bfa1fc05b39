"""MPLP and MPLP-C: block updates, gains, triplets, contradictions, cycles, and the bounds of all dual methods."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import tightmap as tm
from conftest import data_file
from problems import models, tree_model
from region_oracles import all_energies, region_polytope, reparametrised_tables
from tightmap.moves.context import Context
from tightmap.solvers.regions.kernels import certified_bound
from tightmap.solvers.regions.mplp_run import MplpRun
from tightmap.solvers.regions.regions import build_regions
from tightmap.solvers.regions.singleton_consistency import (
    constraints_of,
    contradictions_within,
    singleton_clusters,
)
from tightmap.solvers.regions.tighten import (
    Pairs,
    _empty_forest,
    _odd_cycles,
    best_triplets,
    frustrated_cycles,
    reparametrised_pairs,
)


def complete(rng, n=6, labels=3):
    """Random tables between all pairs: full of frustrated triangles."""
    model = tm.Model(np.full(n, labels))
    model.add_unaries(rng.normal(size=(n, labels)))
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    model.add_factors(pairs, rng.normal(size=(len(pairs), labels, labels)))
    return model


def ring(rng, n, labels=2):
    """An odd cycle of pairs that all prefer to differ; with more labels, random Potts terms of both signs."""
    model = tm.Model(np.full(n, labels))
    model.add_unaries(rng.random((n, labels)) * 0.1)
    edges = np.stack((np.arange(n), (np.arange(n) + 1) % n), axis=1)
    model.add_potts(edges, np.full(n, -1.0) if labels == 2 else rng.choice([-1.0, 1.0], n))
    return model


def mplp_run(graph, edges="full", clusters=(), iterations=0):
    run = MplpRun(build_regions(graph, edges, clusters), Context())
    for _ in range(iterations):
        for _ in run.iteration(False, False):
            pass
        run.iterations += 1
    return run


@given(models(max_variables=5, max_order=3, tidy=True), st.sampled_from(("minimal", "full")))
@settings(max_examples=40)
def test_block_updates(model, edges):
    """Every iteration reparametrises, never lowers the bound, and stays below the linear program."""
    graph = model.graph()
    if graph.m == 0:
        return
    run = mplp_run(graph, edges)
    program = region_polytope(run.regions)
    x = np.random.default_rng(0).integers(0, graph.arrays.cards)
    exact = naive.graph_energy(graph, x)
    before = -np.inf
    for _ in range(12):
        for _ in run.iteration(False, False):
            pass
        run.iterations += 1
        _, raw = certified_bound(run.regions, run.neg)
        assert raw >= before - 1e-9 * (1 + abs(raw))
        assert raw <= program + 1e-7 * (1 + abs(program))
        before = raw
    tables = reparametrised_tables(run.regions, run.neg)
    total = graph.constant + sum(t[tuple(x[i] for i in s)] for s, t in tables)
    assert total == pytest.approx(exact, abs=1e-9 * (1 + abs(exact)))
    for r in run.regions.dag.sequence:  # the beliefs that are kept are those of the messages
        kept = run.belief[run.belief_at[r] : run.belief_at[r + 1]]
        np.testing.assert_allclose(kept, tables[int(r)][1].ravel(), atol=1e-9)


@pytest.mark.parametrize("order", [2, 3])
def test_exact_on_forests(order):
    for seed in range(6):
        model = tree_model(np.random.default_rng(seed), n=7, order=order)
        for method in ("mplp", "mplp-c"):
            result = tm.solve(model, method)
            assert result.status is tm.Status.OPTIMAL
            assert result.energy == pytest.approx(all_energies(model).min(), abs=1e-9)


# ------------------------------------------------------------------------------------------------- clusters


@pytest.mark.parametrize("seed", range(6))
def test_gain_of_a_triplet_is_guaranteed(seed):
    """The promised gain is the minimum over the three tables less their minima, and one iteration delivers it."""
    rng = np.random.default_rng(seed)
    graph = complete(rng, 5, 3).graph()
    run = mplp_run(graph, iterations=60)
    _, before = certified_bound(run.regions, run.neg)
    pairs = reparametrised_pairs(run.regions, run.neg)
    tables = {tuple(s): t for s, t in reparametrised_tables(run.regions, run.neg) if len(s) == 2}
    gains = {}
    for i, j, k in itertools.combinations(range(5), 3):
        joint = tables[i, j][:, :, None] + tables[i, k][:, None, :] + tables[j, k][None]
        gains[i, j, k] = joint.min() - tables[i, j].min() - tables[i, k].min() - tables[j, k].min()
    labels = rng.integers(0, 3, 5)
    chosen, total = best_triplets(run.regions, pairs, labels, 3, 1e-9)
    ranked = sorted((v for v in gains.values() if v > 1e-9), reverse=True)[:3]
    assert sorted((gains[c] for c in chosen), reverse=True) == pytest.approx(ranked, abs=1e-12)
    assert total == pytest.approx(sum(ranked), abs=1e-12)
    if chosen:
        run.extend(chosen[:1])
        for _ in run.iteration(False, False):
            pass
        _, after = certified_bound(run.regions, run.neg)
        assert after >= before - 1e-9
        for _ in range(3):
            for _ in run.iteration(False, False):
                pass
        _, after = certified_bound(run.regions, run.neg)
        assert after >= before + gains[chosen[0]] - 1e-9


@pytest.mark.parametrize("updates", ["mplp", "srmp"])
def test_triplets_close_complete_graphs(updates):
    proven = 0
    for seed in range(5):
        model = complete(np.random.default_rng(seed))
        best = all_energies(model).min()
        plain = tm.solve(model, "mplp")
        result = tm.solve(model, "mplp-c", updates=updates, max_iterations=3000)
        assert plain.lower_bound - 1e-7 <= result.lower_bound <= best + 1e-9
        proven += result.status is tm.Status.OPTIMAL
        every = list(itertools.combinations(range(6), 3))
        program = region_polytope(build_regions(model.graph(), "full", every))
        assert result.lower_bound <= model.graph().user_energy(program) + 1e-7
    assert proven >= 4


@pytest.mark.parametrize("n", [3, 5, 8, 11])
def test_cycles_close_rings(n):
    """Without triangles only cycles help; a ring is exact once it is triangulated."""
    rng = np.random.default_rng(n)
    model = ring(rng, n if n % 2 else n + 1)
    assert tm.solve(model, "mplp").status is not tm.Status.OPTIMAL
    result = tm.solve(model, "mplp-c")
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(all_energies(model).min(), abs=1e-9)
    assert tm.solve(model, "srmp", clusters="cycles").status is tm.Status.OPTIMAL


def test_strength_of_a_cycle_is_a_gain():
    """An odd cycle found in the projection raises the bound by its weakest strength at least."""
    for seed in range(5):
        graph = ring(np.random.default_rng(seed), 5, labels=3).graph()
        run = mplp_run(graph, iterations=100)
        _, before = certified_bound(run.regions, run.neg)
        added, strength = frustrated_cycles(run.regions, reparametrised_pairs(run.regions, run.neg), 1, 1e-9)
        if not added:
            continue
        assert all(len(c) in (2, 3) and list(c) == sorted(c) for c in added)
        program = region_polytope(build_regions(graph, "full", added))
        assert program >= before + strength - 1e-7


@pytest.mark.parametrize("seed", range(20))
def test_odd_cycles_are_paths_of_a_growing_forest_closed_by_an_edge(seed):
    """Against the obvious way: add edges by strength, and search the path anew whenever a parity is wrong."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 40))
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    pairs = pairs[rng.random(len(pairs)) < 0.3]
    strength = rng.normal(size=len(pairs))
    order = np.argsort(-np.abs(strength))
    nodes, start, bottleneck = _odd_cycles(_empty_forest(n), pairs[:, 0], pairs[:, 1], strength, order, 10)
    near: dict[int, dict[int, int]] = {i: {} for i in range(n)}
    expected: list[tuple[list[int], float]] = []
    for k in order:
        a, b = pairs[k].tolist()
        paths = {a: ([a], 0)}
        queue = [a]
        for x in queue:
            for y, odd in near[x].items():
                if y not in paths:
                    paths[y] = ([y, *paths[x][0]], paths[x][1] ^ odd)
                    queue.append(y)
        negative = int(strength[k] < 0)
        if b not in paths:
            near[a][b] = near[b][a] = negative
        elif paths[b][1] != negative and len(expected) < 10:
            expected.append((paths[b][0], abs(float(strength[k]))))
    assert [nodes[start[c] : start[c + 1]].tolist() for c in range(len(bottleneck))] == [c for c, _ in expected]
    assert bottleneck.tolist() == [w for _, w in expected]


def test_higher_orders_are_tightened_through_their_pairs():
    rng = np.random.default_rng(0)
    for _ in range(3):
        model = tm.Model(np.full(6, 2))
        model.add_unaries(rng.normal(size=(6, 2)))
        scopes = np.array(list(itertools.combinations(range(6), 3)))[::3]
        model.add_factors(scopes, rng.normal(size=(len(scopes), 2, 2, 2)) * 2)
        best = all_energies(model).min()
        plain, result = tm.solve(model, "mplp"), tm.solve(model, "mplp-c")
        assert plain.lower_bound - 1e-7 <= result.lower_bound <= best + 1e-9


def test_matching_is_proven():
    model = tm.read(data_file("matching/matching0.dd"), unmatched=False)
    result = tm.solve(model, "mplp-c")
    assert result.status is tm.Status.OPTIMAL
    assert result.energy + 190 == pytest.approx(19.3629, abs=1e-4)


def test_options_are_checked():
    model = complete(np.random.default_rng(0), 3)
    for options in ({"clusters": "squares"}, {"updates": "x"}, {"first": 0}, {"per_round": -1}, {"rounding": 0}):
        with pytest.raises(tm.OptionError):
            tm.solve(model, "mplp-c", **options)


def singleton_contradiction(allowed, cards, i, only=None):
    """Slow and obvious: does every label of i lead, by removing labels without partners, to a variable without any?

    ``allowed``: pair of variables -> matrix of what is allowed, ``only``: the pairs that may be used.
    """
    pairs = {e: table for e, table in allowed.items() if only is None or e in only}
    for choice in range(cards[i]):
        domain = [set(range(k)) for k in cards]
        domain[i] = {choice}
        # what has lost labels: nothing else is a reason to look again; but all of the pairs that are named take part
        changed = {i} if only is None else set(range(len(cards)))
        while changed and all(domain):
            before, changed = changed, set()
            for (u, v), table in pairs.items():
                for a, b, ok in ((u, v, table), (v, u, table.T)):
                    gone = {s for s in domain[a] if not any(ok[s, t] for t in domain[b])}
                    if b in before and a != i and gone:
                        domain[a] -= gone
                        changed.add(a)
        if all(domain):
            return False
    return True


@given(st.integers(0, 10**6))
@settings(max_examples=80)
def test_contradictions_around_a_variable(seed):
    """The same variables as by the slow definition; and the pairs that are named suffice for the contradiction."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 5, int(rng.integers(3, 8)))
    ends = np.array([e for e in itertools.combinations(range(len(cards)), 2) if rng.random() < 0.7])
    if len(ends) < 3:
        return
    size = cards[ends].prod(axis=1)
    start = np.concatenate(([0], np.cumsum(size)))
    table = (rng.random(int(start[-1])) < rng.uniform(0.3, 0.7)).astype(float)
    pairs = Pairs(np.arange(len(ends)), ends, start, table, np.zeros(len(ends)))
    c = constraints_of(pairs, cards)
    owner = np.repeat(np.arange(len(cards)), cards)
    everyone = np.arange(len(cards))
    found, _ = contradictions_within(c, table, np.full(len(ends), 0.5), owner, everyone, lambda: 1.0)
    allowed = {
        (int(u), int(v)): table[a : a + cards[u] * cards[v]].reshape(cards[u], cards[v]) == 0
        for (u, v), a in zip(ends, start[:-1], strict=True)
    }
    assert {i for i, _ in found} == {i for i in range(len(cards)) if singleton_contradiction(allowed, cards, i)}
    for i, used in found:
        assert singleton_contradiction(allowed, cards, i, {tuple(map(int, ends[p])) for p in used})
    assert c.alive.all() and (c.left == cards).all() and not c.used.any() and not c.wanted.any() and not c.queued.any()


@pytest.mark.parametrize("n", [3, 5, 9])
def test_singletons_close_rings(n):
    """The contradiction of an odd ring is seen from any of its variables."""
    model = ring(np.random.default_rng(n), n)
    assert tm.solve(model, "mplp-c", clusters="singletons", updates="srmp").status is tm.Status.OPTIMAL


@pytest.mark.parametrize("seed", range(4))
def test_singletons_raise_the_bound(seed):
    """Of the linear relaxation, by at least what the first contradictions promise."""
    model = complete(np.random.default_rng(seed), 6, 3)
    run = mplp_run(model.graph(), iterations=300)
    before = certified_bound(run.regions, run.neg)[1]
    labels = np.zeros(6, dtype=np.int64)
    pairs = reparametrised_pairs(run.regions, run.neg)
    added, promised = singleton_clusters(run.regions, run.neg, pairs, labels, 1, 1e-9, lambda: 1.0)
    assert added and promised > 0.0
    run.extend(added)
    for _ in range(300):
        for _ in run.iteration(False, False):
            pass
        run.iterations += 1
    assert certified_bound(run.regions, run.neg)[1] >= before + 0.5 * promised
