"""AD3: alternating directions dual decomposition (Martins et al. 2011, 2015), for factors of any order and kind.

The linear relaxation, with a copy q_i^A of the distribution of every variable i in each of its factors A,

    minimise  sum_A [ sum_i <theta_i / deg_i, q_i^A> + <theta_A, q_A> ]     subject to  q_i^A = p_i,

where q^A are the marginals of a distribution on the labellings of A, is solved through its augmented Lagrangian:

    q^A  <-  argmin  sum_i <theta_i / deg_i + lambda_i^A, q_i> + <theta_A, q_A> + eta / 2 sum_i |q_i - p_i|^2
    p_i  <-  mean over A of q_i^A
    lambda_i^A  <-  lambda_i^A + eta (q_i^A - p_i)

The first is a small quadratic program for each factor, of which only a few labellings have weight in the end:
active_set.py finds them, starting from those of the iteration before; two binary variables have a closed form.  A
factor whose variables all stand still keeps its copies.

The multipliers add up to zero at every variable, so at any time

    D(lambda) = sum_A min over x_A of [ theta_A + sum_i (theta_i / deg_i + lambda_i^A) ]

is a lower bound, and it converges to the optimum of the relaxation.  D is concave and multipliers circle around the
optimum, so their mean over a period does much better than the last: where it does, the next period starts from the
means, and is longer.  Between periods the penalty eta is doubled or halved where the residuals |q - p| and the change
of p differ a lot.

Factors inside of larger ones are added to these first (absorb.py), which makes the relaxation tighter.  ``exact``
then branches on fractional variables (branching.py) until the bound meets the best labelling.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tightmap.energy.duals import Dual, given_messages
from tightmap.energy.energies import energy
from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph.graph import FloatArray, Graph
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.decomposition.absorb import Absorbed, absorb
from tightmap.solvers.decomposition.ad3_run import Run
from tightmap.solvers.decomposition.branching import Search

STEP_SECONDS = 0.1  # seconds of work after which a step ends
EVENT = 10  # iterations between two bounds at first
CLOSE = 1e-5  # part of the energy: a gap this small may be closed by converging further
FURTHER = 1e-4  # of the tolerance
ITERATIONS = 5000  # enough where nothing else limits the run: hard costs may raise the bound by tiny steps for ever
STALE = 10  # periods in a row without a better bound or a smaller residual: there is nothing left but rounding


@dataclass
class State:
    graph: Graph
    context: Context
    whole: Absorbed
    run: Run
    incumbent: Incumbent
    reported: int = 0  # iterations
    rounded: Labels | None = None  # the last labelling before descent
    found: Labels | None = None  # the best labelling
    bound: float = -np.inf
    dual: FloatArray | None = None  # messages of the best bound
    work: Iterator[Progress | None] = field(default_factory=lambda: iter(()))
    search: Search | None = None

    def left(self) -> float:
        """Iterations that may still be made."""
        return self.context.iterations_left(self.reported) - (self.run.iterations - self.reported)

    def offer(self, labels: Labels) -> None:
        """Descend from a labelling that has not been met in the last event, and keep the best."""
        if self.rounded is None or (labels != self.rounded).any():
            self.rounded = labels
            polished = self.run.polished(labels)
            if self.incumbent.offer(polished, energy(self.graph, polished)):
                self.found = polished

    def progress(self, bound: float | None, done: bool = False) -> Progress:
        made = self.run.iterations - self.reported
        self.reported = self.run.iterations
        run = self.run
        info = {"primal": run.primal, "dual": run.dual, "eta": run.eta, "solved": float(run.solved)}
        return Progress(self.found, bound, done, made, info)


@dataclass(frozen=True)
class AD3(Solver):
    """Options of AD3.

    eta         first penalty, relative to the typical range of a factor
    adaptive    change the penalty between periods
    relaxation  over-relaxation, between 0 and 2; 1 is none
    absorb      add factors to larger ones that contain them
    exact       branch on fractional variables until the optimum is proven
    tolerance   converged when copies and their means differ by less than this (root mean square), and so do two means
    """

    eta: float = 0.1
    adaptive: bool = True
    relaxation: float = 1.0
    absorb: bool = True
    exact: bool = False
    tolerance: float = 1e-7

    name: ClassVar[str] = "ad3"
    summary: ClassVar[str] = "alternating directions dual decomposition: converges to the linear relaxation, any order"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True)

    def __post_init__(self) -> None:
        if not 0.0 < self.eta < np.inf:
            raise OptionError(f"ad3: eta must be positive, got {self.eta}")
        if not 0.0 < self.relaxation < 2.0:
            raise OptionError(f"ad3: relaxation must be between 0 and 2, got {self.relaxation}")
        if not self.tolerance >= 0.0:
            raise OptionError(f"ad3: tolerance must be at least 0, got {self.tolerance}")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        whole = absorb(graph, context) if self.absorb else Absorbed(graph)
        run = Run(whole.graph, context, self.eta, self.relaxation, 4.0 if self.adaptive else np.inf)
        given = given_messages(init, graph)
        if given is not None:
            run.accept(whole.take(given))
        incumbent = context.incumbent_of(graph)
        state = State(graph, context, whole, run, incumbent)
        if init.labels is not None:
            incumbent.offer(init.labels)
        state.work = self._work(state)
        return state

    def _work(self, state: State) -> Iterator[Progress | None]:
        yield from self._relax(state)
        if self.exact and not state.incumbent.proven():
            state.search = Search(state.run, state.incumbent, state.offer, state.left, self.tolerance)
            for bound in state.search.work(state.bound):
                yield None if bound is None else state.progress(bound)
        yield state.progress(None, done=True)

    def _relax(self, state: State) -> Iterator[Progress | None]:
        """Iterations until the relaxation has converged."""
        run, due = state.run, 1
        smallest, stale = np.inf, 0
        yield self._bound(state)
        while stale < STALE and (run.iterations < ITERATIONS or state.context.limited):
            yield from run.iterate()
            converged = self._converged(state)
            if not (converged or run.period_over or run.iterations >= due or state.left() <= 0.0):
                yield None
                continue
            due = run.iterations + max(EVENT, run.period // 2)
            state.offer(run.labelling())
            period_over, residual = run.period_over, max(run.primal, run.dual)
            before = state.bound
            progress = self._bound(state)
            if period_over:
                useful = residual < 0.9 * smallest or state.bound > before + 1e-12 * abs(before)
                smallest, stale = min(smallest, residual), 0 if useful else stale + 1
            yield progress
            if converged or state.incumbent.proven():
                return

    def _bound(self, state: State) -> Progress:
        bound = state.run.bound()
        if bound > state.bound or state.dual is None:
            state.bound, state.dual = bound, state.run.messages
        return state.progress(bound)

    def _converged(self, state: State) -> bool:
        run, best = state.run, state.incumbent.energy
        close = best - state.bound <= CLOSE * max(abs(best), abs(state.bound))
        return max(run.primal, run.dual) <= self.tolerance * (FURTHER if close else 1.0)

    def step(self, state: State) -> Progress:
        begin = time.perf_counter()
        for progress in state.work:
            if progress is not None:
                return progress
            if time.perf_counter() - begin > STEP_SECONDS or state.context.remaining() <= 0.0:
                return Progress(iterations=0, pending=True)
        return Progress(done=True, iterations=0)

    def finish(self, state: State) -> Final:
        dual, whole, graph = state.dual, state.whole, state.graph
        note = f"{whole.graph.m} programs for {graph.m} factors, penalty {state.run.eta:.3g}"
        if state.search is not None:
            note += f", {state.search.nodes} nodes of a search tree"
        shown = None if dual is None else Dual(graph, lambda: whole.give(dual))
        return Final(labels=state.found, bound=None, state=shown, note=note)
