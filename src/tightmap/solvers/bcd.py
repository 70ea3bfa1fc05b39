"""Block coordinate descent on the tight relaxation (paper §3, Algorithm 1), also known as ICM on labellings.

    minimise E(x) over x_i in the simplex of variable i, one variable i after the other                     (eq. 11)

    c_i = theta_i + sum over the factors of i, contracted with the vectors x_j of their other variables     (eq. 14)
    x_i <- e_s,   s = argmin c_i;   a discrete x_i that is just as good stays                               (eq. 15)

E = c_i' x_i + constant is linear in every x_i, so the exact minimiser over one variable is a vertex: the label with the
smallest cost given the others.  From a relaxed point the first sweep makes every variable discrete without ever raising
the energy, which is why every relaxed method of this library rounds with it; from then on labels change only on strict
descent, so the method stops, at a labelling that no change of a single variable improves (Proposition 1).

``blocks`` widens the neighbourhood: rows, columns or any forests of a pairwise or higher-order model are minimised
exactly by dynamic programming given the rest (moves/forests.py).  Still monotone, much stronger on grids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.energy.energies import energy, unary_argmin
from tightmap.errors import OptionError
from tightmap.factors.kernels import workspace
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Incumbent, Labels, Vector
from tightmap.moves.coordinate_descent import descend, descend_incremental, initial_costs, round_relaxed
from tightmap.moves.forests import Forests, forest_blocks, sweep_forests
from tightmap.moves.many_starts import descend_from_each
from tightmap.runtime.pace import SLICE, time_left
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities

CHEAP = 2_000_000  # there are more than four random starts as long as all of them visit at most so many labels
TOGETHER = 100_000  # random starts that are made in one step visit about so many labels in a sweep over all of them
BUSY = 12.0  # above so many factors per variable, costs are kept and updated instead of computed at every visit


@dataclass
class State:
    graph: Graph
    context: Context
    rng: np.random.Generator
    incumbent: Incumbent
    restarts: int  # random starts that are still to be drawn
    together: int  # so many of them in one step; 0: a step is a sweep
    order: np.ndarray
    forests: Forests | None
    keep_costs: bool
    labels: Labels
    dirty: np.ndarray
    iterations: int = 0
    cost: Vector | None = None
    position: int = 0
    changed: int = 0
    reached: float = float("inf")  # energy after the last step of another kind than plain sweeps
    drawn: npt.NDArray[np.int64] | None = None  # the starts of this step
    begun: int = 0  # how many of them


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
    capabilities: ClassVar[Capabilities] = Capabilities(random=True)

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
        effort = len(graph.arrays.unary) + 4 * len(graph.arrays.scope)
        restarts = min(256, max(4, CHEAP // effort)) if self.restarts is None else self.restarts
        together = 0 if keep or forests is not None else TOGETHER // effort
        first = self._first(graph, init, order, context)
        incumbent, dirty = context.incumbent_of(graph), np.zeros(0, np.uint8)
        state = State(graph, context, rng, incumbent, restarts, together, order, forests, keep, first, dirty)
        self._begin(state, first)
        return state

    def _first(self, graph: Graph, init: Init, order: np.ndarray, context: Context) -> Labels:
        if init.relaxed is None:
            return (init.labels if init.labels is not None else unary_argmin(graph)).copy()
        labels = np.zeros(graph.n, dtype=np.int64)
        scratch = workspace(graph.arrays)
        round_relaxed(graph.arrays, init.relaxed.copy(), order, labels, scratch, time_left(context))
        return labels

    def _draw(self, state: State, count: int) -> npt.NDArray[np.int64]:
        state.restarts -= count
        graph = state.graph  # one bound for all draws the same numbers as one for each, three times as fast
        bounds = graph.max_labels if graph.uniform else graph.arrays.cards.astype(np.int64)
        return state.rng.integers(0, bounds, (count, graph.n))

    def _next_start(self, state: State) -> bool:
        """The next random start, or several at once; False when there are no more."""
        if state.restarts <= 0:
            return False
        if state.together:
            state.drawn, state.begun = self._draw(state, min(state.together, state.restarts)), 1
        self._begin(state, self._draw(state, 1)[0] if state.drawn is None else state.drawn[0].copy())
        return True

    def _begin(self, state: State, labels: Labels) -> None:
        state.labels = labels
        state.dirty = np.ones(state.graph.n, dtype=np.uint8)
        state.position, state.changed, state.reached = 0, 0, float("inf")
        if state.keep_costs:
            state.cost = np.empty(len(state.graph.arrays.unary))
            initial_costs(state.graph.arrays, labels, state.cost)

    def _step_from_each(self, state: State, drawn: npt.NDArray[np.int64]) -> Progress:
        """From all starts that were drawn, or as many sweeps as there are left."""
        graph, incumbent = state.graph, state.incumbent  # which has a labelling: the first start goes sweep by sweep
        best, before = incumbent.wide_labels, incumbent.energy - graph.constant
        most = int(min(state.context.iterations_left(state.iterations), 2**62))
        state.begun, sweeps, least, ended = descend_from_each(
            graph.arrays, drawn, state.begun, state.labels, state.dirty, state.order, best, before, most,
            time_left(state.context),
        )  # fmt: skip
        state.iterations += sweeps
        better = least < before and incumbent.offer(best)
        done = ended and not self._next_start(state)
        return Progress(best if better else None, iterations=sweeps, done=done, energy=incumbent.energy)

    def step(self, state: State) -> Progress:
        """One sweep, or the part of it that fits between two looks at the clock; of small models many starts."""
        if state.drawn is not None:
            return self._step_from_each(state, state.drawn)
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
        if state.cost is not None and state.changed == 0:
            # Kept costs are only good to TIE: the last differences are found with fresh ones
            state.dirty[:] = 1
            state.changed, _ = descend(*walk[:4], 0, graph.n, time_left(state.context))
            if state.changed and self._really_lower(state):
                initial_costs(g, state.labels, state.cost)
        if state.forests is not None and state.changed == 0:
            state.changed = sweep_forests(graph, state.forests, state.labels, state.context)
            state.dirty[:] = 1
            if state.changed and self._really_lower(state) and state.cost is not None:
                initial_costs(g, state.labels, state.cost)
        state.position = 0
        state.iterations += 1
        settled = state.changed == 0
        state.changed = 0
        if not settled:
            return Progress()
        better = state.labels.copy() if state.incumbent.offer(state.labels) else None
        return Progress(labels=better, done=not self._next_start(state), energy=state.incumbent.energy)

    def _really_lower(self, state: State) -> bool:
        """Whether the labels are better than when this was last asked; if not, the descent from this start is over.

        Sweeps with kept costs, with fresh ones and over forests add the same costs up in different orders.  Beside hard
        constraints their roundings may differ by more than two labellings do, and each undoes what the other did.
        """
        value = energy(state.graph, state.labels)
        if not value < state.reached:
            state.changed = 0
        state.reached = min(value, state.reached)
        return state.changed > 0

    def finish(self, state: State) -> Final:
        state.incumbent.offer(state.labels)  # the descent may have been interrupted
        return Final(labels=state.incumbent.wide_labels)
