"""SRMP: sequential reweighted message passing on the region graph, for factors of any order (Kolmogorov 2015).

    maximise over messages m   sum over regions B of min [theta_B + sum_{A->B} m_{A->B} - sum_{B->C} m_{B->C}],

a lower bound of the energy.  Regions are the variables, the factors and added clusters; a region sends messages to
regions inside it.  Variables, and the factors that other factors send messages to, are visited in order and back again.
A visit of B takes the min-marginals of those regions A around it that an earlier visit has changed, and shares the sum
out over those that a later visit reads:

    m_{A->B}(x_B) <- min over the rest of x_A of [theta_A + messages into A - messages of A to others than B],
                     less its minimum
    bracket = theta_B + sum_A m_{A->B} - sum_C m_{B->C}
    m_{A->B} <- m_{A->B} - bracket / w_B,     w_B by how many regions are earlier and later (regions.py)

The bound never falls, and where it comes to rest depends on where it began.  Factors of higher order therefore get a
second beginning: one iteration of MPLP, which shares every variable's costs out evenly among all factors around it,
then the same passes; the better of the two ends is kept.

With ``edges="minimal"`` the bound is that of the local polytope at best; with ``"full"`` factors exchange messages with
the factors inside them, which is tighter; ``clusters`` adds zero factors for more of the same.
On pairwise models without clusters the method is TRW-S.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import Graph
from tightmap.graph.stencil import grid_width
from tightmap.moves.context import Context
from tightmap.moves.orders import ORDERS, node_order
from tightmap.solvers.base import Progress
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.regions.clusters import pair_clusters, square_clusters
from tightmap.solvers.regions.mplp_run import MplpRun
from tightmap.solvers.regions.regions import build_regions
from tightmap.solvers.regions.run import Pace, Run, iterate, tighten
from tightmap.solvers.regions.solver import RegionSolver
from tightmap.solvers.regions.sweeps import AHEAD, BACK, BACKWARD, FORWARD

STALLED = 1e-4  # clusters are added when 10 iterations raise the bound by less than this part of it
MPLP_ITERATIONS = 5  # iterations of MPLP that are made before clusters are scored


class SrmpRun(Run):
    """Forward and backward passes over the sequence of a region graph."""

    def iteration(self, rounding: bool, polish: bool) -> Iterator[None]:
        yield from self._pass(FORWARD)
        if rounding:
            yield from self.rounded(BACK, polish)
        self.low = self.regions.graph.constant + (yield from self._pass(BACKWARD))
        if rounding:
            yield from self.rounded(AHEAD, polish)

    def before_scoring(self) -> Iterator[None]:
        """Some iterations of MPLP: they never lower the bound, and leave the beliefs where clusters are scored."""
        other = MplpRun(self.regions, self.context)
        other.neg = self.neg
        for _ in range(MPLP_ITERATIONS):
            yield from other.iteration(False, False)
            other.iterations += 1

    def _pass(self, action: int) -> Generator[None, None, float]:
        """One pass over the sequence; yields between the pieces; returns the bound after a backward pass."""
        low = np.zeros(1)
        yield from self.sweep(self.neg, action, self.regions.dag.in_start, low)
        return float(low[0])


@dataclass(frozen=True)
class SRMP(RegionSolver):
    """Options of SRMP.

    edges      "full": factors send messages to the largest factors inside them; "minimal": to variables only
    clusters   zero factors to add when the bound stalls: "none", "squares" (2 x 2 on grids), "pairs" (shared by factors
               of order 3 or more), "triplets" (of pairs, by guaranteed gain), "cycles" (frustrated ones, triangulated),
               "singletons" (triplets that see a contradiction around one variable)
    order      of the variables: "index" (right for images), "greedy" or "rcm" (for numberings without meaning)
    rounding   a labelling is rounded in both passes of every so many iterations
    polish     coordinate descent from every rounding
    tolerance  stop when 10 iterations raise the bound by less than this, relative to the bound
    """

    edges: str = "full"
    clusters: str = "none"
    order: str = "index"
    rounding: int = 5
    polish: bool = True
    tolerance: float = 1e-8

    name: ClassVar[str] = "srmp"
    summary: ClassVar[str] = "sequential reweighted message passing for any order, with certified, tightened bounds"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True)

    def __post_init__(self) -> None:
        kinds = ("none", "squares", "pairs", "triplets", "cycles", "singletons")
        if self.edges not in ("full", "minimal"):
            raise OptionError(f"srmp: edges must be 'full' or 'minimal', got {self.edges!r}")
        if self.clusters not in kinds:
            raise OptionError(f"srmp: clusters must be one of {', '.join(kinds)}, got {self.clusters!r}")
        if self.order not in ORDERS:
            raise OptionError(f"srmp: order must be one of {', '.join(ORDERS)}, got {self.order!r}")
        super().__post_init__()

    def run(self, graph: Graph, context: Context) -> SrmpRun:
        if self.clusters == "squares" and grid_width(graph) is None:
            raise ModelError("clusters='squares' needs a grid: build the model with Model.grid, or use 'cycles'")
        return SrmpRun(build_regions(graph, self.edges, (), node_order(graph, self.order), context), context)

    def _begin_again(self, run: Run, pace: Pace) -> Iterator[Progress | None]:
        """The second beginning, to its end; the messages of the better end stay."""
        before, reached = run.neg, run.low
        run.neg = np.zeros_like(before)
        other = MplpRun(run.regions, run.context)
        other.neg = run.neg
        yield from other.iteration(False, False)
        yield from iterate(run, pace)
        if run.low < reached:
            run.neg, run.low = before, reached
        yield Progress(run.rounding, run.certificate(), done=True)

    def work(self, run: Run, pace: Pace) -> Iterator[Progress | None]:
        """First without clusters, which is fast and takes the bound most of the way, then with them."""
        if self.clusters in ("triplets", "cycles", "singletons"):
            yield from tighten(run, pace, self.clusters, first=1000, inner=20, wanted=0)
            return
        if self.clusters == "none":
            if run.regions.graph.order > 2:
                yield from iterate(run, pace)
                yield from self._begin_again(run, pace)
            else:
                yield from iterate(run, pace, last=True)
            return
        # pairs are added after ten iterations: factors of three variables cost no more when they send messages to pairs
        iterations = 10 if self.clusters == "pairs" else None
        yield from iterate(run, replace(pace, tolerance=max(self.tolerance, STALLED)), iterations)
        graph = run.regions.graph
        added = square_clusters(graph) if self.clusters == "squares" else pair_clusters(graph)
        run.extend(added)
        yield from iterate(run, pace, last=True)
