"""auto: choose methods by the structure of the model, share the time among them, keep the best labelling and bound.

    energy = least energy of all methods,   bound = largest certified bound of all;   stop when they meet
    next turn <- argmin over the methods of (handicap + seconds used so far) / weight

The methods and their order are in plan.py; this is how they share the time.

With a time limit the methods take turns.  A turn is a fiftieth of the limit, or one step if that is longer, and the
next one goes to the method whose time so far, divided by its weight, is least; methods late in the list start with a
handicap, so that short runs belong to the first ones.  Whatever their weights, all methods have had a turn when a fifth
of the time is over (those that go on from another one's messages wait for that one).  The very first turn is for
annealing, where there are no cuts, because the others do well to start from its labelling.  Before that, where no
feasible labelling is known, one is looked for with the hard constraints alone, or the proof that there is none; should
that take a quarter of the time, the first turn is for the exact search, which goes on with it.

The weight of a method follows, within limits, how fast it has lowered the energy of late, compared with the fastest,
and how often it closed a fiftieth of the gap to its own bound; a turn that ends in the middle of something does not
count until there is a result.  So the methods that do well on this model get most of the time, and none is given up.
A method that can goes on from the best labelling of all.  Models so large that the states of several methods should not
be in memory together run one method after the other, each for its share.

Without a time limit every method runs once, in this order, to its own end, so that the result does not depend on the
clock.  The run stops as soon as bound and energy meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tightmap.energy.energies import energy, unary_argmin
from tightmap.errors import ModelError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.feasibility.engine import Feasibility, infeasible_bound
from tightmap.registry import METHODS, make_solver
from tightmap.runtime import clock
from tightmap.runtime.pace import SLICE, time_left
from tightmap.solvers.auto.plan import LARGE, Phase, plan
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities

TURN = 0.02  # length of a turn, as a part of the time limit
PROBES = 0.2  # part of the time limit within which every method has its first turn
FEASIBLE = 0.25  # part of the time limit after which the search for a feasible labelling leaves the time to others
FAILURES = 20_000  # so many failures of it are enough as well
HANDICAP = 0.02  # each place in the plan starts so much of the time limit behind the one before it
CLOSED = 0.02  # part of the gap to its own bound that a method must close in a turn for the turn to be a success
RISE, FALL = 4.0, 4.0  # weights stay between 1 / FALL and RISE times what they are in the plan
PATIENT = 0.08  # a method in the middle of something is judged at the latest after this part of the time limit
SLOW = 1e-4  # a method that would close less than this part of the gap within the time limit counts as stuck


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
    problem: Feasibility | None = None  # the hard constraints, while the first feasible labelling is looked for
    story: list[str] = field(default_factory=list)

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
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True, exact=True, random=True)

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
        if graph.hard > 0.0 and not incumbent.feasible:
            state.problem = Feasibility(graph, state.best)
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
        elif together:
            runner = self._unheard(state, waiting) or runner
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

    def _unheard(self, state: State, waiting: list[Runner]) -> Runner | None:
        """The next method that has not had a turn although it should have: their first turns are spread evenly."""
        over = 1.0 - state.context.remaining() / state.limit
        fresh = [r for r in state.runners if not r.phase.follows]
        for place, runner in enumerate(fresh):
            if runner.seconds == 0.0 and runner in waiting and over >= PROBES * place / len(fresh):
                return runner
        return None

    def _look_for_feasible(self, state: State, problem: Feasibility) -> Progress:
        """A part of the search for a labelling that keeps the hard constraints."""
        found = problem.run(time_left(state.context, SLICE), FAILURES - problem.failures)
        if found:
            assert problem.labels is not None
            state.incumbent.offer(local_minimum(state.graph, problem.labels, state.context))
        elif found is False:
            state.incumbent.raise_bound(infeasible_bound(state.graph))
        late = np.isfinite(state.limit) and state.context.remaining() < (1.0 - FEASIBLE) * state.limit
        if found is not None or late or problem.failures >= FAILURES:
            state.story.append(problem.story())
            state.problem = None
        return Progress(done=found is False, iterations=0)

    def step(self, state: State) -> Progress:
        if state.problem is not None:
            return self._look_for_feasible(state, state.problem)
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
        lines = list(state.story)
        for runner in state.runners:
            if runner.iterations or runner.rounds:
                line = f"{runner.phase.method} ({runner.phase.why}): {runner.iterations} iterations"
                line += f" in {runner.seconds:.2f} s"
                if np.isfinite(runner.brought):
                    line += f", energy {state.graph.user_energy(runner.brought):.9g}"
                lines.append(line)
        return lines
