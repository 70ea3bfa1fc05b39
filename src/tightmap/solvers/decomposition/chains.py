"""Second-order chains: triples (i, i + d, i + 2 d) in a row, with the pairs between neighbours among them.

A row of an image with costs on three pixels in a row is a chain of these.  Eliminated over pairs of labels,

    M_t(b, c) = u_t(c) + theta(b, c) + min_a [M_{t-1}(a, b) + theta(a, b, c)],

it is minimised exactly, where separate triples would meet in single variables only: the relaxation is tighter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Graph, IntArray
from tightmap.solvers.decomposition.subproblems import CHAIN, Part

MOST_CHAINS = 12  # directions
WIDEST = 64  # labels: a step of a chain costs their cube


def chain_parts(graph: Graph) -> tuple[list[Part], npt.NDArray[np.bool_]]:
    """Chains, one part for every direction, and which factors are in none of them."""
    left = np.ones(graph.m, dtype=np.bool_)
    if graph.order < 3 or graph.max_labels > WIDEST:
        return [], left
    first, steps = _steps(graph)
    triples = np.flatnonzero(first >= 0)
    directions, counts = np.unique(steps[triples], return_counts=True)
    arity = np.diff(graph.arrays.scope_start)
    parts = []
    for d in directions[np.argsort(-counts, kind="stable")][:MOST_CHAINS]:
        own = (first >= 0) & (steps == d) & left
        if d <= 0 or not (own & (arity == 3)).any():
            continue
        parts.append(_part(graph, first, int(d), own))
        left &= ~own
    return parts, left


def _steps(graph: Graph) -> tuple[IntArray, IntArray]:
    """First variable and common difference of the pairs and the evenly spaced triples; -1 for all other factors."""
    g = graph.arrays
    begin, arity = g.scope_start[:-1], np.diff(g.scope_start)
    first, steps = np.full(graph.m, -1, dtype=np.int64), np.zeros(graph.m, dtype=np.int64)
    for size in (2, 3):
        chosen = np.flatnonzero(arity == size)
        if len(chosen):
            scope = g.scope[begin[chosen][:, None] + np.arange(size)].astype(np.int64)
            gaps = np.diff(scope, axis=1)
            even = (gaps == gaps[:, :1]).all(axis=1) & (gaps[:, 0] > 0)
            first[chosen[even]], steps[chosen[even]] = scope[even, 0], gaps[even, 0]
    return first, steps


def _part(graph: Graph, first: IntArray, step: int, own: npt.NDArray[np.bool_]) -> Part:
    """The chains of all factors with one difference: a chain goes on where a factor leads to the next variable."""
    g = graph.arrays
    arity = np.diff(g.scope_start)
    factors = np.flatnonzero(own)
    linked = np.zeros(graph.n, dtype=np.bool_)  # to the variable ``step`` further on
    for k in (0, 1):
        longer = factors[arity[factors] > k + 1]
        linked[first[longer] + k * step] = True
    starts = np.flatnonzero(linked)
    before = starts - step
    starts = starts[(before < 0) | ~linked[np.maximum(before, 0)]]
    sequences = []
    for i in starts.tolist():
        length = 1
        while linked[i + (length - 1) * step]:
            length += 1
        sequences.append(i + step * np.arange(length))
    variable = np.concatenate(sequences)
    place_start = np.concatenate(([0], np.cumsum([len(s) for s in sequences]))).astype(np.int64)
    place = np.zeros(graph.n, dtype=np.int64)
    place[variable] = np.arange(len(variable))
    end = place[first[factors] + (arity[factors] - 1) * step]
    order = np.lexsort((arity[factors], end))
    chain = np.searchsorted(place_start, end[order], side="right") - 1
    entry_start = np.concatenate(([0], np.cumsum(np.bincount(chain, minlength=len(sequences))))).astype(np.int64)
    factor = factors[order].astype(np.int64)
    return Part(CHAIN, place_start, entry_start, variable.astype(np.int64), factor, np.zeros(len(factor), np.int64))
