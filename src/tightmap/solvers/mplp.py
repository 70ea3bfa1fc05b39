"""MPLP and MPLP-C: max-product linear programming, and its tightening by clusters (Sontag et al. 2008).

MPLP ascends the dual of the linear relaxation block by block: a factor takes the beliefs of its variables and gives
them back in equal shares.  The bound never falls; it is that of the local polytope at best.

MPLP-C then adds clusters where they are guaranteed to raise the bound: triplets of pairs, and where there are none
left frustrated cycles, triangulated; until the bound meets the energy.  The clusters send messages to their pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph import Graph
from tightmap.pace import TimeUp
from tightmap.solvers.base import Context, Final, Init, Progress, Solver
from tightmap.solvers.mplp_run import MplpRun
from tightmap.solvers.orders import node_order
from tightmap.solvers.region_run import Pace, Run, advance, iterate, tighten
from tightmap.solvers.regions import build_regions
from tightmap.solvers.srmp import SrmpRun

EARLY = 4  # iterations at the beginning in which every labelling is rounded


@dataclass
class State:
    run: Run | None  # None when the time limit left no room to begin
    work: Iterator[Progress | None]


def _check(name: str, rounding: int, tolerance: float) -> None:
    if rounding < 1:
        raise OptionError(f"{name}: rounding must be at least 1, got {rounding}")
    if not tolerance >= 0.0:
        raise OptionError(f"{name}: tolerance must be at least 0, got {tolerance}")


@dataclass(frozen=True)
class MPLP(Solver):
    """Options of MPLP.

    rounding   a labelling is rounded (and the bound computed) every so many iterations
    polish     coordinate descent from every rounding
    tolerance  stop when 10 iterations raise the bound by less than this, relative to the bound
    """

    rounding: int = 5
    polish: bool = True
    tolerance: float = 1e-8

    name: ClassVar[str] = "mplp"
    summary: ClassVar[str] = "max-product linear programming: block ascent of the linear relaxation, certified bounds"
    gives_bound: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check("mplp", self.rounding, self.tolerance)

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        try:
            run = MplpRun(build_regions(graph, "minimal", context=context), context)
            run.accept(init)
        except TimeUp:
            return State(None, iter(()))
        return State(run, iterate(run, Pace(self.rounding, self.polish, self.tolerance, EARLY), last=True))

    def step(self, state: State) -> Progress:
        return advance(state.work)

    def finish(self, state: State) -> Final:
        return Final() if state.run is None else state.run.final()


@dataclass(frozen=True)
class MPLPC(Solver):
    """Options of MPLP-C.

    clusters   "all": triplets while they promise a gain, then frustrated cycles; or only "triplets" or "cycles"
    updates    "mplp" (block updates, as in the original) or "srmp" (sequential passes; may stall earlier)
    first      iterations before the first clusters, at most
    inner      iterations between two rounds of clusters, at most
    per_round  clusters added in a round; 0: a tenth of the number of pairs, between 20 and 2000
    rounding   a labelling is rounded every so many iterations
    polish     coordinate descent from every rounding
    tolerance  stop when no cluster is left and 10 iterations raise the bound by less than this, relative to the bound
    """

    clusters: str = "all"
    updates: str = "mplp"
    first: int = 1000
    inner: int = 20
    per_round: int = 0
    rounding: int = 5
    polish: bool = True
    tolerance: float = 1e-8

    name: ClassVar[str] = "mplp-c"
    summary: ClassVar[str] = "message passing that adds triplets and frustrated cycles until the bound meets the energy"
    gives_bound: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check("mplp-c", self.rounding, self.tolerance)
        if self.clusters not in ("all", "triplets", "cycles"):
            raise OptionError(f"mplp-c: clusters must be 'all', 'triplets' or 'cycles', got {self.clusters!r}")
        if self.updates not in ("srmp", "mplp"):
            raise OptionError(f"mplp-c: updates must be 'srmp' or 'mplp', got {self.updates!r}")
        if self.first < 1 or self.inner < 1 or self.per_round < 0:
            raise OptionError("mplp-c: first and inner must be at least 1, per_round at least 0")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        make = SrmpRun if self.updates == "srmp" else MplpRun
        try:
            run = make(build_regions(graph, "full", (), node_order(graph, "index"), context), context)
            run.accept(init)
        except TimeUp:
            return State(None, iter(()))
        pace = Pace(self.rounding, self.polish, self.tolerance, EARLY)
        return State(run, tighten(run, pace, self.clusters, self.first, self.inner, self.per_round))

    def step(self, state: State) -> Progress:
        return advance(state.work)

    def finish(self, state: State) -> Final:
        return Final() if state.run is None else state.run.final()
