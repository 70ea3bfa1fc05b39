"""The tables of a pairwise graph made ready for cuts: every factor Potts, truncated, or dense with a zero diagonal.

    theta(a, b) = d(a) + theta'(a, b),   d(a) = theta(a, a) where b has that label too, 0 elsewhere;   theta'(a, a) = 0

The primal-dual moves need theta' alone, and d goes to the unaries of the first variable.  Factors that share a table
share theta' and d.  Models with a table of their own for each of a million edges exist (photomontage), so nothing here
is done table by table outside of kernels, and tables with a zero diagonal stay where they are.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import value
from tightmap.factors.pairs import DENSE, POTTS, QUADRATIC
from tightmap.graph.graph import Arrays
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import check_time

BLOCK = 100_000  # tables between two looks at the clock


@compiled
def _tabulate(g, factors, at, out):
    """Tables of these factors of two variables, without their weights, whatever their kinds."""
    labels = np.zeros(len(g.cards), np.int64)
    for t in range(len(factors)):
        f = factors[t]
        i, j = g.scope[g.scope_start[f]], g.scope[g.scope_start[f] + 1]
        for a in range(g.cards[i]):
            for b in range(g.cards[j]):
                labels[i] = a
                labels[j] = b
                out[at[t] + a * g.cards[j] + b] = value(g, f, labels) / g.weight[f]


@lean
def _with_diagonal(tables, at, rows, columns, found):
    """Which tables have a diagonal that is not zero?"""
    for t in range(len(at)):
        for a in range(min(rows[t], columns[t])):
            found[t] |= tables[at[t] + a * (columns[t] + 1)] != 0.0


@lean
def _split(tables, at, rows, columns, to, diagonal_at, out, diagonals):
    """theta' and d of these tables."""
    for t in range(len(at)):
        wide = columns[t]
        for a in range(rows[t]):
            d = tables[at[t] + a * (wide + 1)] if a < wide else 0.0
            if a < wide:
                diagonals[diagonal_at[t] + a] = d
            for b in range(wide):
                out[to[t] + a * wide + b] = tables[at[t] + a * wide + b] - d


@lean
def _move_diagonals(g, diagonal_of, diagonals, unary):
    for e in range(len(g.kind)):
        d = diagonal_of[e]
        if d >= 0:
            i, j = g.scope[2 * e], g.scope[2 * e + 1]
            for a in range(min(g.cards[i], g.cards[j])):
                unary[g.offset[i] + a] += g.weight[e] * diagonals[d + a]


@lean
def _first_uses(rows, scope, cards, param, first, factors, inverse):
    """One of these dense factors for every table, and which of those stands for each; the number of tables.

    A table has at least four entries, so that a quarter of its place is a number of its own.  -1 if one is read in two
    shapes.
    """
    count = 0
    for i in range(len(rows)):
        f = rows[i]
        place = param[f] // 4
        t = first[place]
        if t < 0:
            t = count
            first[place] = t
            factors[t] = f
            count += 1
        r = factors[t]
        if param[r] != param[f]:
            return -1
        for k in range(2):
            if cards[scope[2 * r + k]] != cards[scope[2 * f + k]]:
                return -1
        inverse[i] = t
    return count


def _distinct(g: Arrays, rows: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """One factor of these for every table, and which of those stands for each."""
    kind, param = g.kind[rows], g.param[rows]
    if (kind == DENSE).all():
        factors, inverse = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        first = np.full(len(g.params) // 4 + 1, -1, np.int32)
        count = _first_uses(rows, g.scope, g.cards, g.param, first, factors, inverse)
        if count >= 0:
            return factors[:count], inverse
    cards = g.cards[g.scope.reshape(-1, 2)[rows]]
    key = np.stack([kind, param, g.iparam[rows], *cards.T], axis=1).astype(np.int64)
    _, chosen, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    return rows[chosen], inverse.ravel()


def _ends(sizes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where blocks of these sizes begin, one after the other, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def cut_tables(g: Arrays, context: Context | None) -> tuple[npt.NDArray[Any], ...]:
    """kind, base, tables, unaries, diagonal_of, diagonals: factors other than Potts and truncated differences by tables
    with a zero diagonal.  TimeUp when the time limit of the context passes before they are ready."""
    kind = g.kind.copy()
    base = np.zeros(len(kind), np.int64)
    base[:] = g.param
    which = np.full(len(kind), -1, np.int64)
    rows = np.flatnonzero((kind < POTTS) | (kind > QUADRATIC))
    if len(rows) == 0:
        return kind, base, g.params, g.unary, which, np.zeros(0)
    check_time(context)
    factors, inverse = _distinct(g, rows)
    cards = g.cards[g.scope.reshape(-1, 2)[factors]].astype(np.int64)
    high, wide = np.ascontiguousarray(cards[:, 0]), np.ascontiguousarray(cards[:, 1])
    starts = g.param[factors].astype(np.int64)
    tables = g.params
    other = np.flatnonzero(g.kind[factors] != DENSE)
    if len(other):
        at = _ends(high[other] * wide[other])
        more = np.empty(int(at[-1]))
        starts[other] = len(tables) + at[:-1]
        for begin in range(0, len(other), BLOCK):
            check_time(context)
            part = slice(begin, begin + BLOCK)
            _tabulate(g, factors[other[part]], at[:-1][part], more)
        tables = np.concatenate((tables, more))
    check_time(context)
    found = np.zeros(len(factors), np.bool_)
    _with_diagonal(tables, starts, high, wide, found)
    uneven = np.flatnonzero(found)
    diagonals = np.zeros(0)
    unary = g.unary
    if len(uneven):
        high, wide = high[uneven], wide[uneven]
        to, place = _ends(high * wide), _ends(np.minimum(high, wide))
        more, diagonals = np.empty(int(to[-1])), np.empty(int(place[-1]))
        _split(tables, starts[uneven], high, wide, to, place, more, diagonals)
        check_time(context)
        starts[uneven] = len(tables) + to[:-1]
        tables = np.concatenate((tables, more))
        diagonal_start = np.full(len(factors), -1, np.int64)
        diagonal_start[uneven] = place[:-1]
        which[rows] = diagonal_start[inverse]
        unary = unary.copy()
        _move_diagonals(g, which, diagonals, unary)
    base[rows] = starts[inverse]
    kind[rows] = DENSE
    return kind, base, tables, unary, which, diagonals
