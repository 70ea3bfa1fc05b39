"""SRMP and the region graph: reparametrisation, bounds against linear programs, exactness, clusters, warm starts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import tightmap as tm
from problems import grid_model, models, random_model, tree_model
from region_oracles import all_energies, region_polytope, reparametrised_tables
from tightmap.energy.energies import lower_bound, message_offsets
from tightmap.factors.tabulate import tabulate
from tightmap.graph.graph import Kind
from tightmap.moves.context import Context
from tightmap.solvers.regions.cluster_kernels import FEW
from tightmap.solvers.regions.clusters import open_variables, pair_clusters, square_clusters
from tightmap.solvers.regions.kernels import certified_bound, make_buffers, marginal, reparametrised
from tightmap.solvers.regions.messages import carry, from_plain, to_plain
from tightmap.solvers.regions.plan import (
    DIFFERENCE,
    FROM_COLUMNS,
    FROM_ROWS,
    GENERAL,
    POTTS_PAIR,
    TABLED,
    TRIPLE,
    UNKNOWN,
    make_plan,
)
from tightmap.solvers.regions.regions import LARGEST_TABLE, SQUARE, STRUCT, TABLE, TRIPLET, build_regions
from tightmap.solvers.regions.run import Pace, iterate
from tightmap.solvers.regions.srmp import SrmpRun
from tightmap.solvers.regions.sweeps import AHEAD, BACK, BACKWARD, FORWARD, sweep

CLOSE = 1e-9


def scale(value):
    return CLOSE * (1.0 + abs(value))


def segmentation(rng, size, labels=3):
    """Potts on the 4-grid, and 2 x 2 factors that forbid three labels to meet (as 1000)."""
    model = tm.Model.grid(size, size, labels)
    model.add_unaries(rng.random((size * size, labels)) * 3)
    model.add_potts(model.edges(), np.ones(len(model.edges())))
    i = np.arange(size * size).reshape(size, size)
    blocks = np.stack([i[:-1, :-1], i[:-1, 1:], i[1:, :-1], i[1:, 1:]], axis=-1).reshape(-1, 4)
    distinct = np.array([len(set(x)) for x in itertools.product(range(labels), repeat=4)]).reshape((labels,) * 4)
    model.add_factors(blocks, np.where(distinct >= 3, 1000.0, 0.0))
    return model


def bends(rng, height=3, width=4, labels=3):
    """Second differences along rows and columns."""
    model = tm.Model.grid(height, width, labels)
    model.add_unaries(rng.random((height * width, labels)) * 3)
    i = np.arange(height * width).reshape(height, width)
    rows = np.stack([i[:, :-2], i[:, 1:-1], i[:, 2:]], axis=-1).reshape(-1, 3)
    columns = np.stack([i[:-2], i[1:-1], i[2:]], axis=-1).reshape(-1, 3)
    values = [np.sort(rng.random(labels) * 3) for _ in range(height * width)]
    triples = np.concatenate((rows, columns))
    model.add_second_difference(triples, np.ones(len(triples)), values, 1.5)
    return model


def run_of(graph, edges, clusters=(), iterations=0):
    run = SrmpRun(build_regions(graph, edges, clusters), Context())
    for _ in range(iterations):
        for _ in run.iteration(False, False):
            pass
    return run


# ------------------------------------------------------------------------------------------------- structure


def test_full_edges_are_the_largest_factors_inside():
    model = tm.Model([2] * 5)
    t = np.random.default_rng(0).random
    model.add_factors([[0, 1, 2, 3]], t((2,) * 4))
    model.add_factors([[0, 1, 2]], t((2,) * 3))
    model.add_factors([[0, 1], [2, 3]], t((2, 2, 2)))
    model.add_factors([[3, 4]], t((2, 2)))
    regions = build_regions(model.graph(), "full")
    d = regions.dag
    scopes = [tuple(regions.scope(r).tolist()) for r in range(len(d.mode))]
    edges = {(scopes[a], scopes[b]) for a, b in zip(d.source, d.target, strict=True)}
    assert edges == {
        ((0, 1, 2, 3), (0, 1, 2)),
        ((0, 1, 2, 3), (2, 3)),
        ((0, 1, 2), (0, 1)),
        ((0, 1, 2), (2,)),
        ((0, 1), (0,)),
        ((0, 1), (1,)),
        ((2, 3), (2,)),
        ((2, 3), (3,)),
        ((3, 4), (3,)),
        ((3, 4), (4,)),
    }


@given(models())
def test_plain_layout_is_that_of_the_certificate(model):
    graph = model.graph()
    regions = build_regions(graph, "minimal")
    assert regions.entries == int(message_offsets(graph)[-1])
    if graph.m:
        messages = np.random.default_rng(1).normal(size=regions.entries)
        bound, _ = certified_bound(regions, from_plain(regions, messages))
        assert bound == pytest.approx(lower_bound(graph, messages), rel=1e-9, abs=1e-9)
        np.testing.assert_array_equal(to_plain(regions, -messages), messages)


def test_structured_factors_are_never_tables():
    rng = np.random.default_rng(0)
    graph = bends(rng).graph()
    modes = build_regions(graph, "full").dag.mode
    assert (modes[graph.n :] == STRUCT).all()
    model = tm.Model([2] * 30)
    model.add_unaries(rng.random((30, 2)))
    model.add_pn_potts(np.arange(30)[None], [1.0], np.zeros(2), disagreement=5.0)
    model.add_potts([[0, 1], [1, 2]], [1.0, 1.0])
    regions = build_regions(model.graph(), "full")
    assert LARGEST_TABLE < 2.0**30 and regions.table <= LARGEST_TABLE
    assert tm.solve(model, "srmp").status is tm.Status.OPTIMAL


@given(models(max_order=4))
def test_tabulate_agrees_with_the_definition(model):
    graph = model.graph()
    for f in range(graph.m):
        _, table = naive.dense_factor(graph, f)
        out = np.full(table.size + 8, np.nan)
        assert tabulate(graph.arrays, f, out) == table.size
        np.testing.assert_allclose(out[: table.size], table.ravel(), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------------- kernels


@given(models(max_variables=4, max_labels=4, max_order=3, tidy=True))
@settings(max_examples=120)
def test_reparametrised_tables_of_every_kind(model):
    """With a cluster over all variables every factor is part of something larger, and so computes with its table."""
    graph = model.graph()
    if graph.n >= 3 and graph.m > 0:
        check_tables(graph)


def test_reparametrised_potts_of_unequal_label_counts():
    for cards in itertools.permutations((2, 3, 5)):
        model = tm.Model(cards)
        model.add_potts([[0, 1], [0, 2], [1, 2]], [1.0, -2.0, 3.0])
        check_tables(model.graph())


def check_tables(graph):
    everything = tuple(range(graph.n))
    clusters = [] if graph.n == graph.order else [everything]
    regions = build_regions(graph, "full", clusters)
    d = regions.dag
    neg = np.random.default_rng(0).normal(size=regions.entries)
    held = np.flatnonzero(d.size > 0)
    start = np.concatenate(([0], np.cumsum(d.size[held])))
    out = np.empty(int(start[-1]))
    reparametrised(graph.arrays, d, neg, held, start, out, make_buffers(regions).table)
    tables = reparametrised_tables(regions, neg)
    for k, r in enumerate(held):
        np.testing.assert_allclose(out[start[k] : start[k + 1]], tables[r][1].ravel(), atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_marginals_of_clusters(seed):
    """Triplets and squares (with any of their pairs missing) against dense tables, free and with labels fixed."""
    rng = np.random.default_rng(seed)
    n = 3 if seed % 3 == 0 else 4
    cards = rng.integers(2, 5, size=n)
    if seed >= 25:  # squares of four labels each have loops of their own, and so have those of more than FEW labels
        cards[:] = 4 if seed % 2 else rng.integers(2, FEW + 3, size=n)
    model = tm.Model(cards)
    pairs = [p for p in itertools.combinations(range(n), 2) if n == 3 or rng.random() < 0.8]
    if {i for p in pairs for i in p} != set(range(n)):
        pairs = list(itertools.combinations(range(n), 2))
    for p in pairs:
        model.add_factors([p], rng.normal(size=tuple(cards[list(p)])))
    graph = model.graph()
    regions = build_regions(graph, "full", [tuple(range(n))])
    d, r = regions.dag, graph.n + graph.m
    assert d.mode[r] == (TRIPLET if n == 3 else SQUARE)
    neg = rng.normal(size=regions.entries)
    buffers = make_buffers(regions)
    labels = np.where(rng.random(n) < 0.5, rng.integers(0, cards), -1)
    tables = reparametrised_tables(regions, neg)
    for e in regions.children(r):
        part = tables[int(d.target[e])][0]
        own = neg[d.at[e] : d.at[e] + d.size[d.target[e]]]
        shape = [cards[i] if i in part else 1 for i in range(n)]
        table = tables[r][1] - own.reshape(shape)
        rest = tuple(i for i in range(n) if i not in part)
        marginal(graph.arrays, d, e, neg, labels, False, buffers)
        np.testing.assert_allclose(buffers.vector[: own.size], table.min(axis=rest).ravel(), atol=1e-12)
        agree = tuple(slice(None) if l < 0 else slice(l, l + 1) for l in labels)
        held = np.full(table.shape, np.inf)
        held[agree] = table[agree]
        marginal(graph.arrays, d, e, neg, labels, True, buffers)
        np.testing.assert_allclose(buffers.vector[: own.size], held.min(axis=rest).ravel(), atol=1e-12)


def swept(graph, clusters=(), edges="full", iterations=3):
    """Messages, bounds and rounded labels by the fast forms of messages, and by the general kernels alone."""
    regions = build_regions(graph, edges, clusters)
    d, plan = regions.dag, make_plan(regions)
    held = np.where(d.mode == TABLE, UNKNOWN, plan.cost)
    general = plan._replace(
        form=np.full_like(plan.form, GENERAL), four=np.zeros_like(plan.four), cost=held, copied=np.array([True])
    )
    results = []
    for p in (plan, general):
        neg, buffers = np.zeros(regions.entries), make_buffers(regions)
        bounds, rounded = [], []

        def run(messages, action, labels, p=p, buffers=buffers):
            low, end = np.zeros(1), len(d.sequence)
            assert sweep(graph.arrays, d, p, messages, action, labels, low, 0, end, buffers, np.inf) == end
            return low[0]

        for _ in range(iterations):
            run(neg, FORWARD, np.full(graph.n, -1))
            bounds.append(run(neg, BACKWARD, np.full(graph.n, -1)))
        for seed, action in itertools.product(range(5), (AHEAD, BACK)):
            # messages that passes have made tie by their nature, and rounding errors decide
            given = np.random.default_rng(seed).normal(size=len(neg))
            messages, labels = given.copy(), np.full(graph.n, -1)
            run(messages, action, labels)
            rounded.append(labels)
            assert p.copied[0] or np.array_equal(messages, given)
        results.append((neg, np.array(bounds), np.array(rounded)))
    return plan, *results


@given(models(max_order=4, max_labels=4), st.sampled_from(("minimal", "full")), st.booleans())
@settings(max_examples=80)
def test_fast_messages_are_the_general_ones(model, edges, clusters):
    graph = model.graph()
    if graph.m == 0:
        return
    _, (neg, bounds, _), (neg_too, bounds_too, _) = swept(graph, pair_clusters(graph) if clusters else (), edges)
    size = 1.0 + np.abs(neg).max() + graph.hard
    np.testing.assert_allclose(neg, neg_too, rtol=0, atol=1e-9 * size)
    np.testing.assert_allclose(bounds, bounds_too, rtol=0, atol=1e-9 * size)
    if np.isin(graph.arrays.kind, (Kind.DENSE, Kind.POTTS)).all():
        np.testing.assert_array_equal(neg, neg_too)


@pytest.mark.parametrize(
    "kind", ["potts", "repulsive", "linear", "quadratic", "dense", "triples", "segmentation", "other pairs"]
)
@pytest.mark.parametrize("labels", [2, 3, 4, 9])
def test_fast_messages_of_every_label_count(kind, labels):
    """Without ties also the rounded labels are the same; every form of message is used."""
    rng = np.random.default_rng(labels)
    if kind == "segmentation":
        model = segmentation(rng, 4, min(max(labels, 3), 4))
        forms = {TABLED}
    elif kind == "triples":  # unequal label counts, some pairs inside triples, and tables that are stored
        cards = rng.permutation([2, labels, 3, labels, labels, 2, labels])
        model = tm.Model(cards)
        model.add_unaries([rng.random(c) for c in cards])
        for i in range(5):
            model.add_factors([[i, i + 1, i + 2]], rng.random(tuple(cards[i : i + 3])))
        model.add_factors([[0, 1]], rng.random(tuple(cards[:2])))
        model.add_pn_potts([[0, 3, 6], [1, 4, 6]], rng.random(2), rng.random(9), disagreement=0.7)
        forms = {TRIPLE, TABLED}
    elif kind == "other pairs":  # without a fast form: rounding works on a copy of the messages
        model = tm.Model.grid(5, 6, labels)
        model.add_unaries(rng.random((30, labels)))
        edges = model.edges()
        model.add_pn_potts(edges, rng.random(len(edges)), rng.random(labels), disagreement=0.7)
        forms = set()
    elif kind == "repulsive":
        model = tm.Model.grid(5, 6, labels)
        model.add_unaries(rng.random((30, labels)))
        model.add_potts(model.edges(), rng.normal(size=len(model.edges())))
        forms = {POTTS_PAIR}
    else:
        model = grid_model(rng, 5, 6, labels, kind, integral=False)
        forms = {"potts": {POTTS_PAIR}, "dense": {FROM_ROWS, FROM_COLUMNS}}.get(kind, {DIFFERENCE})
    graph = model.graph()
    plan, (neg, bounds, rounded), (neg_too, bounds_too, rounded_too) = swept(graph)
    if labels > 2 or kind not in ("linear", "quadratic", "dense"):  # with two labels they are recognised as Potts
        assert forms <= set(plan.form.tolist())
    np.testing.assert_allclose(neg, neg_too, rtol=0, atol=1e-12 * (1.0 + np.abs(neg).max()))
    np.testing.assert_allclose(bounds, bounds_too, rtol=1e-12)
    np.testing.assert_array_equal(rounded, rounded_too)
    if kind == "potts" and labels == 4:
        assert plan.four.all()


# ------------------------------------------------------------------------------------------------- bounds


@given(models(max_order=4), st.sampled_from(("minimal", "full")), st.booleans(), st.integers(0, 3))
@settings(max_examples=80)
def test_reparametrisation_and_certificate(model, edges, clusters, iterations):
    """After any number of iterations the tables add up to the energy, and the bound is the sum of their minima."""
    graph = model.graph()
    if graph.m == 0:
        return
    run = run_of(graph, edges, pair_clusters(graph) if clusters else (), iterations)
    run.neg += np.random.default_rng(0).normal(size=len(run.neg)) * (iterations == 0)
    tables = reparametrised_tables(run.regions, run.neg)
    x = np.random.default_rng(1).integers(0, graph.arrays.cards)
    total = graph.constant + sum(t[tuple(x[i] for i in scope)] for scope, t in tables)
    exact = naive.graph_energy(graph, x)
    assert total == pytest.approx(exact, abs=1e-9 * (1 + abs(exact) + graph.hard * len(tables)))
    minima = graph.constant + sum(t.min() for _, t in tables)
    bound, raw = certified_bound(run.regions, run.neg)
    assert raw == pytest.approx(minima, abs=1e-9 * (1 + abs(minima) + graph.hard * len(tables)))
    if graph.quantum == 0.0:
        assert bound <= raw


@given(models(max_variables=5, max_order=3, tidy=True), st.sampled_from(("minimal", "full")), st.booleans())
@settings(max_examples=40)
def test_bound_rises_to_at_most_the_linear_program(model, edges, clusters):
    graph = model.graph()
    if graph.m == 0:
        return
    run = run_of(graph, edges, pair_clusters(graph) if clusters else ())
    program = region_polytope(run.regions)
    before = -np.inf
    for _ in range(15):
        for _ in run.iteration(False, False):
            pass
        _, raw = certified_bound(run.regions, run.neg)
        assert run.low == pytest.approx(raw, abs=1e-9 * (1 + abs(raw)))  # the running value is the certificate's
        assert raw >= before - scale(raw)
        assert raw <= program + 1e-7 * (1 + abs(program))
        before = raw
    assert graph.user_energy(program) <= all_energies(model).min() + 1e-7 * (1 + abs(program))


def test_minimal_edges_stand_for_the_local_polytope():
    for seed in range(5):
        graph = random_model(np.random.default_rng(seed), order=3, tidy=True).graph()
        assert region_polytope(build_regions(graph, "minimal")) == pytest.approx(naive.local_polytope(graph), abs=1e-7)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_exact_on_forests(order):
    for seed in range(8):
        model = tree_model(np.random.default_rng(seed), n=7, order=order)
        best = all_energies(model).min()
        for edges in ("minimal", "full"):
            result = tm.solve(model, "srmp", edges=edges)
            assert result.status is tm.Status.OPTIMAL
            assert result.energy == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic", "dense"])
def test_equals_trws_on_pairwise_models(kind):
    model = grid_model(np.random.default_rng(3), 5, 6, 3, kind, integral=False)
    for iterations in (1, 2, 4):
        a = tm.solve(model, "srmp", max_iterations=iterations)
        b = tm.solve(model, "trws", max_iterations=iterations)
        if a.status is not tm.Status.OPTIMAL and b.status is not tm.Status.OPTIMAL:
            assert a.lower_bound == pytest.approx(b.lower_bound, rel=1e-9)


# ------------------------------------------------------------------------------------------------- tightening


def test_full_edges_close_the_gap_of_segmentations():
    closed = 0
    for seed in range(4):
        model = segmentation(np.random.default_rng(seed), 7)
        full = tm.solve(model, "srmp")
        minimal = tm.solve(model, "srmp", edges="minimal", max_iterations=300)
        assert full.lower_bound >= minimal.lower_bound - scale(full.lower_bound)
        closed += full.status is tm.Status.OPTIMAL and minimal.status is not tm.Status.OPTIMAL
    assert closed >= 2


def frustrated_grid(rng, size=4, labels=3):
    model = tm.Model.grid(size, size, labels)
    model.add_unaries(rng.random((size * size, labels)) * 0.3)
    model.add_potts(model.edges(), rng.normal(size=len(model.edges())))
    return model


def test_squares_raise_the_bound_of_frustrated_grids():
    closed = 0
    for seed in range(4):
        model = frustrated_grid(np.random.default_rng(seed), 3)
        graph = model.graph()
        assert len(square_clusters(graph)) == 4
        plain = tm.solve(model, "srmp")
        squares = tm.solve(model, "srmp", clusters="squares")
        program = region_polytope(build_regions(graph, "full", square_clusters(graph)))
        best = all_energies(model).min()
        assert plain.lower_bound - scale(best) <= squares.lower_bound <= graph.user_energy(program) + 1e-7
        assert squares.lower_bound <= best + scale(best)
        closed += squares.status is tm.Status.OPTIMAL and plain.status is not tm.Status.OPTIMAL
    assert closed >= 2


@pytest.mark.parametrize("neighbours", [4, 8])
def test_squares_that_cannot_raise_the_bound_are_left_out(neighbours):
    """Beside settled variables: fewer squares, and the relaxation is worth the same."""
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = tm.Model.grid(4, 5, 3)
        costs = rng.random((4, 5, 3)) * 0.1
        inside = np.zeros((4, 5), dtype=bool)
        inside[:3, :3] = True
        costs[~inside] = [0.0, 50.0, 60.0]
        model.add_unaries(costs.reshape(20, 3))
        edges = model.edges(neighbours)
        model.add_potts(edges, rng.normal(size=len(edges)))
        graph = model.graph()
        assert (open_variables(graph) == inside.ravel()).all()
        chosen = square_clusters(graph)
        assert len(chosen) == 4  # of 12: the others have two open variables or fewer
        blocks = [(k, k + 1, k + 5, k + 6) for k in range(15) if k % 5 < 4]
        few, all_of_them, none = (region_polytope(build_regions(graph, "full", c)) for c in (chosen, blocks, ()))
        assert few == pytest.approx(all_of_them, abs=1e-7)
        gains.append(few - none)
    assert max(gains) > 0.05


def test_squares_are_found_in_edge_lists_too():
    rng = np.random.default_rng(0)
    grid = frustrated_grid(rng, 5)
    flat = tm.Model(np.full(25, 3))
    flat.add_potts(grid.edges(), np.ones(40))
    assert square_clusters(flat.graph()) == square_clusters(grid.graph())
    loose = tm.Model([2] * 5)
    loose.add_potts([[0, 1], [1, 4], [0, 3]], np.ones(3))
    with pytest.raises(tm.ModelError, match="grid"):
        tm.solve(loose, "srmp", clusters="squares")


def test_pairs_make_rows_of_triples_exact():
    rng = np.random.default_rng(2)
    for _ in range(3):
        model = bends(rng, 1, 7)  # one row: a junction tree of pairs
        assert len(pair_clusters(model.graph())) == 4
        result = tm.solve(model, "srmp", clusters="pairs")
        assert result.status is tm.Status.OPTIMAL
        assert result.energy == pytest.approx(all_energies(model).min(), abs=1e-9)
    model = bends(rng, 3, 3)
    graph = model.graph()
    plain, pairs = tm.solve(model, "srmp"), tm.solve(model, "srmp", clusters="pairs")
    assert plain.lower_bound - 1e-9 <= pairs.lower_bound
    program = region_polytope(build_regions(graph, "full", pair_clusters(graph)))
    assert pairs.lower_bound <= graph.user_energy(program) + 1e-7


# ------------------------------------------------------------------------------------------------- warm starts


@given(models(max_order=4, tidy=True), st.booleans())
@settings(max_examples=30)
def test_messages_carry_over_to_larger_region_graphs(model, full):
    """Adding regions between the ends of an edge reroutes its message and changes no bound and no energy."""
    graph = model.graph()
    if graph.m == 0:
        return
    small = run_of(graph, "minimal", iterations=3)
    large = build_regions(graph, "full" if full else "minimal", pair_clusters(graph, shared=1))
    neg = carry(small.regions, small.neg, large)
    _, before = certified_bound(small.regions, small.neg)
    _, after = certified_bound(large, neg)
    x = np.random.default_rng(1).integers(0, graph.arrays.cards)
    total = graph.constant + sum(t[tuple(x[i] for i in s)] for s, t in reparametrised_tables(large, neg))
    assert total == pytest.approx(naive.graph_energy(graph, x), abs=1e-9 * (1 + abs(total)))
    assert after == pytest.approx(before, abs=1e-9 * (1 + abs(before)))


def test_any_dual_method_starts_where_another_ended():
    model = frustrated_grid(np.random.default_rng(5), 4)
    methods = ("trws", "srmp", "mplp", "mplp-c")
    first = {m: tm.solve(model, m, max_iterations=12) for m in methods}
    for a in methods:
        for b in methods:
            result = tm.solve(model, b, init=first[a], max_iterations=1)
            assert result.lower_bound >= first[a].lower_bound - 1e-9 or a == "mplp-c"  # clusters stay behind
    again = tm.solve(model, "mplp-c", init=first["mplp-c"], max_iterations=1)
    assert again.lower_bound >= first["mplp-c"].lower_bound - 1e-9


def test_options_are_checked():
    model = frustrated_grid(np.random.default_rng(0))
    for options in ({"edges": "some"}, {"clusters": "cubes"}, {"order": "x"}, {"rounding": 0}, {"tolerance": -1.0}):
        with pytest.raises(tm.OptionError):
            tm.solve(model, "srmp", **options)


def test_messages_between_factors_have_no_place_where_factors_send_to_variables_only():
    """From a run with edges="full" to one with edges="minimal": what can be kept is kept, nothing else is touched."""
    rng = np.random.default_rng(3)
    model = tm.Model([2, 3, 2, 2])
    model.add_factors([[0, 1, 2]], rng.normal(size=(1, 2, 3, 2)))
    model.add_factors([[0, 1]], rng.normal(size=(1, 2, 3)))
    model.add_factors([[2, 3]], rng.normal(size=(1, 2, 2)))
    graph = model.graph()
    full, minimal = build_regions(graph, "full"), build_regions(graph, "minimal")
    messages = rng.normal(size=full.entries)
    kept = carry(full, messages, minimal)
    a, b = full.dag, minimal.dag
    place = {(int(s), int(t)): int(at) for s, t, at in zip(a.source, a.target, a.at, strict=True)}
    assert any(t >= graph.n for t in a.target), "a message from factor to factor is needed here"
    for source, target, at in zip(b.source, b.target, b.at, strict=True):
        size = int(b.size[target])
        old = place.get((int(source), int(target)))
        expected = np.zeros(size) if old is None else messages[old : old + size]
        assert kept[at : at + size].tolist() == expected.tolist()
    first = tm.solve(model, "srmp", edges="full", max_iterations=2)
    again = tm.solve(model, "srmp", edges="minimal", max_iterations=2, init=first)
    assert again.lower_bound <= naive.brute_force(model)[0] + 1e-9


def test_the_better_of_two_beginnings_is_kept():
    """Where the passes come to rest depends on where they begin: never below the plain end, above it on some models."""
    rng = np.random.default_rng(5)
    gains = []
    for _ in range(12):
        model = tm.Model([2] * 14)
        model.add_unaries(rng.normal(size=(14, 2)))
        model.add_factors(np.array([rng.permutation(14)[:3] for _ in range(20)]), rng.normal(size=(20, 2, 2, 2)))
        model.add_factors(np.array([rng.permutation(14)[:2] for _ in range(20)]), rng.normal(size=(20, 2, 2)))
        graph = model.graph()
        run = SrmpRun(build_regions(graph, "full", ()), Context())
        for progress in iterate(run, Pace(rounding=5, polish=True, tolerance=1e-8, early=1), last=True):
            if progress is not None and progress.done:
                break
        gains.append(tm.solve(model, "srmp").lower_bound - run.low)
    assert min(gains) > -1e-6
    assert max(gains) > 1e-3
