"""One run of ``auto``: whose turn it is, what methods that are at work bring, and when a turn ends.

With several hands so many methods are at work at once, each on a thread of its own (runtime/crew.py); whatever they
bring is told on the calling thread, which alone decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tightmap.energy.energies import energy
from tightmap.errors import ModelError
from tightmap.graph.graph import Graph, PairArrays
from tightmap.moves.context import Context, Halt, Incumbent, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.feasibility.engine import Feasibility, infeasible_bound
from tightmap.registry import make_solver
from tightmap.runtime import background, clock
from tightmap.runtime.crew import Crew
from tightmap.runtime.pace import SLICE, time_left
from tightmap.solvers.auto.large import Course
from tightmap.solvers.auto.runner import Bout, Runner
from tightmap.solvers.auto.scheduler import Scheduler
from tightmap.solvers.base import Final, Init, Progress

FEASIBLE = 0.25  # part of the time limit after which the search for a feasible labelling leaves the time to others
# The part that the first turn of moves over tables may take, which is half lost where it is cut off: photomontages of
# 700 x 700 pixels in 3 s, five seeds, ended 7 to 96 % above expansion alone when it might take half of the limit
WHOLE = 0.9
MOMENT = 0.02  # part of the time limit that the exact search has before all others on a small model
# It has a tenth, up to a second, if it prepares the model in a fifth of that: of 5 s, Bayesian networks of a thousand
# variables are proven after 0.2 to 0.9 s; as one of many methods it took 1.3 to 3.7 s
GENEROUS, SECOND, PREPARED = 0.1, 1.0, 0.2
FAILURES = 20_000  # so many failures of it are enough as well
BOUT = 0.01  # seconds that a method works on a thread of its own before anybody looks at what it found
ALONE = 0.05  # seconds after which others begin beside the moment before all others: what is easy is proven by then


@dataclass
class Run:
    """The methods, what they have brought so far, and where the run has got to: step by step to the finish."""

    graph: Graph
    context: Context
    init: Init
    runners: list[Runner]
    scheduler: Scheduler
    limit: float  # seconds, inf without a limit
    incumbent: Incumbent  # of the whole run
    first: float  # energy of the labelling the run began with
    hands: int = 1  # methods that have their turns at once
    begun: bool = False
    glanced: bool = False  # whether the exact search was offered its moment before all others
    glance: Runner | None = None  # the exact search while it has that moment
    joined: float = -math.inf  # when others begin beside it, where there are threads for them
    sought: bool = False  # whether a feasible labelling was asked for, where none was known
    turns: list[Runner] = field(default_factory=list)  # whose turn it is
    crew: Crew[Runner | Feasibility] | None = None  # the threads they are at work on, where there are several of them
    over: Halt = field(default_factory=Halt)  # tells those at work that the run has ended
    iterations: int = 0  # of all methods together
    states: dict[str, Any] = field(default_factory=dict)
    problem: Feasibility | None = None  # the hard constraints, while the first feasible labelling is looked for
    story: list[str] = field(default_factory=list)
    course: Course | None = None  # of a large model with a time limit
    outside: Callable[[float], float] | None = None  # energies as people know them, if not those of the graph

    @property
    def elapsed(self) -> float:
        """Seconds of the limit that are over."""
        return self.limit - self.context.remaining()

    @property
    def best(self) -> Labels:
        return self.incumbent.wide_labels

    @property
    def best_energy(self) -> float:
        return self.incumbent.energy

    def _offer(self, runner: Runner, labels: Labels | None, known: float | None = None) -> None:
        if labels is None:
            return
        value = energy(self.graph, labels) if known is None else known
        runner.brought = min(runner.brought, value)
        before = self.best_energy
        if self.incumbent.offer(labels, value) and len(self.turns) > 1:
            others = [r.share for r in self.turns if r is not runner]
            self.scheduler.meanwhile(others, fell=before - self.best_energy)

    def _lift(self, runner: Runner, bound: float | None) -> None:
        if bound is None:
            return
        runner.share.bound = max(runner.share.bound, bound)
        before = self.incumbent.bound
        self.incumbent.raise_bound(bound)
        if bound > before and len(self.turns) > 1:
            others = [r.share for r in self.turns if r is not runner]
            self.scheduler.meanwhile(others, raised=bound - before)

    def _choose(self) -> Runner | None:
        """Whose turn it is, ready to step; None when all have ended, or are at work."""
        limited = np.isfinite(self.limit)
        waiting = [r for r in self.runners if not r.done or (limited and r.phase.again and self.best_energy < r.seen)]
        waiting = [r for r in waiting if not r.lost]
        course = self.course
        if course is not None:
            waiting = [r for r in waiting if course.fits(r.phase.method, self.context.remaining())]
        if not waiting:
            return None
        if limited:
            waiting = self._compiled_first(waiting)
        runner = waiting[0]
        if runner.phase.turn is not None and not limited:
            runner = min((r for r in waiting if r.phase.turn is not None), key=lambda r: r.turns)
        until = math.inf
        if limited and course is None:
            # without a feasible labelling the first question is whether there is one
            asked = not self.incumbent.feasible and self.problem is None
            first = (lambda share: share.name == "exact") if asked else None
            busy = [r.share for r in self.turns]
            share = self.scheduler.next(self.elapsed, [r.share for r in waiting], first, busy)
            if share is None:
                return None
            runner = next(r for r in waiting if r.share is share)
            until = clock.now() + self.scheduler.turn(share)
        self._begin(runner, until)
        return runner

    def _begin(self, runner: Runner, until: float) -> None:
        """A turn of this method begins; what it is to start from, if it has to be started, is made up here."""
        limited = np.isfinite(self.limit)
        self.turns.append(runner)
        runner.until = until
        self.scheduler.begin(runner.share, self.best_energy, self.incumbent.bound)
        if runner.solver is None:
            phase = runner.phase
            with clock.stopped():
                runner.solver = make_solver(phase.method, phase.options | (phase.endless if limited else {}))
            context = replace(
                self.context,
                seed=self.context.seed + 1000 * runner.rounds,
                threads=max(1, self.context.threads // self.hands),
                incumbent=None,
                shared=lambda: self.context.iterations_left(self.iterations),
                over=self.over,
            )
            # cuts choose their own start, or two, as long as there is nothing but what the run began with
            given = self.init.relaxed is not None or (phase.whole and self.init.labels is None)
            best = None if given and self.best_energy >= self.first else self.best
            relaxed = self.init.relaxed if best is None else None
            for other in self.runners:
                if other.phase.method == phase.follows and other.solver is not None:
                    self._end(other)
            kept = self.states.get(phase.method) or self.states.get(phase.follows)
            init = Init(labels=best, relaxed=relaxed, state=kept)
            runner.start = partial(runner.solver.start, self.graph, init, context)
        elif self.best_energy < runner.seen:
            runner.solver.adopt(runner.inner, self.best)
        runner.seen = min(runner.seen, self.best_energy)

    def _show_first(self) -> None:
        """The turn of the exact search before all others, where it is to have one and its kernels are there."""
        if not np.isfinite(self.limit) or self.course is not None:
            return
        if self.context.wall < math.inf and background.has_compiled():  # compiling it may take all there is
            return
        ready = self._compiled_first(self.runners)
        moment = MOMENT * self.limit
        runner = next((r for r in ready if r.phase.prepare <= moment), None)
        if runner is not None:
            longer = min(GENEROUS * self.limit, SECOND)
            if runner.phase.prepare <= PREPARED * longer:
                moment = max(moment, longer)
            self.glance, self.joined = runner, clock.now() + ALONE
            self._begin(runner, clock.now() + moment)

    def _compiled_first(self, waiting: list[Runner]) -> list[Runner]:
        """Those whose kernels no helper is compiling; where there is none, the one that would come last of all."""
        jobs = [(r.phase.method, r.phase.options) for r in sorted(waiting, key=lambda r: not r.phase.early)]
        graph = self.graph  # the arrays of an image are those of pairs; to ask for them would take seconds
        background.wanted(jobs, graph.lattice is not None or isinstance(graph.arrays, PairArrays))
        queue = background.being_compiled()
        if not queue:
            return waiting
        ready = [runner for runner in waiting if runner.solver is not None or runner.phase.method not in queue]
        return ready or [max(waiting, key=lambda runner: queue.index(runner.phase.method))]

    def _look_for_feasible(self, problem: Feasibility) -> bool | None:
        """A part of the search for a labelling that keeps the hard constraints.  Called on any thread."""
        return problem.run(time_left(self.context, SLICE), FAILURES - problem.failures)

    def _hear_of_feasible(self, problem: Feasibility, found: bool | None) -> Progress:
        if found:
            assert problem.labels is not None
            self.incumbent.offer(local_minimum(self.graph, problem.labels, self.context))
        elif found is False:
            self.incumbent.raise_bound(infeasible_bound(self.graph))
        late = np.isfinite(self.limit) and self.context.remaining() < (1.0 - FEASIBLE) * self.limit
        if found is not None or late or problem.failures >= FAILURES or self.incumbent.feasible:
            self.story.append(problem.story())
            self.problem = None
        return Progress(done=found is False, iterations=0)

    def step(self) -> Progress:
        if not self.begun and self.runners:  # there is an answer before a method has compiled its kernels
            self.begun = True
            return Progress(iterations=0)
        if not self.glanced:
            self.glanced = True
            self._show_first()
        if not self.sought and not self._one_alone():
            self.sought = True
            if self.graph.hard > 0.0 and not self.incumbent.feasible and self.runners:
                self.problem = Feasibility(self.graph, self.best)
        try:
            found = self._work()
        except BaseException:
            self.over.told = True  # those at work are told, and not waited for
            raise
        if found is None:  # all have ended, or on a large model there is no time for the start of another one
            late = self.course is not None and not all(r.done for r in self.runners)
            return Progress(done=not late, late=late, iterations=0 if self.runners else 1)
        return self._hear(*found)

    def _one_alone(self) -> bool:
        """The moment before all others belongs to one method alone, if there are more threads only its beginning."""
        return self.glance is not None and (self.hands == 1 or clock.now() < self.joined)

    def _work(self) -> tuple[Runner | Feasibility, Any] | None:
        """Some steps of a method whose turn it is, and what they came to; None when there is nothing to do."""
        if self.hands == 1 or self._one_alone():
            if self.problem is not None:
                return self.problem, self._look_for_feasible(self.problem)
            runner = self.turns[0] if self.turns else self._choose()
            return None if runner is None else (runner, runner.work(0.0))
        if self.crew is None:
            self.crew = Crew(max(1, self.context.threads // self.hands))
        crew = self.crew
        tasks: list[Runner | Feasibility] = [*self.turns]
        if self.problem is not None:
            tasks.insert(0, self.problem)
        while len(tasks) < self.hands:
            other = self._choose()
            if other is None:
                break
            tasks.append(other)
        for task in tasks:
            if task not in crew.at_work:
                if isinstance(task, Runner):
                    call: Callable[[], Any] = partial(task.work, BOUT)
                else:
                    call = partial(self._look_for_feasible, task)
                if not crew.begin(task, call):  # the system gives no more threads
                    return task, call()
        return crew.wait() if crew.at_work else None

    def _hear(self, task: Runner | Feasibility, value: Any) -> Progress:
        """What somebody has to tell who was at work."""
        if not isinstance(task, Runner):
            return self._hear_of_feasible(task, value)
        before = self.iterations
        late = self._absorb(task, value)
        return Progress(done=all(r.done for r in self.runners), late=late, iterations=self.iterations - before)

    def _absorb(self, runner: Runner, bout: Bout) -> bool:
        """What a method did, and whether its turn ends with that; True when there is no time for anything else."""
        limited = np.isfinite(self.limit)
        course = self.course
        if bout.starting is not None:
            self.scheduler.used(runner.share, bout.starting)
            if course is not None:
                course.started(runner.phase.method, bout.starting)
                waiting = [r for r in self.runners if not r.done]
                waiting = [r for r in waiting if course.fits(r.phase.method, self.context.remaining()) or r is runner]
                part = runner.phase.weight / sum(r.phase.weight for r in waiting)
                runner.until = clock.now() + part * self.context.remaining()
        for progress, seconds in bout.steps:
            self.scheduler.used(runner.share, seconds)
            runner.iterations += progress.iterations
            self.iterations += progress.iterations
            self._offer(runner, progress.labels, progress.energy)
            self._lift(runner, progress.bound)
        if bout.failure:
            self._lose(runner, bout.failure)
            return False
        progress, seconds = bout.steps[-1]
        now = clock.now()
        cap = runner.phase.max_iterations if not limited else None
        if progress.done or progress.late or (cap is not None and runner.iterations >= cap):
            self._end(runner)
        elif not limited and self._turn_over(runner):
            runner.turns += 1
            self._judge(runner)
        elif course is not None:
            gap = self.best_energy - self.incumbent.bound
            closing = course.closing(gap, now)  # asked after every step: it remembers
            late = course.last(seconds, self.context.remaining())
            over = now >= runner.until and not progress.pending and not closing
            if late or (over and self._another_fits(runner)):
                self._end(runner)
            return late
        elif now >= runner.until and not self._still_in_first(runner):
            self._judge(runner, progress.pending)
        return False

    def _another_fits(self, runner: Runner) -> bool:
        """Whether there is a method to go on with, on a large model."""
        assert self.course is not None
        left = self.context.remaining()
        return any(not r.done and r is not runner and self.course.fits(r.phase.method, left) for r in self.runners)

    def _turn_over(self, runner: Runner) -> bool:
        """Without a time limit: are the iterations of this turn and of those before it done?"""
        turn = runner.phase.turn
        return turn is not None and runner.iterations >= turn * (2 ** (runner.turns + 1) - 1)

    def _still_in_first(self, runner: Runner) -> bool:
        """Is it in the middle of the iteration that its first turn lasts for?"""
        fresh = runner.phase.whole and runner.share.made == 0 and runner.iterations == 0
        return fresh and runner.share.seconds < WHOLE * self.limit

    def _judge(self, runner: Runner, pending: bool = False) -> None:
        """The end of a turn."""
        bound = self.incumbent.bound
        self.scheduler.end(runner.share, self.elapsed, self.best_energy, bound, pending)
        if runner is self.glance:
            self.glance = None
            self.scheduler.forget(runner.share)
        runner.seen = min(runner.seen, runner.brought)
        if runner in self.turns:
            self.turns.remove(runner)

    def _end(self, runner: Runner) -> None:
        """The end of a method; a search begins again, with another seed, if there is time."""
        assert runner.solver is not None
        if runner.start is None:  # else the run ended before it was started
            final = runner.solver.finish(runner.inner)
            self._offer(runner, final.labels)
            self._lift(runner, final.bound)
            self.states[runner.phase.method] = final.state
        runner.solver = runner.inner = runner.start = None
        runner.done = not (runner.phase.search and np.isfinite(self.limit))
        runner.share.ended = runner.done and not runner.phase.again
        self._judge(runner)
        runner.rounds += 1

    def _lose(self, runner: Runner, why: str) -> None:
        """There is not enough memory for this method: the others go on without it."""
        self.story.append(f"{runner.phase.method} was left out: {why}")
        runner.solver = runner.inner = runner.start = None
        runner.done = runner.lost = runner.share.ended = True
        self._judge(runner)
        if all(r.lost for r in self.runners):
            raise ModelError(why)

    def finish(self) -> Final:
        if self.crew is not None:
            self.over.told = True
            for task, value in self.crew.rest():
                self._hear(task, value)
        for runner in self.runners:
            if runner.solver is not None:
                self._end(runner)
        return Final(state=self.states, note="\n  ".join(self._told()))

    def _told(self) -> list[str]:
        lines = list(self.story)
        known = self.outside or self.graph.user_energy
        for runner in self.runners:
            if runner.iterations or runner.rounds:
                line = f"{runner.phase.method} ({runner.phase.why}): {runner.iterations} iterations"
                line += f" in {runner.share.seconds:.2f} s"
                if np.isfinite(runner.brought):
                    line += f", energy {known(runner.brought):.9g}"
                lines.append(line)
        return lines
