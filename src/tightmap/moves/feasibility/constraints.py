"""What a graph forbids, apart from what it costs: labels, tuples of labels, tables of allowed tuples.

Only the pattern of forbidden entries of a table matters here, and models have few different ones however many tables
they have.  A pattern is reduced to the variables that it depends on; then it is

    a label that is forbidden           one variable is left
    one forbidden tuple                 a clause: not all of its labels together
    anything else                       a table: the list of its allowed tuples

A factor that is given by a list of forbidden entries, and is too large for a table, becomes one clause for each.
Larger factors of other kinds are left out (``rest``): they have to be looked at once there is a labelling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tightmap.factors.tabulate import tabulate
from tightmap.graph.graph import Graph, Kind

ENTRIES = 1 << 16  # a factor of more entries is not written out as a table
TUPLES = 1 << 25  # bits of all masks and tuples of all tables together, in words; factors beyond are left out

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass
class Tables:
    """Tables that allow the same tuples."""

    scopes: Ints  # (tables, order)
    cards: tuple[int, ...]
    allowed: Ints  # (tuples, order)


@dataclass
class Constraints:
    """All hard constraints of a graph."""

    alive: Mask  # (labels,) False where a label is forbidden on its own
    clauses: list[Ints] = field(default_factory=list)  # (., k) labels, numbered through, that must not come together
    tables: list[Tables] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)  # factors that are not part of this
    impossible: bool = False  # a factor, or the constant, forbids everything
    room: int = TUPLES

    @property
    def empty(self) -> bool:
        return not (self.clauses or self.tables or self.rest or self.impossible) and bool(self.alive.all())


def constraints(graph: Graph) -> Constraints:
    """The hard constraints of a graph."""
    g = graph.arrays
    alive = np.ones(len(g.unary), np.bool_) if graph.unary_hard is None else ~graph.unary_hard
    out = Constraints(alive)
    out.impossible = graph.hard > 0.0 and graph.constant > 0.0
    if graph.params_hard is None:
        return out
    for shape, factors in _shapes(graph):
        patterns, which, written = _patterns(graph, shape, factors)
        for k, pattern in enumerate(patterns):
            mine = factors[written][which == k]
            scopes = _scopes(graph, mine)
            _add_pattern(out, g.offset, scopes, pattern.reshape(shape), mine)
        for f in factors[~written].tolist():
            _add_listed(out, graph, f, shape)
    return out


def _scopes(graph: Graph, factors: Ints) -> Ints:
    """(factors, order) of factors of one order."""
    g = graph.arrays
    order = int(g.scope_start[factors[0] + 1] - g.scope_start[factors[0]])
    return g.scope[g.scope_start[factors][:, None] + np.arange(order)].astype(np.int64)


def _shapes(graph: Graph) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Factors that may forbid something, by the label counts of their variables."""
    g = graph.arrays
    listed = np.isin(g.kind, (Kind.DENSE, Kind.PN_POTTS, Kind.PATTERN, Kind.SPARSE))
    order = np.diff(g.scope_start)
    for k in np.unique(order[listed]).tolist():
        factors = np.flatnonzero(listed & (order == k))
        cards = g.cards[_scopes(graph, factors)]
        if (cards == cards[0]).all():
            yield tuple(cards[0].tolist()), factors
            continue
        shapes, group = np.unique(cards, axis=0, return_inverse=True)
        group = group.reshape(-1)
        for q, shape in enumerate(shapes):
            yield tuple(shape.tolist()), factors[group == q]


def _patterns(graph: Graph, shape: tuple[int, ...], factors: Ints) -> tuple[Mask, Ints, Mask]:
    """The different patterns of forbidden entries, which of them each factor has, and which factors these are.

    Factors without forbidden entries are among them; factors that are too large to be written out are not.
    """
    g, hard = graph.arrays, graph.params_hard
    assert hard is not None
    entries = float(np.prod(np.asarray(shape, dtype=np.float64)))
    dense = g.kind[factors] == Kind.DENSE
    written = dense if entries > ENTRIES else np.ones(len(factors), np.bool_)
    if not written.any():
        return np.zeros((0, 0), np.bool_), np.zeros(0, np.int64), written
    size = int(entries)
    packed = np.zeros((len(factors), -(-size // 8)), np.uint8)
    marks = g._replace(params=hard.astype(np.float64), weight=np.ones(len(g.weight)))
    row = np.zeros(size + len(shape))
    for f in np.flatnonzero(dense).tolist():
        at = int(g.param[factors[f]])
        mine = hard[at : at + size]
        if mine.any():
            packed[f] = np.packbits(mine)
    for f in np.flatnonzero(written & ~dense).tolist():
        tabulate(marks, int(factors[f]), row)
        packed[f] = np.packbits(row[:size] > 0.5)
    rows, which = np.unique(packed[written], axis=0, return_inverse=True)
    return np.unpackbits(rows, axis=1, count=size).astype(np.bool_), which.reshape(-1), written


def _add_pattern(out: Constraints, offset: Ints, scopes: Ints, pattern: Mask, factors: Ints) -> None:
    """Factors that forbid ``pattern``."""
    if not pattern.any():
        return
    for p in range(scopes.shape[1] - 1, -1, -1):
        if (pattern == pattern.take([0], axis=p)).all():  # whatever the label of this variable is
            pattern, scopes = pattern.take(0, axis=p), np.delete(scopes, p, axis=1)
    if pattern.ndim == 0:
        out.impossible = True
        return
    starts = offset[scopes]
    bad = np.argwhere(pattern)
    if pattern.ndim == 1:
        out.alive[(starts + bad.reshape(1, -1)).reshape(-1)] = False
    elif len(bad) == 1:
        out.clauses.append(starts + bad)
    else:
        _add_table(out, scopes, pattern.shape, np.argwhere(~pattern), factors)


def _add_table(out: Constraints, scopes: Ints, cards: tuple[int, ...], allowed: Ints, factors: Ints) -> None:
    """Tables that allow these tuples only, where there is room for them."""
    words = -(-len(allowed) // 64)
    room = words * sum(cards) + len(scopes) * (len(allowed) + words)
    if room > out.room:
        out.rest += factors.tolist()
        return
    out.room -= room
    out.tables.append(Tables(scopes, cards, allowed))


def _add_listed(out: Constraints, graph: Graph, f: int, shape: tuple[int, ...]) -> None:
    """A factor that is too large to be written out."""
    g, hard = graph.arrays, graph.params_hard
    assert hard is not None
    at, kind = int(g.param[f]), g.kind[f]
    scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]].astype(np.int64)
    if kind == Kind.SPARSE:
        first = int(g.iparam[f])
        keys = g.ints[first + 1 : first + 1 + int(g.ints[first])]
        tuples = np.stack(np.unravel_index(keys, shape), axis=1).astype(np.int64)
    elif kind == Kind.PN_POTTS:
        tuples = np.repeat(np.arange(min(shape))[:, None], len(shape), axis=1)
    else:
        out.rest.append(f)
        return
    forbidden = hard[at + 1 : at + 1 + len(tuples)]
    if hard[at]:  # all but some of those in the list
        _add_table(out, scope[None], shape, tuples[~forbidden], np.array([f]))
    elif forbidden.any():
        out.clauses.append(g.offset[scope] + tuples[forbidden])
