"""The methods of a run of ``auto`` while they are at work, and the run itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Halt, Incumbent, Labels
from tightmap.moves.feasibility.engine import Feasibility
from tightmap.runtime import clock
from tightmap.runtime.crew import Crew
from tightmap.solvers.auto.large import Course
from tightmap.solvers.auto.plan import Phase
from tightmap.solvers.auto.scheduler import Scheduler, Share
from tightmap.solvers.base import Init, Progress, Solver


@dataclass
class Bout:
    """Some steps of one method: what each of them found, and the seconds that it took."""

    steps: list[tuple[Progress, float]] = field(default_factory=list)
    starting: float | None = None  # seconds of its start, if that was a part of it


@dataclass(eq=False)
class Runner:
    """A method at work: its state while it has one, and what it has brought so far."""

    phase: Phase
    share: Share
    solver: Solver | None = None
    start: Callable[[], Any] | None = None  # to be called before its first step
    inner: Any = None
    iterations: int = 0
    rounds: int = 0
    turns: int = 0  # without a time limit, where it takes turns at all
    done: bool = False
    until: float = math.inf  # the end of its turn
    seen: float = math.inf  # the lowest energy that it knows of
    brought: float = math.inf  # the lowest energy it reached itself

    def work(self, long: float) -> Bout:
        """One step of its turn, or several that together take so long.  Called on any thread, by one at a time."""
        assert self.solver is not None
        bout, begin = Bout(), clock.now()
        if self.start is not None:
            self.inner, self.start = self.start(), None
            bout.starting = clock.now() - begin
        while True:
            before = clock.now()
            progress = self.solver.step(self.inner)
            now = clock.now()
            bout.steps.append((progress, now - before))
            if progress.done or progress.late or now - begin >= long or now >= self.until:
                return bout


@dataclass
class State:
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
