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

and the best one of every few iterations is polished by coordinate descent, on large Potts images by moves of regions
as well (moves/lattice_regions.py).

Two engines (engines.py) share the work:
  * grids of four or eight neighbours with one truncated linear, quadratic or Potts table: eight rows at a time, float32
    or float64 messages, several threads (strips.py, grid.py); the bound is certified by a float64 pass (grid_bound.py);
  * everything else: float64 messages on the factor lists (general.py), where every backward pass is a certificate.
Neither the labels nor the bound depend on the number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from tightmap.energy.certificate import certify
from tightmap.energy.duals import Dual, given_messages
from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.orders import ORDERS, node_order
from tightmap.moves.polish import Polisher
from tightmap.runtime import clock
from tightmap.runtime.pace import TimeUp, time_left
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.trws.engines import BOTH, GeneralMessages, GridMessages, Passes, grid_stencil

BLOCK = 16  # iterations: after so many the bound is certified, the best rounding polished and convergence checked
RETRY = 4  # every so many blocks the best rounding is polished even if earlier ones were better
SPAN = 2  # the method has converged when the bound gains next to nothing in so many blocks
STEP = 1_000_000  # about so many message entries are computed in one step
MANY = 1 << 22  # message entries from which on bounds and labels are wanted in fewer iterations, as they take as long
FEW = 1 << 12  # message entries up to which a step costs more than its iterations: the first ones end sooner
DOUBLE_BELOW = 1 << 20  # a grid with at most so many message entries keeps them in float64
END = 0.05  # part of a limited time that is kept for the last descent
POLISHING = 0.2  # part of a limited time that may go into descents from roundings before the last one
# The same where regions are moved as well: there most of the gap is one of the labelling
END_OF_REGIONS, POLISHING_REGIONS = 0.1, 0.35
LOOKING = 0.25  # part of a limited time that bounds and labels may take in models of millions of message entries

NO_LABELS, NEITHER = Passes(rounding=False), Passes(False, False)


@dataclass
class State:
    graph: Graph
    context: Context
    engine: GridMessages | GeneralMessages
    polisher: Polisher
    incumbent: Incumbent  # of the run, or of this method where it is one of several
    iteration: int = 0
    history: list[float] = field(default_factory=list)  # bounds at the ends of blocks
    record: float = math.inf  # lowest energy of all roundings, before they are polished
    bound: float = -math.inf
    certified_at: int = 0
    begun: float = field(default_factory=clock.now)
    polishing: float = 0.0  # seconds of all descents
    descent: float = 0.0  # of the last one
    looked: float = field(default_factory=clock.now)  # when there was a bound and a labelling last

    @property
    def regions(self) -> bool:
        """Whether regions are moved: on large Potts images, others have hardly any regions of one label."""
        lattice = self.graph.lattice
        return lattice is not None and lattice.avoided and lattice.pixels.potts

    def gap(self, energy: float) -> float:
        """From the bound to the energy of a rounding, which has no constant, relative to the bound."""
        if self.bound == -math.inf or energy == math.inf:
            return math.inf
        return (energy + self.graph.constant - self.bound) / self.graph.magnitude(self.bound)

    def no_time(self, how: Passes) -> bool:
        """Whether what is left of the time is too short for an iteration (then the next one would end too late)."""
        engine = self.engine
        return isinstance(engine, GridMessages) and self.context.remaining() < 0.5 * engine.expected(how)

    def too_soon(self) -> bool:
        """Whether a bound and a labelling now would take too much of a limited time: it is better spent on messages."""
        engine = self.engine
        if not isinstance(engine, GridMessages) or self.context.deadline is None or self.bound == -math.inf:
            return False
        more = engine.expected(BOTH) - engine.expected(NEITHER) + self.descent
        return more > LOOKING * (clock.now() - self.looked)

    def last(self, count: int, how: Passes) -> bool:
        """Whether after so many iterations there is no time for one more with all that belongs to an end."""
        engine, left = self.engine, self.context.remaining()
        if not isinstance(engine, GridMessages) or left == math.inf or self.iteration == 0:
            return False
        part = END_OF_REGIONS if self.regions else END
        descent = min(self.descent, part * (clock.now() - self.begun + left))  # which looks at the clock itself
        return left < count * engine.expected(how) + engine.expected(BOTH) + descent


