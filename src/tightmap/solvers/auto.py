"""auto: choose methods by the structure of the model, chain them, keep the best labelling and the best bound.

One short rule (``plan``), in this order:

    binary variables, pairwise           qpbo        exact when the model is submodular
    Potts and other label differences    expansion   fast and good on images
    pairwise                             trws        the bound, and often the proof; exact on forests
    higher order                         srmp        the same for any order
    few labels in all                    tabu        (dense graphs) and anneal (sparse ones): strong labellings
    few variables, dense, pairwise       mplp-c      tightens the bound by clusters
    higher order                         fusion      moves between whole labellings
    always                               admm        the nonconvex relaxation

Every phase starts from the best labelling so far, and the run stops as soon as bound and energy meet.  A time limit is
divided between the phases, and what is left after the last one goes to the searches again with other seeds.  Without a
time limit every phase runs once, to its own end, so that the result does not depend on the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tightmap import clock
from tightmap.energy import energy
from tightmap.errors import ModelError
from tightmap.graph import Graph, Kind
from tightmap.registry import METHODS, make_solver
from tightmap.solvers.base import Context, Final, Init, Labels, Progress, Solver

CLUSTERS = 400  # variables up to which tightening by clusters is tried on dense graphs
TABU = 10_000  # labels in all up to which tabu search is tried, which scans them all at every step
ANNEAL = 100_000  # the same for forest annealing
DENSE = 4  # factors per variable above which a graph counts as dense


@dataclass(frozen=True)
class Phase:
    """One method, its options, the share of the remaining time it may take, and why it is there."""

    method: str
    why: str
    share: float
    options: dict[str, Any] = field(default_factory=dict)
    max_iterations: int | None = None  # without a time limit
    search: bool = False  # worth repeating with another seed


def plan(graph: Graph) -> list[Phase]:
    """The phases for a model, by its structure alone."""
    g = graph.arrays
    pairwise = graph.order <= 2
    dense = graph.m > DENSE * graph.n
    labels = len(g.unary)
    differences = bool(np.isin(g.kind, (Kind.POTTS, Kind.LINEAR, Kind.QUADRATIC)).all() and (g.weight >= 0).all())
    small = labels <= (TABU if dense else ANNEAL)
    phases: list[Phase] = []
    if pairwise and graph.max_labels == 2:
        phases.append(Phase("qpbo", "binary variables", 0.3))
    elif pairwise and differences:
        phases.append(Phase("expansion", "differences of labels with non-negative weights", 0.5))
    if pairwise:
        share = 0.25 if small and not differences else 0.5
        phases.append(Phase("trws", "the bound", share, max_iterations=1000))
    else:
        phases.append(Phase("srmp", "higher-order factors: bound and labelling", 0.4, max_iterations=500))
    if labels <= TABU:
        share = 0.4 if dense else 0.2
        phases.append(Phase("tabu", "small enough for tabu search", share, search=True))
    if not dense and labels <= ANNEAL and not (differences and labels > TABU):
        phases.append(Phase("anneal", "sparse: forests are large", 0.5, search=True))
    if pairwise and dense and graph.n <= CLUSTERS:
        phases.append(Phase("mplp-c", "few variables, densely connected: clusters tighten the bound", 0.6))
    if not pairwise:
        phases.append(Phase("fusion", "moves between whole labellings", 0.4))
    phases.append(Phase("admm", "the nonconvex relaxation", 1.0, search=True))
    return phases


@dataclass
class State:
    graph: Graph
    context: Context
    init: Init
    phases: list[Phase]
    solver: Solver | None = None
    inner: Any = None
    deadline: float | None = None
    iterations: int = 0  # of the present phase
    started: float = 0.0
    phase: Phase | None = None
    best: Labels | None = None
    best_energy: float = float("inf")
    bound: float = -float("inf")
    story: list[str] = field(default_factory=list)
    again: list[Phase] = field(default_factory=list)  # searches to repeat while time is left
    rounds: int = 0
    states: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Auto(Solver):
    """No options: the plan follows from the model."""

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "chooses and chains methods by the structure of the model; best labelling, best bound"
    gives_bound: ClassVar[bool] = True

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        phases = [p for p in plan(graph) if p.method in METHODS]
        state = State(graph, context, init, phases)
        state.again = [p for p in phases if p.search]
        if isinstance(init.state, dict):
            state.states = dict(init.state)
        if init.labels is not None:
            self._offer(state, init.labels)
        return state

    def _offer(self, state: State, labels: Labels | None) -> None:
        if labels is not None:
            value = energy(state.graph, labels)
            if value < state.best_energy:
                state.best, state.best_energy = labels.copy(), value

    def _begin(self, state: State) -> bool:
        """Start the next phase that takes the model; False when there is none."""
        while state.phases:
            phase = state.phases.pop(0)
            solver = make_solver(phase.method, dict(phase.options))
            try:
                solver.check(state.graph)
            except ModelError:
                continue
            left = state.context.remaining()
            state.deadline = None
            if np.isfinite(left):
                share = phase.share if state.phases else 1.0
                state.deadline = clock.now() + share * max(0.0, left)
            inner = Context(state.context.seed + 1000 * state.rounds, state.context.threads, state.deadline)
            relaxed = state.init.relaxed if state.best is None else None
            init = Init(labels=state.best, relaxed=relaxed, state=state.states.get(phase.method))
            state.phase, state.solver, state.iterations = phase, solver, 0
            state.started = clock.now()
            state.inner = solver.start(state.graph, init, inner)
            return True
        return False

    def step(self, state: State) -> Progress:
        if state.solver is None and not self._begin(state):
            return Progress(done=True, iterations=0)
        assert state.solver is not None and state.phase is not None
        progress = state.solver.step(state.inner)
        state.iterations += progress.iterations
        self._offer(state, progress.labels)
        if progress.bound is not None:
            state.bound = max(state.bound, progress.bound)
        cap = state.phase.max_iterations
        ended = progress.done
        if state.deadline is None:
            ended |= cap is not None and state.iterations >= cap
        else:
            ended |= clock.now() >= state.deadline
        if ended:
            self._end(state)
            if not state.phases and state.deadline is not None and state.context.remaining() > 0 and state.again:
                state.rounds += 1
                state.phases = list(state.again)
            bound = state.bound if np.isfinite(state.bound) else None
            # a phase that ran out of time is not the end of the method: the driver says so
            done = not state.phases and progress.done
            return Progress(state.best, bound, done, progress.iterations, progress.info)
        return progress

    def _end(self, state: State) -> None:
        assert state.solver is not None and state.phase is not None
        final = state.solver.finish(state.inner)
        self._offer(state, final.labels)
        if final.bound is not None:
            state.bound = max(state.bound, final.bound)
        state.states[state.phase.method] = final.state
        seconds = clock.now() - state.started
        state.story.append(
            f"{state.phase.method} ({state.phase.why}): {state.iterations} iterations in {seconds:.2f} s, "
            f"energy {state.best_energy:.9g}" + (f", bound {state.bound:.9g}" if np.isfinite(state.bound) else "")
        )
        state.solver, state.inner = None, None

    def finish(self, state: State) -> Final:
        if state.solver is not None:
            self._end(state)
        bound = state.bound if np.isfinite(state.bound) else None
        return Final(labels=state.best, bound=bound, state=state.states, note="\n  ".join(state.story))
