"""What SRMP, MPLP and MPLP-C share as solvers: a run on a region graph, the work on it, and the options of rounding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context
from tightmap.runtime.pace import TimeUp
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.regions.run import Pace, Run
from tightmap.solvers.stages import advance

EARLY = 4  # a labelling is rounded in each of so many first iterations, later only now and then


@dataclass
class State:
    run: Run | None  # None when the time limit left no room to begin
    work: Iterator[Progress | None]


class RegionSolver(Solver):
    """A method on a region graph: the graph and what is done on it are its own, the rest is the same for all."""

    rounding: int  # options that all of them have
    polish: bool
    tolerance: float

    def __post_init__(self) -> None:
        if self.rounding < 1:
            raise OptionError(f"{self.name}: rounding must be at least 1, got {self.rounding}")
        if not self.tolerance >= 0.0:
            raise OptionError(f"{self.name}: tolerance must be at least 0, got {self.tolerance}")

    @abstractmethod
    def run(self, graph: Graph, context: Context) -> Run:
        """Zero messages on the region graph of the method."""

    @abstractmethod
    def work(self, run: Run, pace: Pace) -> Iterator[Progress | None]:
        """From the first iteration to the end: a Progress after every one, None in between."""

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        try:
            run = self.run(graph, context)
            run.accept(init)
        except TimeUp:
            return State(None, iter(()))
        return State(run, self.work(run, Pace(self.rounding, self.polish, self.tolerance, EARLY)))

    def step(self, state: State) -> Progress:
        """One iteration, or the part of it that fits between two looks at the clock."""
        return advance(state.work)

    def finish(self, state: State) -> Final:
        return Final() if state.run is None else state.run.final()
