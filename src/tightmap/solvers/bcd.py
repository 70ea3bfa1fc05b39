"""Block coordinate descent on the tight relaxation (paper §3, Algorithm 1), also known as ICM on labellings.

    minimise E(x) over x_i in the simplex of variable i, one variable at a time.

E is linear in every x_i, so the exact minimiser over one variable is a vertex: the label with the smallest cost given
the others.  From a relaxed point the first sweep makes every variable discrete without ever raising the energy, which
is why every relaxed method of this library rounds with it; from then on labels change only on strict descent, so the
method stops, at a labelling that no change of a single variable improves (Proposition 1).

``blocks`` widens the neighbourhood: rows, columns or any forests of a pairwise or higher-order model are minimised
exactly by dynamic programming given the rest (solvers/forest.py).  Still monotone, much stronger on grids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap import clock
from tightmap.compiled import compiled, lean
from tightmap.energy import energy, unary_argmin
from tightmap.errors import OptionError
from tightmap.factors.kernels import add_slice, contract, load_unary, workspace
from tightmap.graph import Graph
from tightmap.pace import LOOK, SLICE, end_of, late, time_left
from tightmap.solvers.base import Context, Final, Init, Labels, Progress, Solver, Vector
from tightmap.solvers.forest import Forests, forest_blocks, sweep_forests

CHEAP = 2_000_000  # label visits that the starts beyond the fourth may cost
TIE = 1e-12  # relative: a cost that differs by less than rounding is not a descent
AS_NUMBERED = np.zeros(0, np.int64)  # the order of visits that needs no list
BUSY = 12.0  # factors per variable above which costs are kept and updated instead of recomputed


@lean
def _push_neighbours(g, i, dirty):
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        f = int(g.adj_factor[a])
        for p in range(g.scope_start[f], g.scope_start[f + 1]):
            dirty[g.scope[p]] = 1
    dirty[i] = 0


@compiled
def descend(g, labels, dirty, order, begin, end, left):
    """Visit order[begin:end] (an empty order: as numbered), skipping clean variables.

    Returns how many changed, and where it is: at the end, or where time was up.
    """
    until = end_of(left)
    changed = 0
    work = 0
    cost = np.empty(max(g.cards.max(), 1)) if len(g.cards) else np.empty(1)
    for at in range(begin, end):
        i = order[at] if len(order) else at
        if dirty[i] == 0:
            continue
        c = g.cards[i]
        work += 100 + 4 * c * (1 + g.adj_start[i + 1] - g.adj_start[i])
        if work > LOOK:
            work = 0
            if late(until):
                return changed, at
        dirty[i] = 0
        o = g.offset[i]
        shared = 0.0  # what every label pays alike; Potts terms then touch one entry only
        for s in range(c):
            cost[s] = g.unary[o + s]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            p = int(g.adj_pos[a])
            if g.kind[f] == 1:
                l = labels[g.scope[g.scope_start[f] + 1 - p]]
                shared += abs(g.weight[f])
                if l < c:
                    cost[l] -= g.weight[f]
            else:
                add_slice(g, f, p, labels, cost, 1.0)
        best = 0
        for s in range(1, c):
            if cost[s] < cost[best]:
                best = s
        now = labels[i]
        if cost[best] < cost[now] - TIE * (abs(cost[now]) + shared):
            labels[i] = best
            changed += 1
            _push_neighbours(g, i, dirty)
    return changed, end


@lean
def initial_costs(g, labels, cost):
    """cost[offset[i] + s]: energy of label s at i given the labels of the others."""
    for i in range(len(g.cards)):
        row = cost[g.offset[i] : g.offset[i + 1]]
        load_unary(g, i, row)
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            add_slice(g, int(g.adj_factor[a]), int(g.adj_pos[a]), labels, row, 1.0)


@lean
def descend_incremental(g, labels, dirty, order, begin, end, cost, left):
    """As descend, with the costs of all variables kept up to date: a flip touches only the factors around it."""
    until = end_of(left)
    changed = 0
    work = 0
    for at in range(begin, end):
        i = order[at]
        if dirty[i] == 0:
            continue
        work += 20 + g.cards[i]
        if work > LOOK:
            work = 0
            if late(until):
                return changed, at
        dirty[i] = 0
        o = g.offset[i]
        best = 0
        for s in range(1, g.cards[i]):
            if cost[o + s] < cost[o + best]:
                best = s
        now = labels[i]
        if cost[o + best] < cost[o + now] - TIE * abs(cost[o + now]):
            changed += 1
            work += 100 * g.cards[i] * (1 + g.adj_start[i + 1] - g.adj_start[i])
            for sign in (-1.0, 1.0):
                for a in range(g.adj_start[i], g.adj_start[i + 1]):
                    f = int(g.adj_factor[a])
                    first = g.scope_start[f]
                    for p in range(first, g.scope_start[f + 1]):
                        j = g.scope[p]
                        if j != i:
                            add_slice(g, f, p - first, labels, cost[g.offset[j] : g.offset[j + 1]], sign)
                labels[i] = best
            _push_neighbours(g, i, dirty)
    return changed, end


@compiled
def round_relaxed(g, x, order, labels, scratch, left):
    """One sweep from relaxed vectors: every variable takes its best label given the others' current vectors.

    x is changed in place to one-hot vectors; a variable that is one-hot already keeps its label on ties.  When time is
    up, the variables that are left take the label of their largest entry.
    """
    until = end_of(left)
    hurried = False
    work = np.empty(scratch)
    start = np.empty(128, np.int64)
    cost = np.empty(max(g.cards.max(), 1))
    for i in order:
        c = g.cards[i]
        o = g.offset[i]
        now = -1
        hurried = hurried or late(until)
        for s in range(c):
            cost[s] = -x[o + s] if hurried else g.unary[o + s]
            if x[o + s] == 1.0:
                now = s
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if hurried:
                break
            f = int(g.adj_factor[a])
            first = g.scope_start[f]
            for p in range(first, g.scope_start[f + 1]):
                start[p - first] = g.offset[g.scope[p]]
            contract(g, f, int(g.adj_pos[a]), x, start, cost, work)
        best = 0
        for s in range(1, c):
            if cost[s] < cost[best]:
                best = s
        if now >= 0 and cost[now] <= cost[best] + TIE * abs(cost[best]):
            best = now
        for s in range(c):
            x[o + s] = 0.0
        x[o + best] = 1.0
        labels[i] = best


def local_minimum(graph: Graph, labels: Labels, context: Context | None = None, max_sweeps: int = 1000) -> Labels:
    """The labelling that BCD reaches from a labelling (a new array); what other methods polish with.

    With a context it ends, wherever it is, when the time limit has passed.
    """
    out = np.array(labels, dtype=np.int64)
    settle_all(graph, out, np.ones(graph.n, dtype=np.uint8), context, max_sweeps)
    return out


def descend_within(graph: Graph, labels: Labels, seconds: float) -> None:
    """Descend in place to a local minimum, or as far as so many seconds allow."""
    dirty = np.ones(graph.n, dtype=np.uint8)
    end = clock.now() + seconds
    for _ in range(1000):
        changed, at = descend(graph.arrays, labels, dirty, AS_NUMBERED, 0, graph.n, end - clock.now())
        if changed == 0 or at < graph.n:
            return


def settle_all(
    graph: Graph, labels: Labels, dirty: np.ndarray, context: Context | None = None, max_sweeps: int = 1000
) -> None:
    """Descend in place, from the variables that are marked dirty, until nothing changes or the time limit is over."""
    for _ in range(max_sweeps):
        changed, at = descend(graph.arrays, labels, dirty, AS_NUMBERED, 0, graph.n, time_left(context))
        if changed == 0 or at < graph.n:
            break


def round_and_descend(graph: Graph, relaxed: Vector, context: Context | None = None) -> Labels:
    """Round relaxed vectors by one sweep of Algorithm 1, then descend to a local minimum; in haste after the limit."""
    labels = np.zeros(graph.n, dtype=np.int64)
    x = np.array(relaxed, dtype=np.float64)
    round_relaxed(graph.arrays, x, np.arange(graph.n), labels, workspace(graph.arrays), time_left(context))
    return local_minimum(graph, labels, context)


@dataclass
class State:
    graph: Graph
    context: Context
    starts: Iterator[Labels]
    order: np.ndarray
    forests: Forests | None
    keep_costs: bool
    labels: Labels
    dirty: np.ndarray
    cost: Vector | None = None
    position: int = 0
    changed: int = 0
    best: Labels | None = None
    best_energy: float = float("inf")


@dataclass(frozen=True)
class BCD(Solver):
    """Options of block coordinate descent.

    restarts     random starts after the first one; the best result is kept.  None: 4, as in the paper, and up to 256
                 where a start is cheap
    order        "index" or "random": the order of visits within a sweep
    blocks       "nodes", or "rows", "columns", "lines" (rows, then columns) of a grid, or "forests" of any graph
    incremental  keep the costs of all variables up to date; None decides by the number of factors per variable
    """

    restarts: int | None = None
    order: str = "index"
    blocks: str = "nodes"
    incremental: bool | None = None

    name: ClassVar[str] = "bcd"
    summary: ClassVar[str] = "block coordinate descent (ICM), with random restarts; fast local search for any model"

    def __post_init__(self) -> None:
        if self.restarts is not None and self.restarts < 0:
            raise OptionError(f"bcd: restarts must be at least 0, got {self.restarts}")
        if self.order not in ("index", "random"):
            raise OptionError(f"bcd: order must be 'index' or 'random', got {self.order!r}")
        if self.blocks not in ("nodes", "rows", "columns", "lines", "forests"):
            raise OptionError(
                f"bcd: blocks must be 'nodes', 'rows', 'columns', 'lines' or 'forests', got {self.blocks!r}"
            )

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        rng = context.rng()
        order = np.arange(graph.n)
        if self.order == "random":
            rng.shuffle(order)
        forests = None if self.blocks == "nodes" else forest_blocks(graph, self.blocks)
        busy = len(graph.arrays.scope) > BUSY * graph.n
        keep = busy if self.incremental is None else self.incremental
        starts = self._starts(graph, init, order, rng, context)
        state = State(graph, context, starts, order, forests, keep, np.zeros(0, np.int64), np.zeros(0, np.uint8))
        self._next_start(state)
        return state

    def _starts(
        self, graph: Graph, init: Init, order: np.ndarray, rng: np.random.Generator, context: Context
    ) -> Iterator[Labels]:
        if init.relaxed is not None:
            labels = np.zeros(graph.n, dtype=np.int64)
            scratch = workspace(graph.arrays)
            round_relaxed(graph.arrays, init.relaxed.copy(), order, labels, scratch, time_left(context))
            yield labels
        else:
            yield (init.labels if init.labels is not None else unary_argmin(graph)).copy()
        cards = graph.arrays.cards.astype(np.int64)
        budget = CHEAP // (len(graph.arrays.unary) + 4 * len(graph.arrays.scope))
        for _ in range(min(256, max(4, budget)) if self.restarts is None else self.restarts):
            yield rng.integers(0, cards)

    def _next_start(self, state: State) -> bool:
        labels = next(state.starts, None)
        if labels is None:
            return False
        state.labels = labels
        state.dirty = np.ones(state.graph.n, dtype=np.uint8)
        state.position, state.changed = 0, 0
        if state.keep_costs:
            state.cost = np.empty(len(state.graph.arrays.unary))
            initial_costs(state.graph.arrays, labels, state.cost)
        return True

    def step(self, state: State) -> Progress:
        """One sweep, or the part of it that fits between two looks at the clock."""
        graph = state.graph
        g = graph.arrays
        left = time_left(state.context, SLICE)
        walk = (g, state.labels, state.dirty, state.order, state.position, graph.n)
        if state.cost is None:
            changed, state.position = descend(*walk, left)
        else:
            changed, state.position = descend_incremental(*walk, state.cost, left)
        state.changed += changed
        if state.position < graph.n:
            return Progress(iterations=0)
        if state.forests is not None and state.changed == 0:
            state.changed = sweep_forests(graph, state.forests, state.labels, state.context)
            state.dirty[:] = 1
            if state.cost is not None:
                initial_costs(g, state.labels, state.cost)
        state.position = 0
        settled = state.changed == 0
        state.changed = 0
        if not settled:
            return Progress()
        value = energy(graph, state.labels)
        better = value < state.best_energy
        if better:
            state.best, state.best_energy = state.labels.copy(), value
        return Progress(labels=state.best if better else None, done=not self._next_start(state))

    def finish(self, state: State) -> Final:
        candidates = [c for c in (state.best, state.labels) if c is not None and len(c) == state.graph.n]
        best = min(candidates, key=lambda c: energy(state.graph, c)) if candidates else None
        return Final(labels=best, state=None)
