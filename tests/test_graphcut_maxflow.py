"""Max-flow against SciPy and PyMaxflow on random graphs; reuse after changes against a fresh start."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from tightmap.graphcut.flow import MaxFlow
from tightmap.graphcut.maxflow import new_trees, plant, push_to_neighbours, run
from tightmap.graphcut.network import Grid


def random_network(rng, n, m, top=20):
    tails = rng.integers(0, n, m)
    heads = (tails + rng.integers(1, n, m)) % n
    forward, reverse = rng.integers(0, top, m), rng.integers(0, top, m) * (rng.random(m) < 0.5)
    source, sink = rng.integers(0, top, n) * (rng.random(n) < 0.5), rng.integers(0, top, n) * (rng.random(n) < 0.5)
    return tails, heads, forward, reverse, source, sink


def scipy_value(n, tails, heads, forward, reverse, source, sink):
    full = np.zeros((n + 2, n + 2), np.int32)
    np.add.at(full, (tails, heads), forward)
    np.add.at(full, (heads, tails), reverse)
    full[n, :n] = source
    full[:n, n + 1] = sink
    return maximum_flow(csr_matrix(full), n, n + 1).flow_value


def cut_value(side, tails, heads, forward, reverse, source, sink):
    out = forward[side[tails] & ~side[heads]].sum() + reverse[side[heads] & ~side[tails]].sum()
    return out + source[~side].sum() + sink[side].sum()


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_value_and_both_sides(dtype):
    rng = np.random.default_rng(0)
    for _ in range(2000):
        n = int(rng.integers(2, 12))
        network = random_network(rng, n, int(rng.integers(1, 30)))
        tails, heads = network[:2]
        caps = [c.astype(dtype) for c in network[2:]]
        flow = MaxFlow(n, tails, heads, *caps)
        expected = scipy_value(n, *network)
        assert flow.solve() == pytest.approx(expected)
        small, large = flow.source_side(), flow.source_side(largest=True)
        assert not (small & ~large).any()
        assert cut_value(small, tails, heads, *caps) == pytest.approx(expected)
        assert cut_value(large, tails, heads, *caps) == pytest.approx(expected)


def test_smallest_and_largest_sides_by_enumeration():
    rng = np.random.default_rng(1)
    for _ in range(60):
        n = int(rng.integers(2, 6))
        network = random_network(rng, n, int(rng.integers(1, 10)), top=4)
        flow = MaxFlow(n, *network)
        best = flow.solve()
        sides = [np.array([b >> i & 1 for i in range(n)], bool) for b in range(1 << n)]
        optimal = [s for s in sides if cut_value(s, *network) == best]
        assert (flow.source_side() == np.logical_and.reduce(optimal)).all()
        assert (flow.source_side(largest=True) == np.logical_or.reduce(optimal)).all()


@pytest.mark.parametrize("seed", range(4))
def test_larger_graphs(seed):
    rng = np.random.default_rng(seed)
    n = 300
    network = random_network(rng, n, 1200, top=1000)
    flow = MaxFlow(n, *network)
    assert flow.solve() == scipy_value(n, *network)
    assert cut_value(flow.source_side(), *network) == flow.solve()


def test_reuse_equals_a_fresh_start():
    rng = np.random.default_rng(2)
    for _ in range(400):
        n = int(rng.integers(2, 12))
        tails, heads, forward, reverse, source, sink = random_network(rng, n, int(rng.integers(1, 30)))
        flow = MaxFlow(n, tails, heads, forward, reverse, source, sink)
        flow.solve()
        for _ in range(4):
            nodes = np.flatnonzero(rng.random(n) < 0.4)
            ds = rng.integers(-5, 9, len(nodes))
            dt = rng.integers(-5, 9, len(nodes))
            ds, dt = np.maximum(ds, -source[nodes]), np.maximum(dt, -sink[nodes])
            source[nodes] += ds
            sink[nodes] += dt
            flow.add_terminals(nodes, ds, dt)
            edges = np.flatnonzero(rng.random(len(tails)) < 0.3)
            df = np.maximum(rng.integers(-9, 9, len(edges)), -forward[edges])
            dr = np.maximum(rng.integers(-9, 9, len(edges)), -reverse[edges])
            forward[edges] += df
            reverse[edges] += dr
            flow.add_capacities(edges, df, dr)
            network = (tails, heads, forward, reverse, source, sink)
            assert flow.solve() == scipy_value(n, *network)
            assert cut_value(flow.source_side(), *network) == flow.solve()
            assert cut_value(flow.source_side(largest=True), *network) == flow.solve()


@pytest.mark.parametrize("degree", [4, 8])
def test_grid_form_equals_the_general_one(degree):
    rng = np.random.default_rng(degree)
    for _ in range(200):
        height, width = (int(v) for v in rng.integers(2, 6, 2))
        frame = width + 1
        steps = [(0, 1, 1), (1, 0, frame), (1, 1, frame + 1), (1, -1, frame - 1)][: degree // 2]
        strides = np.array([v for _, _, s in steps for v in (s, -s)])
        net, total = Grid(strides, degree), (height + 2) * frame + 2
        node = ((np.arange(height)[:, None] + 1) * frame + np.arange(width) + 1).ravel()
        cap, term = np.zeros(total * degree, np.int32), np.zeros(total, np.int32)
        term[node] = rng.integers(-9, 9, height * width)
        tails, heads, forward, reverse = [], [], [], []
        for r, c in np.ndindex(height, width):
            for k, (dr, dc, s) in enumerate(steps):
                if r + dr < height and 0 <= c + dc < width:
                    p = (r + 1) * frame + c + 1
                    a, b = rng.integers(0, 9, 2)
                    cap[p * degree + 2 * k], cap[(p + s) * degree + 2 * k + 1] = a, b
                    tails.append(r * width + c)
                    heads.append((r + dr) * width + c + dc)
                    forward.append(a)
                    reverse.append(b)
        start = term[node].astype(np.int64)
        general = MaxFlow(height * width, tails, heads, forward, reverse, np.maximum(start, 0), np.maximum(-start, 0))
        value = general.solve()
        trees = new_trees(total, net)
        flow = push_to_neighbours(net, cap, term, np.int32(0), None)
        plant(trees, term, np.int32(0), False)
        flow += run(net, cap, term, np.int32(0), trees, None, np.inf)
        assert flow == value
        assert ((trees.side[node] == 1) == general.source_side()).all()


def test_against_pymaxflow():
    maxflow = pytest.importorskip("maxflow")
    rng = np.random.default_rng(3)
    for _ in range(1000):
        n = int(rng.integers(2, 40))
        tails, heads, forward, reverse, source, sink = random_network(rng, n, int(rng.integers(1, 150)))
        peer = maxflow.Graph[int]()
        peer.add_nodes(n)
        for i in range(n):
            peer.add_tedge(i, source[i], sink[i])
        for e in range(len(tails)):
            peer.add_edge(tails[e], heads[e], forward[e], reverse[e])
        assert MaxFlow(n, tails, heads, forward, reverse, source, sink).solve() == peer.maxflow()


def test_empty_networks():
    none = np.zeros(0, np.int64)
    assert MaxFlow(0, none, none, none).solve() == 0
    assert MaxFlow(2, none, none, none, source=np.array([3, 1]), sink=np.array([1, 4])).solve() == 2