@dataclass(frozen=True)
class TRWS(Solver):
    """Options of TRW-S.

    order      of the variables: "index" (right for images), "greedy" or "rcm" (for numberings without meaning)
    rounding   a labelling is rounded in both passes of every so many iterations; 0: only when a block of 16 ends; None:
               of every iteration, in models of millions of messages where a bound is computed as well
    polish     coordinate descent from the best rounding of every block of iterations
    precision  of the messages on grids: "single", "double", or "auto" (single for large ones)
    tolerance  stop when 32 iterations raise the bound by less than this, relative to the bound
    """

    order: str = "index"
    rounding: int | None = None
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
        if self.rounding is not None and self.rounding < 0:
            raise OptionError(f"trws: rounding must be at least 0, got {self.rounding}")
        if not self.tolerance >= 0.0:
            raise OptionError(f"trws: tolerance must be at least 0, got {self.tolerance}")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        stencil = grid_stencil(graph) if self.order == "index" else None
        engine: GridMessages | GeneralMessages
        earlier = init.state.native if isinstance(init.state, Dual) else None
        if stencil is None:
            engine = GeneralMessages(graph, node_order(graph, self.order), context.threads, self.order)
            goes_on = isinstance(earlier, GeneralMessages) and engine.take_over(earlier)
        else:
            small = graph.m * stencil.labels <= DOUBLE_BELOW
            double = self.precision == "double" or (self.precision == "auto" and small)
            engine = GridMessages(graph, stencil, context.threads, np.float64 if double else np.float32, earlier)
            goes_on = engine.goes_on
        if not goes_on:
            messages = given_messages(init, graph)
            if messages is not None:
                engine.load(messages)
        return State(graph, context, engine, Polisher(graph, context), context.incumbent_of(graph))

    def step(self, state: State) -> Progress:
        """Some iterations, at most to the end of a block, where the best rounding is polished."""
        engine, graph = state.engine, state.graph
        done = state.iteration % BLOCK
        count = min(BLOCK - done, max(1, STEP // max(1, engine.entries)))
        count = int(max(1, min(count, state.context.iterations_left(state.iteration))))
        first = state.iteration < BLOCK  # certify more often in the beginning: easy models end there
        if first and engine.entries <= FEW:
            count = min(count, (1 << done.bit_length()) - done)  # up to 1, 2, 4, ... iterations
        ends = done + count == BLOCK
        certify_now = ends or (first and (done + count).bit_length() > done.bit_length())
        every = self.rounding
        if engine.entries > MANY:
            certify_now = ends or (first and done + count in (1, 4))
            if certify_now and self.rounding is None and state.too_soon():
                ends = certify_now = False
            every = 0 if every is None else every
        elif every is None:
            every = 1
        rounding = state.iteration % every < count if every else ends
        rounding = rounding or (self.rounding is None and certify_now)
        last = state.last(count, Passes(rounding, certify_now))
        if last:  # it ends with a bound and a labelling, before the time is over
            if state.no_time(BOTH):
                return Progress(iterations=0, pending=True, late=True)
            count, rounding, certify_now = 1, True, True
            ends = done + count == BLOCK
        try:
            # the labels in between would not be looked at before those of the last iteration, which are better
            how = Passes(rounding, certify_now, sparing=first and certify_now and not ends)
            raw, error = engine.iterate(count, how, time_left(state.context))
        except TimeUp:
            return Progress(iterations=0, pending=True)
        state.iteration += count
        progress = Progress(iterations=count, pending=not ends, late=last)
        if raw > -math.inf:
            state.bound = certify(graph, graph.constant + raw, error)
            progress.bound = state.bound
            state.certified_at = state.iteration
        if ends or (rounding and certify_now):
            progress.labels = self._candidate(state, last)
            state.looked = clock.now()
        if ends:
            state.history.append(graph.constant + raw)
            if len(state.history) > SPAN:
                now, before = state.history[-1], state.history[-1 - SPAN]
                progress.done = now - before <= self.tolerance * graph.magnitude(now)
        return progress

    def _candidate(self, state: State, last: bool) -> Labels | None:
        """The best rounding since the last candidate; None unless it is a record, or one is due.

        It is polished, unless a time limit is needed for iterations: descents take long on millions of variables.
        """
        engine = state.engine
        energy, engine.best_energy = engine.best_energy, math.inf
        if energy >= state.record and state.iteration % (RETRY * BLOCK):
            return None
        state.record = min(state.record, energy)
        begin, context = clock.now(), state.context
        if state.gap(energy) <= engine.blur:
            labels = engine.best.astype(np.int64)
            state.incumbent.offer(labels)
            state.incumbent.raise_bound(state.bound)
            if state.incumbent.proven():
                return labels  # no descent can improve them
        if context.deadline is not None and not last:
            part = POLISHING_REGIONS if state.regions else POLISHING
            budget = part * (begin - state.begun) - state.polishing
            context = replace(context, deadline=min(context.deadline, begin + budget))
        if not self.polish or (context is not state.context and context.remaining() <= 0.0):
            return engine.best.astype(np.int64)
        labels = state.polisher.local_minimum(engine.best, context, state.regions)
        state.descent = clock.now() - begin
        state.polishing += state.descent
        return labels

    def finish(self, state: State) -> Final:
        engine, graph = state.engine, state.graph
        labels = self._candidate(state, True) if engine.best_energy < math.inf else None
        bound = state.bound
        if state.certified_at < state.iteration and (bound == -math.inf or not state.no_time(NO_LABELS)):
            raw, error = engine.iterate(1, NO_LABELS)
            bound = max(bound, certify(graph, graph.constant + raw, error))
        kind = "grid" if isinstance(engine, GridMessages) else "general"
        note = f"{kind} engine, {engine.crew.threads} thread{'s' * (engine.crew.threads > 1)}"
        return Final(labels=labels, bound=bound, state=Dual(graph, engine.export, engine), note=note)
