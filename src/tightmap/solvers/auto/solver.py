"""auto: choose methods by the structure of the model, share the time among them, keep the best labelling and bound.

    energy = least energy of all methods,   bound = largest certified bound of all;   stop when they meet
    next turn: the method with the least (handicap + seconds used so far) / weight

One short rule (``plan``) chooses the methods, in this order:

    small induced width                  exact       by eliminating variables, at once
    binary variables, pairwise           qpbo        exact when the model is submodular
    pairwise                             trws        the bound, and often the proof; exact on forests
    Potts and other label differences    expansion   good on images, best from where trws has got to
    higher order                         srmp        the same for any order
    tables not too large                 exact       branch and bound, which often ends with the proof
    grids of few labels                  srmp        with squares, when trws rises no more: a better bound
    other tables, not too large          mplp-c      tightens the bound by clusters
    any but the largest                  lns         exact moves over subgraphs: strong labellings of sparse graphs
    few labels in all                    sa, tabu    single changes, first on dense graphs
    higher order                         fusion      moves between whole labellings
    always                               admm        the nonconvex relaxation

With a time limit the methods take turns.  A turn is a fiftieth of the limit, or one step if that is longer, and the
next one goes to the method whose time so far, divided by its weight, is least; methods late in the list start with a
handicap, so that short runs belong to the first ones; only the very first turn is for annealing, where there are no
cuts, because the others do well to start from its labelling.  The weight of a method follows, within limits, how fast
it has lowered the energy of late, compared with the fastest, and how often it closed a fiftieth of the gap to its own
bound; a turn that ends in the middle of something does not count until there is a result.  So the methods that do well
on this model get most of the time, and none is given up.  A method that can goes on from the best labelling of all.
Models so large that the states of several methods should not be in memory together run one method after the other, each
for its share.

Without a time limit every method runs once, in this order, to its own end, so that the result does not depend on the
clock.  The run stops as soon as bound and energy meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tightmap.energy.energies import energy, unary_argmin
from tightmap.errors import ModelError
from tightmap.graph.graph import Graph, Kind
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.registry import METHODS, make_solver
from tightmap.runtime import clock
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.exact.network import narrow
from tightmap.solvers.regions.clusters import grid_width

# How large a model may be for a method to take part; "labels" are those of all variables together.
TIGHTEN = 20_000  # labels, for mplp-c, which adds clusters to tighten the bound
PIXELS = 100_000  # labels, for srmp with the squares of a grid
SQUARES = 8  # labels of one variable, for the same: the table of a square has the fourth power of that many entries
FEW = 100  # variables of a dense graph up to which the exact search has its full weight
TABU = 10_000  # labels, for tabu search, which scans all of them at every step
EXACT = 20_000  # labels, for the exact search
FACTORS = 50_000  # factors, for the exact search
NARROW = (18.0, 20.0, 100_000)  # elimination alone: log2 of its largest table and of all, effort to find an order
ANNEAL = 100_000  # labels, for simulated annealing
LARGE = 4_000_000  # labels; on larger models methods run one after the other instead of taking turns
DENSE = 4  # a graph with more factors per variable than this is dense
# How the time is shared.
TURN = 0.02  # length of a turn, as a part of the time limit
HANDICAP = 0.02  # each place in the plan starts so much of the time limit behind the one before it
ENDLESS = 10**9  # cycles or rounds of a search that only the time limit ends
CLOSED = 0.02  # part of the gap to its own bound that a method must close in a turn for the turn to be a success
RISE, FALL = 4.0, 4.0  # weights stay between 1 / FALL and RISE times what they are in the plan
PATIENT = 0.08  # a method in the middle of something is judged at the latest after this part of the time limit
SLOW = 1e-4  # a method that would close less than this part of the gap within the time limit counts as stuck


@dataclass(frozen=True)
class Phase:
    """One method, its options, the weight of its claim on the time, and why it is there."""

    method: str
    why: str
    weight: float
    options: dict[str, Any] = field(default_factory=dict)
    max_iterations: int | None = None  # without a time limit
    endless: dict[str, Any] = field(default_factory=dict)  # options with a time limit: do not stop before
    search: bool = False  # worth repeating with another seed
    again: bool = False  # worth repeating from a better labelling
    early: bool = False  # the very first turn is its own: a good labelling at once, which the others start from
    follows: str = ""  # method that ends when this one begins, and leaves it its messages


def plan(graph: Graph) -> list[Phase]:
    """The phases for a model, by its structure alone."""
    g = graph.arrays
    pairwise = graph.order <= 2
    dense = graph.m > DENSE * graph.n
    labels = len(g.unary)
    differences = bool(np.isin(g.kind, (Kind.POTTS, Kind.LINEAR, Kind.QUADRATIC)).all() and (g.weight >= 0).all())
    phases: list[Phase] = []
    if pairwise and graph.max_labels == 2:
        phases.append(Phase("qpbo", "binary variables", 2.0, {"improve": 0}))
    if pairwise:
        pair = [Phase("trws", "the bound", 4.0 if differences else 1.0, max_iterations=1000)]
        if differences and graph.max_labels > 2:
            moves = Phase("expansion", "differences of labels with non-negative weights", 4.0, again=True)
            pair.insert(1 if labels > LARGE else 0, moves)  # where it runs only once, from where trws has got to
        phases += pair
    else:
        phases.append(Phase("srmp", "higher-order factors: bound and labelling", 2.0, max_iterations=500))
    if labels <= EXACT and graph.m <= FACTORS:
        if narrow(graph, *NARROW):
            phases.insert(0, Phase("exact", "small induced width: elimination", 8.0))
        else:
            weight = 2.0 if dense and graph.n > FEW else 6.0
            phases.append(Phase("exact", "tables not too large: branch and bound", weight, max_iterations=100))
    small = pairwise and graph.max_labels <= SQUARES and labels <= PIXELS
    if small and grid_width(graph) is not None:
        why = "a grid of few labels: squares tighten the bound"
        phases.append(Phase("srmp", why, 1.0, {"clusters": "squares"}, max_iterations=100, follows="trws"))
    elif not differences and labels <= TIGHTEN:
        follows = "trws" if pairwise else "srmp"
        phases.append(Phase("mplp-c", "clusters tighten the bound", 1.0, {"updates": "srmp"}, follows=follows))
    search = []
    if labels <= LARGE:
        weight = 1.0 if dense or differences else 4.0
        search.append(Phase("lns", "exact moves over subgraphs", weight, endless={"cycles": ENDLESS}))
    if labels <= ANNEAL:
        weight, why = 1.0 if differences else 4.0, "small enough for single changes"
        search.append(Phase("sa", why, weight, endless={"cycles": ENDLESS}, early=not differences))
    if labels <= TABU:
        weight = 4.0 if dense else 1.0
        search.append(Phase("tabu", "small enough to scan all changes", weight, endless={"rounds": ENDLESS}))
    phases += reversed(search) if dense else search
    if not pairwise:
        phases.append(Phase("fusion", "moves between whole labellings", 1.0))
    phases.append(Phase("admm", "the nonconvex relaxation", 2.0 if labels > ANNEAL else 1.0, search=True))
    return phases


@dataclass
class Runner:
    """A method at work: its state while it has one, and what it has used and brought so far."""

    phase: Phase
    handicap: float = 0.0
    weight: float = 1.0
    solver: Solver | None = None
    inner: Any = None
    seconds: float = 0.0
    iterations: int = 0
    rounds: int = 0
    done: bool = False
    seen: float = float("inf")  # energy of the best labelling when it was last at work
    brought: float = float("inf")  # the lowest energy it reached itself
    bound: float = -float("inf")  # the best bound it reached itself
    before: float = -float("inf")  # the same when its turn began
    earlier: float = 0.0  # seconds when it was last judged
    lowering: float = 0.0  # how fast it has lowered the energy in its last turns
    raising: float = 0.0  # in which part of them it has raised its bound

    @property
    def claim(self) -> float:
        return (self.handicap + self.seconds) / self.weight


@dataclass
class State:
    graph: Graph
    context: Context
    init: Init
    runners: list[Runner]
    limit: float  # seconds, inf without a limit
    incumbent: Incumbent  # of the whole run
    first: float  # energy of the labelling the run began with
    turn: Runner | None = None
    until: float = float("inf")
    before: float = float("inf")  # energy when the turn began
    begun: bool = False  # a method has had a turn
    iterations: int = 0  # of all methods together
    states: dict[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Labels:
        return self.incumbent.labels.astype(np.int64)

    @property
    def best_energy(self) -> float:
        return self.incumbent.energy


@dataclass(frozen=True)
class Auto(Solver):
    """No options: the plan follows from the model."""

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "methods chosen by the structure of the model take turns; best labelling, best bound"
    gives_bound: ClassVar[bool] = True

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        limit = context.remaining()
        runners: list[Runner] = []
        for phase in plan(graph):
            if phase.method in METHODS:
                try:
                    with clock.stopped():
                        solver = make_solver(phase.method, dict(phase.options))
                    solver.check(graph)
                except ModelError:
                    continue
                handicap = HANDICAP * limit * len(runners) if np.isfinite(limit) else 0.0
                runners.append(Runner(phase, handicap * phase.weight, phase.weight))
        incumbent = context.incumbent or Incumbent(graph)
        if incumbent.energy == np.inf:  # started by hand: the driver would have offered one
            incumbent.offer(local_minimum(graph, init.labels if init.labels is not None else unary_argmin(graph)))
        state = State(graph, context, init, runners, limit, incumbent, incumbent.energy)
        if isinstance(init.state, dict):
            state.states = dict(init.state)
        return state

    def _offer(self, state: State, labels: Labels | None, known: float | None = None) -> None:
        if labels is not None:
            value = energy(state.graph, labels) if known is None else known
            if state.turn is not None:
                state.turn.brought = min(state.turn.brought, value)
            state.incumbent.offer(labels, value)

    def _raise(self, state: State, runner: Runner, bound: float | None) -> None:
        if bound is not None:
            runner.bound = max(runner.bound, bound)
            state.incumbent.raise_bound(bound)

    def _next(self, state: State) -> Runner | None:
        """Whose turn it is, ready to step; None when all have ended."""
        limited = np.isfinite(state.limit)
        waiting = [r for r in state.runners if not r.done or (limited and r.phase.again and state.best_energy < r.seen)]
        rising = [r.phase.method for r in waiting if r.raising >= 0.5]
        waiting = [r for r in waiting if r.phase.follows not in rising] if limited else waiting
        if not waiting:
            return None
        together = limited and len(state.graph.arrays.unary) <= LARGE
        runner = min(waiting, key=lambda r: r.claim) if together else waiting[0]
        if together and not state.begun:
            # without a feasible labelling the first question is whether there is one
            early = [r for r in waiting if (r.phase.early if state.incumbent.feasible else r.phase.method == "exact")]
            runner = early[0] if early else runner
        state.begun = True
        state.until = float("inf")
        if limited:
            share = runner.phase.weight / sum(r.phase.weight for r in waiting)
            state.until = clock.now() + (TURN * state.limit if together else share * state.context.remaining())
        state.turn, state.before, runner.before = runner, state.best_energy, runner.bound
        if runner.solver is None:
            phase = runner.phase
            with clock.stopped():
                runner.solver = make_solver(phase.method, phase.options | (phase.endless if limited else {}))
            context = replace(
                state.context,
                seed=state.context.seed + 1000 * runner.rounds,
                incumbent=None,
                shared=lambda: state.context.iterations_left(state.iterations),
            )
            best = None if state.init.relaxed is not None and state.best_energy >= state.first else state.best
            relaxed = state.init.relaxed if best is None else None
            for other in state.runners:
                if other.phase.method == phase.follows and other.solver is not None:
                    self._end(state, other)
                    state.turn = runner
            given = state.states.get(phase.method) or state.states.get(phase.follows)
            init = Init(labels=best, relaxed=relaxed, state=given)
            begin = clock.now()
            runner.inner = runner.solver.start(state.graph, init, context)
            runner.seconds += clock.now() - begin
        elif state.best_energy < runner.seen:
            runner.solver.adopt(runner.inner, state.best)
        return runner

    def step(self, state: State) -> Progress:
        runner = state.turn or self._next(state)
        if runner is None:
            return Progress(done=True, iterations=0)
        assert runner.solver is not None
        begin = clock.now()
        progress = runner.solver.step(runner.inner)
        now = clock.now()
        runner.seconds += now - begin
        runner.iterations += progress.iterations
        state.iterations += progress.iterations
        self._offer(state, progress.labels, progress.energy)
        self._raise(state, runner, progress.bound)
        cap = runner.phase.max_iterations if not np.isfinite(state.limit) else None
        if progress.done or (cap is not None and runner.iterations >= cap):
            self._end(state, runner)
        elif now >= state.until:
            if len(state.graph.arrays.unary) > LARGE:
                self._end(state, runner)
            else:
                self._judge(state, runner, progress.pending)
        return Progress(done=all(r.done for r in state.runners), iterations=progress.iterations)

    def _judge(self, state: State, runner: Runner, pending: bool = False) -> None:
        """The end of a turn: time to the methods that lower the energy the fastest, and to those that raise bounds.

        How fast bounds rise is not compared: the first iterations of a relaxation are the fastest by far, and the slow
        rise of an exact search ends in a proof.
        """
        seconds = max(runner.seconds - runner.earlier, 1e-9)
        fell = state.before - state.best_energy
        gap = state.best_energy - runner.before
        rose = np.isfinite(runner.bound) and not runner.bound <= runner.before + CLOSED * gap
        pending = pending and seconds < PATIENT * state.limit
        if np.isfinite(fell) and (fell > 0.0 or rose or not pending):  # a first labelling is no merit
            runner.earlier = runner.seconds
            runner.lowering = (runner.lowering + fell / seconds) / 2.0
            runner.raising = (runner.raising + rose) / 2.0
            least = SLOW * max(abs(gap), 1e-9) / state.limit if np.isfinite(gap) and np.isfinite(state.limit) else 1e-9
            merit = runner.raising + runner.lowering / max(least, *(r.lowering for r in state.runners))
            runner.weight = runner.phase.weight * min(RISE, max(1.0 / FALL, RISE * merit))
        runner.seen = state.best_energy
        state.turn = None

    def _end(self, state: State, runner: Runner) -> None:
        """The end of a method; a search begins again, with another seed, if there is time."""
        assert runner.solver is not None
        final = runner.solver.finish(runner.inner)
        self._offer(state, final.labels)
        self._raise(state, runner, final.bound)
        state.states[runner.phase.method] = final.state
        runner.solver = runner.inner = None
        self._judge(state, runner)
        runner.rounds += 1
        runner.done = not (runner.phase.search and np.isfinite(state.limit))

    def finish(self, state: State) -> Final:
        for runner in state.runners:
            if runner.solver is not None:
                state.turn = runner
                self._end(state, runner)
        return Final(state=state.states, note="\n  ".join(self._story(state)))

    def _story(self, state: State) -> list[str]:
        lines = []
        for runner in state.runners:
            if runner.iterations or runner.rounds:
                line = f"{runner.phase.method} ({runner.phase.why}): {runner.iterations} iterations"
                line += f" in {runner.seconds:.2f} s"
                if np.isfinite(runner.brought):
                    line += f", energy {state.graph.user_energy(runner.brought):.9g}"
                lines.append(line)
        return lines
