"""Energies and the one certificate.

* energy of a labelling of the canonical variables;
* the multilinear energy E(x) of relaxed vectors and its gradient (paper §2, eq. of the relaxation): at a one-hot x it
  is the energy of the labelling, and it is linear in every variable;
* the lower bound of any messages.  A message m_{f->i}(s) moves cost from factor f to variable i:

      E(x) = constant + sum_i [theta_i + sum_f m_{f->i}](x_i) + sum_f [theta_f - sum_i m_{f->i}](x_f)   for every x,

  so the sum of the minima of all brackets is a lower bound, whatever the messages are and wherever they come from.
  It is evaluated in float64, an allowance for rounding is subtracted, and where all costs are multiples of a quantum
  the result is rounded up to the next value an energy can have.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, Certified, certify
from tightmap.energy.on_lattice import lattice_argmin, lattice_minima, lattice_sums
from tightmap.factors.kernels import contract, load_unary, minimum, most_labels, value, workspace
from tightmap.factors.pairs import is_plain, plain_cost
from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.one_form import one_form
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled, lean

BLOCK = 512  # variables or factors per partial sum: fixed, so that results do not depend on the number of threads


def blocks(count: int) -> int:
    """How many blocks that many variables or factors are."""
    return (count + BLOCK - 1) // BLOCK


# ------------------------------------------------------------------------------------------------- labellings


@lean
def labelling_sums(g, labels):
    """Energy of a labelling without the constant, and the sum of the absolute values of its terms."""
    unary, size = 0.0, 0.0
    for i in range(len(g.cards)):
        v = g.unary[g.offset[i] + labels[i]]
        unary += v
        size += abs(v)
    rest = 0.0
    kind, weight, param, params, scope_start, scope, cards = (
        g.kind, g.weight, g.param, g.params, g.scope_start, g.scope, g.cards,
    )  # fmt: skip
    for f in range(len(kind)):
        a = scope_start[f]
        if scope_start[f + 1] - a == 2 and is_plain(kind[f]):
            # plain pairs in place: calling ``value`` with all arrays costs ten times the work
            j = scope[a + 1]
            v = plain_cost(kind[f], weight[f], params, param[f], cards[j], labels[scope[a]], labels[j])
        else:
            v = value(g, f, labels)
        rest += v
        size += abs(v)
    return unary + rest, size


def energy_and_size(graph: Graph, labels: npt.NDArray[np.integer]) -> tuple[float, float]:
    """The energy with the sum of the absolute values of its terms, which its rounding error is proportional to.

    Most of the work is fetching the terms: both take hardly longer than one.
    """
    if graph.lattice is not None:
        total, size = lattice_sums(graph.lattice.pixels, labels)
    else:
        total, size = labelling_sums(graph.arrays, np.asarray(labels, dtype=np.int64))
    return graph.constant + total, abs(graph.constant) + size


def energy(graph: Graph, labels: npt.NDArray[np.integer]) -> float:
    """Energy of a labelling of the canonical variables; a forbidden entry costs graph.hard, not inf."""
    return energy_and_size(graph, labels)[0]


def labelling_size(graph: Graph, labels: npt.NDArray[np.integer]) -> float:
    """Sum of the absolute values of all terms of an energy."""
    return energy_and_size(graph, labels)[1]


def unary_argmin(graph: Graph) -> IntArray:
    """The labelling that minimises the unaries alone, lowest label on ties."""
    if graph.lattice is not None:
        return lattice_argmin(graph.lattice.pixels)
    return _unary_argmin(graph.arrays)


@one_form
@compiled
def _unary_argmin(g):
    labels = np.zeros(len(g.cards), np.int64)
    for i in range(len(g.cards)):
        best = g.unary[g.offset[i]]
        for s in range(1, g.cards[i]):
            v = g.unary[g.offset[i] + s]
            if v < best:
                best = v
                labels[i] = s
    return labels


def one_hot(graph: Graph, labels: npt.NDArray[np.integer]) -> FloatArray:
    """Relaxed vectors of a labelling, flat as the unaries."""
    x = np.zeros(len(graph.arrays.unary))
    x[graph.arrays.offset[:-1] + labels] = 1.0
    return x


# ------------------------------------------------------------------------------------------------- relaxed vectors


@compiled
def _gradient(first, last, g, x, out, scratch):
    work = np.empty(scratch)
    start = np.empty(128, np.int64)
    for i in range(first * BLOCK, min(len(g.cards), last * BLOCK)):
        row = out[g.offset[i] : g.offset[i + 1]]
        load_unary(g, i, row)
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            begin = g.scope_start[f]
            for p in range(begin, g.scope_start[f + 1]):
                start[p - begin] = g.offset[g.scope[p]]
            contract(g, f, int(g.adj_pos[a]), x, start, row, work)


def gradient(graph: Graph, x: FloatArray) -> FloatArray:
    """Gradient of the multilinear energy: for variable i and label s, the energy's linear cost of s given the rest."""
    out = np.empty_like(x)
    parallel.run(_gradient, blocks(graph.n), graph.arrays, x, out, workspace(graph.arrays))
    return out


@compiled
def _factor_energies(first, last, g, x, partial, scratch):
    m = len(g.kind)
    work = np.empty(scratch)
    start = np.empty(128, np.int64)
    out = np.empty(scratch)
    for b in range(first, last):
        total = 0.0
        for f in range(b * BLOCK, min(m, (b + 1) * BLOCK)):
            begin = g.scope_start[f]
            for p in range(begin, g.scope_start[f + 1]):
                start[p - begin] = g.offset[g.scope[p]]
            c = g.cards[g.scope[begin]]
            out[:c] = 0.0
            contract(g, f, 0, x, start, out, work)
            for s in range(c):
                total += out[s] * x[start[0] + s]
        partial[b] = total


