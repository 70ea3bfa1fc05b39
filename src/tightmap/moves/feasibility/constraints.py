"""What a graph forbids, apart from what it costs: labels, tuples of labels, tables of allowed tuples.

Only the pattern of forbidden entries of a table matters here, and models have few different ones however many tables
they have.  A pattern is reduced to the variables that it depends on; then it is

    a label that is forbidden           one variable is left
    one forbidden tuple                 a clause: not all of its labels together
    anything else                       a table: the list of its allowed tuples

A factor that is given by a list of forbidden entries, and is too large for a table, becomes one clause for each.  Where
there is no room for a table the factor is left out (``rest``) and has to be looked at once there is a labelling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import numbered_labellings
from tightmap.factors.kernels import tabulate, value
from tightmap.graph.graph import Arrays, Graph, Kind

ENTRIES = 1 << 16  # a factor of more entries is not written out as a table
ROOM = 1 << 23  # words of all masks and tuples of all tables together; factors beyond are left out
CHUNK = 4_000_000  # table entries looked at in one go

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
    room: int = field(default_factory=lambda: ROOM)

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
    assert graph.params_hard is not None
    before = np.concatenate(([0], np.cumsum(graph.params_hard)))  # forbidden entries before each place
    listed = np.isin(g.kind, (Kind.DENSE, Kind.PN_POTTS, Kind.SPARSE))  # the other kinds are finite
    order = np.diff(g.scope_start)
    for k in np.unique(order[listed]).tolist():
        factors = np.flatnonzero(listed & (order == k))
        cards = g.cards[_scopes(graph, factors)]
        if (cards == cards[0]).all():
            shapes, group = cards[:1], np.zeros(len(factors), np.int64)
        else:
            shapes, group = np.unique(cards, axis=0, return_inverse=True)
        for q, shape in enumerate(shapes):
            mine = factors[group.reshape(-1) == q]
            at = g.param[mine]
            size = np.where(g.kind[mine] == Kind.DENSE, np.prod(shape.astype(np.float64)), 1.0).astype(np.int64)
            mine = mine[(g.kind[mine] != Kind.DENSE) | (before[at + size] > before[at])]
            if len(mine):
                yield tuple(shape.tolist()), mine


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
    if dense.any():  # tables are often shared
        places, own = np.unique(g.param[factors[dense]], return_inverse=True)
        rows = np.empty((len(places), packed.shape[1]), np.uint8)
        some = max(1, CHUNK // size)
        for k in range(0, len(places), some):
            rows[k : k + some] = np.packbits(hard[places[k : k + some, None] + np.arange(size)], axis=1)
        packed[dense] = rows[own.reshape(-1)]
    others = np.flatnonzero(written & ~dense).tolist()
    if others:
        marks = _marks(graph)
        row = np.zeros(size + len(shape))
        for f in others:
            tabulate(marks, int(factors[f]), row)
            packed[f] = np.packbits(row[:size] > 0.5)
    rows = packed[written]
    # a row as one value: with an axis, NumPy would make a field of every byte, which takes longer than all the rest
    whole = rows.view(np.dtype((np.void, rows.shape[1]))).reshape(-1)
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return np.unpackbits(rows[first], axis=1, count=size).astype(np.bool_), which.reshape(-1), written


def _marks(graph: Graph) -> Arrays:
    """The arrays of a graph in which every forbidden entry of a table costs 1 and all others nothing."""
    g = graph.arrays
    assert graph.params_hard is not None
    return g._replace(params=graph.params_hard.astype(np.float64), weight=np.ones(len(g.weight)))


def broken_by(graph: Graph, factors: list[int], labels: npt.NDArray[np.integer]) -> Ints | None:
    """The labels, numbered through, of the first of these factors that forbids a labelling."""
    if not factors:
        return None
    g, marks = graph.arrays, _marks(graph)
    for f in factors:
        if value(marks, f, labels) > 0.5:
            scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
            return np.asarray(g.offset[scope] + labels[scope], np.int64)
    return None


def _add_pattern(out: Constraints, offset: Ints, scopes: Ints, pattern: Mask, factors: Ints) -> None:
    """Factors that forbid ``pattern``."""
    if not pattern.any():
        return
    for p in range(scopes.shape[1] - 1, -1, -1):
        if (pattern == pattern.take([0], axis=p)).all():  # whatever the label of this variable is
            pattern, scopes = np.asarray(pattern.take(0, axis=p)), np.delete(scopes, p, axis=1)
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
        tuples = numbered_labellings(keys, shape)
    else:  # P^n-Potts
        tuples = np.repeat(np.arange(min(shape))[:, None], len(shape), axis=1)
    forbidden = hard[at + 1 : at + 1 + len(tuples)]
    if hard[at]:  # all but some of those in the list
        _add_table(out, scope[None], shape, tuples[~forbidden], np.array([f]))
    elif forbidden.any():
        out.clauses.append(g.offset[scope] + tuples[forbidden])
