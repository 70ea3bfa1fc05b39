"""Every kernel of every kind against the dense twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightmap as tm
from naive import contraction, dense_factor, growth_string, labellings, min_marginal, pattern_order
from problems import KINDS, random_model
from tightmap.factors import kernels
from tightmap.factors.difference import window
from tightmap.factors.pattern import bell, pattern_ranks


def factor_models(seed, labels, order=4):
    """Models with one factor of every kind, several label counts."""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        yield kind, random_model(rng, n=5, labels=labels, factors=2, order=order, kinds=(kind,), tidy=True)


@pytest.mark.parametrize("labels", [2, 3, 5, 9])
@given(seed=st.integers(0, 2**32 - 1))
def test_kernels_agree_with_dense_tables(labels, seed):
    rng = np.random.default_rng(seed)
    order = {2: 5, 3: 4, 5: 3, 9: 2}[labels]
    for _, model in factor_models(seed, labels, order):
        graph = model.graph()
        g = graph.arrays
        work = np.empty(kernels.workspace(g))
        for f in range(graph.m):
            scope, table = dense_factor(graph, f)
            k = len(scope)
            x = rng.normal(size=int(g.offset[-1]))  # negative and not normalised, as ADMM's loose copies
            start = np.array([g.offset[i] for i in scope], dtype=np.int64)
            vectors = [x[g.offset[i] : g.offset[i + 1]] for i in scope]
            full = np.zeros(graph.n, dtype=np.int64)
            own = np.array([rng.integers(c) for c in table.shape])
            full[scope] = own
            assert kernels.value(g, f, full) == pytest.approx(table[tuple(own)], abs=1e-12)
            for p in range(k):
                out = np.zeros(table.shape[p])
                kernels.add_slice(g, f, p, full, out, 2.0)
                line = table[tuple(slice(None) if q == p else own[q] for q in range(k))]
                np.testing.assert_allclose(out, 2.0 * line, rtol=1e-12, atol=1e-12)
                out = np.ones(table.shape[p])
                kernels.contract(g, f, p, x, start, out, work)
                np.testing.assert_allclose(out - 1.0, contraction(table, p, vectors), rtol=1e-9, atol=1e-9)
                out = np.empty(table.shape[p])
                kernels.minmarg(g, f, p, x, start, out, work)
                np.testing.assert_allclose(out, min_marginal(table, p, vectors), rtol=1e-10, atol=1e-10)
            total = table.copy()
            for p in range(k):
                total = total + vectors[p].reshape([-1 if q == p else 1 for q in range(k)])
            out = np.empty(max(table.shape))
            assert kernels.minimum(g, f, x, start, out, work) == pytest.approx(total.min(), abs=1e-10)
            fixed = np.full(k, -1, dtype=np.int64)
            held = int(rng.integers(k))
            fixed[held] = own[held]
            kernels.argmin(g, f, x, start, fixed, out, work)
            assert fixed[held] == own[held]
            best = np.take(total, own[held], axis=held).min()
            assert total[tuple(fixed)] == pytest.approx(best, abs=1e-10)


@pytest.mark.parametrize("kind", ["potts", "linear", "quadratic"])
@pytest.mark.parametrize("shape", [(30, 30), (25, 40), (40, 25)])
@pytest.mark.parametrize("limit", [0.0, 1.0, 7.0, 100.0, np.inf])
@pytest.mark.parametrize("weight", [0.7, -0.4])
def test_long_pairs(kind, shape, limit, weight):
    """Prefix sums, two-sweep scans and parabola envelopes need more labels than brute-force models have."""
    rng = np.random.default_rng(1)
    model = tm.Model(shape)
    if kind == "potts":
        model.add_potts([[0, 1]], [weight])
    elif kind == "linear":
        model.add_truncated_linear([[0, 1]], [weight], limit)
    else:
        model.add_truncated_quadratic([[0, 1]], [weight], limit)
    graph = model.graph()
    g = graph.arrays
    _, table = dense_factor(graph, 0)
    work = np.empty(kernels.workspace(g))
    start = np.array([0, shape[0]], dtype=np.int64)
    x = rng.normal(size=sum(shape)) * 20
    some_inf = x.copy()
    some_inf[rng.random(len(x)) < 0.3] = np.inf
    for p in (0, 1):
        out = np.zeros(shape[p])
        kernels.contract(g, 0, p, x, start, out, work)
        np.testing.assert_allclose(out, contraction(table, p, [x[: shape[0]], x[shape[0] :]]), rtol=1e-9, atol=1e-7)
        for h in (x, some_inf):
            kernels.minmarg(g, 0, p, h, start, out, work)
            vectors = [h[: shape[0]], h[shape[0] :]]
            np.testing.assert_allclose(out, min_marginal(table, p, vectors), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("power", [1, 2])
def test_window(power):
    for limit in (0.0, 0.5, 1.0, 1.5, 2.0, 4.0, 8.9, 9.0, 9.1, 1e9):
        expected = max([k for k in range(20) if k**power < limit], default=-1)
        assert window(power == 2, limit, 19) == expected


def test_pattern_ranks_follow_growth_strings():
    for k in (1, 2, 3, 4, 5):
        order = pattern_order(k)
        assert bell(k) == len(order)
        rows = np.array(list(labellings((3,) * k)))
        expected = [order.index(growth_string(tuple(r))) for r in rows]
        assert pattern_ranks(rows).tolist() == expected
