"""auto: choose methods by the structure of the model, share the time among them, keep the best labelling and bound.

    energy = least energy of all methods,   bound = largest certified bound of all;   stop when they meet

A small model whose variables can all be eliminated is solved at once (moves/at_once.py), and so is one of two labels
whose differences cost (graphcut/binary_cut.py).  Otherwise what can be settled beforehand is, and the methods work on
the smaller model that is left (presolve.py, reduced_run.py).  Several methods share the work: which ones and in which
order is in plan.py, how they share a time limit in scheduler.py; they are run in run.py.

The first step only reports the labelling that the run began with: while kernels are compiled, there is an answer.

With a time limit a model that the exact search prepares in no time is shown to it first, for a fiftieth of the limit or
up to a second: what is easy is proven there. Then the methods take turns, several at once where there are several
threads. A turn is a fiftieth of the limit (the first
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
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tightmap.energy.certificate import proves_infeasible
from tightmap.energy.energies import trivial_bound, unary_argmin
from tightmap.errors import ModelError
from tightmap.graph.graph import Graph
from tightmap.graphcut.binary_cut import is_one_cut, minimum_by_one_cut, network_bytes, settled_cut
from tightmap.moves.at_once import is_small, minimum_at_once
from tightmap.moves.context import Context
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.registry import METHODS, make_solver
from tightmap.runtime import clock, memory
from tightmap.runtime.pace import TimeUp
from tightmap.solvers.auto.large import Course
from tightmap.solvers.auto.plan import ANNEAL, LARGE, ONE_CUT, plan
from tightmap.solvers.auto.presolve import presolve
from tightmap.solvers.auto.reduced_run import PRESOLVED, ReducedRun, beginning
from tightmap.solvers.auto.run import Run
from tightmap.solvers.auto.runner import Runner
from tightmap.solvers.auto.scheduler import LONG, LONG_SMALL, Scheduler, Share
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities

FIRST = 0.5  # part of the time limit that one cut may take that would be all
# With several threads several methods have their turns at once, each on its part of the threads: most methods use only
# one.  Sweeps over images are shared among threads, and there it is the first two methods that matter.
IMAGE_HANDS = 2


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

    def start(self, graph: Graph, init: Init, context: Context) -> Run | ReducedRun:
        settled = self._settled_at_once(graph, init, context)
        if settled is not None:
            return settled
        incumbent = context.incumbent_of(graph)
        if incumbent.energy == np.inf:  # what could have been optimal at once was too wide for it, or took too long
            begin = init.labels if init.labels is not None else unary_argmin(graph)
            incumbent.offer(local_minimum(graph, begin, context))
        presolved = None
        if init.relaxed is None:
            presolved = init.state.get(PRESOLVED) if isinstance(init.state, dict) else None
            if presolved is None or presolved.outer is not graph:
                presolved = presolve(graph, incumbent, context)
                init = init if presolved is None else replace(init, state=None)
        if presolved is None:
            return self._methods(graph, init, context)
        inner, own = beginning(presolved, init, context)
        small = self._settled_at_once(presolved.graph, inner, own)
        run = small if small is not None else self._methods(presolved.graph, inner, own)
        return ReducedRun(presolved, run, incumbent, lambda: self._methods(graph, replace(init, state=None), context))

    def _settled_at_once(self, graph: Graph, init: Init, context: Context) -> Run | None:
        """A run that is over before it begins: a model that needs no more than elimination, or one cut."""
        limit = context.remaining()
        incumbent = context.incumbent_of(graph)
        if graph.m == 0:
            incumbent.offer(unary_argmin(graph))
            incumbent.raise_bound(trivial_bound(graph))
            return Run(graph, context, init, [], Scheduler(1.0, []), limit, incumbent, incumbent.energy)
        small = minimum_at_once(graph)
        if small is not None:
            incumbent.offer(small[0], small[1])
            incumbent.raise_bound(small[2])
        if small is not None and (incumbent.proven() or proves_infeasible(graph, incumbent.bound)):
            state = Run(graph, context, init, [], Scheduler(1.0, []), limit, incumbent, incumbent.energy)
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
                    state = Run(graph, context, init, [], Scheduler(1.0, []), limit, incumbent, incumbent.energy)
                    state.story.append("two labels, differences of which cost: one minimum cut")
                    return state
        return None

    def _methods(self, graph: Graph, init: Init, context: Context) -> Run:
        """A run in which methods have their turns."""
        limit = context.remaining()
        incumbent = context.incumbent_of(graph)
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
        if incumbent.energy == np.inf:
            begin = init.labels if init.labels is not None else unary_argmin(graph)
            incumbent.offer(local_minimum(graph, begin, context))
        if graph.differences and graph.uniform:  # with strong weights one label for all is far below any local minimum
            sums = graph.unary.reshape(graph.n, -1).sum(axis=0, dtype=np.float64)
            if sums.min() + graph.constant < incumbent.energy:
                incumbent.offer(np.full(graph.n, int(sums.argmin()), np.int64))
        long = LONG if len(graph.unary) > ANNEAL else LONG_SMALL
        scheduler = Scheduler(limit if np.isfinite(limit) else 1.0, [runner.share for runner in runners], long)
        state = Run(graph, context, init, runners, scheduler, limit, incumbent, incumbent.energy)
        labels = len(graph.unary)
        if labels > LARGE and np.isfinite(limit):
            state.course = Course(labels, limit)
        elif np.isfinite(limit) and context.max_iterations is None:
            most = context.threads if labels <= ANNEAL else min(context.threads, IMAGE_HANDS)
            state.hands = scheduler.hands = min(most, len(runners)) or 1
        if isinstance(init.state, dict):
            state.states = dict(init.state)
        return state

    def step(self, state: Run | ReducedRun) -> Progress:
        return state.step()

    def finish(self, state: Run | ReducedRun) -> Final:
        return state.finish()
