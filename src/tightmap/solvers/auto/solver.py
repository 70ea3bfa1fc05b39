"""auto: choose methods by the structure of the model, share the time among them, keep the best labelling and bound.

    energy = least energy of all methods,   bound = largest certified bound of all;   stop when they meet

A small model whose variables can all be eliminated is solved at once (moves/at_once.py), and so is one of two labels
whose differences cost (graphcut/binary_cut.py).  Otherwise several methods share the work: which ones and in which
order is in plan.py, how they share a time limit in scheduler.py; here they are run.

The first step only reports the labelling that the run began with: while kernels are compiled, there is an answer.

With a time limit a model that the exact search prepares in no time is shown to it first, for a fiftieth of the limit or
up to a second: what is easy is proven there. Then the methods take turns. A turn is a fiftieth of the limit (the first
ones are shorter), or one step if that is longer. The very first turn is for cuts, which have it until they have been
through all labels once, or else for a search, because the others do well to start from its labelling. Before that,
where no feasible labelling is known, one is looked for with the hard constraints alone, or the proof that there is
none; should that take a quarter of the time, the first turn is for the exact search, which goes on with it. A method
that can goes on from the best labelling of all. While helper processes compile kernels (runtime/background.py), methods
whose kernels are ready have their turns first. Models so large that the states of several methods should not be in
memory together run one method after the other: each for its share, not counting its start, and longer while it still
closes the gap or there is no time to start another one. A method whose start would take half of what is left is passed
over (large.py).

Without a time limit every method runs once, in this order, to its own end, so that the result does not depend on the
clock; only the exact search and the one by clusters, each of which may prove in a moment what takes the other minutes,
take turns of so many iterations, twice as many every time.  The run stops as soon as bound and energy meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tightmap.energy.certificate import proves_infeasible
from tightmap.energy.energies import energy, unary_argmin
from tightmap.errors import ModelError
from tightmap.graph.graph import Graph, PairArrays
from tightmap.graphcut.binary_cut import is_one_cut, minimum_by_one_cut, network_bytes, settled_cut
from tightmap.moves.at_once import is_small, minimum_at_once
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.feasibility.engine import Feasibility, infeasible_bound
from tightmap.registry import METHODS, make_solver
from tightmap.runtime import background, clock, memory
from tightmap.runtime.crew import Crew
from tightmap.runtime.pace import SLICE, TimeUp, time_left
from tightmap.solvers.auto.large import Course
from tightmap.solvers.auto.plan import ANNEAL, LARGE, ONE_CUT, plan
from tightmap.solvers.auto.runner import Bout, Runner, State
from tightmap.solvers.auto.scheduler import LONG, LONG_SMALL, Scheduler, Share
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities

FEASIBLE = 0.25  # part of the time limit after which the search for a feasible labelling leaves the time to others
FIRST = 0.5  # part of the time limit that one cut may take that would be all
# The same of the first turn of moves over tables, which is half lost where it is cut off: photomontages of 700 x 700
# pixels in 3 s, five seeds, ended 7 to 96 % above expansion alone when it might take half of the limit
WHOLE = 0.9
MOMENT = 0.02  # part of the time limit that the exact search has before all others on a small model
# It has a tenth, up to a second, if it prepares the model in a fifth of that: of 5 s, Bayesian networks of a thousand
# variables are proven after 0.2 to 0.9 s; as one of many methods it took 1.3 to 3.7 s
GENEROUS, SECOND, PREPARED = 0.1, 1.0, 0.2
FAILURES = 20_000  # so many failures of it are enough as well
# With several threads several methods have their turns at once, each on its part of the threads: most methods use only
# one.  Sweeps over images are shared among threads, and there it is the first two methods that matter.
IMAGE_HANDS = 2
BOUT = 0.01  # seconds that a method works on a thread of its own before anybody looks at what it found
ALONE = 0.05  # seconds after which others begin beside the moment before all others: what is easy is proven by then


@dataclass(frozen=True)
class Auto(Solver):
    """No options: the plan follows from the model."""

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "methods chosen by the structure of the model take turns; best labelling, best bound"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True, exact=True, random=True)

    def optimal_at_once(self, graph: Graph, context: Context) -> bool:
        return is_small(graph) or self._one_cut(graph, context)

    def _one_cut(self, graph: Graph, context: Context) -> bool:
        """Two labels whose differences cost: one cut, unless there is too little time or memory for the network."""
        left = context.remaining()
        if not is_one_cut(graph) or (left < math.inf and not Course(len(graph.unary), left).fits(ONE_CUT, left)):
            return False
        needed = network_bytes(graph)
        return needed < memory.SMALL or needed < memory.available_bytes()

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        limit = context.remaining()
        incumbent = context.incumbent_of(graph)
        small = minimum_at_once(graph)
        if small is not None:
            incumbent.offer(small[0], small[1])
            incumbent.raise_bound(small[2])
        if small is not None and (incumbent.proven() or proves_infeasible(graph, incumbent.bound)):
            state = State(graph, context, init, [], Scheduler(1.0, []), limit, incumbent, incumbent.energy)
            state.story.append(f"elimination of all {graph.n} variables at once")
            return state
        if self._one_cut(graph, context):
            try:
                cut = minimum_by_one_cut(graph, left=FIRST * limit)
            except TimeUp:  # a hard one: half of the time is left for the others
                cut = None
            if cut is not None:
                incumbent.offer(settled_cut(graph, cut, context))
                incumbent.raise_bound(cut[1])
                if incumbent.proven():
                    state = State(graph, context, init, [], Scheduler(1.0, []), limit, incumbent, incumbent.energy)
                    state.story.append("two labels, differences of which cost: one minimum cut")
                    return state
        runners: list[Runner] = []
        for phase in plan(graph):
            if phase.method in METHODS:
                try:
                    with clock.stopped():
                        solver = make_solver(phase.method, dict(phase.options))
                    solver.check(graph)
                except ModelError:
                    continue
                can = solver.capabilities
                share = Share(
                    phase.method, phase.weight, can.bounds, phase.follows, phase.early, can.exact, phase.closes
                )
                runners.append(Runner(phase, share))
        if incumbent.energy == np.inf:  # what could have been optimal at once was too wide for it, or took too long
            begin = init.labels if init.labels is not None else unary_argmin(graph)
            incumbent.offer(local_minimum(graph, begin, context))
        if graph.differences and graph.uniform:  # with strong weights one label for all is far below any local minimum
            sums = graph.unary.reshape(graph.n, -1).sum(axis=0, dtype=np.float64)
            if sums.min() + graph.constant < incumbent.energy:
                incumbent.offer(np.full(graph.n, int(sums.argmin()), np.int64))
        long = LONG if len(graph.unary) > ANNEAL else LONG_SMALL
        scheduler = Scheduler(limit if np.isfinite(limit) else 1.0, [runner.share for runner in runners], long)
        state = State(graph, context, init, runners, scheduler, limit, incumbent, incumbent.energy)
        labels = len(graph.unary)
        if labels > LARGE and np.isfinite(limit):
            state.course = Course(labels, limit)
        elif np.isfinite(limit) and context.max_iterations is None:
            most = context.threads if labels <= ANNEAL else min(context.threads, IMAGE_HANDS)
            state.hands = scheduler.hands = min(most, len(runners)) or 1
        if isinstance(init.state, dict):
            state.states = dict(init.state)
        return state

    def _offer(self, state: State, runner: Runner, labels: Labels | None, known: float | None = None) -> None:
        if labels is None:
            return
        value = energy(state.graph, labels) if known is None else known
        runner.brought = min(runner.brought, value)
        before = state.best_energy
        if state.incumbent.offer(labels, value) and len(state.turns) > 1:
            others = [r.share for r in state.turns if r is not runner]
            state.scheduler.meanwhile(others, fell=before - state.best_energy)

    def _raise(self, state: State, runner: Runner, bound: float | None) -> None:
        if bound is None:
            return
        runner.share.bound = max(runner.share.bound, bound)
        before = state.incumbent.bound
        state.incumbent.raise_bound(bound)
        if bound > before and len(state.turns) > 1:
            others = [r.share for r in state.turns if r is not runner]
            state.scheduler.meanwhile(others, raised=bound - before)

    def _next(self, state: State) -> Runner | None:
        """Whose turn it is, ready to step; None when all have ended, or are at work."""
        limited = np.isfinite(state.limit)
        waiting = [r for r in state.runners if not r.done or (limited and r.phase.again and state.best_energy < r.seen)]
        course = state.course
        if course is not None:
            waiting = [r for r in waiting if course.fits(r.phase.method, state.context.remaining())]
        if not waiting:
            return None
        if limited:
            waiting = self._compiled_first(state, waiting)
        runner = waiting[0]
        if runner.phase.turn is not None and not limited:
            runner = min((r for r in waiting if r.phase.turn is not None), key=lambda r: r.turns)
        until = math.inf
        if limited and course is None:
            # without a feasible labelling the first question is whether there is one
            asked = not state.incumbent.feasible and state.problem is None
            first = (lambda share: share.name == "exact") if asked else None
            busy = [r.share for r in state.turns]
            share = state.scheduler.next(state.elapsed, [r.share for r in waiting], first, busy)
            if share is None:
                return None
            runner = next(r for r in waiting if r.share is share)
            until = clock.now() + state.scheduler.turn(share)
        self._begin(state, runner, until)
        return runner

    def _begin(self, state: State, runner: Runner, until: float) -> None:
        """A turn of this method begins; what it is to start from, if it has to be started, is made up here."""
        limited = np.isfinite(state.limit)
        state.turns.append(runner)
        runner.until = until
        state.scheduler.begin(runner.share, state.best_energy, state.incumbent.bound)
        if runner.solver is None:
            phase = runner.phase
            with clock.stopped():
                runner.solver = make_solver(phase.method, phase.options | (phase.endless if limited else {}))
            context = replace(
                state.context,
                seed=state.context.seed + 1000 * runner.rounds,
                threads=max(1, state.context.threads // state.hands),
                incumbent=None,
                shared=lambda: state.context.iterations_left(state.iterations),
                over=state.over,
            )
            # cuts choose their own start, or two, as long as there is nothing but what the run began with
            given = state.init.relaxed is not None or (phase.whole and state.init.labels is None)
            best = None if given and state.best_energy >= state.first else state.best
            relaxed = state.init.relaxed if best is None else None
            for other in state.runners:
                if other.phase.method == phase.follows and other.solver is not None:
                    self._end(state, other)
            kept = state.states.get(phase.method) or state.states.get(phase.follows)
            init = Init(labels=best, relaxed=relaxed, state=kept)
            runner.start = partial(runner.solver.start, state.graph, init, context)
        elif state.best_energy < runner.seen:
            runner.solver.adopt(runner.inner, state.best)
        runner.seen = min(runner.seen, state.best_energy)

    def _glance(self, state: State) -> None:
        """The turn of the exact search before all others, where it is to have one and its kernels are there."""
        if not np.isfinite(state.limit) or state.course is not None:
            return
        if state.context.wall < math.inf and background.has_compiled():  # compiling it may take all there is
            return
        ready = self._compiled_first(state, state.runners)
        moment = MOMENT * state.limit
        runner = next((r for r in ready if r.phase.prepare <= moment), None)
        if runner is not None:
            longer = min(GENEROUS * state.limit, SECOND)
            if runner.phase.prepare <= PREPARED * longer:
                moment = max(moment, longer)
            state.glance, state.joined = runner, clock.now() + ALONE
            self._begin(state, runner, clock.now() + moment)

    def _compiled_first(self, state: State, waiting: list[Runner]) -> list[Runner]:
        """Those whose kernels no helper is compiling; where there is none, the one that would come last of all."""
        jobs = [(r.phase.method, r.phase.options) for r in sorted(waiting, key=lambda r: not r.phase.early)]
        graph = state.graph  # the arrays of an image are those of pairs; to ask for them would take seconds
        background.wanted(jobs, graph.lattice is not None or isinstance(graph.arrays, PairArrays))
        queue = background.being_compiled()
        if not queue:
            return waiting
        ready = [runner for runner in waiting if runner.solver is not None or runner.phase.method not in queue]
        return ready or [max(waiting, key=lambda runner: queue.index(runner.phase.method))]

    def _look_for_feasible(self, state: State, problem: Feasibility) -> bool | None:
        """A part of the search for a labelling that keeps the hard constraints.  Called on any thread."""
        return problem.run(time_left(state.context, SLICE), FAILURES - problem.failures)

    def _hear_of_feasible(self, state: State, problem: Feasibility, found: bool | None) -> Progress:
        if found:
            assert problem.labels is not None
            state.incumbent.offer(local_minimum(state.graph, problem.labels, state.context))
        elif found is False:
            state.incumbent.raise_bound(infeasible_bound(state.graph))
        late = np.isfinite(state.limit) and state.context.remaining() < (1.0 - FEASIBLE) * state.limit
        if found is not None or late or problem.failures >= FAILURES or state.incumbent.feasible:
            state.story.append(problem.story())
            state.problem = None
        return Progress(done=found is False, iterations=0)

    def step(self, state: State) -> Progress:
        if not state.begun and state.runners:  # there is an answer before a method has compiled its kernels
            state.begun = True
            return Progress(iterations=0)
        if not state.glanced:
            state.glanced = True
            self._glance(state)
        if not state.sought and not self._one_alone(state):
            state.sought = True
            if state.graph.hard > 0.0 and not state.incumbent.feasible and state.runners:
                state.problem = Feasibility(state.graph, state.best)
        try:
            found = self._work(state)
        except BaseException:
            state.over.told = True  # those at work are told, and not waited for
            raise
        if found is None:  # all have ended, or on a large model there is no time for the start of another one
            late = state.course is not None and not all(r.done for r in state.runners)
            return Progress(done=not late, late=late, iterations=0 if state.runners else 1)
        return self._hear(state, *found)

    def _one_alone(self, state: State) -> bool:
        """The moment before all others belongs to one method alone, if there are more threads only its beginning."""
        return state.glance is not None and (state.hands == 1 or clock.now() < state.joined)

    def _work(self, state: State) -> tuple[Runner | Feasibility, Any] | None:
        """Some steps of a method whose turn it is, and what they came to; None when there is nothing to do."""
        if state.hands == 1 or self._one_alone(state):
            if state.problem is not None:
                return state.problem, self._look_for_feasible(state, state.problem)
            runner = state.turns[0] if state.turns else self._next(state)
            return None if runner is None else (runner, runner.work(0.0))
        if state.crew is None:
            state.crew = Crew(max(1, state.context.threads // state.hands))
        crew = state.crew
        tasks: list[Runner | Feasibility] = [*state.turns]
        if state.problem is not None:
            tasks.insert(0, state.problem)
        while len(tasks) < state.hands:
            other = self._next(state)
            if other is None:
                break
            tasks.append(other)
        for task in tasks:
            if task not in crew.at_work:
                if isinstance(task, Runner):
                    call: Callable[[], Any] = partial(task.work, BOUT)
                else:
                    call = partial(self._look_for_feasible, state, task)
                if not crew.begin(task, call):  # the system gives no more threads
                    return task, call()
        return crew.wait() if crew.at_work else None

    def _hear(self, state: State, task: Runner | Feasibility, value: Any) -> Progress:
        """What somebody has to tell who was at work."""
        if not isinstance(task, Runner):
            return self._hear_of_feasible(state, task, value)
        before = state.iterations
        late = self._absorb(state, task, value)
        return Progress(done=all(r.done for r in state.runners), late=late, iterations=state.iterations - before)

    def _absorb(self, state: State, runner: Runner, bout: Bout) -> bool:
        """What a method did, and whether its turn ends with that; True when there is no time for anything else."""
        limited = np.isfinite(state.limit)
        course = state.course
        if bout.starting is not None:
            state.scheduler.used(runner.share, bout.starting)
            if course is not None:
                course.started(runner.phase.method, bout.starting)
                waiting = [r for r in state.runners if not r.done]
                waiting = [r for r in waiting if course.fits(r.phase.method, state.context.remaining()) or r is runner]
                part = runner.phase.weight / sum(r.phase.weight for r in waiting)
                runner.until = clock.now() + part * state.context.remaining()
        for progress, seconds in bout.steps:
            state.scheduler.used(runner.share, seconds)
            runner.iterations += progress.iterations
            state.iterations += progress.iterations
            self._offer(state, runner, progress.labels, progress.energy)
            self._raise(state, runner, progress.bound)
        progress, seconds = bout.steps[-1]
        now = clock.now()
        cap = runner.phase.max_iterations if not limited else None
        if progress.done or progress.late or (cap is not None and runner.iterations >= cap):
            self._end(state, runner)
        elif not limited and self._turn_over(runner):
            runner.turns += 1
            self._judge(state, runner)
        elif course is not None:
            gap = state.best_energy - state.incumbent.bound
            closing = course.closing(gap, now)  # asked after every step: it remembers
            late = course.last(seconds, state.context.remaining())
            over = now >= runner.until and not progress.pending and not closing
            if late or (over and self._another_fits(state, runner)):
                self._end(state, runner)
            return late
        elif now >= runner.until and not self._still_in_first(state, runner):
            self._judge(state, runner, progress.pending)
        return False

    def _another_fits(self, state: State, runner: Runner) -> bool:
        """Whether there is a method to go on with, on a large model."""
        assert state.course is not None
        left = state.context.remaining()
        return any(not r.done and r is not runner and state.course.fits(r.phase.method, left) for r in state.runners)

    def _turn_over(self, runner: Runner) -> bool:
        """Without a time limit: are the iterations of this turn and of those before it done?"""
        turn = runner.phase.turn
        return turn is not None and runner.iterations >= turn * (2 ** (runner.turns + 1) - 1)

    def _still_in_first(self, state: State, runner: Runner) -> bool:
        """Is it in the middle of the iteration that its first turn lasts for?"""
        fresh = runner.phase.whole and runner.share.made == 0 and runner.iterations == 0
        return fresh and runner.share.seconds < WHOLE * state.limit

    def _judge(self, state: State, runner: Runner, pending: bool = False) -> None:
        """The end of a turn."""
        bound = state.incumbent.bound
        state.scheduler.end(runner.share, state.elapsed, state.best_energy, bound, pending)
        if runner is state.glance:
            state.glance = None
            state.scheduler.forget(runner.share)
        runner.seen = min(runner.seen, runner.brought)
        if runner in state.turns:
            state.turns.remove(runner)

    def _end(self, state: State, runner: Runner) -> None:
        """The end of a method; a search begins again, with another seed, if there is time."""
        assert runner.solver is not None
        if runner.start is None:  # else the run ended before it was started
            final = runner.solver.finish(runner.inner)
            self._offer(state, runner, final.labels)
            self._raise(state, runner, final.bound)
            state.states[runner.phase.method] = final.state
        runner.solver = runner.inner = runner.start = None
        runner.done = not (runner.phase.search and np.isfinite(state.limit))
        runner.share.ended = runner.done and not runner.phase.again
        self._judge(state, runner)
        runner.rounds += 1

    def finish(self, state: State) -> Final:
        if state.crew is not None:
            state.over.told = True
            for task, value in state.crew.rest():
                self._hear(state, task, value)
        for runner in state.runners:
            if runner.solver is not None:
                self._end(state, runner)
        return Final(state=state.states, note="\n  ".join(self._story(state)))

    def _story(self, state: State) -> list[str]:
        lines = list(state.story)
        for runner in state.runners:
            if runner.iterations or runner.rounds:
                line = f"{runner.phase.method} ({runner.phase.why}): {runner.iterations} iterations"
                line += f" in {runner.share.seconds:.2f} s"
                if np.isfinite(runner.brought):
                    line += f", energy {state.graph.user_energy(runner.brought):.9g}"
                lines.append(line)
        return lines
