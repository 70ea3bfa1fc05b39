"""A graph as tables of whole numbers, for programs that compute in integers.

Every table is taken relative to its own least allowed entry, times a scale, and what is left below one is cut off:

    E(x) = base + sum_A [c_A(x_A) + r_A(x_A)] / scale,   c_A >= 0 whole,  0 <= r_A < 1,    for every allowed labelling x

up to an allowance for the rounding of the subtractions, so a lower bound B of the sum of all c_A bounds the energy:

    E(x) >= base + B / scale - allowance.

Where all costs are multiples of a quantum the scale is one over that, and all r_A are zero.  Otherwise it is a power of
two that leaves ``BITS`` bits to the cost of the best labelling, which float64 holds exactly, and ``ROOM`` bits to the
sum of the largest costs of all tables, which 64-bit integers do.

Forbidden entries (+inf) are marked by ``FORBIDDEN``.  So are, where a feasible labelling is known, entries that alone
cost more than all that it costs above the base: no better labelling has one of these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, Certified, certify
from tightmap.factors.tabulate import all_tables
from tightmap.graph.graph import Graph, Kind

BITS = 50  # the cost of the best labelling, and so every bound, has at most so many bits
ROOM = 58  # the sum of the largest costs of all tables has at most so many
FORBIDDEN = -1
LISTED = (Kind.DENSE, Kind.PN_POTTS, Kind.SPARSE)  # kinds that may forbid something, the others are finite
AMPLE = 1.0 + 1e-6  # the room for costs is taken larger than it is by this factor: rounding must not close it

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def table_entries(graph: Graph) -> Floats:
    """(m,) entries of the table of every factor, as floats: they may be astronomically many."""
    g = graph.arrays
    logs = np.log(g.cards[g.scope].astype(np.float64))
    return np.exp(np.add.reduceat(logs, g.scope_start[:-1])) if graph.m else np.zeros(0)


def _forbidden(graph: Graph) -> tuple[Mask, Mask]:
    """Which entries of the unaries and of the tables are +inf."""
    g = graph.arrays
    alone = np.zeros(len(g.unary), np.bool_) if graph.unary_hard is None else graph.unary_hard
    if graph.params_hard is None:
        return alone, np.zeros(0, np.bool_)
    listed = np.isin(g.kind, LISTED).astype(np.float64)
    marks = g._replace(params=graph.params_hard.astype(np.float64), weight=listed)
    return alone, all_tables(replace(graph, arrays=marks))[0] > 0.5


@dataclass(frozen=True)
class Whole:
    """Whole costs of a graph and what they mean."""

    cards: Ints  # (n,)
    offset: Ints  # (n + 1,)
    unary: Ints  # (offset[n],) costs, or FORBIDDEN
    scope_start: Ints
    scope: Ints
    begin: Ints  # (m + 1,) table of factor f is tables[begin[f]:begin[f + 1]], C order over its scope
    tables: Ints
    base: float
    scale: float
    allowance: float
    count: int  # costs in an energy
    exact: bool  # nothing was cut off
    complete: bool  # only what is +inf is forbidden

    def arrays(self) -> dict[str, Any]:
        """What another process needs to know."""
        names = ("cards", "offset", "unary", "scope_start", "scope", "begin", "tables")
        return {name: getattr(self, name) for name in names}

    def cost(self, labels: npt.NDArray[np.integer]) -> int | None:
        """The sum of all costs of a labelling; None where it has a forbidden entry."""
        own = self.unary[self.offset[:-1] + labels]
        if (own == FORBIDDEN).any():
            return None
        total = int(own.sum())
        if len(self.begin) > 1:
            here = np.asarray(labels, np.int64)[self.scope]
            steps = np.append(self.cards[self.scope], 1)
            place = np.zeros(len(self.begin) - 1, np.int64)
            order = np.diff(self.scope_start)
            for p in range(int(order.max())):
                inside = order > p
                at = self.scope_start[:-1][inside] + p
                place[inside] = place[inside] * steps[at] + here[at]
            costs = self.tables[self.begin[:-1] + place]
            if (costs == FORBIDDEN).any():
                return None
            total += int(costs.sum())
        return total

    def bound(self, graph: Graph, units: int) -> Certified:
        """The bound of the energy that a bound of the sum of all costs proves."""
        proven = certify(graph, self.base + units / self.scale, self.allowance, worst=False)
        if self.exact:
            return proven
        # what was cut off may be missing; it is no part of what was subtracted
        return Certified(float(proven), proven.error + self.count / self.scale)


def _relative(flat: Floats, banned: Mask, start: npt.NDArray[np.integer]) -> tuple[Floats, Floats, Floats]:
    """Rows flat[start[k]:start[k + 1]] less their least allowed entries (0 where all are forbidden), these, and the
    largest absolute value of an allowed entry of each row."""
    if len(start) < 2:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    lows = np.minimum.reduceat(np.where(banned, np.inf, flat), start[:-1])
    lows[~np.isfinite(lows)] = 0.0
    sizes = np.maximum.reduceat(np.where(banned, 0.0, np.abs(flat)), start[:-1])
    rest = np.where(banned, 0.0, flat - np.repeat(lows, np.diff(start)))
    return rest, lows, sizes


def whole_costs(graph: Graph, upper: float, cut: bool = True) -> Whole:
    """The graph in whole numbers; ``upper`` is the energy of a feasible labelling, inf where none is known."""
    g = graph.arrays
    tables, begin = all_tables(graph)
    no_label, no_tuple = _forbidden(graph)
    if not len(no_tuple):
        no_tuple = np.zeros(len(tables), np.bool_)
    unary, low_u, size_u = _relative(g.unary, no_label, g.offset)
    rest, low_t, size_t = _relative(tables, no_tuple, begin)
    base = math.fsum((graph.constant, *low_u.tolist(), *low_t.tolist()))
    size = abs(graph.constant) + float(size_u.sum() + size_t.sum())
    room = math.inf
    if cut and math.isfinite(upper):
        room = max(upper - base, 0.0) * AMPLE + 8.0 * UNIT * size
    too_much = (unary > room).any() or (rest > room).any()
    no_label, no_tuple = no_label | (unary > room), no_tuple | (rest > room)
    unary, rest = np.where(no_label, 0.0, unary), np.where(no_tuple, 0.0, rest)
    span = float(_largest(unary, g.offset).sum() + _largest(rest, begin).sum())
    count = graph.n + graph.m
    scale, exact = _scale(graph, unary, rest, span, min(span, room))
    rounding = np.rint if exact else np.floor
    own, costs = rounding(unary * scale).astype(np.int64), rounding(rest * scale).astype(np.int64)
    return Whole(
        cards=g.cards.astype(np.int64),
        offset=g.offset,
        unary=np.where(no_label, FORBIDDEN, own),
        scope_start=g.scope_start,
        scope=g.scope.astype(np.int64),
        begin=begin,
        tables=np.where(no_tuple, FORBIDDEN, costs),
        base=base,
        scale=scale,
        # each product, subtraction and sum is off by at most UNIT times the numbers that went into it
        allowance=UNIT * 8.0 * (size + span + abs(base)),
        count=count,
        exact=exact,
        complete=not too_much,
    )


def _largest(flat: Floats, start: npt.NDArray[np.integer]) -> Floats:
    return np.maximum.reduceat(flat, start[:-1]) if len(start) > 1 else np.zeros(0)


def _scale(graph: Graph, unary: Floats, tables: Floats, span: float, most: float) -> tuple[float, bool]:
    """Units per cost, and whether all costs are whole in these units; the best labelling costs at most ``most``."""
    if span == 0.0:
        return 1.0, True
    quantum = graph.quantum if graph.slack == 0.0 else 0.0
    known = quantum > 1e-300 and most / quantum < 2.0**BITS and span / quantum < 2.0**ROOM
    if known and all(bool((np.rint(costs / quantum) * quantum == costs).all()) for costs in (unary, tables)):
        return 1.0 / quantum, True
    bits = min(BITS - math.log2(most) if most > 0.0 else math.inf, ROOM - math.log2(span))
    return 2.0 ** min(math.floor(bits), 1000), False
