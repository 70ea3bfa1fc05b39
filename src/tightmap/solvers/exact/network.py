"""A graph as whole numbers.

The exact search works on integers: then cost can be moved between functions and back again without any rounding, and
"no labelling is better" means what it says.  Every table is taken relative to its own minimum and times a scale,
one over the quantum of the model where all costs are multiples of one, otherwise a power of two that leaves about sixty
bits to the largest sum; what is left below one is cut off.  Cutting lowers every cost by less than one unit, so

    E(x) >= base + (integer energy of x) / scale - allowance            for every labelling x,

where the allowance covers the rounding of the subtractions.  A cost that alone reaches the known upper bound is as bad
as infinity and is cut to ``top``: hard constraints need no other treatment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, Certified
from tightmap.factors.tabulate import all_tables
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context
from tightmap.runtime.pace import check_time
from tightmap.solvers.exact.kept import KeptLabels

Table = npt.NDArray[np.int64]
BITS = 60  # the largest sum of costs has at most so many bits
INTEGRAL = 2.0**50  # models whose costs reach further are not examined for being whole numbers
TIE = 1e-12  # where costs are not whole, labellings closer than this part of (upper bound - base) count as equal
FINE = 12  # where costs are multiples of a quantum, a unit is up to so many bits smaller than the quantum


@dataclass
class Choice:
    """How an eliminated variable follows from its neighbours: the best label for each of their labellings."""

    variable: int
    scope: tuple[int, ...]
    labels: npt.NDArray[np.uint8] | npt.NDArray[np.int32]
    packed: bool  # eight labels of a binary variable to the byte


@dataclass
class Network:
    """Integer costs: unaries, functions by scope (ascending variables), and a constant; all costs at least 0."""

    cards: list[int]
    unary: list[Table]
    functions: dict[tuple[int, ...], Table]
    scale: float
    base: float  # in energies: what the integers are counted from
    allowance: float  # in energies
    top: int  # as good as infinite
    upper: int  # only labellings below this are of interest
    grain: int  # the least by which a labelling has to be cheaper to be looked for
    whole: bool  # every cost of a labelling below top is a multiple of the grain
    count: int  # costs in an energy
    room: float  # in energies: what the first upper bound leaves above the base
    constant: int = 0  # in units, gathered by elimination
    choices: list[Choice] = field(default_factory=list)
    touching: list[set[tuple[int, ...]]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    kept: KeptLabels | None = None  # the labels of the graph that the labels here stand for; None: all

    def copy(self) -> Network:
        """The network as it is now, whatever is eliminated later; the tables are shared, none of them ever changes."""
        own = replace(self, unary=list(self.unary), functions=dict(self.functions), choices=list(self.choices))
        own.touching, own.gone = [set(mine) for mine in self.touching], set(self.gone)
        return own

    def bound(self, units: int) -> Certified:
        """The energy that so many units (constant left out) prove.

        Costs that reach the upper bound stand for all greater ones, and may be added up several times when tables are
        merged or eliminated: more than that no labelling was ever shown to cost.
        """
        value = self.base + min(self.constant + units, self.upper) / self.scale - self.allowance
        if self.whole:
            return Certified(value, UNIT * 4.0 * abs(value))
        # what was cut off below one unit of every cost, and what counted as a tie, may be missing as well
        return Certified(value, self.allowance + (self.count + self.grain) / self.scale)

    def add(self, scope: tuple[int, ...], table: Table) -> None:
        """Add a function with costs of at least 0; its minimum goes to the constant."""
        low = int(table.min())
        self.constant += low
        if low:
            table = table - low
        if len(scope) > 0 and table.any():
            self.put(scope, table)

    def put(self, scope: tuple[int, ...], table: Table) -> None:
        """Add a function whose least cost is 0."""
        if len(scope) == 1:
            self.unary[scope[0]] = np.minimum(self.unary[scope[0]] + table, self.top)
        elif scope in self.functions:
            self.functions[scope] = np.minimum(self.functions[scope] + table, self.top)
        else:
            self.functions[scope] = np.minimum(table, self.top)
            for i in scope:
                self.touching[i].add(scope)

    def inward(self, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Labels of the graph as labels here; None where one of them was left out."""
        return labels if self.kept is None else self.kept.inward(labels)

    def outward(self, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Labels of the graph from labels here."""
        return labels if self.kept is None else self.kept.outward(labels)

    def neighbours(self, i: int) -> set[int]:
        return {j for scope in self.touching[i] for j in scope} - {i}

    def complete(self, labels: npt.NDArray[np.int64]) -> None:
        """Fill in the labels of the eliminated variables, given those of the others."""
        for choice in reversed(self.choices):
            at = 0
            for j in choice.scope:
                at = at * self.cards[j] + int(labels[j])
            if choice.packed:
                labels[choice.variable] = (int(choice.labels[at >> 3]) >> (7 - (at & 7))) & 1
            else:
                labels[choice.variable] = int(choice.labels[at])


def table_entries(graph: Graph) -> npt.NDArray[np.float64]:
    """(m,) entries that each factor has as a table."""
    g = graph.arrays
    if graph.m == 0:
        return np.zeros(0)
    return np.exp2(np.add.reduceat(np.log2(g.cards[g.scope].astype(np.float64)), g.scope_start[:-1]))


def build_network(
    graph: Graph, upper_energy: float, context: Context | None = None, kept: KeptLabels | None = None
) -> Network:
    """Integer costs of a graph, of which only labellings below ``upper_energy`` matter; TimeUp after the time limit.

    With ``kept``, labels that are not kept are left out, and so are variables with one label from all functions.
    """
    g = graph.arrays
    cards = [int(c) for c in g.cards]
    unary, unary_lows = _relative(g.unary, g.offset)
    flat, begin = all_tables(graph)
    check_time(context)
    tables, table_lows = _relative(flat, begin)
    check_time(context)
    lows = [graph.constant, *unary_lows.tolist(), *table_lows.tolist()]
    size = abs(graph.constant) + 2.0 * (float(np.abs(unary_lows).sum()) + float(np.abs(table_lows).sum()))
    base = math.fsum(lows)
    room = max(upper_energy - base, 0.0)  # costs of at least this much cannot be part of a better labelling
    count = graph.n + graph.m + 2
    # the costs of the labelling that the bound comes from have to be seen, however the subtraction was rounded
    quantum = _quantum(graph, unary, tables, room * (1.0 + 1e-9) + 8.0 * UNIT * size)
    whole = quantum > 0.0 and count * (room / quantum + 2.0) < 2.0 ** (BITS - 1)
    if whole:
        # parts of a quantum let costs be shared among functions
        grain = 1 << min(FINE, int(BITS - math.log2(count * (room / quantum + 2.0))))
        scale, allowance = grain / quantum, 0.0
    else:
        span = max(room, 1e-6 * size) or 1.0  # no finer than double precision can tell
        scale = 2.0 ** min(math.floor(BITS - 1.0 - math.log2(count * span)), 1000)  # subnormal costs count as none
        grain = max(1, math.floor(TIE * room * scale))
        # subtracting a minimum rounds each entry (below ``room``) by an ulp of the larger of the two
        allowance = UNIT * (4.0 * size + 4.0 * count * room + 4.0 * abs(base)) + graph.slack
    upper = math.floor(room * scale) + 1
    top = upper + count * grain + 2

    def units(costs: npt.NDArray[np.float64]) -> Table:
        with np.errstate(over="ignore"):  # ordinary costs beside a room for subnormal ones: more than the top
            return np.floor(np.minimum(costs * scale, float(top))).astype(np.int64)

    check_time(context)
    own = np.split(units(unary), g.offset[1:-1])
    if kept is not None and kept.everything:
        kept = None
    if kept is not None:
        own = [table[mine] for table, mine in zip(own, kept.labels, strict=True)]
    left = cards if kept is None else kept.cards
    net = Network(left, own, {}, scale, base, allowance, top, upper, grain, whole, count, room, kept=kept)
    net.touching = [set() for _ in cards]
    costs = units(tables)
    scopes, first, place = g.scope.tolist(), g.scope_start.tolist(), begin.tolist()
    some = np.maximum.reduceat(costs, begin[:-1]) > 0 if graph.m else np.zeros(0, np.bool_)
    for f in np.flatnonzero(some).tolist():
        if f % 512 == 0:
            check_time(context)
        scope = scopes[first[f] : first[f + 1]]
        table = costs[place[f] : place[f + 1]].reshape([cards[i] for i in scope])
        if sorted(scope) != scope:
            ascending = sorted(range(len(scope)), key=lambda p: scope[p])
            scope, table = sorted(scope), np.ascontiguousarray(table.transpose(ascending))
        if kept is not None and any(left[i] < cards[i] for i in scope):
            table = table[np.ix_(*[kept.labels[i] for i in scope])]
            free = [i for i in scope if left[i] > 1]
            net.add(tuple(free), np.ascontiguousarray(table.reshape([left[i] for i in free])))
        else:
            net.put(tuple(scope), table)
    return net


def _relative(
    flat: npt.NDArray[np.float64], start: npt.NDArray[np.integer]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows flat[start[k]:start[k + 1]] less their minima, and these."""
    if len(start) < 2:
        return np.zeros(0), np.zeros(0)
    lows = np.minimum.reduceat(flat, start[:-1])
    return flat - np.repeat(lows, np.diff(start)), lows


def _quantum(graph: Graph, unary: npt.NDArray[Any], tables: npt.NDArray[Any], room: float) -> float:
    """A number of which all costs that matter are exact multiples, 0.0 when none is known."""
    if graph.slack > 0.0:
        return 0.0
    if graph.quantum > 0.0:
        return graph.quantum
    if not (float(graph.constant).is_integer() and room < INTEGRAL):
        return 0.0
    return 1.0 if _integral(unary, room) and _integral(tables, room) else 0.0


def _integral(table: npt.NDArray[np.float64], room: float) -> bool:
    kept = table[table <= room]
    return bool((kept == np.rint(kept)).all())


def components(net: Network) -> list[list[int]]:
    """Connected sets of the variables that are left, largest first, each in the order that cost is sent along.

    Any order is sound.  Where there are wide functions it is that of the model backwards: on the two diagnosis models
    at hand the root bound was higher and the search at least four times shorter than with few neighbours first.
    Otherwise variables with far fewer labels first (sites before the shops that choose among them: each of many shops
    can give a little to a site, but a site gives all it has to one shop), then few neighbours first; among models whose
    variables have about as many labels no order was clearly better than another.
    """
    seen = set(net.gone)
    out = []
    for i in range(len(net.cards)):
        if i in seen:
            continue
        seen.add(i)
        part, stack = [], [i]
        while stack:
            j = stack.pop()
            part.append(j)
            fresh = net.neighbours(j) - seen
            seen |= fresh
            stack.extend(sorted(fresh))
        if any(len(scope) > 2 for j in part for scope in net.touching[j]):
            out.append(sorted(part, reverse=True))
        else:
            out.append(sorted(part, key=lambda j: ((net.cards[j].bit_length() - 1) // 3, len(net.neighbours(j)), j)))
    return sorted(out, key=len, reverse=True)
