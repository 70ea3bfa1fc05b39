"""TRW-S: sequential tree-reweighted message passing for pairwise models (Kolmogorov 2006).

    maximise over messages m   sum_i min_s [theta_i + sum_j m_{j->i}](s)
                               + sum_ij min_(s, t) [theta_ij(s, t) - m_{j->i}(s) - m_{i->j}(t)],

a lower bound of the energy whatever the messages are, the dual of the linear relaxation over the local polytope.  The
nodes are visited in order and back again.  A visit of node i gathers the messages of all neighbours, shares the sum out
evenly over the monotone chains that pass through the node, and sends the min-marginals on, to the later neighbours j in
a forward pass and to the earlier ones in a backward pass:

    total = theta_i + sum_j m_{j->i},     gamma_i = 1 / max(number of later, number of earlier neighbours)
    m_{i->j}(t) <- min_s [gamma_i total(s) - m_{j->i}(s) + theta_ij(s, t)],   less its minimum over t

The bound never falls, is at most that of the local polytope, and becomes exact on forests (on chains after one
iteration).  Labellings are rounded inside both passes,

    x_i = argmin_s theta_i(s) + sum over labelled neighbours of theta_ij(s, x_j) + sum over the others of m_{j->i}(s),

and the best one of every few iterations is polished by coordinate descent.

Two engines share the work:
  * 4-connected grids with one truncated linear, quadratic or Potts table: eight rows at a time, float32 or float64
    messages, several threads (grid.py); the bound is certified by a float64 pass (grid_bound.py);
  * everything else: float64 messages on the factor lists (general.py), where every backward pass is a certificate.
Neither the labels nor the bound depend on the number of threads.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, certify
from tightmap.energy.duals import Dual, given_messages
from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph.graph import FloatArray, Graph, Kind
from tightmap.graph.stencil import Stencil, find_stencil
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.orders import ORDERS, node_order
from tightmap.runtime.pace import EVER, TimeUp, time_left
from tightmap.runtime.simd import LANES
from tightmap.runtime.sync import Crew
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.trws import general
from tightmap.solvers.trws.grid import (
    Strips,
    build_strips,
    from_strips,
    images_of_messages,
    set_messages,
    sweep,
)
from tightmap.solvers.trws.grid_bound import bound_sweep

BLOCK = 16  # iterations: after so many the bound is certified, the best rounding polished and convergence checked
RETRY = 4  # every so many blocks the best rounding is polished even if earlier ones were better
SPAN = 2  # the method has converged when the bound gains next to nothing in so many blocks
STEP = 1_000_000  # about so many message entries are computed in one step
DOUBLE_BELOW = 1 << 20  # a grid with at most so many message entries keeps them in float64
WORTH_THREADS = 1 << 17  # models with fewer message entries run on one thread
WIDEST = 16  # quadratic costs that rise over more differences than this use the parabolas of the general engine


class GeneralEngine:
    """Any pairwise model."""

    def __init__(self, graph: Graph, order: npt.NDArray[np.int64], threads: int = 1) -> None:
        self.graph, self.order = graph, order
        self.sweeper = general.build_sweeper(graph, order)
        self.entries = len(self.sweeper.messages)
        worth = min(threads, general.blocks(self.sweeper) // 4) if self.entries >= WORTH_THREADS else 1
        self.crew = Crew(worth)
        self.labels = np.zeros(graph.n, dtype=np.int64)
        self.best = self.labels.copy()
        self.best_energy = math.inf  # of the best rounding since this was last set to inf, without the constant

    def iterate(self, count: int, rounding: bool, certify: bool, left: float = EVER) -> tuple[float, float]:
        """Iterations; returns the bound without the constant, and the error that rounding can have made in it.

        TimeUp after ``left`` seconds, with the messages as they were before.
        """
        low, size = -math.inf, 0.0
        until = time.perf_counter() + left
        before = self.sweeper.messages.copy() if left < EVER else None
        for k in range(2 * count):
            left = until - time.perf_counter() if before is not None else EVER
            try:
                energy, low, size = general.half_sweep(
                    self.graph, self.sweeper, self.crew, k % 2 == 0, self.labels, rounding, left
                )
            except TimeUp:
                if before is not None:
                    self.sweeper.messages[:] = before
                raise
            if rounding and energy < self.best_energy:
                self.best_energy = energy
                self.best[:] = self.labels
        return low, UNIT * (size + 4.0 * (self.graph.n + self.graph.m) * abs(low))

    def accept(self, messages: FloatArray) -> None:
        general.collapse_messages(self.graph, self.sweeper, messages)

    def take_over(self, earlier: GeneralEngine) -> bool:
        """Go on from the messages of an engine on the same structure; False where it is not the same."""
        if not (same_structure(earlier.graph, self.graph) and np.array_equal(earlier.order, self.order)):
            return False
        self.sweeper.messages[:] = earlier.sweeper.messages
        return True

    def expand(self) -> FloatArray:
        return general.expanded_messages(self.graph, self.sweeper)


class GridEngine:
    """A 4-connected grid with one table of differences."""

    def __init__(self, graph: Graph, stencil: Stencil, threads: int, dtype: npt.DTypeLike) -> None:
        self.graph = graph
        # the smallest unary of every pixel is zero: whatever the costs are counted from, float32 sees the differences
        unary = graph.arrays.unary.reshape(graph.n, -1)
        lowest = unary.min(axis=1, keepdims=True)
        self.shift = math.fsum(lowest[:, 0])
        self.grid: Strips = build_strips(stencil, unary - lowest, dtype)
        self.entries = graph.m * stencil.labels
        self.profile = np.concatenate(([stencil.profile.max()], stencil.profile[1:])).astype(np.float64)
        self.crew = Crew(min(threads, self.grid.strips // 2) if self.entries >= WORTH_THREADS else 1)
        self.energies = np.zeros(self.grid.strips * LANES)
        self.best = np.zeros(graph.n, dtype=np.int64)
        self.best_energy = math.inf

    def _pass(self, forward: bool, rounding: bool) -> None:
        self.energies[:] = 0.0
        self.crew.run(sweep, self.grid.strips, self.grid, forward, rounding, self.energies)
        if rounding:
            energy = self.shift + math.fsum(self.energies)
            if energy < self.best_energy:
                chosen = from_strips(self.grid.chosen[LANES:-LANES], self.grid.height, self.grid.width)
                self.best, self.best_energy = chosen.astype(np.int64).reshape(-1), energy

    def iterate(self, count: int, rounding: bool, certify: bool, left: float = EVER) -> tuple[float, float]:
        """As GeneralEngine.iterate, but never too late: an iteration takes a fraction of a second at most.

        The bound costs a pass more, so it is -inf unless asked for.
        """
        bound = (-math.inf, 0.0)
        for k in range(count):
            self._pass(True, rounding)
            if certify and k == count - 1:
                bound = self._bound()
            self._pass(False, rounding)
        return bound

    def _bound(self) -> tuple[float, float]:
        grid = self.grid
        sums = np.zeros((grid.strips, 2))
        rows = np.zeros((self.crew.threads + 1, (grid.steps + LANES - 1) * grid.labels))
        self.crew.run(bound_sweep, grid.strips, grid, self.graph.arrays.unary, self.profile, sums, rows)
        low, size = math.fsum(sums[:, 0]), math.fsum(sums[:, 1])
        # roundings per node (grid_bound.py), more for messages by two sweeps over all labels, and the sum over a strip
        operations = 64.0 + 4.0 * grid.labels * (grid.window < 0) + 24.0 + grid.steps
        return low, UNIT * operations * size

    def take_over(self, earlier: GridEngine) -> bool:
        """As GeneralEngine.take_over; the precision has to be the same too."""
        mine, other = self.grid, earlier.grid
        same = (mine.height, mine.width, mine.right.dtype) == (other.height, other.width, other.right.dtype)
        if not same or not same_structure(earlier.graph, self.graph):
            return False
        for here, there in ((mine.right, other.right), (mine.down, other.down), (mine.across, other.across)):
            here[:] = there
        return True

    def _twin(self) -> GeneralEngine:
        return GeneralEngine(self.graph, np.arange(self.graph.n, dtype=np.int64))

    def accept(self, messages: FloatArray) -> None:
        twin = self._twin()
        twin.accept(messages)
        shape = (self.grid.height * self.grid.width, self.grid.labels)
        images = np.zeros((2, *shape))
        ends = self.graph.edges.astype(np.int64)
        right = ends[:, 1] - ends[:, 0] == 1
        slots = twin.sweeper.messages.reshape(-1, self.grid.labels)
        images[0, ends[right, 0]] = slots[right]
        images[1, ends[~right, 0]] = slots[~right]
        set_messages(self.grid, *images.reshape(2, self.grid.height, self.grid.width, self.grid.labels))

    def expand(self) -> FloatArray:
        twin = self._twin()
        ends = self.graph.edges.astype(np.int64)
        right = ends[:, 1] - ends[:, 0] == 1
        images = [image.reshape(-1, self.grid.labels) for image in images_of_messages(self.grid)]
        slots = twin.sweeper.messages.reshape(-1, self.grid.labels)
        slots[right] = images[0][ends[right, 0]]
        slots[~right] = images[1][ends[~right, 0]]
        return twin.expand()


def same_structure(a: Graph, b: Graph) -> bool:
    """The same variables and factors, whatever they cost."""
    names = ("cards", "kind", "scope_start", "scope")
    pairs = [(getattr(a.arrays, name), getattr(b.arrays, name)) for name in names]
    return all(one is other or np.array_equal(one, other) for one, other in pairs)


def _same_method(init: Init, engine: GridEngine | GeneralEngine) -> bool:
    """Go on from the messages of an earlier run of this method as they are; False where there are none that fit."""
    earlier = init.state.native if isinstance(init.state, Dual) else None
    if isinstance(engine, GridEngine):
        return isinstance(earlier, GridEngine) and engine.take_over(earlier)
    return isinstance(earlier, GeneralEngine) and engine.take_over(earlier)


def grid_stencil(graph: Graph) -> Stencil | None:
    """The stencil of a model that the grid engine takes, or None."""
    stencil = find_stencil(graph, max_displacements=2, max_radius=1)
    if stencil is None or not {tuple(d) for d in stencil.displacements.tolist()} <= {(0, 1), (1, 0)}:
        return None
    height, width = stencil.height, stencil.width
    if width == 1 or graph.arrays.weight.min() < 0.0 or stencil.profile.max() <= 0.0:
        return None
    if stencil.kind == Kind.QUADRATIC and (stencil.profile < stencil.profile.max()).sum() > WIDEST + 1:
        return None
    edges = height * (width - 1) + (height - 1) * width
    padded = -(-height // LANES) * LANES * (width + LANES - 1)
    return stencil if graph.m >= 0.9 * edges and padded <= 1.5 * height * width else None


@dataclass
class State:
    graph: Graph
    context: Context
    engine: GridEngine | GeneralEngine
    iteration: int = 0
    history: list[float] = field(default_factory=list)  # bounds at the ends of blocks
    record: float = math.inf  # lowest energy of all roundings, before they are polished
    bound: float = -math.inf
    certified_at: int = 0


@dataclass(frozen=True)
class TRWS(Solver):
    """Options of TRW-S.

    order      of the variables: "index" (right for images), "greedy" or "rcm" (for numberings without meaning)
    rounding   a labelling is rounded in both passes of every so many iterations; 0: only when a block of 16 ends
    polish     coordinate descent from the best rounding of every block of iterations
    precision  of the messages on 4-connected grids: "single", "double", or "auto" (single for large ones)
    tolerance  stop when 32 iterations raise the bound by less than this, relative to the bound
    """

    order: str = "index"
    rounding: int = 1
    polish: bool = True
    precision: str = "auto"
    tolerance: float = 1e-9

    name: ClassVar[str] = "trws"
    summary: ClassVar[str] = "sequential tree-reweighted message passing for pairwise models, with certified bounds"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True, largest_order=2)

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise OptionError(f"trws: order must be one of {', '.join(ORDERS)}, got {self.order!r}")
        if self.precision not in ("auto", "single", "double"):
            raise OptionError(f"trws: precision must be 'auto', 'single' or 'double', got {self.precision!r}")
        if self.rounding < 0:
            raise OptionError(f"trws: rounding must be at least 0, got {self.rounding}")
        if not self.tolerance >= 0.0:
            raise OptionError(f"trws: tolerance must be at least 0, got {self.tolerance}")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        stencil = grid_stencil(graph) if self.order == "index" else None
        engine: GridEngine | GeneralEngine
        if stencil is None:
            engine = GeneralEngine(graph, node_order(graph, self.order), context.threads)
        else:
            small = graph.m * stencil.labels <= DOUBLE_BELOW
            double = self.precision == "double" or (self.precision == "auto" and small)
            engine = GridEngine(graph, stencil, context.threads, np.float64 if double else np.float32)
        if not _same_method(init, engine):
            messages = given_messages(init, graph)
            if messages is not None:
                engine.accept(messages)
        return State(graph, context, engine)

    def step(self, state: State) -> Progress:
        """Some iterations, at most to the end of a block, where the best rounding is polished."""
        engine, graph = state.engine, state.graph
        done = state.iteration % BLOCK
        count = min(BLOCK - done, max(1, STEP // max(1, engine.entries)))
        count = int(max(1, min(count, state.context.iterations_left(state.iteration))))
        first = state.iteration < BLOCK  # certify more often in the beginning: easy models end there
        ends = done + count == BLOCK
        rounding = (self.rounding > 0 and state.iteration % self.rounding < count) or (self.rounding == 0 and ends)
        certify_now = ends or (first and (done + count).bit_length() > done.bit_length())
        try:
            raw, error = engine.iterate(count, rounding, certify_now, time_left(state.context))
        except TimeUp:
            return Progress(iterations=0, pending=True)
        state.iteration += count
        progress = Progress(iterations=count, pending=not ends)
        if raw > -math.inf:
            state.bound = certify(graph, graph.constant + raw, error)
            progress.bound = state.bound
            state.certified_at = state.iteration
        if ends or (rounding and certify_now):
            progress.labels = self._candidate(state)
        if ends:
            state.history.append(graph.constant + raw)
            if len(state.history) > SPAN:
                now, before = state.history[-1], state.history[-1 - SPAN]
                progress.done = now - before <= self.tolerance * graph.magnitude(now)
        return progress

    def _candidate(self, state: State) -> Labels | None:
        """The best rounding since the last candidate, polished; None unless it is a record, or one is due."""
        engine = state.engine
        energy, engine.best_energy = engine.best_energy, math.inf
        if energy >= state.record and state.iteration % (RETRY * BLOCK):
            return None
        state.record = min(state.record, energy)
        return local_minimum(state.graph, engine.best, state.context) if self.polish else engine.best.copy()

    def finish(self, state: State) -> Final:
        engine, graph = state.engine, state.graph
        labels = self._candidate(state) if engine.best_energy < math.inf else None
        bound = state.bound
        if state.certified_at < state.iteration:
            raw, error = engine.iterate(1, False, True)
            bound = max(bound, certify(graph, graph.constant + raw, error))
        kind = "grid" if isinstance(engine, GridEngine) else "general"
        note = f"{kind} engine, {engine.crew.threads} thread{'s' * (engine.crew.threads > 1)}"
        return Final(labels=labels, bound=bound, state=Dual(graph, engine.expand, engine), note=note)