def multilinear_energy(graph: Graph, x: FloatArray) -> float:
    """Energy of relaxed vectors (any real vectors, normalised or not)."""
    partial = np.zeros(blocks(graph.m))
    parallel.run(_factor_energies, len(partial), graph.arrays, x, partial, workspace(graph.arrays))
    return graph.constant + float((graph.arrays.unary * x).sum()) + float(partial.sum())


# ------------------------------------------------------------------------------------------------- the certificate


def message_offsets(graph: Graph) -> IntArray:
    """(len(scope) + 1,) where the message of every (factor, position) starts in a flat message vector."""
    g = graph.arrays
    return np.concatenate(([0], np.cumsum(g.cards[g.scope].astype(np.int64))))


@one_form
@compiled
def _bound_variables(first, last, g, messages, at, low, error):
    n = len(g.cards)
    row = np.empty(64)
    for b in range(first, last):
        total = 0.0
        added = 0.0  # sum of |minima|
        wrong = 0.0
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            c = g.cards[i]
            if c > len(row):
                row = np.empty(c)
            size = 0.0
            for s in range(c):
                row[s] = g.unary[g.offset[i] + s]
                size = max(size, abs(row[s]))
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                p = at[g.scope_start[g.adj_factor[a]] + g.adj_pos[a]]
                largest = 0.0
                for s in range(c):
                    row[s] += messages[p + s]
                    largest = max(largest, abs(messages[p + s]))
                size += largest
            best = row[0]
            for s in range(1, c):
                best = min(best, row[s])
            total += best
            added += abs(best)
            # k additions, none to a number larger than the sum of the sizes (nearly: 1.01)
            wrong += 1.01 * (g.adj_start[i + 1] - g.adj_start[i]) * size
        low[b] = total
        error[b] = wrong + min(BLOCK, n - b * BLOCK) * added


@compiled
def _bound_factors(first, last, g, messages, at, low, error, scratch):
    m = len(g.kind)
    work = np.empty(scratch)
    out = np.empty(scratch)
    start = np.empty(128, np.int64)
    negative = np.empty(64)
    for b in range(first, last):
        total = 0.0
        added = 0.0
        wrong = 0.0
        for f in range(b * BLOCK, min(m, (b + 1) * BLOCK)):
            begin = g.scope_start[f]
            k = g.scope_start[f + 1] - begin
            length = at[begin + k] - at[begin]
            if length > len(negative):
                negative = np.empty(length)
            size = 0.0
            for p in range(k):
                start[p] = at[begin + p] - at[begin]
                largest = 0.0
                for s in range(g.cards[g.scope[begin + p]]):
                    v = messages[at[begin + p] + s]
                    negative[start[p] + s] = -v
                    largest = max(largest, abs(v))
                size += largest
            best = minimum(g, f, negative, start, out, work)
            total += best
            added += abs(best)
            # the entry that attains the minimum is at most |min| + messages in size, and enters a sum of k + 1 numbers
            wrong += 16.0 * (k + 2) * (size + abs(best))
        low[b] = total
        error[b] = wrong + min(BLOCK, m - b * BLOCK) * added


def lower_bound(graph: Graph, messages: FloatArray) -> Certified:
    """The certified bound of messages laid out by ``message_offsets``."""
    g = graph.arrays
    if graph.n == 0:
        return certify(graph, graph.constant, 0.0)
    at = message_offsets(graph)
    if len(messages) != at[-1]:
        raise ValueError(f"messages: expected {at[-1]} numbers, got {len(messages)}")
    low_v, err_v = np.zeros((2, blocks(graph.n)))
    parallel.run(_bound_variables, len(low_v), g, messages, at, low_v, err_v)
    low_f, err_f = np.zeros((2, blocks(graph.m)))
    parallel.run(_bound_factors, len(low_f), g, messages, at, low_f, err_f, workspace(g))
    raw = math.fsum((graph.constant, *low_v.tolist(), *low_f.tolist()))
    return certify(graph, raw, UNIT * (math.fsum(err_v.tolist()) + math.fsum(err_f.tolist())))


def trivial_bound(graph: Graph) -> Certified:
    """The bound of zero messages: every unary and every factor at its own minimum."""
    return lower_bound(graph, np.zeros(int(message_offsets(graph)[-1]) if graph.n else 0))


@compiled
def _least(g, scratch):
    zeros, start = np.zeros(most_labels(g.cards)), np.zeros(128, np.int64)
    work, out = np.empty(scratch), np.empty(scratch)
    least = np.empty(len(g.kind))
    for f in range(len(g.kind)):
        least[f] = minimum(g, f, zeros, start, out, work)
    return least


def smallest_entries(graph: Graph) -> FloatArray:
    """(m,) the smallest entry of every factor."""
    return _least(graph.arrays, workspace(graph.arrays))


def minima_size(graph: Graph) -> float:
    """Sum of the absolute values of the smallest entries of all tables."""
    if graph.lattice is not None:
        return lattice_minima(graph.lattice.pixels, graph.m)
    g = graph.arrays
    unaries = np.minimum.reduceat(g.unary, g.offset[:-1]) if graph.n else g.unary
    return float(np.abs(unaries).sum() + np.abs(smallest_entries(graph)).sum())
