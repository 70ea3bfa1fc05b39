"""Large factors: closed forms against tables, and time limits that hold inside one factor."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from tightmap.canonical import build as canonical
from tightmap.factors import kernels
from tightmap.factors.pattern import bell
from tightmap.graph.graph import Kind


def one_pattern(rng, shape, integral):
    values = rng.integers(0, 4, bell(len(shape))).astype(float) if integral else rng.normal(size=bell(len(shape)))
    model = tm.Model(shape)
    model.add_label_patterns([range(len(shape))], values, [rng.choice([-1.5, 0.7])])
    return model


def one_list(rng, shape, share, hard):
    """Exceptions cheaper and dearer than the default; with ``share`` near one hardly any labelling has the default."""
    keys = np.flatnonzero(rng.random(int(np.prod(shape))) < share)
    values = rng.integers(0, 5, len(keys)).astype(float)
    model = tm.Model(shape)
    entries = np.stack(np.unravel_index(keys, shape), axis=1)
    weight = 0.7
    if hard:
        values[rng.random(len(keys)) < 0.3] = np.inf
    else:
        weight = rng.choice([-1.5, 0.7])
    model.add_sparse([range(len(shape))], entries, values, 2.0, [weight])
    return model


def spread_out(vector, position, order):
    return vector.reshape([-1 if q == position else 1 for q in range(order)])


def check_kernels(rng, model):
    """Contractions and min-marginals of the one factor against its table, some vector entries +inf or all alike."""
    graph = model.graph()
    g = graph.arrays
    assert graph.m == 1 and g.kind[0] in (Kind.PATTERN, Kind.SPARSE)
    shape = tuple(g.cards.tolist())
    k = len(shape)
    table = model.blocks[0].dense(np.array([0]), shape)[0]
    table = np.where(np.isinf(table), table.min() + graph.hard, table)
    work = np.full(kernels.workspace(g), np.nan)
    start = g.offset[:-1].copy()
    x = rng.normal(size=len(g.unary))
    flat = np.zeros(len(g.unary))
    whole = rng.integers(0, 3, len(g.unary)).astype(float)  # ties
    ruled_out = np.where(rng.random(len(g.unary)) < 0.3, np.inf, x)
    same = np.concatenate([10.0 * np.arange(c) for c in shape])  # all want the same label
    for p in range(k):
        others = tuple(q for q in range(k) if q != p)
        wanted = table.copy()
        for q in others:
            wanted = wanted * spread_out(x[g.offset[q] : g.offset[q + 1]], q, k)
        out = np.ones(shape[p])
        kernels.contract(g, 0, p, x, start, out, work)
        np.testing.assert_allclose(out - 1.0, wanted.sum(axis=others), rtol=1e-9, atol=1e-9)
        for h in (x, flat, whole, ruled_out, same):
            wanted = table.copy()
            for q in others:
                wanted = wanted + spread_out(h[g.offset[q] : g.offset[q + 1]], q, k)
            out = np.full(shape[p], np.nan)
            kernels.minmarg(g, 0, p, h, start, out, work)
            np.testing.assert_allclose(out, wanted.min(axis=others), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2, 3), (2, 2, 2), (5, 5, 4, 6), (3, 3, 3, 3, 3), (2, 4, 3, 3, 4, 2)])
@pytest.mark.parametrize("integral", [False, True])
def test_patterns_agree_with_tables(monkeypatch, shape, integral):
    monkeypatch.setattr(canonical, "EXPAND", 0)
    rng = np.random.default_rng(len(shape))
    for _ in range(4):
        check_kernels(rng, one_pattern(rng, shape, integral))


@pytest.mark.parametrize("shape", [(9, 8), (5, 4, 6), (3, 4, 3, 4), (2, 3, 2, 3, 2, 3)])
@pytest.mark.parametrize("hard", [False, True])
def test_lists_of_exceptions_agree_with_tables(shape, hard):
    rng = np.random.default_rng(len(shape))
    for share in (0.1, 0.6, 0.95, 1.0):
        check_kernels(rng, one_list(rng, shape, share, hard))
